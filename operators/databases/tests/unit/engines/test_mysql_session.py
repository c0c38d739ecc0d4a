"""What MySQL's refusals mean, by its numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asyncmy.errors import OperationalError

from steersman_databases.engines.errors import AdministratorRejected, ServerUnreachable, SqlFailed
from steersman_databases.engines.mysql import pool
from steersman_databases.engines.mysql.session import Session
from steersman_databases.engines.server import Endpoint, Login, Server, Verification

HOST = Endpoint("db.example.com", 3306)


class Refusing:
    """A connection on which every statement fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def prepare(self, query: str) -> Any:
        raise self.error

    async def query(self, sql: str) -> object:
        raise self.error

    def get_server_info(self) -> str:
        return "9.7.0"

    def close(self) -> None:
        pass


async def begin(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(server: Server, login: Login, database: str | None, deadline: float) -> Session:
        return Session(HOST, Refusing(error), deadline)

    monkeypatch.setattr(pool, "connect", connect)
    sessions = pool.MySQLSessions(Server("mysql", HOST, Login("admin", "s3cret"), Verification()))
    async with sessions.session(asyncio.get_running_loop().time() + 5):
        pass


async def test_a_right_that_is_not_had_is_no_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SqlFailed, match="Access denied"):
        await begin(OperationalError(1045, "Access denied for user 'admin'@'%'"), monkeypatch)


async def test_an_expired_password_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AdministratorRejected):
        await begin(OperationalError(1820, "You must reset your password"), monkeypatch)


async def test_a_broken_connection_is_a_server_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerUnreachable):
        await begin(ConnectionResetError("reset by peer"), monkeypatch)
