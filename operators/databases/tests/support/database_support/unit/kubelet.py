"""What a cluster does with the database operator's objects: volumes, pods, and servers that are models."""

from __future__ import annotations

from dataclasses import dataclass, field

from database_support.fake_server.server import FakeServer, FakeSqlEngine
from database_support.simulation.cluster_kubelet import ClusterKubelet
from database_support.unit import fake_group as unit_fake_group
from database_support.unit import fake_patroni
from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.controller import ReconcilerContext
from steersman.meta import ObjectKey, is_true
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines import ServerEndpoint, SqlCredentials, SqlEngine
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine as MySQLServers
from steersman_databases.engines.naming import CLUSTER_LABEL, OPERATOR_ROLE, ROLE_LABEL, ClusterNames
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQLServers
from steersman_databases.engines.registry import SQL_ENGINES
from steersman_testing import InMemoryApiServer


@dataclass
class RunningServers:
    """The servers that run, and what is kept on their volumes. Of MySQL there is one cluster at a time."""

    servers: dict[ServerEndpoint, FakeServer] = field(default_factory=dict[ServerEndpoint, FakeServer])
    fake_hosts: fake_patroni.FakeHosts = field(default_factory=fake_patroni.FakeHosts)
    fake_group: unit_fake_group.FakeGroup = field(default_factory=unit_fake_group.FakeGroup)
    contents_by_cluster: dict[str, FakeServer] = field(default_factory=dict[str, FakeServer])
    """What is inside the servers, by the system that made the data."""

    def sql_engine(self, engine: str) -> SqlEngine:
        """The model in place of an engine."""
        return FakeSqlEngine(SQL_ENGINES[engine], self.servers)

    def postgresql(self, context: ReconcilerContext) -> EngineParts:
        """The model in place of PostgreSQL's members."""
        return EngineParts(PostgreSQLServers(), fake_patroni.FakePatroniBackend(context.client, self.fake_hosts))

    def mysql(self, context: ReconcilerContext) -> EngineParts:
        """The model in place of MySQL's."""
        return EngineParts(MySQLServers(), unit_fake_group.FakeGroupBackend(context.client, self.fake_group))


class DatabaseKubelet(ClusterKubelet):
    """Runs the members of both engines, and has their servers answer."""

    def __init__(self, server: InMemoryApiServer, client: Client, machines: RunningServers) -> None:
        patroni = fake_patroni.FakePatroni(server, client, machines.fake_hosts)
        agents = unit_fake_group.FakeAgents(server, client, machines.fake_group)
        super().__init__(server, client, machines.fake_hosts, _BothEngines(patroni, agents))
        self._api = server
        self._machines = machines

    async def sync(self) -> None:
        """One round."""
        await super().sync()
        self._open()

    def _open(self) -> None:
        """The servers of a cluster answer as long as its primary is ready."""
        served: dict[ServerEndpoint, FakeServer] = {}
        for pod in self._api.read_all(Pod):
            if is_true(pod.status.conditions, "Ready") and pod.metadata.labels.get(ROLE_LABEL) == "primary":
                rw = ClusterNames(ObjectKey(pod.key.namespace, pod.metadata.labels[CLUSTER_LABEL])).service("rw")
                engine = SQL_ENGINES[pod.metadata.labels["app.kubernetes.io/name"]]
                empty = FakeServer(engine, SqlCredentials(OPERATOR_ROLE, ""))
                held = self._machines.contents_by_cluster.setdefault(self._system(pod), empty)
                served[ServerEndpoint(f"{rw.name}.{rw.namespace}.svc", engine.port)] = held
        for server in self._machines.contents_by_cluster.values():
            server.up = server in served.values()
        self._machines.servers.update(served)

    def _system(self, pod: Pod) -> str:
        volume = pod.metadata.annotations["volume"]
        of_mysql = self._machines.fake_group.servers.get(volume)
        return self._machines.fake_hosts.volumes[volume].system if of_mysql is None else of_mysql.uuid


@dataclass
class _BothEngines:
    """Members of either engine: each finds its own pods."""

    patroni: fake_patroni.FakePatroni
    agents: unit_fake_group.FakeAgents

    def restore(self, pvc_uid: str) -> None:
        """Not played: these clusters are not restored in place."""
        raise NotImplementedError

    def is_stopped(self, pod: Pod) -> bool:
        """See `cluster_kubelet.Members`."""
        return self.agents.is_stopped(pod) and self.patroni.is_stopped(pod)

    async def sync(self) -> None:
        await self.patroni.sync()
        await self.agents.sync()

    def state(self) -> object:
        return self.patroni.state(), self.agents.state()
