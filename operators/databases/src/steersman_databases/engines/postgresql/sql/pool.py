"""The operator's sessions with one PostgreSQL server.

While idle, one connection to the maintenance database is open. At work there are up to four. Up to two more lead
into other databases, or have a superuser's rights. These are closed after use, because an open connection prevents
a database from being dropped or used as template.

A failure inside a database concerns only this database as long as the server lets the operator in elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

from steersman_databases.engines.connection.pool import SessionPool
from steersman_databases.engines.errors import (
    AdministratorRejected,
    EngineError,
    LoginRejected,
    ServerUnreachable,
    SqlFailed,
)
from steersman_databases.engines.server import DatabaseServer, Login

from .database_settings import session_overrides
from .session import PostgreSQLSession, connect

MAX_SESSIONS = 4
MAX_DATABASE_SESSIONS = 2
_DATABASE_TIMEOUT_SHARE = 0.8
"""Share of the remaining time for work inside a database.

The rest suffices to check if the whole server is unresponsive.
"""
_HANG_MEMORY_SECONDS = 30.0
"""Time for which a database that hung is not tried again.

Each inspection of the server waits for each database that hangs, so this must not happen every time.
"""


class PostgreSQLSessions:
    """The `ServerSessions` of PostgreSQL."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._maintenance = SessionPool(self._open_maintenance, self._timeout_error, limit=MAX_SESSIONS, min_idle=1)
        self._database_sessions = asyncio.Semaphore(MAX_DATABASE_SESSIONS)
        self._lengthy_slot = asyncio.Semaphore(1)
        self._lengthy: set[str] = set()
        self._open: set[PostgreSQLSession] = set()
        self._hung: dict[str, tuple[float, str]] = {}

    @property
    def server(self) -> DatabaseServer:
        return self._server

    @property
    def can_elevate(self) -> bool:
        """Return True if there is a superuser's login besides the ordinary one."""
        return self._server.superuser_login is not None

    @asynccontextmanager
    async def at(
        self,
        database: str | None,
        deadline: float,
        elevated: bool = False,
        *,
        session_settings: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncGenerator[PostgreSQLSession]:
        """Provide a session in a database until the deadline.

        Args:
            database: `None` selects the maintenance database.
            elevated: use a superuser's login, or the ordinary one if there is none.
            session_settings: overrides for the database if already known, see `session_overrides`.
            timeout_seconds: limit after the wait for a free slot.

        Raises:
            AdministratorRejected: the server rejects the login.
            ServerUnreachable: there is no response in time. `connect` raises further errors.
        """
        elevate = self._server.superuser_login if elevated else None
        if elevate is None and database is None:
            async with self._maintenance.session(deadline) as session:
                yield session
            return
        if session_settings is None and database is not None:
            async with self._maintenance.session(deadline) as session:
                session_settings = (await session_overrides(session, [database])).get(database)
        try:
            async with asyncio.timeout_at(deadline):
                await self._database_sessions.acquire()
        except TimeoutError:
            raise self._timeout_error() from None
        try:
            login = elevate() if elevate is not None else self._server.login
            if database is not None:
                now = asyncio.get_running_loop().time()
                seconds = deadline - now if timeout_seconds is None else min(deadline - now, timeout_seconds)
                deadline = now + seconds * _DATABASE_TIMEOUT_SHARE
            place = database or self._server.maintenance_database
            async with self._temporary_session(
                login, place, deadline, session_settings or MappingProxyType({})
            ) as session:
                yield session
        finally:
            self._database_sessions.release()

    def is_lengthy(self, operation: str) -> bool:
        """Return True if this operation took too long last time.

        A short attempt would fail again and delay other work.
        """
        return operation in self._lengthy

    @asynccontextmanager
    async def lengthy(self, operation: str, deadline: float) -> AsyncGenerator[None]:
        """Reserve the slot for an operation of several minutes.

        Only one runs at a time, because the other operations need the few sessions, too.

        Raises:
            SqlFailed: the slot is not free by the deadline.
        """
        self._lengthy.add(operation)
        try:
            async with asyncio.timeout_at(deadline):
                await self._lengthy_slot.acquire()
        except TimeoutError:
            raise SqlFailed(operation, None, "it waits for another long operation on this server") from None
        try:
            yield
        finally:
            self._lengthy_slot.release()

    def record_completed(self, operation: str) -> None:
        """Record that the operation is complete.

        The next attempt may be short again.
        """
        self._lengthy.discard(operation)

    async def database_failure(self, database: str | None, failure: EngineError, deadline: float) -> SqlFailed:
        """Return a failure inside a database without blaming the server.

        Raises the original failure if the server refuses the operator, too, or if the session was in the maintenance
        database.
        """
        if database is None or database == self._server.maintenance_database:
            raise failure
        try:
            # A new session, because an open one does not show if logins still succeed.
            session = await self._open_maintenance(deadline)
            try:
                serves = await session.begin_use(deadline)
            finally:
                await session.close()
        except EngineError:
            raise failure from None
        if not serves:
            raise failure
        message = failure.reason if isinstance(failure, ServerUnreachable) else str(failure)
        return SqlFailed(f"working in database {database}", None, message)

    def record_hang(self, database: str, reason: str | None) -> None:
        """Record that a database hung, with the reason. `None` deletes the record."""
        self._hung.pop(database, None)
        if reason is not None:
            self._hung[database] = asyncio.get_running_loop().time(), reason

    def hang_reason(self, database: str) -> str | None:
        """Return the reason of a recent hang of a database, or None."""
        since, reason = self._hung.get(database, (-_HANG_MEMORY_SECONDS, None))
        return reason if asyncio.get_running_loop().time() < since + _HANG_MEMORY_SECONDS else None

    def by_last_hang(self, databases: Iterable[str]) -> list[str]:
        """Sort databases by name, with those that hung before at the end.

        Among these, the longest ago comes last. The last one has all remaining time, so that a database that is only
        slow
        is inspected when it is its turn.
        """
        since = {name: at for name, (at, _) in self._hung.items()}
        return sorted(databases, key=lambda name: (name in since, -since.get(name, 0.0), name))

    async def close(self) -> None:
        for session in self._open:
            session.abort()
        await self._maintenance.close()

    @asynccontextmanager
    async def _temporary_session(
        self, login: Login, database: str, deadline: float, session_settings: Mapping[str, str]
    ) -> AsyncGenerator[PostgreSQLSession]:
        session = await self._log_in(login, database, deadline, session_settings)
        self._open.add(session)
        try:
            if not await session.begin_use(deadline):
                raise ServerUnreachable(self._server.endpoint, "it closed a new connection")
            yield session
        finally:
            self._open.discard(session)
            await session.close()

    async def _open_maintenance(self, deadline: float) -> PostgreSQLSession:
        return await self._log_in(self._server.login, self._server.maintenance_database, deadline)

    async def _log_in(
        self, login: Login, database: str, deadline: float, session_settings: Mapping[str, str] = MappingProxyType({})
    ) -> PostgreSQLSession:
        try:
            return await connect(self._server, login, database, deadline, session_settings)
        except LoginRejected as refusal:
            raise AdministratorRejected(login.username, str(refusal)) from None

    def _timeout_error(self) -> ServerUnreachable:
        return ServerUnreachable(self._server.endpoint, "no response in time: all connections to it are busy")
