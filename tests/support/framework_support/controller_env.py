"""An API server in memory with widgets, and what a controller needs around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from framework_support.widget import Widget
from steersman.cache import Cache, CachedClient
from steersman.client import Client
from steersman.controller import EventRecorder, ReconcilerContext
from steersman.manager import Manager
from steersman.meta import ObjectKey
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman_testing import InMemoryApiServer, virtual_runtime

NAMESPACE = "orders"


def key(name: str) -> ObjectKey:
    """The key of something in the namespace of these tests."""
    return ObjectKey(NAMESPACE, name)


@dataclass
class ControllerEnv:
    """A server on which ``Widget`` is defined, and clients to it."""

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
        """Reads from the cache what it holds."""
        return CachedClient(Client(self.server, field_manager="tester", observer=self.cache), self.cache)

    def recorder(self, source: str = "test/widget", instance: str = "test-0") -> EventRecorder:
        """A recorder whose ``run`` nobody runs yet."""
        return EventRecorder(self.client, source, instance, runtime=self.runtime)

    def context(self) -> ReconcilerContext:
        """What a controller hands to its reconciler."""
        return ReconcilerContext(
            client=self.cached, events=self.recorder(), runtime=self.runtime, log=get_logger("test")
        )

    def create_widgets(self, *names: str, depth: int = 1) -> None:
        """Creates widgets."""
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
        """The widget as the server has it."""
        found = self.server.read(Widget, key(name))
        assert found is not None, f"there is no widget {name}"
        return found

    @asynccontextmanager
    async def running_cache(self, *kinds: type) -> AsyncGenerator[None, None]:
        """The cache with informers of ``kinds``, synced."""
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
    """Runs the manager during the block, and ends it in order unless the block fails."""
    task = asyncio.create_task(manager.run())
    try:
        yield manager
        manager.stop()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def drain_event_loop() -> None:
    """Lets everything happen that needs no time to pass."""
    for _ in range(50):
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Returns once ``condition`` holds. Raises TimeoutError after ``seconds``. For tests in real time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
