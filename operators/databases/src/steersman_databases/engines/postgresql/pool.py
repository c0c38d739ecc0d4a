"""The operator's sessions with one PostgreSQL server: in the maintenance database, inside others, and as superuser.

At rest one connection is open, to the maintenance database. At work there are four, and two more at a time inside
other databases or with the superuser's rights, which are closed after use: a connection that stays in a database
keeps it from being dropped, or from being a template.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..errors import AdministratorRejected, LoginRejected, ServerUnreachable
from ..server import Login, Server
from ..sessions import Pool
from .session import Session, connect

AT_WORK = 4
INSIDE_AT_WORK = 2


class PostgreSQLSessions:
    """The `Sessions` of PostgreSQL."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._maintenance = Pool(self._open_maintenance, self._late, limit=AT_WORK, kept=1)
        self._inside = asyncio.Semaphore(INSIDE_AT_WORK)
        self._open: set[Session] = set()

    @property
    def server(self) -> Server:
        return self._server

    @property
    def can_elevate(self) -> bool:
        """Whether there is a superuser's login besides the ordinary one."""
        return self._server.elevate is not None

    @asynccontextmanager
    async def at(self, database: str | None, deadline: float, elevated: bool = False) -> AsyncGenerator[Session]:
        """A session in a database (`None`: the maintenance database), severed at the deadline.

        `elevated` asks for a superuser's, and gets the ordinary one where there is no such login.

        Raises `AdministratorRejected`, `ServerUnreachable`, or what `connect` does.
        """
        elevate = self._server.elevate if elevated else None
        if elevate is None and database is None:
            async with self._maintenance.session(deadline) as session:
                yield session
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._inside.acquire()
        except TimeoutError:
            raise self._late() from None
        try:
            login = elevate() if elevate is not None else self._server.login
            async with self._once(login, database or self._server.maintenance_database, deadline) as session:
                yield session
        finally:
            self._inside.release()

    async def close(self) -> None:
        for session in self._open:
            session.sever()
        await self._maintenance.close()

    @asynccontextmanager
    async def _once(self, login: Login, database: str, deadline: float) -> AsyncGenerator[Session]:
        session = await self._log_in(login, database, deadline)
        self._open.add(session)
        try:
            if not await session.begin_use(deadline):
                raise ServerUnreachable(self._server.endpoint, "it closed a connection that had just been opened")
            yield session
        finally:
            self._open.discard(session)
            await session.close()

    async def _open_maintenance(self, deadline: float) -> Session:
        return await self._log_in(self._server.login, self._server.maintenance_database, deadline)

    async def _log_in(self, login: Login, database: str, deadline: float) -> Session:
        try:
            return await connect(self._server, login, database, deadline)
        except LoginRejected as refusal:
            raise AdministratorRejected(login.username, str(refusal)) from None

    def _late(self) -> ServerUnreachable:
        return ServerUnreachable(self._server.endpoint, "no answer in time: all connections to it are waiting")
