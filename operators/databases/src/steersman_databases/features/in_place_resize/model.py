"""In-place resize: the next step of a pod, derived from the pod.

Source: Kubernetes, "Resize CPU and Memory Resources assigned to Containers"; ``ValidatePodResize`` in
``pkg/apis/core/validation`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias

import msgspec

from steersman.api.core_v1 import Container, Pod, PodCondition, ResourceRequirements
from steersman.meta import FrozenDict, Quantity, find_condition
from steersman_databases.cluster.rules.pod_hashes import resizable_hash, restart_hash
from steersman_databases.cluster.state import RESIZABLE_HASH, Instance
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.server_pod import container_status

RESIZE = "databases.steersman.dev/resize"
"""On pods: `ResizeRecord` of the last in-place resize, as JSON."""
_TIMEOUT = timedelta(minutes=2)
"""Time for a node to apply an accepted resize."""
RETRY_AFTER = timedelta(seconds=30)
"""Delay between two requests to resize a pod."""
_RESIZE_CONDITIONS = ["PodResizePending", "PodResizeInProgress"]
_RESIZABLE = ("cpu", "memory")

_Resources: TypeAlias = Mapping[str, int | str]


class ResizeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request to resize a pod.

    Attributes:
        target: hash of the declaration that the pod is resized to.
        requested_at: time of the last request.
        refusal: why the API server refused it, or "".
        is_final: another request for this pod would be refused as well.
        repeated_since: time of the second request with this target.
    """

    target: str
    requested_at: Annotated[datetime, msgspec.Meta(tz=True)]
    refusal: str = ""
    is_final: bool = False
    repeated_since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


@dataclass(frozen=True, slots=True)
class Resize:
    """Next step of a pod that is not as declared.

    Attributes:
        step: Request patches the pod, Complete records that it is as declared. Recreate means a rolling update.
        message: why the pod cannot be resized in place, or what it waits for.
    """

    step: Literal["Request", "Wait", "Complete", "Recreate"]
    message: str = ""


def decide(cluster: DeclaredCluster, image: str, instance: Instance, now: datetime) -> Resize | None:
    """Return the next step of a pod, or None without one.

    Args:
        cluster: the declaration.
        image: image of the pod if it were recreated.
        instance: the instance of the pod.
        now: present time.
    """
    pod = instance.pod
    if pod is None or instance.pod_terminating:
        return None
    target, record = restart_hash(cluster, image), record_of(pod)
    if instance.restart_hash == target and (record is None or record.target == target):
        return None
    if pod.metadata.annotations.get(RESIZABLE_HASH) != resizable_hash(cluster, image):
        return Resize("Recreate")
    if problem := _obstacle(cluster, instance):
        return Resize("Recreate", problem)
    if record is None or record.target != target:
        return Resize("Request")
    if record.is_final:
        return Resize("Recreate", record.refusal)
    if not has_declared_resources(cluster, pod):
        # A LimitRange or a webhook completes the resources at each request.
        if not record.refusal and record.repeated_since is not None and now - record.repeated_since > _TIMEOUT:
            return Resize("Recreate", "the API server accepts other resources")
        return Resize("Request", record.refusal)
    return _progress(pod, record, now)


def record_of(pod: Pod) -> ResizeRecord | None:
    """Return the record of the last resize, or None."""
    try:
        return msgspec.json.decode(pod.metadata.annotations.get(RESIZE, "null"), type=ResizeRecord | None)
    except msgspec.DecodeError:
        return None


def declared_resources(cluster: DeclaredCluster) -> ResourceRequirements:
    """Return the resources of the server as the API server completes them."""
    declared = cluster.pod_settings.resources
    requests = {**declared.limits, **declared.requests}
    return msgspec.structs.replace(declared, requests=FrozenDict[str, int | str](requests))


def has_declared_resources(cluster: DeclaredCluster, pod: Pod) -> bool:
    """Return True if the spec of the pod has the declared resources."""
    desired, present = declared_resources(cluster), _server(pod).resources
    return _are_equal(desired.limits, present.limits) and _are_equal(desired.requests, present.requests)


def is_guaranteed(resources: ResourceRequirements) -> bool:
    """Return True if the server alone has the QoS class Guaranteed.

    Its limits of CPU and memory equal its requests.
    """
    limits, requests = resources.limits, {**resources.limits, **resources.requests}
    return all(name in limits and Quantity(str(limits[name])) == Quantity(str(requests[name])) for name in _RESIZABLE)


def _server(pod: Pod) -> Container:
    return pod.spec.containers[0]


def _obstacle(cluster: DeclaredCluster, instance: Instance) -> str:
    """Return why the resources cannot change in place, or ""."""
    pod = instance.pod
    assert pod is not None
    status = container_status(pod, _server(pod).name)
    if not instance.pod_ready:
        return "it is not ready"
    # Only a node that can resize reports them, and only an API server that can resize stores them.
    if status is None or status.resources is None:
        return "its node or the API server does not support that"
    declared = declared_resources(cluster)
    if is_guaranteed(declared) != is_guaranteed(_server(pod).resources):
        return "its QoS class changes"
    desired, running = declared.limits.get("memory"), status.resources.limits.get("memory")
    if desired is not None and (running is None or Quantity(str(desired)) < Quantity(str(running))):
        return "its memory limit becomes lower"
    return ""


def _progress(pod: Pod, record: ResizeRecord, now: datetime) -> Resize:
    """Return the step after the API server has accepted the resize."""
    conditions = [c for name in _RESIZE_CONDITIONS if (c := find_condition(pod.status.conditions, name)) is not None]
    pending = next((c for c in conditions if c.status == "True"), None)
    if pending is not None and pending.reason == "Infeasible" and _is_current(pending, pod):
        return Resize("Recreate", _describe(pending))
    if pending is None and _is_applied(pod):
        return Resize("Complete")
    message = "the node has not applied the resources" if pending is None else _describe(pending)
    return Resize("Recreate" if now - record.requested_at > _TIMEOUT else "Wait", message)


def _is_current(condition: PodCondition, pod: Pod) -> bool:
    """Return True if the condition is about the present spec."""
    return condition.observed_generation == pod.metadata.generation


def _is_applied(pod: Pod) -> bool:
    """Return True if the server runs with the limits of the spec.

    Requests are not compared: the status derives them from shares of CPU time, which are rounded.
    """
    observed, status = pod.status.observed_generation, container_status(pod, _server(pod).name)
    if observed is not None and observed < (pod.metadata.generation or 0):
        return False
    return (
        status is not None
        and status.resources is not None
        and _are_equal(_resizable(_server(pod).resources.limits), _resizable(status.resources.limits))
    )


def _resizable(resources: _Resources) -> _Resources:
    return {name: amount for name, amount in resources.items() if name in _RESIZABLE}


def _describe(condition: PodCondition) -> str:
    text = ": ".join(each for each in (condition.reason, condition.message) if each)
    return text or condition.type.removeprefix("PodResize")


def _are_equal(one: _Resources, other: _Resources) -> bool:
    return one.keys() == other.keys() and all(Quantity(str(one[n])) == Quantity(str(other[n])) for n in one)
