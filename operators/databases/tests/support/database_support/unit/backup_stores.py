"""Backup stores for unit tests, and a probe without an object store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from steersman.api.core_v1 import Secret
from steersman.api.events_v1 import Event
from steersman.client import Client
from steersman.manager import Manager, ManagerOptions
from steersman.meta import Condition, FrozenDict, ObjectKey, ObjectMeta, decode_builtins, find_condition
from steersman.observability.runtime import Runtime
from steersman_databases.api import BackupStore
from steersman_databases.features.backup_store.access import StoreAccess
from steersman_databases.features.backup_store.controller import setup_backup_stores
from steersman_databases.features.backup_store.layout import ArchiveIdentity
from steersman_databases.features.backup_store.report import ProbeReport
from steersman_manifests.crd import definition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime

OPERATOR = "system:serviceaccount:steersman-databases-system:steersman-databases"
ARCHIVE = ObjectKey("shop", "archive")
CREDENTIALS = {"ACCESS_KEY_ID": b"AKID", "SECRET_ACCESS_KEY": b"hush\n"}


def store(name: str = "archive", namespace: str = "shop", **spec: Any) -> BackupStore:
    """A store in S3, by the JSON names of its spec."""
    wire: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "s3": {"bucket": "backups", "endpoint": "https://s3.example.com"},
            "credentials": {"secretRef": {"name": "credentials"}},
            **spec,
        },
    }
    return decode_builtins({k: v for k, v in wire.items() if v is not None}, BackupStore)


def secret(name: str, data: Mapping[str, bytes], labels: Mapping[str, str] | None = None) -> Secret:
    """A Secret in the namespace of the store."""
    metadata = ObjectMeta(name=name, namespace="shop", labels=FrozenDict(labels or {}))
    return Secret(metadata=metadata, data=FrozenDict(data))


@dataclass
class FakeProbe:
    """Returns ``report`` for each access, and keeps the accesses and claims."""

    report: ProbeReport = field(default_factory=ProbeReport)
    checked: list[StoreAccess] = field(default_factory=list[StoreAccess])
    claimed: list[tuple[str, ArchiveIdentity]] = field(default_factory=list[tuple[str, ArchiveIdentity]])

    async def check(self, access: StoreAccess) -> ProbeReport:
        self.checked.append(access)
        return self.report

    async def claim(self, access: StoreAccess, path: str, identity: ArchiveIdentity) -> None:
        self.claimed.append((path, identity))


@dataclass
class StoresHarness:
    """The controller of backup stores on the in-memory API server, in virtual time."""

    runtime: Runtime = field(default_factory=virtual_runtime)
    probe: FakeProbe = field(default_factory=FakeProbe)
    serve_webhooks: bool = True

    def __post_init__(self) -> None:
        self.server = InMemoryApiServer(self.runtime)
        self.server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        self.server.load(definition(BackupStore))
        self.client = Client(self.server, field_manager="test")

    @asynccontextmanager
    async def operator(self) -> AsyncGenerator[Manager]:
        """The controller while it runs, with the permissions that it declares."""
        manager = Manager(
            self.server.as_user(OPERATOR),
            ManagerOptions(
                name="steersman-databases", graceful_shutdown_timeout=0, serve_webhooks=self.serve_webhooks
            ),
            self.runtime,
        )
        setup_backup_stores(manager, self.probe)
        self.server.grant(OPERATOR, cluster_role("operator", manager.permissions))
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            await asyncio.gather(running, return_exceptions=True)

    def read(self) -> BackupStore:
        found = self.server.read(BackupStore, ARCHIVE)
        assert found is not None
        return found

    def key_secret(self) -> Secret | None:
        return self.server.read(Secret, ObjectKey("shop", "archive-key"))

    def condition(self, name: str = "Ready") -> Condition | None:
        return find_condition(self.read().status.conditions, name)

    def reason(self, name: str = "Ready") -> str:
        found = self.condition(name)
        return "" if found is None else found.reason

    def events(self) -> list[str]:
        return [str(event.reason) for event in self.server.read_all(Event)]

    async def until(self, what: str, probe: Callable[[], object], seconds: float = 400) -> None:
        """Wait in virtual time until ``probe`` returns a true value."""
        clock = self.runtime.clock
        started = clock.monotonic()
        while not probe():
            waited = clock.monotonic() - started
            assert waited < seconds, f"not within {seconds} s: {what}; {self.condition()}"
            await clock.sleep(0.05 if waited < 10 else 0.25)
