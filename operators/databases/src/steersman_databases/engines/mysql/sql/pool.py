"""The operator's sessions with a server: one while idle, four at work.

The server is MySQL or MariaDB.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from steersman_databases.engines.connection.pool import SessionPool
from steersman_databases.engines.errors import AdministratorRejected, LoginRejected, ServerUnreachable
from steersman_databases.engines.server import DatabaseServer

from .session import MySQLSession, connect

MAX_SESSIONS = 4


class MySQLSessions:
    """The `ServerSessions` of MySQL."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._pool = SessionPool(self._open, self._timeout_error, limit=MAX_SESSIONS, min_idle=1)

    @property
    def server(self) -> DatabaseServer:
        return self._server

    @asynccontextmanager
    async def session(self, deadline: float) -> AsyncGenerator[MySQLSession]:
        """Provide a session without a database.

        Raises:
            AdministratorRejected: the server rejects the login.
            ServerUnreachable: there is no response in time.
        """
        try:
            async with self._pool.session(deadline) as session:
                yield session
        except LoginRejected as refusal:
            raise AdministratorRejected(self._server.login.username, str(refusal)) from None

    async def close(self) -> None:
        await self._pool.close()

    async def _open(self, deadline: float) -> MySQLSession:
        return await connect(self._server, self._server.login, None, deadline)

    def _timeout_error(self) -> ServerUnreachable:
        return ServerUnreachable(self._server.endpoint, "no response in time: all connections to it are busy")
