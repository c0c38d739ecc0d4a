"""A PVC remains if the operator misses the deletion of its pod.

After instaclustr/cassandra-operator#398: with ``deletePVCs``, the operator searched for pods with a deletion
timestamp and deleted their PVCs. If a pod was deleted completely before the next reconcile, its PVC remained.

Shown by: the watch of pods is delayed, or the process is down, from the deletion request until the pod is gone.

The twin does not depend on events. Each reconcile compares the existing PVCs with the declared nodes. It waits until
no pod uses a PVC, and deletes it with its UID as a precondition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import has_owner_label, kubelet, object_meta, ordinal, requests_for_owner, set_spec
from gallery.stateful_sets import stateful_set, stateful_set_controller
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.cache import CachedClient
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World


class CassandraSpec(Spec):
    nodes: Annotated[int, Field(ge=0, le=9)] = 1
    """Number of nodes. PVCs of other nodes are deleted."""


@resource(group="gallery.example.com", version="v1")
class Cassandra(Resource[CassandraSpec, Status]):
    """A database whose nodes store data in PVCs."""


class FaultyCassandraReconciler(RequestReconciler[Cassandra]):
    async def reconcile(self, request: Request) -> Result:
        cassandra = await self.client.get(Cassandra, request)
        await self.client.apply(stateful_set(cassandra, cassandra.spec.nodes), owner=cassandra)
        for pod in await self.client.list(Pod, namespace=request.namespace, where=has_owner_label(cassandra)):
            if pod.metadata.deletion_timestamp is not None:
                await delete_pvc_of_pod(pod, self.client)
        return Result()


async def delete_pvc_of_pod(pod: Pod, client: CachedClient) -> None:
    """Delete the PVC with the name of the pod."""
    key = Request(pod.metadata.namespace, f"data-{pod.metadata.name}")
    claim = await client.get_or_none(PersistentVolumeClaim, key)
    if claim is not None and claim.metadata.deletion_timestamp is None:
        await client.delete(PersistentVolumeClaim, key)


class CassandraReconciler(RequestReconciler[Cassandra]):
    async def reconcile(self, request: Request) -> Result:
        cassandra = await self.client.get(Cassandra, request)
        await self.client.apply(stateful_set(cassandra, cassandra.spec.nodes), owner=cassandra)
        owned_pods, namespace = has_owner_label(cassandra), request.namespace
        used = {
            f"data-{pod.metadata.name}" for pod in await self.client.list(Pod, namespace=namespace, where=owned_pods)
        }
        for pvc in await self.client.list(PersistentVolumeClaim, namespace=namespace, where=owned_pods):
            wanted = ordinal(pvc) < cassandra.spec.nodes or pvc.metadata.name in used
            if not wanted and pvc.metadata.deletion_timestamp is None:
                await self.client.delete(PersistentVolumeClaim, pvc.key, uid=pvc.metadata.uid)
        return Result()


def setup(reconciler: type[RequestReconciler[Cassandra]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        (
            manager.controller(Cassandra)
            .owns(StatefulSet)
            .watches(Pod, requests_for_owner)
            .watches(PersistentVolumeClaim, requests_for_owner)
            .needs(PersistentVolumeClaim, "delete")
            .complete(reconciler)
        )

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Scale to two nodes, then to one."""
    await world.client.create(Cassandra(metadata=object_meta("ring"), spec=CassandraSpec(nodes=2)))
    await world.settle()
    await set_spec(world, Cassandra, "ring", nodes=1)
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Only the PVC of the remaining node exists."""
    assert {claim.metadata.name for claim in world.read_all(PersistentVolumeClaim)} == {"data-ring-0"}


BUG_CASE = BugCase(
    faulty=setup(FaultyCassandraReconciler),
    corrected=setup(CassandraReconciler),
    kinds=(Cassandra,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "another replica acquires the lease during call 3",
        "operator    3  APPLY statefulsets.apps default/ring  200",
        "user           DELETE pods default/ring-1  200",
        "the operator is restarted",
        "wrong      PersistentVolumeClaim default/data-ring-1 exists, but is not expected",
        "replay='lease:3'",
    ),
    actors=(stateful_set_controller, kubelet()),
)
