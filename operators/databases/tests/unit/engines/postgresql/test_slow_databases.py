"""Whose turn it is to be looked at inside, of the databases of one server."""

from __future__ import annotations

import asyncio

from steersman_databases.engines.postgresql.sql.pool import PostgreSQLSessions
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, Verification
from steersman_testing import virtual_time


@virtual_time
async def test_slow_databases_take_turns() -> None:
    """The last in turn has all the time that is left; who failed last is not the last again."""
    server = DatabaseServer(
        "postgresql", ServerEndpoint("db.example.com", 5432), Login("admin", "s3cret"), Verification()
    )
    sessions = PostgreSQLSessions(server)
    assert sessions.by_last_hang(["shop", "blog", "crm"]) == ["blog", "crm", "shop"]
    last: list[str] = []
    for _ in range(4):
        for name in sessions.by_last_hang(["shop", "blog", "crm"])[1:]:
            last.append(name)
            await asyncio.sleep(5)
            sessions.record_hang(name, "no response in time")
    assert last[1::2].count("shop") == last[1::2].count("crm") == 2
    sessions.record_hang("crm", None)
    assert sessions.by_last_hang(["shop", "blog", "crm"])[-1] == "shop"
    await sessions.close()
