"""In-memory API server, clients and scripted reconciler for controller tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from framework_support.widget import Widget, widget
from steersman.cache import Cache, CachedClient
from steersman.client import Client
from steersman.controller import (
    Controller,
    ControllerOptions,
    ControllerSpec,
    EventRecorder,
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
)
from steersman.controller.controller import TraceSpan
from steersman.dependents import Dependents
from steersman.errors import ApiStatus, Conflict
from steersman.manager import Manager
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman_testing import InMemoryApiServer, virtual_runtime

NAMESPACE = "orders"


def key(name: str) -> Request:
    """Key of an object in the namespace of these tests."""
    return Request(NAMESPACE, name)


@dataclass
class ControllerEnv:
    """In-memory server that serves ``Widget``, with clients."""

    runtime: Runtime = field(default_factory=virtual_runtime)
    server: InMemoryApiServer = field(init=False)
    client: Client = field(init=False)
    cache: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.server = InMemoryApiServer(self.runtime)
        self.server.register(Widget)
        self.server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.client = Client(self.server, field_manager="tester")
        self.cache = Cache(self.client, runtime=self.runtime)

    @property
    def cached(self) -> CachedClient:
        """Client that reads from the cache."""
        return CachedClient(Client(self.server, field_manager="tester", observer=self.cache), self.cache)

    def recorder(self, source: str = "test/widget", instance: str = "test-0") -> EventRecorder:
        """Event recorder whose ``run`` is not started."""
        return EventRecorder(self.client, source, instance, runtime=self.runtime)

    def context(self) -> ReconcilerContext:
        """Context of a reconciler."""
        client = self.cached
        return ReconcilerContext(
            dependents=Dependents(client),
            client=client,
            events=self.recorder(),
            runtime=self.runtime,
            log=get_logger("test"),
        )

    def create_widgets(self, *names: str, depth: int = 1) -> None:
        """Create widgets."""
        for name in names:
            self.server.load(
                {
                    "apiVersion": "shop.example.com/v1",
                    "kind": "Widget",
                    "metadata": {"name": name, "namespace": NAMESPACE},
                    "spec": {"depth": depth},
                }
            )

    def read_widget(self, name: str) -> Widget:
        """The widget as stored by the server."""
        found = self.server.read(Widget, key(name))
        assert found is not None, f"widget {name} does not exist"
        return found

    @asynccontextmanager
    async def running_cache(self, *kinds: type) -> AsyncGenerator[None, None]:
        """Run the cache with synced informers of ``kinds``."""
        for kind in kinds:
            self.cache.informer(kind)
        self.cache.start()
        await self.cache.wait_for_sync()
        try:
            yield
        finally:
            await self.cache.stop()


@asynccontextmanager
async def running(manager: Manager) -> AsyncGenerator[Manager, None]:
    """Run the manager during the block. Stop it after success."""
    task = asyncio.create_task(manager.run())
    try:
        yield manager
        manager.stop()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def drain_event_loop() -> None:
    """Run callbacks that need no progress of time."""
    for _ in range(50):
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for ``condition`` in real time. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


Behaviour = Callable[[Request], Awaitable[Result | None]]


class ScriptedReconciler(RequestReconciler[Widget]):
    """Reconciler with a replaceable behaviour that records its calls."""

    def __init__(self, world: ControllerEnv, behaviour: Behaviour | None = None) -> None:
        super().__init__(world.context())
        self.behaviour = behaviour
        self.calls: list[tuple[float, str]] = []

    async def reconcile(self, request: Request) -> Result | None:
        self.calls.append((self.runtime.clock.monotonic(), request.name))
        return await self.behaviour(request) if self.behaviour is not None else Result()

    def times(self, name: str) -> list[float]:
        return [moment for moment, called in self.calls if called == name]


def controller_for(
    reconciler: ScriptedReconciler,
    name: str = "widget",
    *,
    exists: bool = True,
    workers: int = 1,
    timeout: float | None = None,
    trace_span: TraceSpan | None = None,
) -> Controller:
    spec = ControllerSpec(
        name=name,
        resource=Widget.api_resource,
        get_cached=lambda request: widget(request.name) if exists else None,
        options=ControllerOptions(max_concurrent_reconciles=workers, reconcile_timeout=timeout),
    )
    return Controller(spec, reconciler, runtime=reconciler.runtime, trace_span=trace_span)


def metric_value(metric: str, /, **labels: str) -> float:
    return metrics.registry.get_sample_value(metric, labels) or 0.0


def raising(*errors: BaseException) -> Behaviour:
    """Behaviour that raises one error per call, then succeeds."""
    left = list(errors)

    async def behave(_: Request) -> Result:
        if left:
            raise left.pop(0)
        return Result()

    return behave


def conflict() -> Conflict:
    return Conflict(ApiStatus("scripted conflict", "Conflict", 409))
