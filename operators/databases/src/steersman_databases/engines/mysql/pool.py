"""The operator's sessions with one MySQL or MariaDB server: one at rest, four at work."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..errors import AdministratorRejected, LoginRejected, ServerUnreachable
from ..server import Server
from ..sessions import Pool
from .session import Session, connect

AT_WORK = 4


class MySQLSessions:
    """The `Sessions` of MySQL."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pool = Pool(self._open, self._late, limit=AT_WORK, kept=1)

    @property
    def server(self) -> Server:
        return self._server

    @asynccontextmanager
    async def session(self, deadline: float) -> AsyncGenerator[Session]:
        """A session in no database. Raises `AdministratorRejected` or `ServerUnreachable`."""
        try:
            async with self._pool.session(deadline) as session:
                yield session
        except LoginRejected as refusal:
            raise AdministratorRejected(self._server.login.username, str(refusal)) from None

    async def close(self) -> None:
        await self._pool.close()

    async def _open(self, deadline: float) -> Session:
        return await connect(self._server, self._server.login, None, deadline)

    def _late(self) -> ServerUnreachable:
        return ServerUnreachable(self._server.endpoint, "no answer in time: all connections to it are waiting")
