"""What a cluster does with the database operator's objects: volumes, pods, and servers that are models."""

from __future__ import annotations

from dataclasses import dataclass, field

from database_support import group_model, patroni_model
from database_support.cluster_kubelet import ClusterKubelet
from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.controller import ReconcilerContext
from steersman.meta import ObjectKey, is_true
from steersman_databases.controllers import ClusterParts
from steersman_databases.engines import ENGINES, Contents, Credentials, Endpoint
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, OPERATOR, ROLE_LABEL, ClusterNames
from steersman_databases.engines.model import ModelContents, ModelServer
from steersman_databases.engines.mysql.cluster import MySQLCluster as MySQLServers
from steersman_databases.engines.postgresql.cluster import PostgreSQLCluster as PostgreSQLServers
from steersman_testing import InMemoryApiServer


@dataclass
class Machines:
    """The servers that run, and what is kept on their volumes. Of MySQL there is one cluster at a time."""

    servers: dict[Endpoint, ModelServer] = field(default_factory=dict[Endpoint, ModelServer])
    hosts: patroni_model.Hosts = field(default_factory=patroni_model.Hosts)
    farm: group_model.Farm = field(default_factory=group_model.Farm)
    inside: dict[str, ModelServer] = field(default_factory=dict[str, ModelServer])
    """What is inside the servers, by the system that made the data."""

    def contents(self, engine: str) -> Contents:
        """The model in place of an engine."""
        return ModelContents(ENGINES[engine], self.servers)

    def postgresql(self, context: ReconcilerContext) -> ClusterParts:
        """The model in place of PostgreSQL's members."""
        return ClusterParts(PostgreSQLServers(), patroni_model.ModelTopology(context.client, self.hosts))

    def mysql(self, context: ReconcilerContext) -> ClusterParts:
        """The model in place of MySQL's."""
        return ClusterParts(MySQLServers(), group_model.ModelTopology(context.client, self.farm))


class Kubelet(ClusterKubelet):
    """Runs the members of both engines, and has their servers answer."""

    def __init__(self, server: InMemoryApiServer, client: Client, machines: Machines) -> None:
        patroni = patroni_model.Patroni(server, client, machines.hosts)
        agents = group_model.Agents(server, client, machines.farm)
        super().__init__(server, client, machines.hosts, _Both(patroni, agents))
        self._api = server
        self._machines = machines

    async def look(self) -> None:
        """One round."""
        await super().look()
        self._open()

    def _open(self) -> None:
        """The servers of a cluster answer as long as its primary is ready."""
        served: dict[Endpoint, ModelServer] = {}
        for pod in self._api.read_all(Pod):
            if is_true(pod.status.conditions, "Ready") and pod.metadata.labels.get(ROLE_LABEL) == "primary":
                rw = ClusterNames(ObjectKey(pod.key.namespace, pod.metadata.labels[MEMBER_OF_LABEL])).service("rw")
                engine = ENGINES[pod.metadata.labels["app.kubernetes.io/name"]]
                empty = ModelServer(engine, Credentials(OPERATOR, ""))
                held = self._machines.inside.setdefault(self._system(pod), empty)
                served[Endpoint(f"{rw.name}.{rw.namespace}.svc", engine.port)] = held
        for server in self._machines.inside.values():
            server.up = server in served.values()
        self._machines.servers.update(served)

    def _system(self, pod: Pod) -> str:
        volume = pod.metadata.annotations["volume"]
        of_mysql = self._machines.farm.servers.get(volume)
        return self._machines.hosts.volumes[volume].system if of_mysql is None else of_mysql.uuid


@dataclass
class _Both:
    """Members of either engine: each finds its own pods."""

    patroni: patroni_model.Patroni
    agents: group_model.Agents

    def ended(self, pod: Pod) -> bool:
        """See `cluster_kubelet.Members`."""
        return self.agents.ended(pod) and self.patroni.ended(pod)

    async def look(self) -> None:
        await self.patroni.look()
        await self.agents.look()

    def news(self) -> object:
        return self.patroni.news(), self.agents.news()
