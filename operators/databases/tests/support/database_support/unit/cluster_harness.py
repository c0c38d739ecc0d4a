"""A cluster in memory around the operator's clusters: API server, kubelet stand-in, members that are a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from database_support.fake_server.engine import InMemorySqlEngine
from database_support.setting_catalogs import CATALOGS
from database_support.simulation.cluster_kubelet import ClusterKubelet
from database_support.unit.fake_patroni import FakeHosts, FakePatroniBackend
from database_support.unit.shared_start import shared_start
from steersman.api.apply import core, meta
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.api.events_v1 import Event
from steersman.client import Client, MergePatch, Transport
from steersman.controller import ReconcilerContext
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta
from steersman.observability.runtime import Runtime
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    MySQLCluster,
    PostgreSQLCluster,
    PostgreSQLClusterSpec,
    Restore,
)
from steersman_databases.api.database_user import DatabaseUser
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines.cluster_engine import SettingCatalog, SettingValidation, UpgradeInventory
from steersman_databases.engines.errors import ServerUnreachable, SqlFailed
from steersman_databases.engines.naming import INSTANCE_LABEL, SUPERUSER_ROLE, VERSION_LABEL, ClusterNames
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQLServers
from steersman_databases.engines.server import DatabaseServer, ServerEndpoint
from steersman_databases.setup import setup
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime

_CONTEXTS = {name.lower(): setting.context for name, setting in CATALOGS["17"].items()}
KEY = ObjectKey("default", "orders")
NAMES = ClusterNames(KEY)
OPERATOR = "system:serviceaccount:steersman-databases-system:steersman-databases"


@dataclass
class ClusterHarness:
    """Everything that outlives the operator's process."""

    kind: ClassVar[Any] = PostgreSQLCluster
    spec: ClassVar[Any] = PostgreSQLClusterSpec

    runtime: Runtime = field(default_factory=virtual_runtime)
    hosts: FakeHosts = field(default_factory=FakeHosts)
    not_resettable: dict[str, str] = field(default_factory=dict[str, str])
    """What servers run with, whatever they are told."""
    unreachable: bool = False
    """Whether nobody can ask servers for their parameters."""
    manual_settings: set[str] = field(default_factory=set[str])
    """Parameters that no server forgets."""
    settings_queries: int = 0
    oldest_wal: int = 0
    """Where the log of the primary begins."""
    wal_queries: int = 0
    inventory: UpgradeInventory = field(default_factory=UpgradeInventory)
    serve_webhooks: bool = True

    def __post_init__(self) -> None:
        self.server = InMemoryApiServer(self.runtime)
        for kind in (Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore):
            self.server.register(kind)
        self.client = Client(self.server, field_manager="test")

    def sql_engine(self, engine: str) -> InMemorySqlEngine:
        """What is inside the primary, in place of the engine."""
        service = NAMES.service("rw")
        return InMemorySqlEngine(
            {ServerEndpoint(f"{service.name}.{service.namespace}.svc", 5432): self.hosts.sql}, engine
        )

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        """PostgreSQL's objects, and the model of its members."""
        topology = FakePatroniBackend(context.client, self.hosts)
        return EngineParts(
            PostgreSQLServers(),
            topology,
            list_settings=self.settings,
            upgrade_inventory=self.upgrade_inventory,
            reset_alter_system=self.reset_alter_system,
            is_wal_missing=self.is_wal_missing,
            validate_settings=self.validate_settings,
        )

    async def upgrade_inventory(self, _server: DatabaseServer) -> UpgradeInventory:
        """What the databases have."""
        return self.inventory

    async def settings(self, server: DatabaseServer) -> SettingCatalog:
        """What the server of a pod knows, and what it runs with: numbers in its own unit, or in MB."""
        self.settings_queries += 1
        pod = self.pod_of(server)
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        told = self.stored_parameters()
        altered = self.hosts.loaded.get(pod.metadata.name, {})
        shown = {**told, **altered, **self.hosts.running.get(pod.metadata.uid, {}), **self.not_resettable}
        known = dict(CATALOGS["17"])
        for name in known.keys() & shown.keys():
            value = shown[name]
            unit = 8 if known[name].unit == "8kB" else 1
            number = str(int(value[:-2]) * 1024 // unit) if value.endswith("MB") else value
            known[name] = replace(known[name], value=number, overridden=name in altered)
        if int(pod.metadata.labels[VERSION_LABEL]) < 17:
            del known["allow_alter_system"]
        return known

    async def is_wal_missing(self, server: DatabaseServer, position: int) -> bool:
        """Whether the primary has not what comes after a position."""
        self.wal_queries += 1
        assert self.pod_of(server).metadata.name == f"{self.status.primary}-0"
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        return position < self.oldest_wal

    async def reset_alter_system(self, server: DatabaseServer, names: Collection[str]) -> Sequence[str]:
        """Has a server forget what ALTER SYSTEM wrote."""
        assert server.login.username == SUPERUSER_ROLE
        pod = self.pod_of(server)
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        written = self.hosts.altered.get(pod.metadata.name, {})
        standing = sorted(names & written.keys())
        assert not standing or self.stored_parameters().get("allow_alter_system", "on") == "on", (
            "the server refuses it"
        )
        if self.manual_settings & set(standing):
            raise SqlFailed("resetting it", None, "it is kept")
        for name in standing:
            del written[name]
        return standing

    async def validate_settings(self, server: DatabaseServer, values: Mapping[str, str]) -> SettingValidation:
        """What a session may set is tried, and of the rest it is seen whether it was read."""
        assert server.login.username == SUPERUSER_ROLE
        self.pod_of(server)
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        wrong = self.hosts.unreadable_values
        refused = {
            name: f'invalid value for parameter "{name}": "{value}"'
            for name, value in values.items()
            if (name, value) in wrong and _CONTEXTS.get(name, "user") in ("user", "superuser")
        }
        in_file = {
            n: (v, f"line 7: {n} = {v}: it was not applied")
            for n, v in self.stored_parameters().items()
            if (n, v) in wrong
        }
        broken = {"": ("", self.hosts.broken_line)} if self.hosts.broken_line else {}
        return SettingValidation(refused, in_file | broken)

    def shared_configuration(self) -> dict[str, Any]:
        """The configuration that all members share."""
        store = self.server.read(ConfigMap, NAMES.dcs_config)
        assert store is not None
        return json.loads(store.metadata.annotations["config"])

    def stored_parameters(self) -> dict[str, str]:
        """The parameters that Patroni is told."""
        return self.shared_configuration()["postgresql"]["parameters"]

    def parameter_trials(self) -> dict[str, Any]:
        """The operator's record next to the configuration, without the changes of the last day."""
        recorded: dict[str, Any] = self.shared_configuration().get("steersman", {})
        return {key: value for key, value in recorded.items() if key != "changed"}

    def pod_of(self, server: DatabaseServer) -> Pod:
        """The pod that runs it."""
        return next(p for p in self.server.read_all(Pod) if p.status.pod_ip == server.endpoint.host)

    async def create(self, **spec: Any) -> Any:
        """Creates the cluster orders."""
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        return await self.client.create(self.kind(metadata=metadata, spec=self.spec(**spec)))

    @shared_start
    async def create_ready(self, ready: int | None = None, /, **spec: Any) -> None:
        """Create the cluster and wait until it is ready.

        Args:
            ready: number of ready instances. Defaults to any.
            spec: fields of the cluster.
        """
        await self.create(**spec)
        await self.ready(ready)

    async def change(self, **spec: Any) -> None:
        """Patches its spec; names are the wire's."""
        await self.client.patch(self.kind, KEY, MergePatch({"spec": spec}))

    async def annotate(self, **annotations: str | None) -> None:
        """Patches its annotations of ours."""
        notes = {f"databases.steersman.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        await self.client.patch(self.kind, KEY, MergePatch({"metadata": {"annotations": notes}}))

    @property
    def cluster(self) -> Any:
        """It, as it is now."""
        return self.server.read(self.kind, KEY)

    @property
    def status(self) -> Any:
        """Its status; None before there is one."""
        return self.cluster.status if self.cluster else None

    def condition(self, type_: str) -> str:
        """``status/reason`` of a condition; empty where there is none."""
        conditions = self.status.conditions if self.status else ()
        return next((f"{c.status}/{c.reason}" for c in conditions if c.type == type_), "")

    def message(self, type_: str) -> str:
        """What a condition says; empty where there is none."""
        conditions = self.status.conditions if self.status else ()
        return next((c.message for c in conditions if c.type == type_), "")

    def pods(self) -> dict[str, Pod]:
        """Its pods by the instance's name."""
        running = self.server.read_all(Pod)
        return {p.metadata.name.removesuffix("-0"): p for p in running if INSTANCE_LABEL in p.metadata.labels}

    def uids(self) -> dict[str, str]:
        """The pods' UIDs by instance: what differs has been restarted."""
        return {name: pod.metadata.uid for name, pod in self.pods().items()}

    def secret(self, name: str) -> dict[str, str]:
        """A Secret's entries, decoded; empty where there is none."""
        found = self.server.read(Secret, ObjectKey(KEY.namespace, name))
        return {k: v.decode() for k, v in found.data.items()} if found else {}

    @property
    def unschedulable(self) -> set[str]:
        """Values of node selectors that no node has."""
        return self.hosts.unschedulable

    def pvc_names(self) -> list[str]:
        """Names of all claims."""
        return sorted(c.metadata.name for c in self.server.read_all(PersistentVolumeClaim))

    def statefulsets(self) -> list[str]:
        """Names of all StatefulSets."""
        return sorted(s.metadata.name for s in self.server.read_all(StatefulSet))

    def events(self) -> list[str]:
        """Reasons of all Events."""
        return [e.reason or "" for e in self.server.read_all(Event)]

    def messages(self, reason: str) -> set[str]:
        """What Events of a reason say."""
        return {e.note or "" for e in self.server.read_all(Event) if e.reason == reason}

    def warnings(self, reason: str) -> list[str]:
        """What Events of type Warning say for a reason."""
        return [e.note or "" for e in self.server.read_all(Event) if (e.type, e.reason) == ("Warning", reason)]

    async def set_parameters(self, **values: str | None) -> None:
        """Changes parameters; None takes one away."""
        await self.change(postgresql={"parameters": values})

    async def until(self, what: str, probe: Callable[[], object], seconds: float = 300) -> None:
        """Waits (in virtual time) until ``probe`` gives something true."""
        clock = self.runtime.clock
        deadline = clock.monotonic() + seconds
        while not probe():
            if clock.monotonic() > deadline:
                conditions = self.status.conditions if self.status else ()
                told = "\n".join(f"{c.type} {c.status} {c.reason}: {c.message}" for c in conditions)
                raise AssertionError(f"not within {seconds} s: {what}\n{told}")
            await clock.sleep(0.25)

    async def ready(self, instances: int | None = None) -> None:
        """Waits until it is as declared, with so many instances."""

        def is_ready() -> bool:
            cluster = self.cluster
            if cluster is None or cluster.status.phase != "Ready":
                return False
            if cluster.status.observed_generation != cluster.metadata.generation:
                return False
            return instances is None or cluster.status.ready_instances == instances

        await self.until(f"ready with {instances} instances", is_ready)

    async def degraded(self, instances: int) -> None:
        """Waits until so many instances serve what is declared, but for what the conditions say."""

        def is_degraded() -> bool:
            status, current = self.status, self.cluster.metadata.generation
            told = (status.observed_generation, status.ready_instances, self.condition("Ready"))
            return told == (current, instances, "False/Degraded")

        await self.until(f"degraded with {instances} instances", is_degraded)

    async def wait(self, seconds: float = 60) -> None:
        """Lets time pass."""
        await self.runtime.clock.sleep(seconds)

    def setup(self, manager: Manager) -> None:
        """Adds the operator's controllers, with models in the place of servers."""
        setup(manager, sql_engine_for=self.sql_engine, postgresql_factory=self.engine_parts)

    def kubelet(self, client: Client) -> ClusterKubelet:
        """What Kubernetes and the members do."""
        return ClusterKubelet(self.server, client, self.hosts)

    @asynccontextmanager
    async def operator(self, transport: Transport | None = None) -> AsyncGenerator[Manager]:
        """Runs the operator, and what Kubernetes does with its objects, during the block.

        It may do what its generated role allows, and must not be refused anything.
        """
        await self.client.apply(core.Namespace(metadata=meta.ObjectMeta(name="kube-system")))
        options = ManagerOptions(
            name="steersman-databases", graceful_shutdown_timeout=0, serve_webhooks=self.serve_webhooks
        )
        manager = Manager(transport or self.server.as_user(OPERATOR), options, self.runtime)
        self.setup(manager)
        self.server.grant(OPERATOR, cluster_role("steersman-databases", manager.permissions))
        kubelet = self.kubelet(Client(self.server, field_manager="kubelet"))
        tasks = [asyncio.create_task(manager.run()), asyncio.create_task(kubelet.run(self.runtime.clock))]
        try:
            yield manager
        finally:
            if tasks[1].done():
                tasks[1].result()
            manager.stop()
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert self.server.rbac_denials == []
