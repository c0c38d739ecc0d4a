"""StatefulSets with one PVC per pod, and a replacement for their controller."""

from __future__ import annotations

from typing import Any

from gallery.helpers import NAMESPACE, OWNER_LABEL, change_count, has_owner_label, key, ordinal, owned_metadata, pod
from steersman.api.apply.apps_v1 import StatefulSetApply, StatefulSetSpecApply
from steersman.api.apply.core_v1 import (
    ContainerApply,
    PersistentVolumeClaimApply,
    PersistentVolumeClaimSpecApply,
    PodSpecApply,
    PodTemplateSpecApply,
    VolumeResourceRequirementsApply,
)
from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.client import MergePatch
from steersman.meta import Object, ObjectMetaApply, TemplateMetaApply
from steersman_testing.simulation import World


def stateful_set(owner: Object, replicas: int, storage: str = "10Gi") -> StatefulSetApply:
    """Return a StatefulSet with the name of ``owner``.

    Its pods and PVCs have the owner label.
    """
    labels = {OWNER_LABEL: owner.metadata.name}
    return StatefulSetApply(
        metadata=owned_metadata(owner),
        spec=StatefulSetSpecApply(
            replicas=replicas,
            service_name=owner.metadata.name,
            selector=LabelSelectorApply(match_labels=labels),
            template=PodTemplateSpecApply(
                metadata=TemplateMetaApply(labels=labels),
                spec=PodSpecApply(containers=[ContainerApply(name="main", image="example.com/app")]),
            ),
            volume_claim_templates=[_claim(ObjectMetaApply(name="data"), storage)],
        ),
    )


def requested_storage(claim: PersistentVolumeClaim) -> str:
    """Return the storage request of a PVC or a template."""
    return str(claim.spec.resources.requests.get("storage", ""))


async def stateful_set_controller(world: World[Any]) -> None:
    """Create the pods and PVCs of each StatefulSet.

    PVCs remain when their pods are deleted, as in Kubernetes.
    """
    seen = -1
    while True:
        changes = change_count(world)
        if changes != seen:
            for found in world.read_all(StatefulSet):
                await _create_missing_pods(world, found)
                await _delete_surplus_pods(world, found)
        # Run again after own changes.
        seen = changes
        await world.sleep(1)


async def _create_missing_pods(world: World[Any], owner: StatefulSet) -> None:
    name, labels = owner.metadata.name, {OWNER_LABEL: owner.metadata.name}
    for number in range(owner.spec.replicas or 0):
        claim, member = f"data-{name}-{number}", f"{name}-{number}"
        if world.read(PersistentVolumeClaim, key(claim)) is None:
            metadata = ObjectMetaApply(name=claim, namespace=NAMESPACE, labels=labels)
            await world.client.create(_claim(metadata, requested_storage(owner.spec.volume_claim_templates[0])))
            # Only bound PVCs can be resized.
            bound = MergePatch({"status": {"phase": "Bound"}})
            await world.client.patch(PersistentVolumeClaim, key(claim), bound, subresource="status")
        if world.read(Pod, key(member)) is None:
            metadata = ObjectMetaApply(name=member, namespace=NAMESPACE, labels=labels)
            await world.client.create(pod(metadata, claim=claim, node="node-1"))


async def _delete_surplus_pods(world: World[Any], owner: StatefulSet) -> None:
    for found in world.read_all(Pod):
        surplus = ordinal(found) >= (owner.spec.replicas or 0)
        if has_owner_label(owner)(found) and surplus and found.metadata.deletion_timestamp is None:
            await world.client.delete(Pod, found.key, uid=found.metadata.uid)


def _claim(metadata: ObjectMetaApply, storage: str) -> PersistentVolumeClaimApply:
    requests = VolumeResourceRequirementsApply(requests={"storage": storage})
    spec = PersistentVolumeClaimSpecApply(access_modes=["ReadWriteOnce"], resources=requests)
    return PersistentVolumeClaimApply(metadata=metadata, spec=spec)
