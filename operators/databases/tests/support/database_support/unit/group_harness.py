"""A cluster in memory around clusters of MySQL's: API server, kubelet stand-in, agents that decide as real ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from database_support.fake_server.engine import InMemorySqlEngine
from database_support.simulation.cluster_kubelet import ClusterKubelet
from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.fake_group import FakeAgents, FakeGroup, FakeGroupBackend
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.client import Client, MergePatch
from steersman.controller import ReconcilerContext
from steersman.manager import Manager
from steersman.meta import ObjectKey
from steersman_databases.api import MySQLCluster, MySQLClusterSpec
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines.cluster_engine import Setting, SettingCatalog
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine as MySQLServers
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.server import DatabaseServer, ServerEndpoint
from steersman_databases.setup import setup

KEY = ObjectKey("default", "orders")
NAMES = ClusterNames(KEY)
_KNOWN = (
    Setting(name="max_connections", value="151", kind="integer", minimum="1", maximum="100000"),
    Setting(name="innodb_log_buffer_size", value="67108864", kind="integer", minimum="262144", maximum="4294967295"),
    Setting(name="table_open_cache_instances", value="16", kind="integer", minimum="1", maximum="64"),
    Setting(name="binlog_expire_logs_seconds", value="21600", kind="integer", minimum="0", maximum="4294967295"),
    Setting(name="max_binlog_size", value="67108864", kind="integer", minimum="4096", maximum="1073741824"),
    Setting(name="require_secure_transport", value="ON", kind="bool"),
    Setting(name="slow_query_log", value="OFF", kind="bool"),
    Setting(name="sql_generate_invisible_primary_key", value="ON", kind="bool"),
    Setting(name="log_bin_trust_function_creators", value="ON", kind="bool"),
    Setting(name="sql_mode", value="STRICT_TRANS_TABLES"),
)


@dataclass
class GroupHarness(ClusterHarness):
    """Everything that outlives the operator's process."""

    kind: ClassVar[Any] = MySQLCluster
    spec: ClassVar[Any] = MySQLClusterSpec
    fake_group: FakeGroup = field(default_factory=FakeGroup)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hosts.sql = self.fake_group.sql

    def sql_engine(self, engine: str) -> InMemorySqlEngine:
        """What is inside the primary."""
        service = NAMES.service("rw")
        return InMemorySqlEngine(
            {ServerEndpoint(f"{service.name}.{service.namespace}.svc", 3306): self.fake_group.sql}, engine
        )

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        """MySQL's objects, and the model of its members."""
        return EngineParts(
            MySQLServers(), FakeGroupBackend(context.client, self.fake_group), list_settings=self.settings
        )

    async def settings(self, server: DatabaseServer) -> SettingCatalog:
        """What the server of a pod knows, and what it runs with."""
        self.settings_queries += 1
        pod = next(p for p in self.server.read_all(Pod) if p.status.pod_ip == server.endpoint.host)
        if self.unreachable:
            raise ServerUnreachable(server.endpoint, "no response")
        runs = self.fake_group.servers[pod.metadata.annotations["volume"]].started_with | self.not_resettable
        known = {one.name: one for one in _KNOWN}
        return known | {
            name: Setting(
                name=name,
                value=value,
                kind=known[name].kind,
                minimum=known[name].minimum,
                maximum=known[name].maximum,
            )
            for name, value in runs.items()
            if name in known
        }

    def setup(self, manager: Manager) -> None:
        """Adds the operator's controllers, with models in the place of servers."""
        setup(manager, sql_engine_for=self.sql_engine, mysql_factory=self.engine_parts)

    def kubelet(self, client: Client) -> ClusterKubelet:
        """What Kubernetes and the agents do."""
        return ClusterKubelet(self.server, client, self.hosts, FakeAgents(self.server, client, self.fake_group))

    @property
    def group(self) -> dict[str, str]:
        """The annotations of the group's ConfigMap, by their last word."""
        found = self.server.read(ConfigMap, NAMES.group_config)
        if found is None:
            return {}
        return {key.rpartition("/")[2]: value for key, value in found.metadata.annotations.items()}

    async def kill(self, *instances: str) -> None:
        """Deletes pods at once, without a word to their servers."""
        for name in instances:
            pod = self.pods()[name]
            claim = pod.metadata.annotations["volume"]
            self.fake_group.servers[claim].is_running, self.fake_group.servers[claim].group_number = False, 0
            await self.client.delete(Pod, pod.key)
            await self.client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))

    async def lose_nodes(self, *instances: str, **container: object) -> None:
        """Has their nodes die: pods stay with what they said last. Too few that are left are no group any more.

        ``container``: how the server's stands, where somebody is left to tell.
        """
        majority = len(self.fake_group.online()) > 2 * len(instances)
        for server in self.fake_group.online() if not majority else map(self.data, instances):
            server.group_number = 0
        condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": self.runtime.clock.now().isoformat()}
        told = [{"name": "server", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": container}]
        for name in instances:
            pod = self.pods()[name]
            self.data(name).runs = False
            self.fake_group.unreachable.add(pod.metadata.name)
            status = {"conditions": [condition], "containerStatuses": told if container else []}
            await self.client.patch(Pod, pod.key, MergePatch({"status": status}), subresource="status")

    def data(self, instance: str) -> Any:
        """The server whose data are an instance's."""
        return self.fake_group.servers[self.pods()[instance].metadata.annotations["volume"]]
