"""The operator's connections to a server: few, reused, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from steersman_databases.engines.server import DatabaseServer


class ServerSessions(Protocol):
    """Open connections to one server, from `SqlEngine.connect`.

    A server that hangs blocks only its own connections.
    """

    @property
    def server(self) -> DatabaseServer:
        """The server that the connections lead to."""
        ...

    async def close(self) -> None:
        """Close all connections. Running work fails with `ServerUnreachable`."""
        ...


class PooledSession(Protocol):
    """Interface of an open connection to the pool."""

    @property
    def usable(self) -> bool:
        """Return True if it is open and not in a transaction."""
        ...

    async def begin_use(self, deadline: float) -> bool:
        """Start work until the deadline (the event loop's time).

        Return True if the server responds.
        """
        ...

    def end_use(self) -> None:
        """End work, so that the deadline does not apply any more."""
        ...

    def abort(self) -> None:
        """Abort the connection. Requests that wait for the server fail at once."""
        ...

    async def close(self) -> None:
        """Close the connection in an orderly way."""
        ...


S = TypeVar("S", bound=PooledSession)


class SessionPool(Generic[S]):
    """Pool with at most `limit` sessions.

    Up to `min_idle` sessions stay open while idle. Unlike the pools of the drivers it opens sessions on behalf of
    the
    caller. The caller receives the server's error at once, and nothing continues in the background.

    Args:
        connect: opens a session by a deadline.
        timeout_error: creates the error for a caller that got no session in time.
    """

    def __init__(
        self,
        connect: Callable[[float], Awaitable[S]],
        timeout_error: Callable[[], Exception],
        limit: int,
        min_idle: int = 0,
    ) -> None:
        self._connect = connect
        self._timeout_error = timeout_error
        self._free = asyncio.Semaphore(limit)
        self._min_idle = min_idle
        self._idle: list[S] = []
        self._used: set[S] = set()
        self._closed = False

    @asynccontextmanager
    async def session(self, deadline: float) -> AsyncGenerator[S]:
        """Provide a session for this work.

        It is aborted at the deadline (the event loop's time, seconds).
        """
        await self._acquire_slot(deadline)
        try:
            session = await self._take_session(deadline)
            self._used.add(session)
            try:
                yield session
            finally:
                self._used.discard(session)
                await self._release(session)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close idle sessions, and abort those in use."""
        self._closed = True
        for session in self._used:
            session.abort()
        while self._idle:
            await self._idle.pop().close()

    async def _acquire_slot(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise self._timeout_error() from None

    async def _take_session(self, deadline: float) -> S:
        while self._idle:
            session = self._idle.pop()
            if await self._is_usable(session, deadline):
                return session
        session = await self._connect(deadline)
        if await self._is_usable(session, deadline):
            return session
        raise self._timeout_error()

    async def _is_usable(self, session: S, deadline: float) -> bool:
        """Return True if the session works. Close it otherwise."""
        self._used.add(session)
        try:
            if await session.begin_use(deadline):
                return True
        finally:
            self._used.discard(session)
        await session.close()
        return False

    async def _release(self, session: S) -> None:
        session.end_use()
        if session.usable and len(self._idle) < self._min_idle and not self._closed:
            self._idle.append(session)
        else:
            await session.close()
