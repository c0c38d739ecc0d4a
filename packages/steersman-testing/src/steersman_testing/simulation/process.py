"""A simulated process of the operator: its connection to the API server, its effects, its sudden end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn, Protocol

import msgspec

from steersman.client.transport import HttpRequest, HttpResponse
from steersman.errors import ConnectionFailed, Status
from steersman.manager import Manager
from steersman.observability.runtime import Clock, Runtime, spawn_task
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.apiserver.faults import failure_for
from steersman_testing.apiserver.watching import encode_status
from steersman_testing.simulation import requests
from steersman_testing.simulation.faults import Fault
from steersman_testing.simulation.journal import Entry, Sort
from steersman_testing.simulation.points import current
from steersman_testing.simulation.removals import ended_by

_EXPIRED = b'{"type":"ERROR","object":' + encode_status(failure_for(410)) + b"}"
# Longer than the 10 s in which a leader must renew and the 15 s after which another may take over.
LEASE_STALL = 25.0


class Surroundings(Protocol):
    """What a process needs of the run that it is part of."""

    server: InMemoryApiServer

    def ask(self, text: str) -> None:
        """Counts a request at which nothing goes wrong."""
        ...

    def strike(self, fault: Fault) -> None:
        """``fault`` was done, and not only due."""
        ...

    def begin(self, text: str, sort: Sort, body: bytes | None) -> tuple[Entry, Fault | None]:
        """Numbers a call; gives its entry, and what is to go wrong with it."""
        ...

    def event(self, resource: str) -> Fault | None:
        """Numbers an event of the watch of ``resource``; gives what is to go wrong with it."""
        ...

    async def passes(self, resource: str) -> bool:
        """Returns when the watch of ``resource`` may go on: True by its next event, False by a new list."""
        ...

    def killed(self, process: Process, fault: Fault) -> None:
        """The process was ended by ``fault``."""
        ...

    def lease_taken(self, process: Process) -> None:
        """The process cannot renew its lease any more, and another replica waits for it."""
        ...

    def delay(self, fault: Fault, arrive: Callable[[], Awaitable[object]]) -> None:
        """Has ``arrive`` done when ``fault`` is over, whatever became of the process."""
        ...

    def touch(self, request: HttpRequest) -> bool:
        """Another actor writes the object of ``request``; whether there is one."""
        ...

    def changed(self) -> None:
        """Something may have changed: invariants are looked at."""
        ...


class Process:
    """One process, from its start to its end. It is the ``Transport`` of its manager.

    Args:
        around: the run.
        seed: of its random numbers.
        clock: virtual.
    """

    def __init__(self, around: Surroundings, seed: int, clock: Clock) -> None:
        self._around = around
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._main: asyncio.Task[None] | None = None
        self.alive = True
        self.renews = True
        self.runtime = Runtime(clock=clock, random=random.Random(seed), spawn=self._spawn)  # noqa: S311
        self.manager: Manager | None = None

    def start(self, manager: Manager, ended: Callable[[Process, BaseException | None], None]) -> None:
        """Runs ``manager``; ``ended`` is told when it ends other than by ``kill``, and of what."""
        self.manager = manager
        token = current.set(self)
        try:
            self._main = self._spawn(manager.run(), "manager")
        finally:
            current.reset(token)

        def tell(task: asyncio.Task[None]) -> None:
            if self.alive:
                self.alive = False
                ended(self, None if task.cancelled() else task.exception())

        self._main.add_done_callback(tell)

    def kill(self) -> None:
        """Ends it as SIGKILL does: nothing that it still tries reaches anybody."""
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
        """As the server answers, but for what goes wrong."""
        self._require_alive()
        if requests.is_election(request):
            return await self._elect(request)
        if not requests.is_call(request):
            self._around.ask(requests.describe(request))
            return await self._around.server.request(request)
        entry, fault = self._around.begin(requests.describe(request), requests.sort_of(request), request.body)
        if fault is None:
            return await self._carry(request, entry)
        return await self._suffer(fault, request, entry)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """As the server's, but for what goes wrong."""
        return self._stream(request)

    async def close(self) -> None:
        """Nothing is held."""

    async def _carry(self, request: HttpRequest, entry: Entry) -> HttpResponse:
        response, changes = await self._around.server.trace(request)
        entry.outcome = _outcome(response)
        entry.changed = bool(changes)
        entry.ended = ended_by(changes, requests.resource_of(request))
        self._around.changed()
        return response

    async def _elect(self, request: HttpRequest) -> HttpResponse:
        if self.renews:
            return await self._around.server.request(request)
        await asyncio.sleep(request.timeout)
        raise ConnectionFailed(f"{request.method} {request.path}: no answer in {request.timeout:g} s")

    async def _suffer(self, fault: Fault, request: HttpRequest, entry: Entry) -> HttpResponse:
        name = f"{request.method} {request.path}"
        if fault.kind == "late" and entry.sort == "read":
            # Of a read that nobody waits for any more nothing comes.
            return await self._carry(request, entry)
        if fault.kind != "touch" or self._around.touch(request):
            self._around.strike(fault)
        if fault.kind == "crash-before":
            entry.outcome = "killed before it was sent"
            await self._die(fault)
        if fault.kind in ("timeout", "error"):
            entry.outcome = "never arrived"
            raise ConnectionFailed(f"{name}: no answer in {request.timeout:g} s")
        if fault.kind.isdecimal():
            error = failure_for(int(fault.kind))
            entry.outcome = f"{error.code} {error.reason}"
            return HttpResponse(error.code, encode_status(error), error.retry_after)
        if fault.kind == "late":
            entry.outcome = "on its way"
            self._around.lease_taken(self)
            self._around.delay(fault, lambda: self._carry(request, entry))
            await asyncio.sleep(request.timeout)
            raise ConnectionFailed(f"{name}: no answer in {request.timeout:g} s")
        response = await self._carry(request, entry)
        if fault.kind == "crash-after":
            entry.outcome += ", then killed"
            await self._die(fault)
        if fault.kind == "lost":
            entry.outcome = f"lost ({entry.outcome})"
            raise ConnectionFailed(f"{name}: the connection broke before the answer")
        if fault.kind == "lease":
            await self._lose_the_lease()
        return response

    async def _lose_the_lease(self) -> None:
        self._around.lease_taken(self)
        await asyncio.sleep(LEASE_STALL)

    async def _die(self, fault: Fault) -> NoReturn:
        self._around.killed(self, fault)
        self.kill()
        while True:
            # Whoever is cancelled and goes on all the same goes on for nobody.
            await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        self._require_alive()
        election = requests.is_election(request)
        if not election:
            self._around.ask(f"WATCH {requests.resource_of(request)}")
        async with self._around.server.stream(request) as lines:
            yield lines if election else self._events(requests.resource_of(request), lines)

    async def _events(self, resource: str, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for line in lines:
            self._require_alive()
            fault = None if _is_bookmark(line) else self._around.event(resource)
            if fault is not None and fault.kind == "break":
                raise ConnectionFailed(f"the watch of {resource} broke")
            if fault is not None and fault.kind == "down":
                await self._die(fault)
            if await self._around.passes(resource):
                yield line
            else:
                yield _EXPIRED
                return

    # Effects outside Kubernetes

    @asynccontextmanager
    async def effect(self, name: str, failures: tuple[Exception, ...]) -> AsyncGenerator[None, None]:
        """See ``fault_point``."""
        if not self.alive:
            raise asyncio.CancelledError
        entry, fault = self._around.begin(name, "fallible" if failures else "effect", None)
        # Other tasks run while the effect is on its way, and while its answer is.
        await asyncio.sleep(0)
        if fault is not None:
            await self._spoil(fault, failures, entry)
        try:
            yield
        except Exception as error:
            entry.outcome = f"failed: {type(error).__name__}"
            raise
        entry.outcome = "done"
        self._around.changed()
        if fault is not None:
            await self._spoil_answer(fault, failures, entry)
        await asyncio.sleep(0)

    async def _spoil(self, fault: Fault, failures: tuple[Exception, ...], entry: Entry) -> None:
        if fault.kind == "crash-before":
            self._around.strike(fault)
            entry.outcome = "killed before it was done"
            await self._die(fault)
        if fault.kind in ("error", "timeout") and failures:
            self._around.strike(fault)
            entry.outcome = "failed"
            raise failures[0]

    async def _spoil_answer(self, fault: Fault, failures: tuple[Exception, ...], entry: Entry) -> None:
        if fault.kind == "crash-after":
            self._around.strike(fault)
            entry.outcome = "done, then killed"
            await self._die(fault)
        if fault.kind == "lost" and failures:
            self._around.strike(fault)
            entry.outcome = "done, its answer lost"
            raise failures[0]
        if fault.kind == "lease":
            self._around.strike(fault)
            await self._lose_the_lease()


def _is_bookmark(line: bytes) -> bool:
    return line.startswith(b'{"type":"BOOKMARK"')


def _outcome(response: HttpResponse) -> str:
    if response.status < 400:
        return str(response.status)
    try:
        return f"{response.status} {msgspec.json.decode(response.body, type=Status).reason}".rstrip()
    except msgspec.DecodeError:
        return str(response.status)
