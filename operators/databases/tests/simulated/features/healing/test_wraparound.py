"""Old transaction IDs: who is named, what is vacuumed, and which session is ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.healing_queries import healing_queries
from steersman.controller import ReconcilerContext
from steersman.manager import Manager
from steersman.meta import Duration
from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.api.autopilot.healing import PostgreSQLHealingSettings, WraparoundSettings
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.naming import SUPERUSER_ROLE
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.transaction_ids import TransactionIds, XminHolder
from steersman_databases.features.healing.wraparound import decide
from steersman_databases.setup import setup
from steersman_testing import virtual_time

MILLION = 1_000_000
HOUR = 3600.0
SESSION = XminHolder(kind="session", name="42", age=1100 * MILLION, seconds=3 * HOUR, detail="user etl")
SLOT = XminHolder(kind="replication slot", name="audit", age=1100 * MILLION)


def aged(millions: int, *holders: XminHolder, **fields: Any) -> TransactionIds:
    return TransactionIds(
        database="app", age=millions * MILLION, autovacuum_age=200 * MILLION, holders=holders, **fields
    )


@pytest.mark.parametrize(
    ("ids", "end_after", "reason", "vacuums", "ends"),
    [
        (aged(499), None, "", False, False),
        (aged(600), None, "WraparoundApproaching", False, False),
        (replace(aged(600), autovacuum_age=550 * MILLION), None, "", False, False),
        (aged(1000), None, "EmergencyVacuum", True, False),
        (aged(1000, vacuuming="public.ledger"), None, "EmergencyVacuum", False, False),
        (aged(1100, SESSION), None, "CleanupPrevented", False, False),
        (aged(1100, SESSION), 4 * HOUR, "CleanupPrevented", False, False),
        (aged(1100, SESSION), 2 * HOUR, "TransactionEnded", False, True),
        (aged(1100, SLOT), 2 * HOUR, "CleanupPrevented", False, False),
        # Tables are much older than the session: vacuum them first.
        (aged(1400, SESSION), None, "EmergencyVacuum", True, False),
        # A young holder is not the cause.
        (aged(1100, replace(SESSION, age=MILLION)), 2 * HOUR, "EmergencyVacuum", True, False),
        # Below the age of an action nothing is ended.
        (aged(900, replace(SESSION, age=900 * MILLION)), 2 * HOUR, "WraparoundApproaching", False, False),
    ],
)
def test_decision_follows_age_and_holder(
    ids: TransactionIds, end_after: float | None, reason: str, vacuums: bool, ends: bool
) -> None:
    found = decide(ids, "Automatic", end_after)
    assert (found.reason if found else "") == reason
    assert ((found.vacuum if found else None) is not None, (found.end if found else None) is not None) == (
        vacuums,
        ends,
    )


@pytest.mark.parametrize("ids", [aged(1000), aged(1100, SESSION), aged(1400, SLOT)])
def test_recommend_never_acts(ids: TransactionIds) -> None:
    found = decide(ids, "Recommend", 60.0)
    assert found is not None and found.vacuum is None and found.end is None


def test_message_names_database_and_holder() -> None:
    found = decide(aged(1100, SESSION), "Automatic")
    assert found is not None
    assert found.message == (
        "the oldest transaction ID of database app is 1.10 billion transactions old; session 42 (user etl) with a "
        "transaction of 3.0 h prevents the cleanup"
    )


@dataclass
class AgedServer(ClusterHarness):
    """A primary whose transaction IDs become old."""

    ids: TransactionIds = field(default_factory=lambda: aged(100))
    limit: AutomationMode = "Automatic"
    inspections: int = 0
    vacuumed: list[str] = field(default_factory=list[str])
    ended: list[str] = field(default_factory=list[str])

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        healing = healing_queries(
            inspect_transaction_ids=self.inspect, vacuum_oldest_tables=self.vacuum, end_transaction=self.end
        )
        return replace(super().engine_parts(context), healing=healing)

    def setup(self, manager: Manager) -> None:
        factory = self.engine_parts
        setup(manager, sql_engine_for=self.sql_engine, postgresql_factory=factory, automation=self.limit)

    async def inspect(self, server: DatabaseServer) -> TransactionIds:
        assert server.login.username == SUPERUSER_ROLE
        assert self.pod_of(server).metadata.name == f"{self.status.primary}-0"
        self.inspections += 1
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        return self.ids

    async def vacuum(self, server: DatabaseServer, database: str, least_age: int) -> Sequence[str]:
        assert self.ids.age >= least_age
        self.vacuumed.append(database)
        self.ids = replace(self.ids, vacuuming="public.ledger")
        return ["public.tills", "public.ledger"]

    async def end(self, server: DatabaseServer, holder: XminHolder, seconds: float) -> bool:
        self.ended.append(holder.name)
        self.ids = replace(self.ids, holders=())
        return True


@asynccontextmanager
async def cluster_of(world: AgedServer, **settings: Any) -> AsyncGenerator[None]:
    async with world.operator():
        healing = PostgreSQLHealingSettings(wraparound=WraparoundSettings(**settings))
        await world.create_ready(1, instances=1, healing=healing)
        yield


async def age(world: AgedServer, ids: TransactionIds) -> None:
    """Transaction IDs become old."""
    world.ids = ids
    await world.until("inspected", lambda: world.condition("WraparoundPrevented") != "", 700)


@virtual_time
async def test_oldest_tables_are_vacuumed_once_at_a_time() -> None:
    world = AgedServer()
    async with cluster_of(world):
        await world.wait(3600)
        assert world.inspections <= 8, "healthy servers are rarely inspected"
        assert world.condition("WraparoundPrevented") == "" and world.status.automation == ()
        await age(world, aged(1050))
        assert world.condition("WraparoundPrevented") == "False/EmergencyVacuum"
        assert world.condition("Ready") == "True/AllInstancesReady"
        (entry,) = world.status.automation
        assert entry.last_action == "began to vacuum public.tills, public.ledger in database app"
        assert world.messages("EmergencyVacuum")
    # Another process of the operator: the server shows that a vacuum runs.
    async with world.operator():
        await world.wait(600)
        assert world.vacuumed == ["app"]
        world.ids = aged(100)
        await world.until("prevented", lambda: world.condition("WraparoundPrevented") == "", 120)
        (entry,) = world.status.automation
        assert entry.decision == "Idle" and entry.last_action is not None


@pytest.mark.parametrize(("end_after", "ended"), [(None, []), ("2h", ["42"]), ("4h", [])])
@virtual_time
async def test_session_is_ended_only_if_allowed(end_after: str | None, ended: list[str]) -> None:
    world = AgedServer()
    async with cluster_of(world, end_transactions_after=None if end_after is None else Duration(end_after)):
        await age(world, aged(1100, SESSION))
        assert "session 42 (user etl)" in world.message("WraparoundPrevented")
        await world.wait(300)
        assert world.ended == ended
        assert bool(world.vacuumed) is bool(ended), "without the session the cleanup begins"


@pytest.mark.parametrize("limit", ["Recommend", "Disabled"])
@virtual_time
async def test_fleet_switch_stops_wraparound_actions(limit: AutomationMode) -> None:
    world = AgedServer(limit=limit)
    async with cluster_of(world, end_transactions_after=Duration("1h")):
        world.ids = aged(1400, SESSION)
        await world.wait(1800)
        assert (world.vacuumed, world.ended) == ([], [])
        expected = {"Recommend": "False/VacuumRecommended", "Disabled": ""}
        assert world.condition("WraparoundPrevented") == expected[limit]


@virtual_time
async def test_paused_cluster_is_not_vacuumed() -> None:
    world = AgedServer()
    async with cluster_of(world):
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        world.ids = aged(1400)
        await world.wait(1800)
        assert world.vacuumed == []


@virtual_time
async def test_unresponsive_primary_keeps_the_condition() -> None:
    world = AgedServer()
    async with cluster_of(world):
        await age(world, aged(1100, SLOT))
        world.unreachable = True
        await world.wait(600)
        assert world.condition("WraparoundPrevented") == "False/CleanupPrevented"
