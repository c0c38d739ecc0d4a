"""What several exhibits need: names, pods, and stand-ins for the controllers that a test has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET

from steersman.api.apply.core_v1 import (
    ContainerApply,
    PersistentVolumeClaimVolumeSourceApply,
    PodApply,
    PodSpecApply,
    VolumeApply,
)
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.controller import Reconciler, Request, Result
from steersman.errors import NotFound
from steersman.manager import Manager
from steersman.meta import (
    Condition,
    Object,
    ObjectKey,
    ObjectMeta,
    ObjectMetaApply,
    OwnerReference,
    Resource,
    set_condition,
)
from steersman_testing import VirtualClock
from steersman_testing.simulation import World

NAMESPACE = "default"
OWNER_LABEL = "example.com/belongs-to"
"""The label that names the custom resource to which a pod or a claim belongs."""
GRACE_SECONDS = 2
"""How long a pod on a node takes to end."""


def key(name: str) -> ObjectKey:
    """The key of something in the namespace of the scenarios."""
    return ObjectKey(NAMESPACE, name)


def object_meta(name: str) -> ObjectMeta:
    """The metadata of something that a user creates."""
    return ObjectMeta(name=name, namespace=NAMESPACE)


def owned_metadata(
    owner: Object,
    suffix: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> ObjectMetaApply:
    """The metadata of something that belongs to ``owner``, and says so."""
    return ObjectMetaApply(
        name=owner.metadata.name + suffix,
        namespace=owner.metadata.namespace,
        labels={OWNER_LABEL: owner.metadata.name, **(labels or {})},
        annotations=annotations or UNSET,
    )


def controller_reference(owner: Object) -> OwnerReference:
    """What makes ``owner`` the controller of another object, where that is not applied."""
    resource = owner.api_resource
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )


def has_owner_label(owner: Object) -> Callable[[Object], bool]:
    """Whether something says that it belongs to ``owner``."""
    return lambda obj: obj.metadata.labels.get(OWNER_LABEL) == owner.metadata.name


def requests_for_owner(obj: Object) -> list[Request]:
    """The request for what ``obj`` belongs to, by its label."""
    name = obj.metadata.labels.get(OWNER_LABEL)
    return [ObjectKey(obj.metadata.namespace, name)] if name else []


def ordinal(obj: Object) -> int:
    """The number at the end of a name, as in ``data-web-2``."""
    return int(obj.metadata.name.rpartition("-")[2])


def with_ready_condition(
    obj: Resource[Any, Any], is_ready: bool, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    """The conditions of ``obj``, with this one as ``Ready``."""
    status = "True" if is_ready else "False"
    condition = Condition(
        type="Ready", status=status, reason=reason, message=message, observed_generation=obj.metadata.generation
    )
    former = () if obj.status is None else obj.status.conditions
    return set_condition(former, condition, now)


# Pods


def pod(metadata: ObjectMetaApply, *, image: str = "example.com/app", claim: str = "", node: str = "") -> PodApply:
    """A pod with one container; one that is on a node ends only when the kubelet says so."""
    source = PersistentVolumeClaimVolumeSourceApply(claim_name=claim)
    return PodApply(
        metadata=metadata,
        spec=PodSpecApply(
            containers=[ContainerApply(name="main", image=image)],
            node_name=node or UNSET,
            termination_grace_period_seconds=GRACE_SECONDS,
            volumes=[VolumeApply(name="data", persistent_volume_claim=source)] if claim else UNSET,
        ),
    )


def is_pod_ready(found: Pod) -> bool:
    """Whether the pod's condition says so."""
    return any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)


# What others do


async def set_spec(world: World[Any], kind: type[Object], name: str, **fields: Any) -> None:
    """The user changes fields of the spec, given in their wire names."""
    await world.client.patch(kind, key(name), MergePatch({"spec": fields}))


async def set_pod_readiness(world: World[Any], name: str, is_ready: bool, phase: str = "Running") -> None:
    """The kubelet says how the pod ``name`` is; nothing happens if there is none."""
    try:
        await world.client.patch(Pod, key(name), _pod_status_patch(is_ready, phase), subresource="status")
    except NotFound:
        return


def _pod_status_patch(is_ready: bool, phase: str = "Running") -> MergePatch:
    now = VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": now}
    return MergePatch({"status": {"phase": phase, "conditions": [condition]}})


def change_count(world: World[Any]) -> int:
    """How often something has changed but the operator's Lease: an actor need not look again before."""
    return world.server.change_count(exclude=("leases.coordination.k8s.io",))


def kubelet(broken: str = "") -> Callable[[World[Any]], Any]:
    """An actor: starts pods and ends deleted ones. With ``broken`` in its image, if given, a pod never gets ready."""

    async def run(world: World[Any]) -> None:
        seen = -1
        while True:
            changes = change_count(world)
            if changes != seen:
                pods = world.read_all(Pod)
                for found in pods:
                    await _update_pod(world, found, broken)
                # What it changed itself is looked at, too, and a pod that ends until it is gone.
                seen = -1 if any(found.metadata.deletion_timestamp is not None for found in pods) else changes
            await world.sleep(1)

    return run


def kubelet_controller(broken: str = "") -> Callable[[Manager], object]:
    """As ``kubelet``, for a manager whose operator is explored: there, nothing runs beside it."""

    class Kubelet(Reconciler[Pod]):
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
