"""The operator's sessions with one PostgreSQL server: in the maintenance database, inside others, and as superuser.

At rest one connection is open, to the maintenance database. At work there are four, and two more at a time inside
other databases or with the superuser's rights, which are closed after use: a connection that stays in a database
keeps it from being dropped, or from being a template.

Whatever goes wrong inside a database is its own trouble as long as the server lets the operator in elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

from ..errors import AdministratorRejected, EngineError, LoginRejected, ServerUnreachable, SqlFailed
from ..server import Login, Server
from ..sessions import Pool
from .overriding import overridden
from .session import Session, connect

AT_WORK = 4
INSIDE_AT_WORK = 2
_INSIDE_SHARE = 0.8
"""Of the time that there is: so that some is left to ask whether it is the server that does not answer."""
_AGAIN_SECONDS = 30.0
"""Whoever waits for a look at a server waits for each database in it that hangs: so often, and not each time."""


class PostgreSQLSessions:
    """The `Sessions` of PostgreSQL."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._maintenance = Pool(self._open_maintenance, self._late, limit=AT_WORK, kept=1)
        self._inside = asyncio.Semaphore(INSIDE_AT_WORK)
        self._at_length = asyncio.Semaphore(1)
        self._lengthy: set[str] = set()
        self._open: set[Session] = set()
        self._hung: dict[str, tuple[float, str]] = {}

    @property
    def server(self) -> Server:
        return self._server

    @property
    def can_elevate(self) -> bool:
        """Whether there is a superuser's login besides the ordinary one."""
        return self._server.elevate is not None

    @asynccontextmanager
    async def at(
        self,
        database: str | None,
        deadline: float,
        elevated: bool = False,
        *,
        over: Mapping[str, str] | None = None,
        within: float | None = None,
    ) -> AsyncGenerator[Session]:
        """A session in a database (`None`: the maintenance database), severed at the deadline.

        `elevated` asks for a superuser's, and gets the ordinary one where there is no such login. `over` is what is
        to be overridden in the database, where that is known already: see `overriding`. `within`: seconds, once it is
        its turn.

        Raises `AdministratorRejected`, `ServerUnreachable`, or what `connect` does.
        """
        elevate = self._server.elevate if elevated else None
        if elevate is None and database is None:
            async with self._maintenance.session(deadline) as session:
                yield session
            return
        if over is None and database is not None:
            async with self._maintenance.session(deadline) as session:
                over = (await overridden(session, [database])).get(database)
        try:
            async with asyncio.timeout_at(deadline):
                await self._inside.acquire()
        except TimeoutError:
            raise self._late() from None
        try:
            login = elevate() if elevate is not None else self._server.login
            if database is not None:
                now = asyncio.get_running_loop().time()
                seconds = deadline - now if within is None else min(deadline - now, within)
                deadline = now + seconds * _INSIDE_SHARE
            place = database or self._server.maintenance_database
            async with self._once(login, place, deadline, over or MappingProxyType({})) as session:
                yield session
        finally:
            self._inside.release()

    def takes_long(self, doing: str) -> bool:
        """Whether this took too long the last time: a short attempt would be in vain, and in everybody's way."""
        return doing in self._lengthy

    @asynccontextmanager
    async def at_length(self, doing: str, deadline: float) -> AsyncGenerator[None]:
        """The turn of something that takes minutes. One at a time: the others need the few sessions, too.

        Raises `SqlFailed` where it is not its turn by the deadline.
        """
        self._lengthy.add(doing)
        try:
            async with asyncio.timeout_at(deadline):
                await self._at_length.acquire()
        except TimeoutError:
            raise SqlFailed(doing, None, "it waits for something else that takes long on this server") from None
        try:
            yield
        finally:
            self._at_length.release()

    def took_long(self, doing: str) -> None:
        """It is done: the next of its kind may be short again."""
        self._lengthy.discard(doing)

    async def own_trouble(self, database: str | None, failure: EngineError, deadline: float) -> SqlFailed:
        """A failure inside a database, in words that are not about the server: that lets the operator in.

        Raises the failure where the server does not, or where it was in no database of its own.
        """
        if database is None or database == self._server.maintenance_database:
            raise failure
        try:
            # A new one: whether one may still log in is not to be seen from one that is open.
            session = await self._open_maintenance(deadline)
            try:
                serves = await session.begin_use(deadline)
            finally:
                await session.close()
        except EngineError:
            raise failure from None
        if not serves:
            raise failure
        words = failure.reason if isinstance(failure, ServerUnreachable) else str(failure)
        return SqlFailed(f"working in database {database}", None, words)

    def hung(self, database: str, trouble: str | None) -> None:
        """Remembers that a database let one wait in vain, with what words; `None`: it does so no more."""
        self._hung.pop(database, None)
        if trouble is not None:
            self._hung[database] = asyncio.get_running_loop().time(), trouble

    def hangs(self, database: str) -> str | None:
        """In what words a database has let one wait in vain a moment ago."""
        since, trouble = self._hung.get(database, (-_AGAIN_SECONDS, None))
        return trouble if asyncio.get_running_loop().time() < since + _AGAIN_SECONDS else None

    def in_turn(self, databases: Iterable[str]) -> list[str]:
        """Databases, by name; those last that have let one wait before, and of these who did so longest ago.

        The last has all the time that is left: who is only slow is seen when it is its turn.
        """
        since = {name: at for name, (at, _) in self._hung.items()}
        return sorted(databases, key=lambda name: (name in since, -since.get(name, 0.0), name))

    async def close(self) -> None:
        for session in self._open:
            session.sever()
        await self._maintenance.close()

    @asynccontextmanager
    async def _once(
        self, login: Login, database: str, deadline: float, over: Mapping[str, str]
    ) -> AsyncGenerator[Session]:
        session = await self._log_in(login, database, deadline, over)
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

    async def _log_in(
        self, login: Login, database: str, deadline: float, over: Mapping[str, str] = MappingProxyType({})
    ) -> Session:
        try:
            return await connect(self._server, login, database, deadline, over)
        except LoginRejected as refusal:
            raise AdministratorRejected(login.username, str(refusal)) from None

    def _late(self) -> ServerUnreachable:
        return ServerUnreachable(self._server.endpoint, "no answer in time: all connections to it are waiting")
