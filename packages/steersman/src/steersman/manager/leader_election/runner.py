"""Runs an elector in a thread or on the event loop.

The thread has its own event loop and connection, so that a busy event loop or a queue of requests does not delay a
renewal. It checks the heartbeat of the manager's event loop, so that it does not renew the Lease for a blocked
manager.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, runtime_checkable

from steersman.client import Transport
from steersman.manager.leader_election.elector import LeaderElection, LeaderElector
from steersman.manager.leader_election.fence import Fence
from steersman.observability.heartbeat import Heartbeat
from steersman.observability.runtime import Runtime

OnStoppedLeading = Callable[[BaseException], None]


@runtime_checkable
class CloneableTransport(Protocol):
    """A transport that can be cloned: same server and credentials, separate connections."""

    def clone(self) -> Transport:
        """Clone the transport.

        Call it on the event loop on which the clone is used and closed.
        """
        ...


@runtime_checkable
class _TransportWrapper(Protocol):
    @property
    def inner(self) -> Transport: ...


class ElectionRunner(Protocol):
    """Runs an elector in the background.

    Attributes:
        fence: allows writes while this process is the leader.
        elected: set when this process becomes the leader, and never cleared.
    """

    fence: Fence
    elected: asyncio.Event

    def start(self, on_stopped_leading: OnStoppedLeading) -> None:
        """Start the election.

        Args:
            on_stopped_leading: called on the running loop with the error that ended it, such as LeadershipLost.
        """
        ...

    async def stop(self) -> None:
        """Release the Lease if it is held, and stop."""
        ...


def new_election_runner(
    transport: Transport, options: LeaderElection, heartbeat: Heartbeat, runtime: Runtime
) -> ElectionRunner:
    """A runner for ``transport``.

    It runs in a thread, or on the running loop if ``transport`` cannot be cloned.
    """
    base_transport = transport
    # Without retries and rate limits: the elector retries by itself, and must not wait for other requests.
    while isinstance(base_transport, _TransportWrapper):
        base_transport = base_transport.inner
    if isinstance(base_transport, CloneableTransport):
        return InThreadElectionRunner(base_transport, options, heartbeat, runtime)
    return InLoopElectionRunner(base_transport, options, runtime)


class InLoopElectionRunner(ElectionRunner):
    """Runs the elector on the manager's event loop, for virtual time."""

    def __init__(self, transport: Transport, options: LeaderElection, runtime: Runtime) -> None:
        self._transport, self._options, self._runtime = transport, options, runtime
        self.fence = Fence(runtime.clock.monotonic)
        self.elected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._elector: LeaderElector | None = None

    def start(self, on_stopped_leading: OnStoppedLeading) -> None:
        clock = self._runtime.clock.monotonic
        self._elector = LeaderElector(self._transport, self._options, self.fence, runtime=self._runtime, clock=clock)
        self._task = self._runtime.spawn(self._run(self._elector, on_stopped_leading), "leader election")

    async def stop(self) -> None:
        if self._task is None or self._elector is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._elector.release()

    async def _run(self, elector: LeaderElector, on_stopped_leading: OnStoppedLeading) -> None:
        try:
            await elector.acquire()
            self.elected.set()
            await elector.renew()
        except Exception as error:
            self.fence.close()
            on_stopped_leading(error)


class InThreadElectionRunner(ElectionRunner):
    """Runs the elector in a thread with its own event loop."""

    def __init__(
        self, transport: CloneableTransport, options: LeaderElection, heartbeat: Heartbeat, runtime: Runtime
    ) -> None:
        self._transport, self._options, self._heartbeat, self._runtime = transport, options, heartbeat, runtime
        self.fence = Fence()
        self.elected = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._manager_loop: asyncio.AbstractEventLoop | None = None
        self._election_loop: asyncio.AbstractEventLoop | None = None

    def start(self, on_stopped_leading: OnStoppedLeading) -> None:
        self._manager_loop = asyncio.get_running_loop()
        self._election_loop = asyncio.new_event_loop()
        threading.Thread(
            target=self._run, args=(self._election_loop, on_stopped_leading), name="leader election", daemon=True
        ).start()

    async def stop(self) -> None:
        if self._election_loop is None:
            return
        # The loop is closed if the election has already ended.
        with suppress(RuntimeError):
            self._election_loop.call_soon_threadsafe(self._stop_requested.set)
        await self._stopped.wait()

    def _run(self, loop: asyncio.AbstractEventLoop, on_stopped_leading: OnStoppedLeading) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._run_election())
        except BaseException as error:
            self._call_on_manager_loop(on_stopped_leading, error)
        finally:
            self.fence.close()
            self._call_on_manager_loop(self._stopped.set)

    def _call_on_manager_loop(self, call: Callable[..., object], *arguments: object) -> None:
        assert self._manager_loop is not None
        # The loop is closed if the manager did not wait for the end of the election.
        with suppress(RuntimeError):
            self._manager_loop.call_soon_threadsafe(call, *arguments)

    async def _run_election(self) -> None:
        transport = self._transport.clone()
        try:
            heartbeat_timeout = self._options.heartbeat_timeout
            elector = LeaderElector(
                transport,
                self._options,
                self.fence,
                runtime=self._runtime,
                is_alive=lambda: self._heartbeat.age() < heartbeat_timeout,
            )
            lead_task = asyncio.create_task(self._lead(elector))
            stop_task = asyncio.create_task(self._stop_requested.wait())
            await asyncio.wait((lead_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
            stop_task.cancel()
            if lead_task.done():
                return lead_task.result()
            lead_task.cancel()
            await asyncio.gather(lead_task, return_exceptions=True)
            await elector.release()
        finally:
            await transport.close()

    async def _lead(self, elector: LeaderElector) -> None:
        await elector.acquire()
        self._call_on_manager_loop(self.elected.set)
        await elector.renew()
