"""The PVC of a recreated pod is deleted.

After instaclustr/cassandra-operator#407, and similar to pravega/zookeeper-operator#314: nodes are scaled down and up
again. An operator that still observes the previous pod with a deletion timestamp deletes the PVC of that name. The
new pod loses its data. (In the original report, reads from a lagging API server caused this. Here a delayed watch is
enough.)

Shown by: the watch of pods is delayed from before the previous pod is deleted until the new one exists.

The operator is that of ``unobserved_state/pvc_of_removed_pod.py``. The faulty one has that bug fixed: it deletes
leftover PVCs. It also still deletes the PVC of each pod with a deletion timestamp.

The twin never deletes the PVC of a declared node, whatever the cache contains. The desired state is certain: the
operator has created the new pod from it, and reads never return an older spec.
"""

from __future__ import annotations

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import has_owner_label, kubelet, set_spec
from gallery.stateful_sets import stateful_set_controller
from gallery.unobserved_state import pvc_of_removed_pod as former
from gallery.unobserved_state.pvc_of_removed_pod import Cassandra, CassandraReconciler, setup
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.controller import Request, Result
from steersman_testing.simulation import World


class FaultyCassandraReconciler(CassandraReconciler):
    async def reconcile(self, request: Request) -> Result:
        await super().reconcile(request)
        cassandra = await self.client.get(Cassandra, request)
        for pod in await self.client.list(Pod, namespace=request.namespace, where=has_owner_label(cassandra)):
            if pod.metadata.deletion_timestamp is not None:
                await former.delete_pvc_of_pod(pod, self.client)
        return Result()


async def scenario(world: World[NoExternalSystem]) -> None:
    """Scale to two nodes, to one, and to two again."""
    await former.scenario(world)
    await set_spec(world, Cassandra, "ring", nodes=2)
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Both nodes have a PVC without a deletion timestamp."""
    claims = world.read_all(PersistentVolumeClaim)
    assert {claim.metadata.name for claim in claims} == {"data-ring-0", "data-ring-1"}
    assert all(claim.metadata.deletion_timestamp is None for claim in claims), "the data of a node is being deleted"


BUG_CASE = BugCase(
    faulty=setup(FaultyCassandraReconciler),
    corrected=setup(CassandraReconciler),
    kinds=(Cassandra,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the watch of pods is delayed before its event 6, for 300 s",
        "CREATE persistentvolumeclaims default/data-ring-1  201",
        "DELETE persistentvolumeclaims default/data-ring-1  200",
        "wrong      PersistentVolumeClaim default/data-ring-1 .metadata.deletion",
        "replay='delay-watch:pods:6+300'",
    ),
    actors=(stateful_set_controller, kubelet()),
)
