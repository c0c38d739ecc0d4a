"""Runs an elector beside the work: in a thread of its own, or on the same event loop.

The lease is renewed by a thread with an event loop and a connection of its own, so that a moment's computation, or a
queue of requests before it, costs no leadership. It listens to the heartbeat of the loop that works, so that it does
not hold the lease for a loop that is dead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, runtime_checkable

from steersman.client import Transport
from steersman.manager.election import LeaderElection, LeaderElector
from steersman.manager.fence import Fence
from steersman.observability.heartbeat import Heartbeat
from steersman.observability.runtime import Runtime

OnEnd = Callable[[BaseException], None]


@runtime_checkable
class Cloneable(Protocol):
    """A transport that others can be made from: of the same server and identity, with connections of their own."""

    def clone(self) -> Transport:
        """Must be called, and its result used and closed, on the event loop that is to use it."""
        ...


@runtime_checkable
class _Wrapping(Protocol):
    @property
    def inner(self) -> Transport: ...


class Campaign(Protocol):
    """An elector at work.

    Attributes:
        fence: open while this process leads.
        elected: set once this process leads; it stays set.
    """

    fence: Fence
    elected: asyncio.Event

    def start(self, on_end: OnEnd) -> None:
        """Begins; ``on_end`` is called on the running loop with what ended it, LeadershipLost above all."""
        ...

    async def end(self) -> None:
        """Gives the lease up if it is held, and ends."""
        ...


def campaign_for(transport: Transport, options: LeaderElection, heartbeat: Heartbeat, runtime: Runtime) -> Campaign:
    """A campaign in a thread of its own, or on the running loop for transports that are not made of sockets."""
    carrier = transport
    # Past retries and rate limits: an election tries again by its own rules, and must wait for nobody.
    while isinstance(carrier, _Wrapping):
        carrier = carrier.inner
    if isinstance(carrier, Cloneable):
        return ThreadedCampaign(carrier, options, heartbeat, runtime)
    return InlineCampaign(carrier, options, runtime)


class InlineCampaign(Campaign):
    """On the event loop of the work, whose clock it follows: for tests in virtual time."""

    def __init__(self, transport: Transport, options: LeaderElection, runtime: Runtime) -> None:
        self._transport, self._options, self._runtime = transport, options, runtime
        self.fence = Fence(runtime.clock.monotonic)
        self.elected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._elector: LeaderElector | None = None

    def start(self, on_end: OnEnd) -> None:
        clock = self._runtime.clock.monotonic
        self._elector = LeaderElector(self._transport, self._options, self.fence, runtime=self._runtime, clock=clock)
        self._task = self._runtime.spawn(self._run(self._elector, on_end), "leader election")

    async def end(self) -> None:
        if self._task is None or self._elector is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._elector.release()

    async def _run(self, elector: LeaderElector, on_end: OnEnd) -> None:
        try:
            await elector.acquire()
            self.elected.set()
            await elector.renew()
        except Exception as error:
            self.fence.close()
            on_end(error)


class ThreadedCampaign(Campaign):
    """In a thread, with an event loop and a transport of its own."""

    def __init__(self, transport: Cloneable, options: LeaderElection, heartbeat: Heartbeat, runtime: Runtime) -> None:
        self._transport, self._options, self._heartbeat, self._runtime = transport, options, heartbeat, runtime
        self.fence = Fence()
        self.elected = asyncio.Event()
        self._ended = asyncio.Event()
        self._asked_to_end = asyncio.Event()
        self._home: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, on_end: OnEnd) -> None:
        self._home = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, args=(self._loop, on_end), name="leader election", daemon=True).start()

    async def end(self) -> None:
        if self._loop is None:
            return
        # The loop is closed where the campaign has already ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._asked_to_end.set)
        await self._ended.wait()

    def _run(self, loop: asyncio.AbstractEventLoop, on_end: OnEnd) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._campaign())
        except Exception as error:
            self._tell(on_end, error)
        finally:
            self.fence.close()
            self._tell(self._ended.set)

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        assert self._home is not None
        # The loop is closed where nobody waited for this campaign's end.
        with suppress(RuntimeError):
            self._home.call_soon_threadsafe(call, *arguments)

    async def _campaign(self) -> None:
        transport = self._transport.clone()
        try:
            limit = self._options.heartbeat_limit
            elector = LeaderElector(
                transport,
                self._options,
                self.fence,
                runtime=self._runtime,
                alive=lambda: self._heartbeat.age() < limit,
            )
            leading = asyncio.create_task(self._lead(elector))
            asked = asyncio.create_task(self._asked_to_end.wait())
            await asyncio.wait((leading, asked), return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if leading.done():
                return leading.result()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            await elector.release()
        finally:
            await transport.close()

    async def _lead(self, elector: LeaderElector) -> None:
        await elector.acquire()
        self._tell(self.elected.set)
        await elector.renew()
