"""StatefulSets with one PVC per pod, and a replacement for their controller."""

from __future__ import annotations

from typing import Any

from gallery.helpers import NAMESPACE, OWNER_LABEL, change_count, has_owner_label, key, ordinal, owned_metadata, pod
from steersman.api.apply import apps, core, meta
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.client import MergePatch
from steersman.meta import Object
from steersman_testing.simulation import World


def stateful_set(owner: Object, replicas: int, storage: str = "10Gi") -> apps.StatefulSet:
    """Return a StatefulSet with the name of ``owner``.

    Its pods and PVCs have the owner label.
    """
    labels = {OWNER_LABEL: owner.metadata.name}
    return apps.StatefulSet(
        metadata=owned_metadata(owner),
        spec=apps.StatefulSetSpec(
            replicas=replicas,
            service_name=owner.metadata.name,
            selector=meta.LabelSelector(match_labels=labels),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(labels=labels),
                spec=core.PodSpec(containers=[core.Container(name="main", image="example.com/app")]),
            ),
            volume_claim_templates=[_claim(meta.ObjectMeta(name="data"), storage)],
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
            metadata = meta.ObjectMeta(name=claim, namespace=NAMESPACE, labels=labels)
            await world.client.create(_claim(metadata, requested_storage(owner.spec.volume_claim_templates[0])))
            # Only bound PVCs can be resized.
            bound = MergePatch({"status": {"phase": "Bound"}})
            await world.client.patch(PersistentVolumeClaim, key(claim), bound, subresource="status")
        if world.read(Pod, key(member)) is None:
            metadata = meta.ObjectMeta(name=member, namespace=NAMESPACE, labels=labels)
            await world.client.create(pod(metadata, claim=claim, node="node-1"))


async def _delete_surplus_pods(world: World[Any], owner: StatefulSet) -> None:
    for found in world.read_all(Pod):
        surplus = ordinal(found) >= (owner.spec.replicas or 0)
        if has_owner_label(owner)(found) and surplus and found.metadata.deletion_timestamp is None:
            await world.client.delete(Pod, found.key, uid=found.metadata.uid)


def _claim(metadata: meta.ObjectMeta, storage: str) -> core.PersistentVolumeClaim:
    requests = core.VolumeResourceRequirements(requests={"storage": storage})
    spec = core.PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=requests)
    return core.PersistentVolumeClaim(metadata=metadata, spec=spec)
