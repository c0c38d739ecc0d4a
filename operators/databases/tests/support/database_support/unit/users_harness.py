"""The controllers of databases and users on the in-memory API server, with servers in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from database_support.fake_server.engine import ADMINISTRATOR, InMemoryServer, InMemorySqlEngine
from steersman.api.apply import core, meta
from steersman.api.core_v1 import Secret
from steersman.api.events_v1 import Event
from steersman.client import Client, Transport
from steersman.manager import Manager, ManagerOptions
from steersman.meta import Condition, ObjectKey, decode_builtins, find_condition
from steersman.observability.runtime import Runtime
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
    UserCondition,
)
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_databases.setup import setup
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime

OPERATOR = "system:serviceaccount:steersman-databases-system:steersman-databases"
HOST = ServerEndpoint("db.example.com", 5432)
CLERK = ObjectKey("default", "clerk")
FORCED = {"metadata": {"annotations": {"databases.steersman.dev/force-delete": "true"}}}
SERVER: dict[str, Any] = {
    "engine": "postgresql",
    "serverRef": {"host": HOST.host, "administrator": {"name": "admin"}},
}


@dataclass
class UsersHarness:
    """Everything that outlives the operator's process, and a server at ``HOST``."""

    runtime: Runtime = field(default_factory=virtual_runtime)
    servers: dict[ServerEndpoint, InMemoryServer] = field(default_factory=dict[ServerEndpoint, InMemoryServer])
    target: str | None = None
    serve_webhooks: bool = True

    def __post_init__(self) -> None:
        self.server = InMemoryApiServer(self.runtime)
        for kind in (Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore):
            self.server.register(kind)
        self.client = Client(self.server, field_manager="test")
        self.sql = self.servers[HOST] = InMemoryServer(now=self.runtime.clock.now)

    async def namespace(self, name: str) -> None:
        """A namespace with an administrator's Secret in it."""
        await self.client.apply(core.Namespace(metadata=meta.ObjectMeta(name=name)))
        data = {"username": ADMINISTRATOR.username, "password": ADMINISTRATOR.password}
        await self.secret("admin", data, name)

    async def secret(
        self,
        name: str,
        entries: dict[str, str],
        namespace: str = "default",
        annotations: dict[str, str] | None = None,
    ) -> None:
        """A Secret of somebody's."""
        metadata = meta.ObjectMeta(name=name, namespace=namespace, annotations=annotations or {})
        data = {key: value.encode() for key, value in entries.items()}
        await self.client.apply(core.Secret(metadata=metadata, data=data))

    async def service(self, name: str, annotations: dict[str, str] | None = None) -> None:
        """A Service without pods."""
        metadata = meta.ObjectMeta(name=name, namespace="default", annotations=annotations or {})
        ports = [core.ServicePort(port=5432, protocol="TCP")]
        await self.client.apply(core.Service(metadata=metadata, spec=core.ServiceSpec(ports=ports)))

    async def user(
        self, name: str = "clerk", namespace: str = "default", labels: dict[str, str] | None = None, **spec: Any
    ) -> DatabaseUser:
        """A ``DatabaseUser``, by the wire names of its spec."""
        wire = {
            "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
            "spec": {key: value for key, value in {"user": name, **SERVER, **spec}.items() if value is not None},
        }
        return await self.client.create(decode_builtins(wire, DatabaseUser))

    async def database(self, name: str = "shop", namespace: str = "default", **spec: Any) -> Database:
        """A ``Database``, likewise."""
        wire = {"metadata": {"name": name, "namespace": namespace}, "spec": {**SERVER, **spec}}
        return await self.client.create(decode_builtins(wire, Database))

    def setup(self, manager: Manager) -> None:
        """Adds the controllers."""
        setup(manager, sql_engine_for=self.sql_engine, target=self.target)

    def sql_engine(self, engine: str) -> SqlEngine:
        """What stands in for the engines."""
        return InMemorySqlEngine(self.servers, engine)

    def read(self, name: str = "clerk", namespace: str = "default") -> DatabaseUser | None:
        """A user as it is now."""
        return self.server.read(DatabaseUser, ObjectKey(namespace, name))

    def condition(self, name: str = "clerk", namespace: str = "default") -> UserCondition | None:
        """Its condition Ready."""
        found = self.read(name, namespace)
        conditions = found.status.conditions if found is not None else ()
        return next((c for c in conditions if c.type == "Ready"), None)

    def database_reason(self, name: str, namespace: str = "default") -> str:
        """The reason of a database's condition Ready."""
        found = self._of_database(name, namespace)
        return found.reason if found is not None else ""

    def database_message(self, name: str, namespace: str = "default") -> str:
        """Its message."""
        found = self._of_database(name, namespace)
        return found.message if found is not None else ""

    def _of_database(self, name: str, namespace: str) -> Condition | None:
        found = self.server.read(Database, ObjectKey(namespace, name))
        return find_condition(found.status.conditions, "Ready") if found is not None and found.status else None

    def message(self, name: str = "clerk", namespace: str = "default") -> str:
        """The message of its condition Ready."""
        found = self.condition(name, namespace)
        return found.message if found is not None else ""

    def entries(self, name: str = "clerk-user", namespace: str = "default") -> dict[str, str]:
        """A Secret's entries; empty where there is none."""
        found = self.server.read(Secret, ObjectKey(namespace, name))
        return {k: v.decode() for k, v in found.data.items()} if found else {}

    def event_messages(self) -> list[str]:
        """All Events' words."""
        return [f"{event.reason}: {event.note}" for event in self.server.read_all(Event)]

    async def until(self, what: str, probe: Callable[[], object], seconds: float = 60) -> None:
        """Waits (in virtual time) until ``probe`` gives something true."""
        clock = self.runtime.clock
        started = clock.monotonic()
        while not probe():
            waited = clock.monotonic() - started
            assert waited < seconds, f"not within {seconds} s: {what}; {self._messages()}"
            await clock.sleep(0.05 if waited < 10 else 0.25)

    def _messages(self) -> list[str]:
        return [
            self.message(user.metadata.name, user.metadata.namespace) for user in self.server.read_all(DatabaseUser)
        ]

    async def ready(self, name: str = "clerk", namespace: str = "default", seconds: float = 60) -> None:
        """Waits until a user is provisioned."""

        def provisioned() -> bool:
            found = self.condition(name, namespace)
            return found is not None and found.reason == "ProvisionSucceeded"

        await self.until(f"{name} is provisioned", provisioned, seconds)

    async def wait_failed(
        self, says: str, name: str = "clerk", namespace: str = "default", seconds: float = 60
    ) -> None:
        """Waits until a user's condition says that it failed, and these words."""

        def told() -> bool:
            found = self.condition(name, namespace)
            return found is not None and found.reason == "ProvisionFailed" and says in found.message

        await self.until(f"{name} fails: {says}", told, seconds)

    @asynccontextmanager
    async def operator(self, transport: Transport | None = None) -> AsyncGenerator[Manager]:
        """Runs the operator during the block. It may do what its generated role allows, and is refused nothing.

        Args:
            transport: to the API server. Defaults to one that never fails.
        """
        for name in ("kube-system", "default"):
            await self.namespace(name)
        options = ManagerOptions(
            name="steersman-databases", graceful_shutdown_timeout=0, serve_webhooks=self.serve_webhooks
        )
        manager = Manager(transport or self.server.as_user(OPERATOR), options, self.runtime)
        self.setup(manager)
        self.server.grant(OPERATOR, cluster_role("steersman-databases", manager.permissions))
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            await asyncio.gather(running, return_exceptions=True)
        assert self.server.rbac_denials == []


def harness_of(engine: str) -> UsersHarness:
    """One whose server at ``HOST``, as `sql`, is of this engine, where users of it look for it."""
    world = UsersHarness()
    if engine == "mysql":
        mysql = InMemoryServer("mysql", now=world.runtime.clock.now)
        world.sql = world.servers[ServerEndpoint(HOST.host, 3306)] = mysql
    return world
