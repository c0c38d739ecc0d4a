"""What the console of a PgBouncer is told, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import sql

from steersman_databases.features.pooler.admin_console import Command, execute
from steersman_testing import virtual_time


class Pooler:
    """A PgBouncer with two pools, which logs in to a server for some seconds more."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._until = asyncio.get_running_loop().time() + seconds
        self.told: list[tuple[str, bool]] = []

    @property
    def logs_in(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    async def rows(self, operation: str, query: str, *values: object) -> list[Any]:
        assert (query, values) == ("SHOW POOLS", ())
        return [SimpleNamespace(database="pgbouncer", sv_login=0), SimpleNamespace(sv_login=int(self.logs_in))]

    async def run(self, operation: str, statement: sql.Composed) -> None:
        assert statement.as_string() == operation
        self.told.append((operation, self.logs_in))

    def abort(self) -> None:
        raise AssertionError("it has not taken that long")


@pytest.mark.parametrize("command", ["PAUSE", "RECONNECT"])
@virtual_time
async def test_pause_waits_for_short_login(command: Command) -> None:
    """PgBouncer takes it for a refusal of the server's, and ends whoever asks it for something in the next second."""
    pooler = Pooler(0.5)
    await execute(pooler, command)
    assert pooler.told == [(command, False)]


@pytest.mark.parametrize("command", ["PAUSE", "RECONNECT"])
@virtual_time
async def test_pause_aborts_long_login(command: Command) -> None:
    began = asyncio.get_running_loop().time()
    pooler = Pooler(60)
    await execute(pooler, command)
    assert pooler.told == [(command, True)]
    assert asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize("command", ["RESUME", "RELOAD"])
@virtual_time
async def test_resume_waits_for_no_login(command: Command) -> None:
    pooler = Pooler(60)
    began = asyncio.get_running_loop().time()
    await execute(pooler, command)
    assert pooler.told == [(command, True)] and asyncio.get_running_loop().time() == began
