"""A rotation while all connections are in use."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from asyncmy.errors import OperationalError as MySQLError
from psycopg import OperationalError as PostgreSQLError

from database_support.fake_server.engine import InMemorySqlEngine
from database_support.unit.users_harness import UsersHarness, harness_of
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection import dns
from steersman_databases.engines.mysql.sql import session as asyncmy_session
from steersman_databases.engines.server import DatabaseServer
from steersman_testing import run_virtual

ROTATION = {"every": "10m", "overlap": "2m"}
PRIVILEGES = {"postgresql": "CONNECT", "mysql": "SELECT"}


async def rotating(world: UsersHarness, engine: str, **spec: Any) -> None:
    """A user of one database whose password is rotated every ten minutes."""
    world.sql.make_database("shop")
    grants = [{"database": "shop", "privileges": [PRIVILEGES[engine]]}]
    await world.user(engine=engine, grants=grants, rotation=ROTATION, **spec)
    await world.ready()


class Crowded(InMemorySqlEngine):
    """Logins go to the engine itself, whose driver the test plays."""

    async def can_log_in(
        self, server: DatabaseServer, credentials: SqlCredentials, database: str, timeout: float = 10.0
    ) -> bool:
        return await self.like.can_log_in(server, credentials, database, timeout)


@pytest.mark.parametrize(
    ("engine", "error"),
    [
        (
            "mysql",
            MySQLError(1226, "User 'clerk' has exceeded the 'max_user_connections' resource (current value: 3)"),
        ),
        ("mysql", MySQLError(1203, "User clerk already has more than 'max_user_connections' active connections")),
        *(
            ("postgresql", PostgreSQLError(f"connection failed: FATAL:  {words}"))
            for words in (
                'too many connections for database "shop"',
                'too many connections for role "clerk~"',
                "remaining connection slots are reserved for roles with the SUPERUSER attribute",
            )
        ),
    ],
    ids=lambda value: str(value)[:48],
)
def test_rotation_works_with_all_connections_in_use(
    engine: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def refused(*_: object, **__: object) -> None:
        raise error

    async def look_up(_: str) -> list[str]:
        return ["10.0.0.1"]

    monkeypatch.setattr(dns, "resolve_in_thread", look_up)
    monkeypatch.setattr(asyncmy_session, "_driver_connect", refused)
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", refused)

    async def story() -> None:
        world = harness_of(engine)
        world.sql_engine = lambda engine: Crowded(world.servers, engine)
        async with world.operator():
            await rotating(world, engine)
            first = world.entries()["password"]
            await world.until("rotated", lambda: world.entries()["password"] != first, 700)
            await world.ready(seconds=5)

    run_virtual(story())
