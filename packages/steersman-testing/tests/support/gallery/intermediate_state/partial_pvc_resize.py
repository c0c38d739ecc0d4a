"""After a crash during a resize, other PVCs are skipped.

After rabbitmq/cluster-operator#782: the PVC template of a StatefulSet is immutable. To expand volumes, the operator
compared the template with the spec, deleted the StatefulSet, resized the PVCs and recreated the StatefulSet. After a
crash between the second and the third step, it had no template to compare. It recreated the StatefulSet with the new
size, and the PVCs kept the old one.

Shown by: a crash after the deletion of the StatefulSet, or before the resize of a PVC.

The twin reads the size of each PVC, independent of the StatefulSet, and deletes the StatefulSet last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import has_owner_label, kubelet, object_meta, requests_for_owner, set_spec
from gallery.stateful_sets import requested_storage, stateful_set, stateful_set_controller
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.client import MergePatch
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World

REPLICAS = 2


class BrokerSpec(Spec):
    storage: str = "10Gi"
    """Volume size of each of the two members."""


@resource(group="gallery.example.com", version="v1")
class Broker(Resource[BrokerSpec, Status]):
    """A message broker with two members."""


class FaultyBrokerReconciler(RequestReconciler[Broker]):
    async def reconcile(self, request: Request) -> Result:
        broker = await self.client.get(Broker, request)
        current = await self.client.get_or_none(StatefulSet, request)
        if current is not None and has_other_size(current, broker):
            await self.client.delete(StatefulSet, request, uid=current.metadata.uid, propagation="Orphan")
            for claim in await self.client.list(PersistentVolumeClaim, where=has_owner_label(broker)):
                await self.resize(claim, broker)
        await self.client.apply(stateful_set(broker, REPLICAS, broker.spec.storage), owner=broker)
        return Result()

    async def resize(self, claim: PersistentVolumeClaim, broker: Broker) -> None:
        patch = MergePatch({"spec": {"resources": {"requests": {"storage": broker.spec.storage}}}})
        await self.client.patch(PersistentVolumeClaim, claim.key, patch)


class BrokerReconciler(FaultyBrokerReconciler):
    async def reconcile(self, request: Request) -> Result:
        broker = await self.client.get(Broker, request)
        for claim in await self.client.list(PersistentVolumeClaim, where=has_owner_label(broker)):
            if requested_storage(claim) != broker.spec.storage:
                await self.resize(claim, broker)
        current = await self.client.get_or_none(StatefulSet, request)
        if current is not None and has_other_size(current, broker):
            await self.client.delete(StatefulSet, request, uid=current.metadata.uid, propagation="Orphan")
        await self.client.apply(stateful_set(broker, REPLICAS, broker.spec.storage), owner=broker)
        return Result()


def has_other_size(current: StatefulSet, broker: Broker) -> bool:
    """Return True if the template of the StatefulSet has another size."""
    return requested_storage(current.spec.volume_claim_templates[0]) != broker.spec.storage


def setup(reconciler: type[RequestReconciler[Broker]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        (
            manager.controller(Broker)
            .owns(StatefulSet)
            .watches(PersistentVolumeClaim, requests_for_owner)
            .needs(StatefulSet, "delete")
            .needs(PersistentVolumeClaim, "patch")
            .complete(reconciler)
        )

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Increase the size by half."""
    await world.client.create(Broker(metadata=object_meta("queue"), spec=BrokerSpec()))
    await world.settle()
    await set_spec(world, Broker, "queue", storage="15Gi")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """All PVCs have the declared size."""
    claims = world.read_all(PersistentVolumeClaim)
    assert [requested_storage(claim) for claim in claims] == ["15Gi"] * REPLICAS


BUG_CASE = BugCase(
    faulty=setup(FaultyBrokerReconciler),
    corrected=setup(BrokerReconciler),
    kinds=(Broker,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the process is killed after call 3",
        "DELETE statefulsets.apps default/queue  200, then killed",
        "the operator is restarted",
        "APPLY statefulsets.apps default/queue  201",
        "wrong      PersistentVolumeClaim default/data-queue-0 .spec.resources.requests.storage: '10Gi', not '15Gi'",
        "replay='crash-after:3'",
    ),
    actors=(stateful_set_controller, kubelet()),
)
