"""A claim is deleted by the name of a pod that is long gone; the pod that bears the name today loses its data.

After instaclustr/cassandra-operator#407, and the same in pravega/zookeeper-operator#314: nodes are scaled down and up
again. An operator that still sees the former pod, marked for deletion, deletes the claim of that name, which is the
new pod's. (Reading from an API server that lagged showed it there; here it is enough that pods are told late.)

Shown by: the watch of pods is held back before the former pod is gone, until the new one is there.

The operator is that of ``unobserved_state/pvc_of_removed_pod.py``. The faulty one has that bug mended: it clears
away whatever it missed. But it also still deletes the claims of pods that are marked, as soon as it sees them.

The twin deletes no claim of a node that is wanted, whatever it believes of pods. That it is wanted it knows for
certain: the new pod is there because the operator itself asked for it, and no read goes back behind that.
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
    """Two nodes, then one, then two again."""
    await former.scenario(world)
    await set_spec(world, Cassandra, "ring", nodes=2)
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Both nodes have a claim that nobody deletes."""
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
