"""The operator's connections to one server: few, kept for reuse, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from .server import Server


class Sessions(Protocol):
    """What is open to one server, by an engine's `Contents.connect`. A server that hangs costs only its own."""

    @property
    def server(self) -> Server:
        """The server they are to."""
        ...

    async def close(self) -> None:
        """End all of them. What is under way fails with `ServerUnreachable`."""
        ...


class Session(Protocol):
    """One open connection, as a pool sees it."""

    @property
    def usable(self) -> bool:
        """Whether it is open and in no transaction."""
        ...

    async def begin_use(self, deadline: float) -> bool:
        """Take it up for work until the deadline (the event loop's time); whether the server still answers."""
        ...

    def end_use(self) -> None:
        """The work is over: the deadline counts no more."""
        ...

    def sever(self) -> None:
        """Break it off; whoever waits for the server gets an error at once."""
        ...

    async def close(self) -> None:
        """End it politely."""
        ...


S = TypeVar("S", bound=Session)


class Pool(Generic[S]):
    """At most `limit` sessions at a time, of which `kept` stay open when nobody needs them.

    Unlike the drivers' own pools it opens sessions in the caller's name: what the server says against it is the
    caller's error, at once, and nothing goes on in the background.

    Args:
        connect: opens a session, by a deadline.
        late: makes the error for whom no session came free in time.
    """

    def __init__(
        self, connect: Callable[[float], Awaitable[S]], late: Callable[[], Exception], limit: int, kept: int = 0
    ) -> None:
        self._connect = connect
        self._late = late
        self._free = asyncio.Semaphore(limit)
        self._kept = kept
        self._idle: list[S] = []
        self._used: set[S] = set()
        self._closed = False

    @asynccontextmanager
    async def session(self, deadline: float) -> AsyncGenerator[S]:
        """A session for this work, severed at the deadline (the event loop's time, seconds)."""
        await self._turn(deadline)
        try:
            session = await self._take(deadline)
            self._used.add(session)
            try:
                yield session
            finally:
                self._used.discard(session)
                await self._put_back(session)
        finally:
            self._free.release()

    async def close(self) -> None:
        """End the idle ones, and break off those in use."""
        self._closed = True
        for session in self._used:
            session.sever()
        while self._idle:
            await self._idle.pop().close()

    async def _turn(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise self._late() from None

    async def _take(self, deadline: float) -> S:
        while self._idle:
            session = self._idle.pop()
            if await self._begun(session, deadline):
                return session
        session = await self._connect(deadline)
        if await self._begun(session, deadline):
            return session
        raise self._late()

    async def _begun(self, session: S, deadline: float) -> bool:
        """Whether a session can be worked with; it is closed where it cannot."""
        self._used.add(session)
        try:
            if await session.begin_use(deadline):
                return True
        finally:
            self._used.discard(session)
        await session.close()
        return False

    async def _put_back(self, session: S) -> None:
        session.end_use()
        if session.usable and len(self._idle) < self._kept and not self._closed:
            self._idle.append(session)
        else:
            await session.close()
