"""What a cluster does with the database operator's objects: volumes, pods, and servers that are models."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster_kubelet import ClusterKubelet
from patroni_model import Hosts, ModelTopology
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret
from steersman.client import Client, MergePatch
from steersman.controller import Context
from steersman.errors import Conflict, NotFound
from steersman.meta import ObjectKey, ObjectMeta
from steersman.observability.runtime import Clock
from steersman.testing import InMemoryApiServer
from steersman_databases.controllers import ClusterParts
from steersman_databases.engines import ENGINES, Contents, Credentials, Endpoint, PostgreSQL
from steersman_databases.engines.cluster_names import INSTANCE_LABEL, MEMBER_OF_LABEL, ROLE_LABEL, ClusterNames
from steersman_databases.engines.model import ModelContents, ModelServer
from steersman_databases.engines.postgresql.cluster import PostgreSQLCluster as PostgreSQLServers

_LOOK_EVERY = 0.5
_OPERATOR = Credentials("steersman_operator", "")


@dataclass
class Machines:
    """The servers that run, and what is kept on their volumes."""

    servers: dict[Endpoint, ModelServer] = field(default_factory=dict[Endpoint, ModelServer])
    passwords_on_volumes: dict[str, Credentials] = field(default_factory=dict[str, Credentials])
    hosts: Hosts = field(default_factory=Hosts)
    """Those of clusters."""
    in_clusters: dict[str, ModelServer] = field(default_factory=dict[str, ModelServer])
    """What is inside the servers of clusters, by the system that made the data."""

    def contents(self, engine: str) -> Contents:
        """The model in place of an engine."""
        return ModelContents(ENGINES[engine], self.servers)

    def parts(self, context: Context) -> ClusterParts:
        """The model in place of a cluster's members."""
        return ClusterParts(PostgreSQLServers(), ModelTopology(context.client, self.hosts))


class Kubelet:
    """Stands in for the StatefulSet controller, the volume binder and the kubelet."""

    def __init__(self, server: InMemoryApiServer, client: Client, machines: Machines) -> None:
        self._server = server
        self._client = client
        self._machines = machines
        self._clusters = ClusterKubelet(server, client, machines.hosts)

    async def run(self, clock: Clock) -> None:
        """Runs a pod for each StatefulSet, and ends what has no StatefulSet any more; never returns."""
        seen = -1
        while True:
            changes = self._server.changes()
            if changes != seen:
                await self._look()
            # What this look itself changed is looked at, too.
            seen = changes
            await clock.sleep(_LOOK_EVERY)

    async def _look(self) -> None:
        await self._clusters.look()
        self._open_clusters()
        wanted = {
            s.key: s
            for s in self._server.read_all(StatefulSet)
            if INSTANCE_LABEL not in s.spec.template.metadata.labels
        }
        for stateful in wanted.values():
            await self._run_pod(stateful)
        for pod in self._server.read_all(Pod):
            if INSTANCE_LABEL in pod.metadata.labels:
                continue
            if ObjectKey(pod.key.namespace, pod.key.name.removesuffix("-0")) not in wanted:
                await self._stop_pod(pod)
        self._server.collect_garbage()

    def _open_clusters(self) -> None:
        """The servers of clusters answer as long as their primary is ready."""
        served: dict[Endpoint, ModelServer] = {}
        for pod in self._server.read_all(Pod):
            ready = any((c.type, c.status) == ("Ready", "True") for c in pod.status.conditions)
            if not ready or pod.metadata.labels.get(ROLE_LABEL) != "primary":
                continue
            rw = ClusterNames(ObjectKey(pod.key.namespace, pod.metadata.labels[MEMBER_OF_LABEL])).service("rw")
            system = self._machines.hosts.volumes[pod.metadata.annotations["volume"]].system
            held = self._machines.in_clusters.setdefault(system, ModelServer(PostgreSQL(), _OPERATOR))
            served[Endpoint(f"{rw.name}.{rw.namespace}.svc", 5432)] = held
        for server in self._machines.in_clusters.values():
            server.up = server in served.values()
        self._machines.servers.update(served)

    async def _run_pod(self, stateful: StatefulSet) -> None:
        name, namespace = stateful.metadata.name, stateful.metadata.namespace
        key = ObjectKey(namespace, f"{name}-0")
        claim = self._server.read(PersistentVolumeClaim, ObjectKey(namespace, f"data-{name}-0"))
        admin = self._server.read(Secret, ObjectKey(namespace, f"{name}-admin"))
        running = self._server.read(Pod, key)
        if running is not None and _is_outdated(running, stateful):
            # The next look starts another one.
            await self._stop_pod(running)
            return
        if claim is None or admin is None or (running is not None and running.status.phase == "Running"):
            return
        # Only a bound claim can ask for more.
        bound = MergePatch({"status": {"phase": "Bound"}})
        await self._client.patch(PersistentVolumeClaim, claim.key, bound, subresource="status")
        template = stateful.spec.template
        metadata = ObjectMeta(name=key.name, namespace=namespace, labels=template.metadata.labels)
        pod = running or await self._client.create(Pod(metadata=metadata, spec=template.spec))
        if not self._can_be_mounted(pod):
            if not pod.status.phase:
                waits = MergePatch({"status": {"phase": "Pending"}})
                await self._client.patch(Pod, key, waits, subresource="status")
            return
        given = Credentials(admin.data["username"].decode(), admin.data["password"].decode())
        self._start_server(pod, name, claim.metadata.uid, given)
        ready = {"type": "Ready", "status": "True"}
        body = {"status": {"phase": "Running", "conditions": [ready]}}
        await self._client.patch(Pod, key, MergePatch(body), subresource="status")

    def _can_be_mounted(self, pod: Pod) -> bool:
        mounted = [v.secret.secret_name or "" for v in pod.spec.volumes if v.secret is not None]
        return all(self._server.read(Secret, ObjectKey(pod.metadata.namespace, name)) for name in mounted)

    def _start_server(self, pod: Pod, name: str, volume: str, given: Credentials) -> None:
        engine = ENGINES[pod.metadata.labels["app.kubernetes.io/name"]]
        endpoint = Endpoint(f"{name}-primary.{pod.metadata.namespace}.svc", engine.port)
        # The password is written into the data when they are made, and never changes with the Secret.
        kept = self._machines.passwords_on_volumes.setdefault(volume, given)
        servers = self._machines.servers
        if endpoint not in servers or kept != servers[endpoint].credentials:
            servers[endpoint] = ModelServer(engine, kept)
        servers[endpoint].up = True

    async def _stop_pod(self, pod: Pod) -> None:
        for endpoint, server in self._machines.servers.items():
            if endpoint.host.startswith(pod.metadata.name.removesuffix("-0")):
                server.up = False
        try:
            await self._client.delete(Pod, pod.key, uid=pod.metadata.uid)
        except (NotFound, Conflict):
            return


def _is_outdated(pod: Pod, stateful: StatefulSet) -> bool:
    template = stateful.spec.template
    images = [c.image for c in template.spec.containers]
    return (pod.metadata.labels, [c.image for c in pod.spec.containers]) != (template.metadata.labels, images)
