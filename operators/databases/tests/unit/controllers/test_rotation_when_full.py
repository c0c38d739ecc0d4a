"""A rotation while all connections are in use."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from asyncmy.errors import OperationalError as MySQLError
from psycopg import OperationalError as PostgreSQLError

from database_support.contents_in_memory import ContentsInMemory
from database_support.users_world import UsersWorld, world_of
from steersman_databases.engines import Credentials, addresses
from steersman_databases.engines.mysql import session as asyncmy_session
from steersman_databases.engines.server import Server
from steersman_testing import run_virtual

ROTATION = {"every": "10m", "overlap": "2m"}
PRIVILEGES = {"postgresql": "CONNECT", "mysql": "SELECT"}


async def rotating(world: UsersWorld, engine: str, **spec: Any) -> None:
    """A user of one database whose password is rotated every ten minutes."""
    world.sql.make_database("shop")
    grants = [{"database": "shop", "privileges": [PRIVILEGES[engine]]}]
    await world.user(engine=engine, grants=grants, rotation=ROTATION, **spec)
    await world.ready()


class Crowded(ContentsInMemory):
    """Logins go to the engine itself, whose driver the test plays."""

    async def opens(self, server: Server, credentials: Credentials, database: str, timeout: float = 10.0) -> bool:
        return await self.like.opens(server, credentials, database, timeout)


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
def test_a_password_is_rotated_while_the_application_uses_all_its_connections(
    engine: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def refused(*_: object, **__: object) -> None:
        raise error

    async def look_up(_: str) -> list[str]:
        return ["10.0.0.1"]

    monkeypatch.setattr(addresses, "in_thread", look_up)
    monkeypatch.setattr(asyncmy_session, "_open", refused)
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", refused)

    async def story() -> None:
        world = world_of(engine)
        world.contents = lambda engine: Crowded(world.servers, engine)
        async with world.operator():
            await rotating(world, engine)
            first = world.entries()["password"]
            await world.until("rotated", lambda: world.entries()["password"] != first, 700)
            await world.ready(seconds=5)

    run_virtual(story())
