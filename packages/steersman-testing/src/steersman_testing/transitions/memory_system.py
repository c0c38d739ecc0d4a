"""System under test in memory: in-memory API server, manager and virtual time."""

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
from steersman_testing.generated_names import generated_prefixes_in_history
from steersman_testing.transitions.kind_under_test import KindUnderTest
from steersman_testing.transitions.object_under_test import ObjectUnderTest
from steersman_testing.transitions.observed_state import normalize_state
from steersman_testing.transitions.system_under_test import Observation, SystemFactory, SystemUnderTest
from steersman_testing.transitions.warning_events import WarningEventTracker
from steersman_testing.virtual_clock import virtual_runtime

_NAMESPACE = "default"
_POLL_INTERVAL_SECONDS = 1.0
_SLOWDOWN_THRESHOLD = 1000
_IGNORED_RESOURCES = ("leases.coordination.k8s.io", "events.events.k8s.io", "events")


class SettleOptions(Struct, frozen=True):
    """Conditions under which a system in memory is settled.

    Attributes:
        quiet: virtual seconds without changes other than Leases and Events.
        max_timer_wait: virtual seconds to wait for objects in back-off or with a timer.
        timeout: virtual seconds after which the system counts as never settling.
    """

    quiet: float = 30.0
    max_timer_wait: float = 300.0
    timeout: float = 600.0


OperatorFactory = Callable[[Transport], AbstractAsyncContextManager[Manager]]
"""Creates a manager on a transport, as a new process would. It must not run yet."""


class _RecordingTransport:
    """Transport of the operator that records writes and limits request rates.

    After 1,000 requests each one takes a second. Otherwise virtual time would not advance for an operator that
    responds to each of its own writes with another one.
    """

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self._writes: list[HttpRequest] = []
        self._requests = 0

    def drain_writes(self) -> list[HttpRequest]:
        """Return and clear the effective writes, without Leases and Events."""
        writes, self._writes = self._writes, []
        self._requests = 0
        return writes

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._requests += 1
        if self._requests > _SLOWDOWN_THRESHOLD:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        response, changed = await self._server.request_with_events(request)
        if any(event.collection.qualified not in _IGNORED_RESOURCES for event in changed):
            self._writes.append(request)
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._server.stream(request)

    async def close(self) -> None:
        return


class InMemorySystem:
    """A ``SystemUnderTest`` on an in-memory API server in virtual time.

    Args:
        kind: kind under test, or the manifest of its definition.
        server: server that already serves the kind.
        operator: creates the operator, which this class runs.
        namespace: namespace of the object.
        observe: returns external state to compare, by names such as ``Disk a``.
        settle_options: conditions under which the system is settled.

    Example:
        ``async with InMemorySystem(Database, world.server, world.operator) as system: …``
    """

    def __init__(
        self,
        kind: type[Resource[Any, Any]] | Mapping[str, Any],
        server: InMemoryApiServer,
        operator: OperatorFactory,
        *,
        namespace: str = _NAMESPACE,
        observe: Callable[[], Mapping[str, JsonObject]] | None = None,
        settle_options: SettleOptions | None = None,
    ) -> None:
        target = KindUnderTest.from_kind(kind)
        self._server = server
        self._operator = operator
        self._observe = observe
        self._settle_options = settle_options or SettleOptions()
        self._object = ObjectUnderTest(Client(server, field_manager="user"), target, namespace)
        self._exit_stack = AsyncExitStack()
        self._manager: Manager | None = None
        self._manager_task: asyncio.Task[None] | None = None
        self._transport = _RecordingTransport(server)
        self._warnings = WarningEventTracker(self._object.resource, self._object.key)
        self._crash = ""

    async def __aenter__(self) -> SystemUnderTest:
        await self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stop()

    async def apply(self, document: Mapping[str, object], validation: FieldValidation = "Strict") -> None:
        await self._object.write(dict(document), validation)

    async def delete(self) -> None:
        await self._object.delete()

    async def resync(self) -> None:
        """Restart the operator, which reconciles every object."""
        await self._stop()
        await self._start()

    async def settle(self) -> Observation:
        settled = await self._wait_until_quiet()
        if self._manager_task is not None and self._manager_task.done():
            self._crash = self._crash or self._describe_exit(self._manager_task) or "it exited"
        outside: Mapping[str, JsonObject] = self._observe() if self._observe is not None else {}
        return Observation(
            state={
                **normalize_state(
                    self._server.manifests(), generated=generated_prefixes_in_history(self._server.history())
                ),
                **outside,
            },
            object=self._server.manifest(self._object.resource, self._object.key),
            warnings=self._warnings.take_new(o for o in self._server.manifests() if o["kind"] == "Event"),
            writes=tuple(f"{r.method} {r.path}" for r in self._transport.drain_writes()),
            failing=self._failing_reconcile(),
            crashed=self._crash,
            settled=settled,
        )

    # The process

    async def _start(self) -> None:
        self._manager = await self._exit_stack.enter_async_context(self._operator(self._transport))
        self._manager_task = asyncio.create_task(self._manager.run(), name="operator")

    async def _stop(self) -> None:
        if self._manager is not None:
            self._manager.stop()
        if self._manager_task is not None:
            await asyncio.wait([self._manager_task])
            self._crash = self._crash or self._describe_exit(self._manager_task)
        await self._exit_stack.aclose()

    def _describe_exit(self, running: asyncio.Task[None]) -> str:
        if running.cancelled():
            return "it was cancelled"
        error = running.exception()
        return "" if error is None else f"{type(error).__name__}: {error}"

    # Quiet

    async def _wait_until_quiet(self) -> bool:
        clock = asyncio.get_running_loop()
        started = since = clock.time()
        seen, due = -1, 0.0
        while clock.time() - started < self._settle_options.timeout:
            now = self._change_count()
            if now != seen:
                seen, since = now, clock.time()
                due = since
            due = max(due, self._latest_timer()) if clock.time() - since < 5 * _POLL_INTERVAL_SECONDS else due
            quiet = since + self._settle_options.quiet
            # Periodic reconciles without changes do not prevent settling.
            if not self._is_busy() and clock.time() >= max(
                quiet, min(due, since + self._settle_options.max_timer_wait)
            ):
                return True
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        return False

    def _change_count(self) -> int:
        return self._server.change_count(exclude=_IGNORED_RESOURCES)

    def _controllers(self) -> Collection[Any]:
        return self._manager.controllers if self._manager is not None else ()

    def _is_busy(self) -> bool:
        return any(len(c.queue) or c.running() for c in self._controllers())

    def _latest_timer(self) -> float:
        """Time at which the last delayed object will have been reconciled."""
        return (
            max((i.since for c in self._controllers() for i in c.queue.delayed()), default=0.0)
            + _POLL_INTERVAL_SECONDS
        )

    def _failing_reconcile(self) -> str:
        for controller in self._controllers():
            latest = {info.request: info for info in controller.recent()}
            for info in latest.values():
                if info.result == "error" and controller.queue.failures(info.request):
                    errors = ", ".join(info.errors) or "an error"
                    return f"{controller.name} fails on {info.request} with {errors}, attempt {info.attempt}"
        return ""


def in_memory(
    kind: type[Resource[Any, Any]] | Mapping[str, Any],
    setup: Callable[[Manager], object],
    *,
    kinds: Collection[ApiResource | type[Object]] = (),
    manifests: Collection[JsonObject | Object] = (),
    options: ManagerOptions | None = None,
    settle_options: SettleOptions | None = None,
) -> SystemFactory:
    """Create systems in memory, each with a manager that ``setup`` configures. They need virtual time.

    Args:
        kind: kind under test, or the manifest of its definition.
        setup: registers controllers with a new manager.
        kinds: other custom kinds that the operator needs.
        manifests: objects that exist from the start.
        options: options of the manager.
        settle_options: conditions under which the system is settled.
    """
    system_count = 0
    definition = KindUnderTest.from_kind(kind).definition

    @asynccontextmanager
    async def system() -> AsyncGenerator[SystemUnderTest]:
        nonlocal system_count
        system_count += 1
        runtime = virtual_runtime(system_count)
        server = InMemoryApiServer(runtime)
        server.load(definition)
        server.register(*kinds)
        server.load(*manifests)

        @asynccontextmanager
        async def operator(transport: Transport) -> AsyncGenerator[Manager]:
            manager = Manager(transport, options or ManagerOptions(graceful_shutdown_timeout=0), runtime)
            setup(manager)
            yield manager

        async with InMemorySystem(definition, server, operator, settle_options=settle_options) as instance:
            yield instance

    return system
