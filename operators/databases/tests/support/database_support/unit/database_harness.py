"""A cluster in memory around the database operator: API server, kubelet stand-in, servers that are models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from database_support.fake_server.server import FakeServer
from database_support.unit.kubelet import DatabaseKubelet, RunningServers
from database_support.unit.shared_start import shared_start
from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.client import Client, HttpRequest, HttpResponse, MergePatch
from steersman.errors import ConnectionFailed
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, Quantity
from steersman.observability.runtime import Runtime
from steersman_databases.api import (
    Backup,
    BackupStore,
    Cluster,
    Database,
    DatabaseSpec,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.cluster.declared import kind_of
from steersman_databases.setup import setup
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime

KEY = ObjectKey("default", "orders")
VERSIONS = {"postgresql": "17", "mysql": "9.7"}
OPERATOR = "system:serviceaccount:steersman-databases-system:steersman-databases"


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


class CuttableWrites(CuttableTransport):
    """Counts only writes to paths that contain one of some words.

    Args:
        words: such as ``/jobs``.
    """

    def __init__(self, server: InMemoryApiServer, cut_after: int, *words: str, lose_answer: bool) -> None:
        super().__init__(server, cut_after, lose_answer=lose_answer)
        self._words = words

    async def request(self, request: HttpRequest) -> HttpResponse:
        is_counted = request.method != "GET" and any(word in request.path for word in self._words)
        if is_counted or self.is_cut.is_set():
            return await super().request(request)
        return await self._server.request(request)


@dataclass
class DatabaseHarness:
    """Everything that outlives the operator's process."""

    engine: str = "mysql"
    """Of the ``Database`` orders."""
    runtime: Runtime = field(default_factory=virtual_runtime)
    machines: RunningServers = field(default_factory=RunningServers)

    def __post_init__(self) -> None:
        self.server = InMemoryApiServer(self.runtime)
        for kind in (Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore):
            self.server.register(kind)
        self.client = Client(self.server, field_manager="test")

    async def create(self, **spec: Any) -> Database:
        """Creates the ``Database`` orders."""
        fields: dict[str, Any] = {"engine": self.engine, "version": VERSIONS[self.engine], **spec}
        fields.setdefault("storage_size", Quantity("1Gi"))
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        return await self.client.create(Database(metadata=metadata, spec=DatabaseSpec(**fields)))

    @shared_start
    async def create_ready(self, **spec: Any) -> None:
        """Create the ``Database`` orders and wait until it is ready."""
        await self.create(**spec)
        await self.ready()

    async def change(self, **spec: Any) -> None:
        """Patches its spec; names are the wire's."""
        await self.client.patch(Database, KEY, MergePatch({"spec": spec}))

    async def deleted(self) -> None:
        """Deletes it, and waits until it and its cluster are gone."""
        await self.client.delete(Database, KEY)
        await self.until("gone", lambda: self.database is None)
        self.server.collect_garbage()
        assert self.cluster is None

    @property
    def database(self) -> Database | None:
        """The ``Database`` orders as it is now."""
        return self.server.read(Database, KEY)

    @property
    def reason(self) -> str:
        """The reason of its condition Ready; empty before there is one."""
        found = self.database
        return found.status.conditions[0].reason if found and found.status.conditions else ""

    @property
    def message(self) -> str:
        """What that condition says; empty before there is one."""
        found = self.database
        return found.status.conditions[0].message if found and found.status.conditions else ""

    @property
    def cluster(self) -> Cluster | None:
        """Its cluster as it is now."""
        return self.server.read(kind_of(self.engine), KEY)

    @property
    def sql(self) -> FakeServer:
        """What is inside the server that was made last."""
        return list(self.machines.contents_by_cluster.values())[-1]

    def secret(self, name: str) -> dict[str, str]:
        """A Secret's entries, decoded; empty where there is none."""
        found = self.server.read(Secret, ObjectKey(KEY.namespace, name))
        return {k: v.decode() for k, v in found.data.items()} if found else {}

    def pvc(self) -> PersistentVolumeClaim | None:
        """The volume claim of its cluster's instance."""
        return self.server.read(PersistentVolumeClaim, ObjectKey(KEY.namespace, "data-orders-0"))

    async def until(self, what: str, probe: Callable[[], object], seconds: float = 120) -> None:
        """Waits (in virtual time) until ``probe`` gives something true."""
        clock = self.runtime.clock
        started = clock.monotonic()
        while not probe():
            waited = clock.monotonic() - started
            assert waited < seconds, f"not within {seconds} s: {what}; reason: {self.reason}"
            await clock.sleep(0.05 if waited < 10 else 0.25)

    async def ready(self) -> None:
        """Waits for phase Ready."""
        await self.until("Ready", lambda: self.database and self.database.status.phase == "Ready")

    @asynccontextmanager
    async def operator(self, transport: CuttableTransport | None = None) -> AsyncGenerator[Manager]:
        """Runs the operator, and what a cluster does with its objects, during the block.

        It may do what its generated role allows, and must not be refused anything.
        """
        manager = Manager(
            transport or self.server.as_user(OPERATOR),
            ManagerOptions(name="steersman-databases", graceful_shutdown_timeout=0),
            self.runtime,
        )
        setup(
            manager,
            self.machines.sql_engine,
            postgresql_factory=self.machines.postgresql,
            mysql_factory=self.machines.mysql,
        )
        self.server.grant(OPERATOR, cluster_role("steersman-databases", manager.permissions))
        kubelet = DatabaseKubelet(self.server, self.client, self.machines).run(self.runtime.clock)
        tasks = [asyncio.create_task(manager.run()), asyncio.create_task(kubelet)]
        try:
            yield manager
        finally:
            manager.stop()
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert self.server.rbac_denials == []
