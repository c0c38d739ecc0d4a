"""Pods in virtual time: real sidecars, modelled applications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from steersman import Client, FrozenDict, ObjectKey, ObjectMeta
from steersman.client import HttpRequest, HttpResponse, Transport
from steersman.errors import ConnectionFailed
from steersman_testing import InMemoryApiServer, virtual_runtime

from leader_operator.api.v1.leaderservice import LeaderService, LeaderServiceSpec, ServicePort
from leader_operator.sidecar.settings import SidecarSettings
from leader_operator.sidecar.sidecar import LeaderReport, Sidecar
from store import Store

KEY = ObjectKey("default", "orders")
START_SECONDS = 0.1
RESTART_SECONDS = 1.0
_WRITE_INTERVAL_SECONDS = 0.2


class ModelNetwork(Transport):
    """Connection of one pod to the API server, which can stop forwarding."""

    def __init__(self, server: Transport) -> None:
        self._server = server
        self.open = asyncio.Event()
        self.open.set()

    async def request(self, request: HttpRequest) -> HttpResponse:
        await self.open.wait()
        if request.before_send is not None:
            request.before_send()
        response = await self._server.request(request)
        await self.open.wait()
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        if not self.open.is_set():
            raise ConnectionFailed("partitioned")
        async with self._server.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class ModelApplication:
    """An application that asks until its pod leads, and never again.

    It is the worst case: it writes until its processes end.

    Args:
        report: ``GET /leader`` of the sidecar.
        stubborn: ignores SIGTERM.

    Attributes:
        ended_at: times at which the processes of a container had ended.
        healthy: response of the health check.
        hangs: the health check does not respond.
        stop_errors: errors of the next attempts to end it.
        list_errors: errors of the next attempts to list its processes.
        helpers: names of further containers, which never write.
    """

    def __init__(self, pod: str, store: Store, report: Callable[[], LeaderReport], running: asyncio.Event) -> None:
        self.stubborn = False
        self.healthy = True
        self.hangs = False
        self.stop_errors: list[Exception] = []
        self.list_errors: list[Exception] = []
        self.helpers: set[str] = set()
        self.ended_at: list[float] = []
        self._pod, self._store, self._report, self._running = pod, store, report, running
        self._number = 0
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    def restart(self) -> None:
        """Start a container like the kubelet, unless one runs."""
        if self._task is None and not self._ended:
            self._number += 1
            self._task = asyncio.create_task(self._run())

    def end(self) -> None:
        """End all processes for ever, with the pod."""
        self._ended = True
        self.crash()

    def containers(self) -> Mapping[str, frozenset[int]]:
        if self.list_errors:
            raise self.list_errors.pop()
        main = {} if self._task is None else {f"c{self._number}": frozenset({self._number})}
        return main | {name: frozenset({len(name)}) for name in self.helpers}

    async def stop(self, containers: Iterable[str], kill_at: float) -> None:
        if self.stop_errors:
            raise self.stop_errors.pop()
        if not set(containers) & self.containers().keys():
            return
        if self.stubborn:
            await asyncio.sleep(max(0.0, kill_at - now()))
        self.crash()

    def crash(self, restart: bool = True) -> None:
        """End all processes. The kubelet restarts the container."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self.ended_at.append(now())
        if restart:
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self.restart)

    async def is_healthy(self) -> bool:
        while not self._running.is_set():
            try:
                await self._running.wait()
            except asyncio.CancelledError:
                # The timers of a frozen sidecar do not run either.
                if self._running.is_set():
                    raise
        while self.hangs:
            await asyncio.sleep(1)
        return self.healthy

    async def _run(self) -> None:
        while not (report := self._report()).leading:
            await self._sleep()
        while True:
            self._store.write(now(), self._pod, report.term)
            await self._sleep()

    async def _sleep(self) -> None:
        await asyncio.sleep(_WRITE_INTERVAL_SECONDS)
        await self._running.wait()


class ModelProcess:
    """One process of the sidecar. After its kill, its clean-up code has no effect.

    Args:
        network: its own connection to the API server.
    """

    def __init__(self, settings: SidecarSettings, network: ModelNetwork, application: ModelApplication) -> None:
        self.network = network
        self._application = application
        self._alive = True
        self.sidecar = Sidecar(settings, network, self, application.is_healthy, virtual_runtime(7))
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.stop(self.containers(), now())
        await self.sidecar.run()

    def kill(self) -> None:
        """End the process like SIGKILL."""
        self._alive = False
        self.network.open.clear()
        self.task.cancel()

    def containers(self) -> Mapping[str, frozenset[int]]:
        return self._application.containers() if self._alive else {}

    def problem(self) -> str:
        return ""

    async def stop(self, containers: Iterable[str], kill_at: float) -> None:
        if self._alive:
            await self._application.stop(containers, kill_at)


class ModelPod:
    """A pod with a sidecar and an application.

    Attributes:
        running: cleared while the pod is frozen.
    """

    def __init__(self, server: Transport, name: str, store: Store, uid: str = "") -> None:
        self.name = name
        self._server = server
        self.running = asyncio.Event()
        self.running.set()
        self.settings = SidecarSettings(service=KEY, pod=name, pod_uid=uid or f"uid-{name}")
        self.application = ModelApplication(name, store, self.report, self.running)
        self._process = self._start()
        # Kubernetes starts the containers after the sidecar.
        asyncio.get_running_loop().call_later(START_SECONDS, self.application.restart)

    def report(self) -> LeaderReport:
        """``GET /leader``."""
        return self._process.sidecar.report()

    def partition(self) -> None:
        self._process.network.open.clear()

    def heal(self) -> None:
        self._process.network.open.set()

    def freeze(self) -> None:
        """Freeze all processes. Requests in flight reach the API server, and their responses wait."""
        self.running.clear()
        self.partition()

    def thaw(self) -> None:
        self.running.set()
        self.heal()

    def restart_sidecar(self) -> None:
        """Kill the sidecar, and start it again at once, like the kubelet."""
        is_open = self._process.network.open.is_set()
        self._process.kill()
        self._process = self._start()
        if not is_open:
            self.partition()

    def kill(self) -> None:
        """End the pod for ever, like a crash of its node."""
        self.running.set()
        self._process.kill()
        self.application.end()

    async def shut_down(self) -> None:
        """Delete the pod: the kubelet ends the application, then the sidecar."""
        self.application.end()
        self._process.sidecar.stop()
        await self._process.task

    def _start(self) -> ModelProcess:
        return ModelProcess(self.settings, ModelNetwork(self._server), self.application)


class ModelPods:
    """Pods of one LeaderService, with a store that they write to."""

    def __init__(self, server: InMemoryApiServer, store: Store) -> None:
        self.server = server
        self.store = store
        self.user = Client(server, field_manager="user")
        self.pods: list[ModelPod] = []
        self._count = 0

    def add(self, number: int = 1) -> None:
        for _ in range(number):
            self.pods.append(ModelPod(self.server, f"orders-{self._count}", self.store))
            self._count += 1

    def leaders(self) -> list[ModelPod]:
        return [pod for pod in self.pods if pod.running.is_set() and pod.report().leading]

    async def wait_for_leader(self, *, other_than: ModelPod | None = None, within: float = 60) -> ModelPod:
        """Wait until a pod leads and has written."""
        async with asyncio.timeout(within):
            while True:
                for pod in self.leaders():
                    writes = [w for w in self.store.acknowledged if w.term == pod.report().term]
                    if pod is not other_than and writes:
                        return pod
                await asyncio.sleep(0.1)


@asynccontextmanager
async def model_pods(
    server: InMemoryApiServer,
    *,
    number: int = 3,
    checks_term: bool = False,
    termination_seconds: int = 10,
    min_term: int = 0,
) -> AsyncGenerator[ModelPods]:
    """Create a LeaderService and its pods."""
    pods = ModelPods(server, Store(checks_term=checks_term))
    spec = LeaderServiceSpec(
        selector=FrozenDict({"app": "orders"}),
        ports=(ServicePort(port=80),),
        fencing="Sidecar",
        termination_seconds=termination_seconds,
        min_term=min_term,
    )
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    await pods.user.create(LeaderService(metadata=metadata, spec=spec))
    pods.add(number)
    try:
        yield pods
    finally:
        for pod in pods.pods:
            pod.kill()


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()
