"""libpq reads no further than to a NUL, and would leave out what comes after it: how the server is verified, too."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import psycopg
import pytest

from steersman_databases.engines.errors import LoginRejected
from steersman_databases.engines.postgresql.sql.session import connect
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, TLSMode, Verification

ENDPOINT = ServerEndpoint("127.0.0.1", 5432)


@pytest.mark.parametrize(
    ("login", "database"),
    [
        (Login("clerk\0", "s3cret"), "shop"),
        (Login("clerk", "s3cret\0"), "shop"),
        (Login("clerk", "s3cret"), "shop\0"),
    ],
    ids=["username", "password", "database"],
)
def test_nul_in_credentials_is_rejected(login: Login, database: str) -> None:
    async def story() -> None:
        server = DatabaseServer("postgresql", ENDPOINT, login, Verification())
        with (
            patch.object(psycopg.AsyncConnection, "connect", side_effect=AssertionError("it connects")),
            pytest.raises(LoginRejected, match="NUL"),
        ):
            await connect(server, login, database, asyncio.get_running_loop().time() + 1)

    asyncio.run(story())


@pytest.mark.parametrize(("username", "database"), [("a\r\nflush_all\r\n", "shop"), ("clerk", "shop\n")])
async def test_control_characters_are_refused_without_tls(username: str, database: str) -> None:
    """A server of another protocol would read lines of the startup packet as commands."""
    server = DatabaseServer("postgresql", ENDPOINT, Login(username, "s3cret"), Verification(TLSMode.DISABLE))
    with (
        patch.object(psycopg.AsyncConnection, "connect", side_effect=AssertionError("it connects")),
        pytest.raises(LoginRejected, match="without TLS, names must not have control characters"),
    ):
        await connect(server, server.login, database, asyncio.get_running_loop().time() + 1)
