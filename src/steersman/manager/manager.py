"""The manager owns one operator's process, from start to orderly end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from steersman.cache import Cache, InformerOptions
from steersman.client import Client, Transport
from steersman.controller import Builder, CachedClient, Context, Controller, EventRecorder, Permission
from steersman.manager.server import Check, ProbeServer
from steersman.meta import Object
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

log = get_logger("manager")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """Settings of a manager.

    Attributes:
        name: field manager of all writes, and the source of Events; a DNS name such as ``steersman-databases``.
        instance: which replica this is, such as the pod's name.
        namespaces: the only namespaces to watch; empty for all.
        informers: by kind, which objects to cache and in what form.
        health_bind_address: ``host:port`` of ``/healthz`` and ``/readyz``; empty: none.
        metrics_bind_address: ``host:port`` of ``/metrics``; empty: none.
        cache_sync_timeout: seconds for the first lists.
        graceful_shutdown_timeout: seconds that running reconciles get at shutdown.
    """

    name: str = "steersman"
    instance: str = "steersman"
    namespaces: tuple[str, ...] = ()
    informers: Mapping[type[Object], InformerOptions] = field(default_factory=dict[type[Object], InformerOptions])
    health_bind_address: str = ""
    metrics_bind_address: str = ""
    cache_sync_timeout: float = 120.0
    graceful_shutdown_timeout: float = 30.0


class Manager:
    """Runs controllers over one shared cache.

    Example:
        ``manager = Manager(transport); setup(manager); await manager.run()``
    """

    def __init__(
        self, transport: Transport, options: ManagerOptions | None = None, runtime: Runtime | None = None
    ) -> None:
        self.options = options or ManagerOptions()
        self.runtime = runtime or Runtime()
        live = Client(transport, field_manager=self.options.name)
        self.cache = Cache(
            live,
            runtime=self.runtime,
            namespaces=self.options.namespaces,
            options=self.options.informers,
        )
        self.client = CachedClient(live, self.cache)
        self._recorders: list[EventRecorder] = []
        self._controllers: list[Controller] = []
        self._permissions: list[Permission] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._servers: list[ProbeServer] = []
        self._stopping = asyncio.Event()

    def controller(self, kind: type[T]) -> Builder[T]:
        """Begins a controller that reconciles ``kind``; call ``complete`` at the end."""
        return Builder(
            kind,
            context=self._context,
            informer=self.cache.informer,
            register=self._register,
        )

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """What all controllers together declared to need; ``steersman.rbac`` makes a role of it."""
        return tuple(self._permissions)

    async def run(self) -> None:
        """Runs until ``stop`` is called.

        Raises:
            CacheNotSynced: a kind could not be listed in time.
            ConfigurationError: an endpoint cannot listen.
        """
        starting = self.runtime.spawn(self._start(), "start")
        stopping = self.runtime.spawn(self._stopping.wait(), "stop")
        try:
            # Asked to stop before the first lists are complete, it must not wait for them.
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopping
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
            await self._shut_down()

    async def run_until_signalled(self) -> None:
        """Runs until SIGTERM or SIGINT; a second signal ends the process at once. Raises as ``run`` does."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        await self.run()

    def stop(self) -> None:
        """Asks ``run`` to end in order."""
        self._stopping.set()

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            # The user asks a second time: give back the default action and let it act.
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.raise_signal(number)
        log.info("stopping", signal=number.name)
        self.stop()

    async def _start(self) -> None:
        await self._serve()
        for recorder in self._recorders:
            self._tasks.append(self.runtime.spawn(recorder.run(), "event recorder"))
        self.cache.start()
        await self.cache.wait_for_sync(self.options.cache_sync_timeout)
        log.info("cache synced", controllers=[c.name for c in self._controllers])
        for controller in self._controllers:
            controller.start()

    async def _serve(self) -> None:
        if bind := self.options.health_bind_address:
            ready: dict[str, Check] = {"cache": self._cache_check}
            self._servers.append(ProbeServer(bind, health={"ping": lambda: None}, ready=ready))
        if bind := self.options.metrics_bind_address:
            self._servers.append(ProbeServer(bind, metrics=metrics.registry))
        for server in self._servers:
            await server.start()

    async def _shut_down(self) -> None:
        """In order: no new work, running work ends, Events are written, watches and endpoints end."""
        grace = self.options.graceful_shutdown_timeout
        await asyncio.gather(*(c.stop(grace) for c in self._controllers))
        try:
            async with asyncio.timeout(2.0):
                await asyncio.gather(*(r.flush() for r in self._recorders))
        except TimeoutError:
            log.warning("some events were not written before shutdown")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cache.stop()
        for server in self._servers:
            await server.stop()

    def _context(self, controller: str) -> Context:
        source = f"{self.options.name}/{controller}"
        recorder = EventRecorder(self.client.live, source, self.options.instance, runtime=self.runtime)
        self._recorders.append(recorder)
        logger = get_logger(controller)
        return Context(client=self.client, events=recorder, runtime=self.runtime, log=logger)

    def _register(self, controller: Controller, permissions: tuple[Permission, ...]) -> None:
        self._controllers.append(controller)
        self._permissions.extend(permissions)

    def _cache_check(self) -> str | None:
        return None if self.cache.has_synced else "the first lists are not complete"
