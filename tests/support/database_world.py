"""A cluster in memory around the database operator: API server, kubelet stand-in, servers that are models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret
from steersman.client import Client, HttpRequest, HttpResponse, MergePatch
from steersman.errors import Conflict, ConnectionFailed, NotFound
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, Quantity
from steersman.observability.runtime import Runtime
from steersman.testing import InMemoryApiServer, virtual_runtime
from steersman_databases.api import Database, DatabaseSpec
from steersman_databases.controllers import INFORMERS, setup
from steersman_databases.engines import ENGINES, Credentials, Endpoint, Engine
from steersman_databases.engines.model import ModelEngine, ModelServer

KEY = ObjectKey("default", "orders")


class CuttableTransport:
    """Ends for good after a number of requests, as the connection of a killed process does.

    ``lose_answer``: the last request is carried out and its answer lost.
    """

    def __init__(self, server: InMemoryApiServer, cut_after: int | None = None, *, lose_answer: bool = False) -> None:
        self._server = server
        self._left = cut_after
        self._lose_answer = lose_answer
        self.is_cut = asyncio.Event()

    async def request(self, request: HttpRequest) -> HttpResponse:
        if self._left is not None:
            if self._left <= 0:
                self.is_cut.set()
                if self._lose_answer and self._left == 0:
                    await self._server.request(request)
                self._left -= 1
                raise ConnectionFailed("the process was killed")
            self._left -= 1
        return await self._server.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._server.stream(request)

    async def close(self) -> None:
        return


@dataclass
class World:
    """Everything that outlives the operator's process."""

    runtime: Runtime = field(default_factory=virtual_runtime)
    servers: dict[Endpoint, ModelServer] = field(default_factory=dict[Endpoint, ModelServer])
    passwords_on_volumes: dict[str, Credentials] = field(default_factory=dict[str, Credentials])

    def __post_init__(self) -> None:
        self.server = InMemoryApiServer(self.runtime)
        self.server.register(Database)
        self.client = Client(self.server, field_manager="test")

    def engine(self, name: str) -> Engine:
        """The model in place of the engine ``name``."""
        return ModelEngine(ENGINES[name], self.servers)

    async def create(self, **spec: Any) -> Database:
        """Creates the ``Database`` orders."""
        fields: dict[str, Any] = {"engine": "postgresql", "version": "17", "storage_size": Quantity("1Gi"), **spec}
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        return await self.client.create(Database(metadata=metadata, spec=DatabaseSpec(**fields)))

    @property
    def database(self) -> Database | None:
        """The ``Database`` orders as it is now."""
        return self.server.read(Database, KEY)

    @property
    def reason(self) -> str:
        """The reason of its condition Ready; empty before there is one."""
        found = self.database
        return found.status.conditions[0].reason if found and found.status and found.status.conditions else ""

    @property
    def sql(self) -> ModelServer:
        """Its database server."""
        return next(iter(self.servers.values()))

    def secret(self, name: str) -> dict[str, str]:
        """A Secret's entries, decoded; empty where there is none."""
        found = self.server.read(Secret, ObjectKey(KEY.namespace, name))
        return {k: v.decode() for k, v in found.data.items()} if found else {}

    def claim(self) -> PersistentVolumeClaim | None:
        """The volume claim."""
        return self.server.read(PersistentVolumeClaim, ObjectKey(KEY.namespace, "data-orders-0"))

    async def until(self, what: str, probe: Callable[[], object], seconds: float = 120) -> None:
        """Waits (in virtual time) until ``probe`` gives something true."""
        clock = self.runtime.clock
        deadline = clock.monotonic() + seconds
        while not probe():
            assert clock.monotonic() < deadline, f"not within {seconds} s: {what}; reason: {self.reason}"
            await clock.sleep(0.05)

    async def ready(self) -> None:
        """Waits for phase Ready."""
        await self.until(
            "Ready", lambda: self.database and self.database.status and self.database.status.phase == "Ready"
        )

    @asynccontextmanager
    async def operator(self, transport: CuttableTransport | None = None) -> AsyncGenerator[Manager]:
        """Runs the operator, and what a cluster does with its objects, during the block."""
        manager = Manager(
            transport or self.server,
            ManagerOptions(name="steersman-databases", informers=INFORMERS, graceful_shutdown_timeout=0),
            self.runtime,
        )
        setup(manager, self.engine)
        tasks = [asyncio.create_task(manager.run()), asyncio.create_task(self._kubelet())]
        try:
            yield manager
        finally:
            manager.stop()
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _kubelet(self) -> None:
        """Binds claims, runs a pod for each StatefulSet, and ends what has no StatefulSet any more."""
        while True:
            wanted = {s.metadata.name: s for s in self.server.read_all(StatefulSet)}
            for name, stateful in wanted.items():
                await self._run_pod(name, stateful)
            for pod in self.server.read_all(Pod):
                if pod.metadata.name.removesuffix("-0") not in wanted:
                    await self._stop_pod(pod)
            self.server.collect_garbage()
            await self.runtime.clock.sleep(0.5)

    async def _run_pod(self, name: str, stateful: StatefulSet) -> None:
        key = ObjectKey(KEY.namespace, f"{name}-0")
        claim, admin = self.claim(), self.secret(f"{name}-admin")
        if self.server.read(Pod, key) is not None or claim is None or not admin:
            return
        template = stateful.spec.template
        pod = Pod(
            metadata=ObjectMeta(name=key.name, namespace=key.namespace, labels=template.metadata.labels),
            spec=template.spec,
        )
        await self.client.create(pod)
        engine = ENGINES[pod.metadata.labels["app.kubernetes.io/name"]]
        endpoint = Endpoint(f"{name}-primary.{KEY.namespace}.svc", engine.port)
        # The password is written into the data when they are made, and never changes with the Secret.
        given = Credentials(admin["username"], admin["password"])
        kept = self.passwords_on_volumes.setdefault(claim.metadata.uid, given)
        if endpoint not in self.servers or kept not in self._administrators(endpoint):
            self.servers[endpoint] = ModelServer(engine, kept)
        self.servers[endpoint].up = True
        ready = {"type": "Ready", "status": "True"}
        body = {"status": {"phase": "Running", "conditions": [ready]}}
        await self.client.patch(Pod, key, MergePatch(body), subresource="status")

    def _administrators(self, endpoint: Endpoint) -> list[Credentials]:
        users = self.servers[endpoint].users
        return [Credentials(name, user.password) for name, user in users.items() if user.mighty]

    async def _stop_pod(self, pod: Pod) -> None:
        for endpoint, server in self.servers.items():
            if endpoint.host.startswith(pod.metadata.name.removesuffix("-0")):
                server.up = False
        try:
            await self.client.delete(Pod, pod.key, uid=pod.metadata.uid)
        except (NotFound, Conflict):
            return
