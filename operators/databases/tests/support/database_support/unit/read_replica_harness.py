"""A cluster in memory whose read replicas are a model: their pods, their readiness and what they report."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from database_support.simulation.cluster_kubelet import ClusterKubelet
from database_support.unit.cluster_harness import KEY, ClusterHarness
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.client import Client, MergePatch
from steersman.controller import ReconcilerContext
from steersman.meta import ObjectKey, ObjectMeta, OwnerReference, to_builtins
from steersman.observability.runtime import Clock
from steersman_databases.api.read_replicas import ReadReplicasStatus
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.naming import READ_REPLICA_LABEL
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.read_replicas.model import ReadReplicaReport

_SYNC_SECONDS = 0.5


@dataclass
class ReadReplicaHarness(ClusterHarness):
    """All read replicas have the same load; those in `copying` are not ready."""

    connections: int | None = 0
    copying: set[int] = field(default_factory=set[int])
    stranded_volumes: set[str] = field(default_factory=set[str])
    """UIDs of PVCs on nodes that are lost: no pod with one of them can be scheduled."""
    addresses: dict[str, int] = field(default_factory=dict[str, int])

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        """See `ClusterHarness.engine_parts`."""
        return replace(super().engine_parts(context), get_read_replica_report=self.report)

    async def report(self, endpoint: ServerEndpoint, authorities: str) -> ReadReplicaReport:
        """What the program of a read replica reports."""
        assert authorities.startswith("-----BEGIN CERTIFICATE")
        number = self.addresses[endpoint.host]
        if self.connections is None:
            raise ServerUnreachable(endpoint, "no response")
        state = "Copying" if number in self.copying else "Streaming"
        return ReadReplicaReport(state=state, connections=self.connections, cpu_cores=0.05)

    def kubelet(self, client: Client) -> Any:
        """See `ClusterHarness.kubelet`."""
        return _Kubelet(self, client, super().kubelet(client))

    @property
    def read_replicas(self) -> ReadReplicasStatus:
        """What the status says of them."""
        return self.status.read_replicas or ReadReplicasStatus()

    def read_replica_pods(self) -> dict[int, Pod]:
        """Their pods by number."""
        return {
            int(pod.metadata.labels[READ_REPLICA_LABEL]): pod
            for pod in self.server.read_all(Pod)
            if READ_REPLICA_LABEL in pod.metadata.labels
        }

    def slots(self) -> set[str]:
        """The slots that every primary has."""
        return set(self.shared_configuration().get("slots", {}))


@dataclass
class _Kubelet:
    """Runs the pods of read replicas besides those of the instances."""

    world: ReadReplicaHarness
    client: Client
    instances: ClusterKubelet

    async def run(self, clock: Clock) -> None:
        """Never returns."""
        await asyncio.gather(self.instances.run(clock), self._run(clock))

    async def _run(self, clock: Clock) -> None:
        while True:
            await self._sync()
            await clock.sleep(_SYNC_SECONDS)

    async def _sync(self) -> None:
        server = self.world.server
        wanted = {s.key: s for s in server.read_all(StatefulSet) if READ_REPLICA_LABEL in s.metadata.labels}
        for pod in self.world.read_replica_pods().values():
            stateful = wanted.get(ObjectKey(KEY.namespace, pod.metadata.name.removesuffix("-0")))
            if stateful is None or not stateful.spec.replicas:
                await self.client.delete(Pod, pod.key)
        for stateful in wanted.values():
            name = stateful.metadata.name
            claim = server.read(PersistentVolumeClaim, ObjectKey(KEY.namespace, f"data-{name}"))
            if claim is not None and stateful.spec.replicas:
                await self._start(stateful)
        for number, pod in self.world.read_replica_pods().items():
            if not pod.status.pod_ip:
                continue
            ready = "False" if number in self.world.copying else "True"
            if [c.status for c in pod.status.conditions if c.type == "Ready"] != [ready]:
                body = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
                await self.client.patch(Pod, pod.key, MergePatch(body), subresource="status")

    async def _start(self, stateful: StatefulSet) -> None:
        key = ObjectKey(KEY.namespace, f"{stateful.metadata.name}-0")
        if self.world.server.read(Pod, key) is not None:
            return
        template = stateful.spec.template
        owner = OwnerReference(
            api_version="apps/v1",
            kind="StatefulSet",
            name=stateful.metadata.name,
            uid=stateful.metadata.uid,
            controller=True,
        )
        metadata = ObjectMeta(
            name=key.name,
            namespace=key.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        )
        await self.client.create(Pod(metadata=metadata, spec=template.spec))
        claim = self.world.server.read(PersistentVolumeClaim, ObjectKey(KEY.namespace, f"data-{owner.name}"))
        if claim is not None and claim.metadata.uid in self.world.stranded_volumes:
            nowhere = {
                "type": "PodScheduled",
                "status": "False",
                "lastTransitionTime": to_builtins(self.world.runtime.clock.now()),
            }
            status = MergePatch({"status": {"phase": "Pending", "conditions": [nowhere]}})
            await self.client.patch(Pod, key, status, subresource="status")
            return
        if claim is not None:
            bound = MergePatch({"status": {"phase": "Bound"}})
            await self.client.patch(PersistentVolumeClaim, claim.key, bound, subresource="status")
        number = int(stateful.metadata.labels[READ_REPLICA_LABEL])
        address = f"10.1.0.{len(self.world.addresses)}"
        self.world.addresses[address] = number
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await self.client.patch(Pod, key, MergePatch({"status": status}), subresource="status")
