"""Simulated process of the operator, which can be killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn, Protocol

import msgspec

from steersman.client.transport import HttpRequest, HttpResponse
from steersman.errors import ApiStatus, ConnectionFailed
from steersman.manager import Manager
from steersman.observability.runtime import Clock, Runtime, spawn_task
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.apiserver.faults import error_for_status
from steersman_testing.apiserver.responses import encode_status
from steersman_testing.simulation.deletion_audit import deletion_events
from steersman_testing.simulation.fault_points import current_process
from steersman_testing.simulation.faults import Fault
from steersman_testing.simulation.request_info import (
    call_kind_of,
    describe_request,
    is_leader_election,
    is_reconciler_call,
    resource_of,
)
from steersman_testing.simulation.trace import CallKind, TraceEntry

_EXPIRED_EVENT = b'{"type":"ERROR","object":' + encode_status(error_for_status(410)) + b"}"
# Longer than the renew deadline of 10 s and the lease duration of 15 s.
LEASE_STALL_SECONDS = 25.0


class FaultInjector(Protocol):
    """The run, as a simulated process uses it."""

    server: InMemoryApiServer

    def count_request(self, text: str) -> None:
        """Count a request that receives no fault."""
        ...

    def record_injected(self, fault: Fault) -> None:
        """Record that ``fault`` was injected."""
        ...

    def begin_call(self, text: str, call_kind: CallKind, body: bytes | None) -> tuple[TraceEntry, Fault | None]:
        """Assign a number to a call. Return its trace entry and the fault to inject."""
        ...

    def begin_event(self, resource: str) -> Fault | None:
        """Assign a number to a watch event of ``resource``. Return the fault to inject."""
        ...

    async def wait_for_watch(self, resource: str) -> bool:
        """Wait while the watch of ``resource`` is delayed. Return False if it must relist."""
        ...

    def on_process_killed(self, process: SimulatedProcess, fault: Fault) -> None:
        """Handle the end of a process that ``fault`` killed."""
        ...

    def on_lease_taken(self, process: SimulatedProcess) -> None:
        """Start another replica, because the process cannot renew its Lease."""
        ...

    def delay_write(self, fault: Fault, deliver: Callable[[], Awaitable[object]]) -> None:
        """Call ``deliver`` when ``fault`` ends, even if the process was killed."""
        ...

    def write_concurrently(self, request: HttpRequest) -> bool:
        """Write the object of ``request`` as another client. Return False if it does not exist."""
        ...

    def check_invariants(self) -> None:
        """Check the invariants after a possible change."""
        ...


class SimulatedProcess:
    """One operator process from start to end. It is the ``Transport`` of its manager.

    Args:
        injector: the run.
        seed: seed of the random numbers of the process.
        clock: virtual clock.
    """

    def __init__(self, injector: FaultInjector, seed: int, clock: Clock) -> None:
        self._injector = injector
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._main: asyncio.Task[None] | None = None
        self.alive = True
        self.renews_lease = True
        self.runtime = Runtime(clock=clock, random=random.Random(seed), spawn=self._spawn)  # noqa: S311
        self.manager: Manager | None = None

    def start(self, manager: Manager, on_exit: Callable[[SimulatedProcess, BaseException | None], None]) -> None:
        """Run ``manager``. ``on_exit`` receives the error if the process ends other than by ``kill``."""
        self.manager = manager
        token = current_process.set(self)
        try:
            self._main = self._spawn(manager.run(), "manager")
        finally:
            current_process.reset(token)

        def notify_exit(task: asyncio.Task[None]) -> None:
            if self.alive:
                self.alive = False
                on_exit(self, None if task.cancelled() else task.exception())

        self._main.add_done_callback(notify_exit)

    def kill(self) -> None:
        """End the process like SIGKILL: its requests have no further effect."""
        self.alive = False
        for task in list(self._tasks):
            task.cancel()

    def _spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = spawn_task(coroutine, name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def _require_alive(self) -> None:
        if not self.alive:
            raise ConnectionFailed("this process was killed", sent=False)

    # The transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Forward a request to the API server, or inject the planned fault."""
        self._require_alive()
        if is_leader_election(request):
            return await self._forward_election(request)
        if not is_reconciler_call(request):
            self._injector.count_request(describe_request(request))
            return await self._injector.server.request(request)
        entry, fault = self._injector.begin_call(describe_request(request), call_kind_of(request), request.body)
        if fault is None:
            return await self._forward(request, entry)
        return await self._inject(fault, request, entry)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Forward a watch, or inject the planned faults into its events."""
        return self._stream(request)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def _forward(self, request: HttpRequest, entry: TraceEntry) -> HttpResponse:
        response, changes = await self._injector.server.request_with_events(request)
        entry.outcome = _describe_response(response)
        entry.changed_state = bool(changes)
        entry.deletions = deletion_events(changes, resource_of(request))
        self._injector.check_invariants()
        return response

    async def _forward_election(self, request: HttpRequest) -> HttpResponse:
        if self.renews_lease:
            return await self._injector.server.request(request)
        await asyncio.sleep(request.timeout)
        raise ConnectionFailed(f"{request.method} {request.path}: no response within {request.timeout:g} s")

    async def _inject(self, fault: Fault, request: HttpRequest, entry: TraceEntry) -> HttpResponse:
        name = f"{request.method} {request.path}"
        if fault.kind == "delayed-write" and entry.call_kind == "read":
            # A delayed read has no effect, since its caller no longer waits for it.
            return await self._forward(request, entry)
        if fault.kind != "concurrent-write" or self._injector.write_concurrently(request):
            self._injector.record_injected(fault)
        if fault.kind == "crash-before":
            entry.outcome = "killed before the request was sent"
            await self._crash(fault)
        if fault.kind in ("timeout", "error"):
            entry.outcome = "request lost"
            raise ConnectionFailed(f"{name}: no response within {request.timeout:g} s")
        if fault.kind.isdecimal():
            error = error_for_status(int(fault.kind))
            entry.outcome = f"{error.code} {error.reason}"
            return HttpResponse(error.code, encode_status(error), error.retry_after)
        if fault.kind == "delayed-write":
            entry.outcome = "delayed"
            self._injector.on_lease_taken(self)
            self._injector.delay_write(fault, lambda: self._forward(request, entry))
            await asyncio.sleep(request.timeout)
            raise ConnectionFailed(f"{name}: no response within {request.timeout:g} s")
        response = await self._forward(request, entry)
        if fault.kind == "crash-after":
            entry.outcome += ", then killed"
            await self._crash(fault)
        if fault.kind == "lost":
            entry.outcome = f"response lost ({entry.outcome})"
            raise ConnectionFailed(f"{name}: the connection closed before the response")
        if fault.kind == "lease":
            await self._stall_lease()
        return response

    async def _stall_lease(self) -> None:
        self._injector.on_lease_taken(self)
        await asyncio.sleep(LEASE_STALL_SECONDS)

    async def _crash(self, fault: Fault) -> NoReturn:
        self._injector.on_process_killed(self, fault)
        self.kill()
        while True:
            # A task may suppress its cancellation. It must not continue after the process was killed.
            await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        self._require_alive()
        election = is_leader_election(request)
        if not election:
            self._injector.count_request(f"WATCH {resource_of(request)}")
        async with self._injector.server.stream(request) as lines:
            yield lines if election else self._forward_events(resource_of(request), lines)

    async def _forward_events(self, resource: str, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for line in lines:
            self._require_alive()
            fault = None if _is_bookmark(line) else self._injector.begin_event(resource)
            if fault is not None and fault.kind == "disconnect":
                raise ConnectionFailed(f"the watch of {resource} disconnected")
            if fault is not None and fault.kind == "crash-on-event":
                await self._crash(fault)
            if await self._injector.wait_for_watch(resource):
                yield line
            else:
                yield _EXPIRED_EVENT
                return

    # Effects outside Kubernetes

    @asynccontextmanager
    async def intercept_effect(self, name: str, failures: tuple[Exception, ...]) -> AsyncGenerator[None, None]:
        if not self.alive:
            raise asyncio.CancelledError
        entry, fault = self._injector.begin_call(name, "fallible" if failures else "effect", None)
        # Other tasks run while the request and the response of the effect are in flight.
        await asyncio.sleep(0)
        if fault is not None:
            await self._inject_before_effect(fault, failures, entry)
        try:
            yield
        except Exception as error:
            entry.outcome = f"failed: {type(error).__name__}"
            raise
        entry.outcome = "done"
        self._injector.check_invariants()
        if fault is not None:
            await self._inject_after_effect(fault, failures, entry)
        await asyncio.sleep(0)

    async def _inject_before_effect(self, fault: Fault, failures: tuple[Exception, ...], entry: TraceEntry) -> None:
        if fault.kind == "crash-before":
            self._injector.record_injected(fault)
            entry.outcome = "killed before the effect"
            await self._crash(fault)
        if fault.kind in ("error", "timeout") and failures:
            self._injector.record_injected(fault)
            entry.outcome = "failed"
            raise failures[0]

    async def _inject_after_effect(self, fault: Fault, failures: tuple[Exception, ...], entry: TraceEntry) -> None:
        if fault.kind == "crash-after":
            self._injector.record_injected(fault)
            entry.outcome = "done, then killed"
            await self._crash(fault)
        if fault.kind == "lost" and failures:
            self._injector.record_injected(fault)
            entry.outcome = "done, response lost"
            raise failures[0]
        if fault.kind == "lease":
            self._injector.record_injected(fault)
            await self._stall_lease()


def _is_bookmark(line: bytes) -> bool:
    return line.startswith(b'{"type":"BOOKMARK"')


def _describe_response(response: HttpResponse) -> str:
    if response.status < 400:
        return str(response.status)
    try:
        return f"{response.status} {msgspec.json.decode(response.body, type=ApiStatus).reason}".rstrip()
    except msgspec.DecodeError:
        return str(response.status)
