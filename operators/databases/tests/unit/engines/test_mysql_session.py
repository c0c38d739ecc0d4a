"""What MySQL's refusals mean, by its numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asyncmy.errors import OperationalError

from steersman_databases.engines.errors import AdministratorRejected, ServerUnreachable, SqlFailed
from steersman_databases.engines.mysql.sql import pool
from steersman_databases.engines.mysql.sql.session import MySQLSession
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, Verification

HOST = ServerEndpoint("db.example.com", 3306)


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
    async def connect(server: DatabaseServer, login: Login, database: str | None, deadline: float) -> MySQLSession:
        return MySQLSession(HOST, Refusing(error), deadline)

    monkeypatch.setattr(pool, "connect", connect)
    sessions = pool.MySQLSessions(DatabaseServer("mysql", HOST, Login("admin", "s3cret"), Verification()))
    async with sessions.session(asyncio.get_running_loop().time() + 5):
        pass


async def test_missing_privilege_is_not_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SqlFailed, match="Access denied"):
        await begin(OperationalError(1045, "Access denied for user 'admin'@'%'"), monkeypatch)


async def test_expired_password_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AdministratorRejected):
        await begin(OperationalError(1820, "You must reset your password"), monkeypatch)


async def test_broken_connection_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerUnreachable):
        await begin(ConnectionResetError("reset by peer"), monkeypatch)
