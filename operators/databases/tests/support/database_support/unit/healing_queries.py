"""Healing queries for tests without a server."""

from __future__ import annotations

from typing import Any

from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.transaction_ids import TransactionIds
from steersman_databases.features.healing.servers import HealingQueries


async def _young(_: DatabaseServer) -> TransactionIds:
    return TransactionIds(database="app", age=0, autovacuum_age=0)


async def _unexpected(*arguments: object) -> Any:
    raise AssertionError(arguments)


def healing_queries(**queries: Any) -> HealingQueries:
    """These queries of a server that is well. No other one may be called."""
    names = ("drop_inactive_slot", "vacuum_oldest_tables", "end_transaction", "received_wal", "end_wal_receiver")
    present: dict[str, Any] = {**dict.fromkeys(names, _unexpected), "inspect_transaction_ids": _young, **queries}
    return HealingQueries(**present)
