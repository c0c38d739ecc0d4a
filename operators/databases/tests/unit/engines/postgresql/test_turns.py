"""Whose turn it is to be looked at inside, of the databases of one server."""

from __future__ import annotations

import asyncio

from steersman_databases.engines.postgresql.pool import PostgreSQLSessions
from steersman_databases.engines.server import Endpoint, Login, Server, Verification
from steersman_testing import virtual_time


@virtual_time
async def test_of_those_that_are_slow_each_has_its_time() -> None:
    """The last in turn has all the time that is left; who failed last is not the last again."""
    server = Server("postgresql", Endpoint("db.example.com", 5432), Login("admin", "s3cret"), Verification())
    sessions = PostgreSQLSessions(server)
    assert sessions.in_turn(["shop", "blog", "crm"]) == ["blog", "crm", "shop"]
    last: list[str] = []
    for _ in range(4):
        for name in sessions.in_turn(["shop", "blog", "crm"])[1:]:
            last.append(name)
            await asyncio.sleep(5)
            sessions.hung(name, "no answer in time")
    assert last[1::2].count("shop") == last[1::2].count("crm") == 2
    sessions.hung("crm", None)
    assert sessions.in_turn(["shop", "blog", "crm"])[-1] == "shop"
    await sessions.close()
