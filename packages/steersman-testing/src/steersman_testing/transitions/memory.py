"""A system in memory: the in-memory API server, a manager, and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct

from steersman.client import Client, FieldValidation, HttpRequest, HttpResponse, Transport
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, Object, Resource
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.generated_names import ever_generated
from steersman_testing.transitions.objects import TrialObject
from steersman_testing.transitions.states import normalised
from steersman_testing.transitions.subject import Subject
from steersman_testing.transitions.system import Observation, System, Systems
from steersman_testing.transitions.warnings import Warnings
from steersman_testing.virtual_clock import virtual_runtime

_NAMESPACE = "default"
_LOOK_EVERY = 1.0
_MANY_REQUESTS = 1000
_UNCOUNTED = ("leases.coordination.k8s.io", "events.events.k8s.io", "events")


class Patience(Struct, frozen=True):
    """When a system in memory has come to rest.

    Attributes:
        quiet: virtual seconds without any change but of Leases and Events.
        longest: virtual seconds for which what waits for a retry or a timer is waited for as well.
        limit: virtual seconds until it counts as never coming to rest.
    """

    quiet: float = 30.0
    longest: float = 300.0
    limit: float = 600.0


Operator = Callable[[Transport], AbstractAsyncContextManager[Manager]]
"""Gives a manager on this transport that does not run yet, and during the block what it needs around it: a new
process each time."""


class _Observed:
    """The server as the operator has it: what it writes is kept, and whoever writes without end becomes slow.

    Otherwise virtual time would stand still for an operator that answers each of its own writes by another one.
    """

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self._writes: list[HttpRequest] = []
        self._requests = 0

    def take(self) -> list[HttpRequest]:
        """The writes since the last call that changed something, but for those of Leases and Events."""
        taken, self._writes = self._writes, []
        self._requests = 0
        return taken

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._requests += 1
        if self._requests > _MANY_REQUESTS:
            await asyncio.sleep(_LOOK_EVERY)
        response, changed = await self._server.trace(request)
        if any(event.collection.qualified not in _UNCOUNTED for event in changed):
            self._writes.append(request)
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._server.stream(request)

    async def close(self) -> None:
        return


class InMemorySystem:
    """A ``System`` on an in-memory API server, under virtual time.

    Args:
        kind: the explored kind, or the manifest of its definition.
        server: serves the kind already.
        operator: gives the operator, which is run here.
        namespace: of the object.
        observe: what there is outside of Kubernetes and is to be compared as well, by names such as ``Disk a``.
        patience: when all is quiet.

    Example:
        ``async with InMemorySystem(Database, world.server, world.operator) as system: …``
    """

    def __init__(
        self,
        kind: type[Resource[Any, Any]] | Mapping[str, Any],
        server: InMemoryApiServer,
        operator: Operator,
        *,
        namespace: str = _NAMESPACE,
        observe: Callable[[], Mapping[str, JsonObject]] | None = None,
        patience: Patience | None = None,
    ) -> None:
        subject = Subject.of(kind)
        self._server = server
        self._operator = operator
        self._observe = observe
        self._patience = patience or Patience()
        self._object = TrialObject(Client(server, field_manager="user"), subject, namespace)
        self._around = AsyncExitStack()
        self._manager: Manager | None = None
        self._running: asyncio.Task[None] | None = None
        self._observed = _Observed(server)
        self._warnings = Warnings(self._object.resource, self._object.key)
        self._crash = ""

    async def __aenter__(self) -> System:
        await self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stop()

    async def apply(self, document: Mapping[str, object], validation: FieldValidation = "Strict") -> None:
        """See ``System``."""
        await self._object.write(dict(document), validation)

    async def delete(self) -> None:
        """See ``System``."""
        await self._object.delete()

    async def look_again(self) -> None:
        """Restarts the operator: a new process looks at every object."""
        await self._stop()
        await self._start()

    async def settle(self) -> Observation:
        """See ``System``."""
        settled = await self._quiet()
        if self._running is not None and self._running.done():
            self._crash = self._crash or self._ended(self._running) or "it ended by itself"
        outside: Mapping[str, JsonObject] = self._observe() if self._observe is not None else {}
        return Observation(
            state={
                **normalised(self._server.manifests(), generated=ever_generated(self._server.history())),
                **outside,
            },
            object=self._server.manifest(self._object.resource, self._object.key),
            warnings=self._warnings.new(o for o in self._server.manifests() if o["kind"] == "Event"),
            writes=tuple(f"{r.method} {r.path}" for r in self._observed.take()),
            failing=self._failing(),
            crashed=self._crash,
            settled=settled,
        )

    # The process

    async def _start(self) -> None:
        self._manager = await self._around.enter_async_context(self._operator(self._observed))
        self._running = asyncio.create_task(self._manager.run(), name="operator")

    async def _stop(self) -> None:
        if self._manager is not None:
            self._manager.stop()
        if self._running is not None:
            await asyncio.wait([self._running])
            self._crash = self._crash or self._ended(self._running)
        await self._around.aclose()

    def _ended(self, running: asyncio.Task[None]) -> str:
        if running.cancelled():
            return "it was cancelled"
        error = running.exception()
        return "" if error is None else f"{type(error).__name__}: {error}"

    # Quiet

    async def _quiet(self) -> bool:
        clock = asyncio.get_running_loop()
        begun = since = clock.time()
        seen, due = -1, 0.0
        while clock.time() - begun < self._patience.limit:
            now = self._activity()
            if now != seen:
                seen, since = now, clock.time()
                due = since
            due = max(due, self._due()) if clock.time() - since < 5 * _LOOK_EVERY else due
            quiet = since + self._patience.quiet
            # Who looks again now and then, and finds nothing to do, is at rest.
            if not self._busy() and clock.time() >= max(quiet, min(due, since + self._patience.longest)):
                return True
            await asyncio.sleep(_LOOK_EVERY)
        return False

    def _activity(self) -> int:
        return self._server.changes(exclude=_UNCOUNTED)

    def _controllers(self) -> Collection[Any]:
        return self._manager.controllers if self._manager is not None else ()

    def _busy(self) -> bool:
        return any(len(c.queue) or c.running() for c in self._controllers())

    def _due(self) -> float:
        """When the last of those that wait for a retry or a timer will have had it."""
        return max((i.since for c in self._controllers() for i in c.queue.delayed()), default=0.0) + _LOOK_EVERY

    def _failing(self) -> str:
        for controller in self._controllers():
            latest = {info.request: info for info in controller.recent()}
            for info in latest.values():
                # Who asks to run again waits as long, and is in no error.
                if info.result == "error" and controller.queue.failures(info.request):
                    errors = ", ".join(info.errors) or "an error"
                    return f"{controller.name} fails on {info.request} with {errors}, attempt {info.attempt}"
        return ""


def in_memory(
    kind: type[Resource[Any, Any]] | Mapping[str, Any],
    setup: Callable[[Manager], object],
    *,
    serves: Collection[ApiResource | type[Object]] = (),
    manifests: Collection[JsonObject | Object] = (),
    options: ManagerOptions | None = None,
    patience: Patience | None = None,
) -> Systems:
    """Systems in memory, in which a manager runs what ``setup`` adds to it. They need a loop with virtual time.

    Args:
        kind: the explored kind, or the manifest of its definition.
        setup: gives a new manager its controllers.
        serves: other kinds that the operator needs, beside the built-in ones.
        manifests: objects that are there from the start.
        options: the manager's.
        patience: when all is quiet.
    """
    made = 0
    definition = Subject.of(kind).definition

    @asynccontextmanager
    async def system() -> AsyncGenerator[System]:
        nonlocal made
        made += 1
        runtime = virtual_runtime(made)
        server = InMemoryApiServer(runtime)
        server.load(definition)
        server.register(*serves)
        server.load(*manifests)

        @asynccontextmanager
        async def operator(transport: Transport) -> AsyncGenerator[Manager]:
            manager = Manager(transport, options or ManagerOptions(graceful_shutdown_timeout=0), runtime)
            setup(manager)
            yield manager

        async with InMemorySystem(definition, server, operator, patience=patience) as made_system:
            yield made_system

    return system
