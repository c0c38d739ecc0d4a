"""Helpers for bug cases: names, pods, and replacements for controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import NotFound
from steersman.manager import Manager
from steersman.meta import Condition, Object, ObjectKey, ObjectMeta, OwnerReference, Resource, set_condition
from steersman_testing import VirtualClock
from steersman_testing.simulation import World

NAMESPACE = "default"
OWNER_LABEL = "example.com/belongs-to"
"""Label with the name of the owning custom resource."""
GRACE_SECONDS = 2
"""Termination time of a scheduled pod, in seconds."""


def key(name: str) -> ObjectKey:
    """Return a key in the namespace of the scenarios."""
    return ObjectKey(NAMESPACE, name)


def object_meta(name: str) -> ObjectMeta:
    """Return the metadata of an object that a user creates."""
    return ObjectMeta(name=name, namespace=NAMESPACE)


def owned_metadata(
    owner: Object,
    suffix: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> meta.ObjectMeta:
    """Return the metadata of an object with the owner label of ``owner``."""
    return meta.ObjectMeta(
        name=owner.metadata.name + suffix,
        namespace=owner.metadata.namespace,
        labels={OWNER_LABEL: owner.metadata.name, **(labels or {})},
        annotations=annotations or UNSET,
    )


def controller_reference(owner: Object) -> OwnerReference:
    """Return an owner reference that makes ``owner`` the controller."""
    resource = owner.api_resource
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )


def has_owner_label(owner: Object) -> Callable[[Object], bool]:
    """Return a predicate: True for objects with the owner label of ``owner``."""
    return lambda obj: obj.metadata.labels.get(OWNER_LABEL) == owner.metadata.name


def requests_for_owner(obj: Object) -> list[ObjectKey]:
    """Return the request for the owner in the label of ``obj``."""
    name = obj.metadata.labels.get(OWNER_LABEL)
    return [ObjectKey(obj.metadata.namespace, name)] if name else []


def ordinal(obj: Object) -> int:
    """Return the number at the end of a name such as ``data-web-2``."""
    return int(obj.metadata.name.rpartition("-")[2])


def with_ready_condition(
    obj: Resource[Any, Any], is_ready: bool, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions of ``obj`` with an updated ``Ready`` condition."""
    status = "True" if is_ready else "False"
    condition = Condition(
        type="Ready", status=status, reason=reason, message=message, observed_generation=obj.metadata.generation
    )
    former = obj.status.conditions
    return set_condition(former, condition, now)


# Pods


def pod(metadata: meta.ObjectMeta, *, image: str = "example.com/app", claim: str = "", node: str = "") -> core.Pod:
    """Return a pod with one container. A pod with a node terminates like on a kubelet."""
    source = core.PersistentVolumeClaimVolumeSource(claim_name=claim)
    return core.Pod(
        metadata=metadata,
        spec=core.PodSpec(
            containers=[core.Container(name="main", image=image)],
            node_name=node or UNSET,
            termination_grace_period_seconds=GRACE_SECONDS,
            volumes=[core.Volume(name="data", persistent_volume_claim=source)] if claim else UNSET,
        ),
    )


def is_pod_ready(found: Pod) -> bool:
    """Return True if the pod has a true ``Ready`` condition."""
    return any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)


# Actions of other components


async def set_spec(world: World[Any], kind: type[Object], name: str, **fields: Any) -> None:
    """Change fields of the spec like a user. Fields have their JSON names."""
    await world.client.patch(kind, key(name), MergePatch({"spec": fields}))


async def set_pod_readiness(world: World[Any], name: str, is_ready: bool, phase: str = "Running") -> None:
    """Set the readiness of a pod like a kubelet. Missing pods are ignored."""
    try:
        await world.client.patch(Pod, key(name), _pod_status_patch(is_ready, phase), subresource="status")
    except NotFound:
        return


def _pod_status_patch(is_ready: bool, phase: str = "Running") -> MergePatch:
    now = VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": now}
    return MergePatch({"status": {"phase": phase, "conditions": [condition]}})


def change_count(world: World[Any]) -> int:
    """Return the number of changes, without those of the operator's Lease.

    Actors reconcile only after a change.
    """
    return world.server.change_count(exclude=("leases.coordination.k8s.io",))


def kubelet(broken: str = "") -> Callable[[World[Any]], Any]:
    """Return an actor that starts pods and deletes terminating ones.

    Pods whose image contains ``broken`` never become ready.
    """

    async def run(world: World[Any]) -> None:
        seen = -1
        while True:
            changes = change_count(world)
            if changes != seen:
                pods = world.read_all(Pod)
                for found in pods:
                    await _update_pod(world, found, broken)
                # Run again after own changes, and until terminating pods are deleted.
                seen = -1 if any(found.metadata.deletion_timestamp is not None for found in pods) else changes
            await world.sleep(1)

    return run


def kubelet_controller(broken: str = "") -> Callable[[Manager], object]:
    """Return the registration of ``kubelet`` as a controller.

    ``explore`` runs only controllers, not actors.
    """

    class Kubelet(RequestReconciler[Pod]):
        async def reconcile(self, request: Request) -> Result:
            found = await self.client.get(Pod, request)
            if not found.status.conditions:
                await self.client.patch(
                    Pod, request, _pod_status_patch(_becomes_ready(found, broken)), subresource="status"
                )
            return Result()

    return lambda manager: manager.controller(Pod).named("kubelet").complete(Kubelet)


async def _update_pod(world: World[Any], found: Pod, broken: str) -> None:
    deadline = found.metadata.deletion_timestamp
    if deadline is not None:
        if deadline <= VirtualClock().now():
            await world.client.delete(Pod, found.key, grace_period_seconds=0)
    elif not found.status.conditions:
        await set_pod_readiness(world, found.metadata.name, _becomes_ready(found, broken))


def _becomes_ready(found: Pod, broken: str) -> bool:
    return not broken or broken not in (found.spec.containers[0].image or "")
