"""Readiness of objects by kind.

The rules follow kstatus, with three differences: a Job must be complete, a load balancer must have an address, and
the condition ``Ready`` must be of the current generation.
Source: ``pkg/kstatus`` of ``kubernetes-sigs/cli-utils``; "API Conventions", "Typical status properties".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct

from steersman.meta import Object, to_builtins

Json = Mapping[str, Any]

# Messages of foreign controllers may be long.
_MAX_MESSAGE_LENGTH = 300


class Readiness(Struct, frozen=True):
    """The readiness of one object.

    Attributes:
        ready: True if it is ready.
        message: what is missing.
        failed: True if waiting does not help.
    """

    ready: bool
    message: str = ""
    failed: bool = False


READY = Readiness(ready=True)


def default_readiness(obj: Object) -> Readiness:
    """Return the readiness of ``obj`` by its kind and its conditions."""
    content: Json = to_builtins(obj)
    status, resource = _section(content, "status"), type(obj).api_resource
    if (outdated := _outdated_readiness(obj, status)) is not None:
        return outdated
    if (rule := _RULES.get((resource.group, resource.kind))) is None:
        return _conditions_readiness(status, obj.metadata.generation)
    return rule(_section(content, "spec"), status)


def outdated_readiness(obj: Object) -> Readiness | None:
    """Return the readiness of a terminating or outdated object, or None."""
    return _outdated_readiness(obj, _section(to_builtins(obj), "status"))


def _outdated_readiness(obj: Object, status: Json) -> Readiness | None:
    if obj.metadata.deletion_timestamp is not None:
        return _waiting("it is being deleted")
    if _is_behind(status, obj.metadata.generation):
        return _waiting(f"generation {obj.metadata.generation} is not observed yet")
    return None


def _deployment_readiness(spec: Json, status: Json) -> Readiness:
    progressing = _condition(status, "Progressing")
    if progressing is not None and progressing.get("reason") == "ProgressDeadlineExceeded":
        return _failed(f"its progress deadline is exceeded: {_text(progressing)}")
    if "observedGeneration" not in status:
        return _waiting("its controller has not observed it yet")
    replicas = spec.get("replicas", 1)
    updated, total = status.get("updatedReplicas", 0), status.get("replicas", 0)
    if updated < replicas:
        return _waiting(f"{updated} of {replicas} replicas are updated")
    if total > updated:
        return _waiting(f"{total - updated} old replicas remain")
    return _all_of(replicas, status.get("availableReplicas", 0), "replicas are available")


def _stateful_set_readiness(spec: Json, status: Json) -> Readiness:
    if "observedGeneration" not in status:
        return _waiting("its controller has not observed it yet")
    replicas, strategy = spec.get("replicas", 1), _section(spec, "updateStrategy")
    readiness = _all_of(replicas, status.get("readyReplicas", 0), "replicas are ready")
    if not readiness.ready or strategy.get("type") == "OnDelete":
        return readiness
    if status.get("replicas", 0) > replicas:
        return _waiting(f"{status['replicas'] - replicas} replicas are being removed")
    if status.get("currentRevision") == status.get("updateRevision"):
        return READY
    to_update = max(0, replicas - _section(strategy, "rollingUpdate").get("partition", 0))
    return _all_of(to_update, status.get("updatedReplicas", 0), "replicas are updated")


def _daemon_set_readiness(spec: Json, status: Json) -> Readiness:
    if "observedGeneration" not in status:
        return _waiting("its controller has not observed it yet")
    desired = status.get("desiredNumberScheduled", 0)
    readiness = _all_of(desired, status.get("updatedNumberScheduled", 0), "pods are updated")
    return _all_of(desired, status.get("numberAvailable", 0), "pods are available") if readiness.ready else readiness


def _replica_set_readiness(spec: Json, status: Json) -> Readiness:
    if "observedGeneration" not in status:
        return _waiting("its controller has not observed it yet")
    return _all_of(spec.get("replicas", 1), status.get("availableReplicas", 0), "replicas are available")


def _job_readiness(spec: Json, status: Json) -> Readiness:
    if _is_true(failed := _condition(status, "Failed")):
        return _failed(f"it has failed: {_text(failed)}")
    if _is_true(_condition(status, "Complete")):
        return READY
    return _waiting(f"{status.get('succeeded', 0)} of {spec.get('completions', 1)} pods have succeeded")


def _pod_readiness(spec: Json, status: Json) -> Readiness:
    phase = status.get("phase", "Pending")
    if phase == "Failed":
        return _failed(f"it has failed: {status.get('reason') or status.get('message') or 'see its containers'}")
    if phase == "Succeeded" or _is_true(_condition(status, "Ready")):
        return READY
    scheduled = _condition(status, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return _waiting(f"it cannot be scheduled: {_text(scheduled)}")
    return _waiting(f"it is {phase} and not ready")


def _pvc_readiness(spec: Json, status: Json) -> Readiness:
    phase = status.get("phase", "Pending")
    return READY if phase == "Bound" else _waiting(f"it is {phase}, not Bound")


def _service_readiness(spec: Json, status: Json) -> Readiness:
    if spec.get("type") != "LoadBalancer" or _section(status, "loadBalancer").get("ingress"):
        return READY
    return _waiting("its load balancer has no address")


def _crd_readiness(spec: Json, status: Json) -> Readiness:
    return READY if _is_true(_condition(status, "Established")) else _waiting("it is not established")


def _conditions_readiness(status: Json, generation: object) -> Readiness:
    if _is_true(stalled := _condition(status, "Stalled")):
        return _failed(f"it is stalled: {_text(stalled)}")
    if _is_true(reconciling := _condition(status, "Reconciling")):
        return _waiting(f"it is reconciling: {_text(reconciling)}")
    ready = _condition(status, "Ready")
    if ready is None:
        return READY
    if _is_behind(ready, generation):
        # Many controllers record the generation in their conditions only.
        return _waiting(f"generation {generation} is not observed yet")
    return READY if _is_true(ready) else _waiting(f"it is not ready: {_text(ready)}")


_RULES: Mapping[tuple[str, str], Callable[[Json, Json], Readiness]] = {
    ("apps", "Deployment"): _deployment_readiness,
    ("apps", "StatefulSet"): _stateful_set_readiness,
    ("apps", "DaemonSet"): _daemon_set_readiness,
    ("apps", "ReplicaSet"): _replica_set_readiness,
    ("batch", "Job"): _job_readiness,
    ("", "Pod"): _pod_readiness,
    ("", "PersistentVolumeClaim"): _pvc_readiness,
    ("", "Service"): _service_readiness,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _crd_readiness,
}


def _waiting(message: str) -> Readiness:
    return Readiness(ready=False, message=message[:_MAX_MESSAGE_LENGTH])


def _failed(message: str) -> Readiness:
    return Readiness(ready=False, message=message[:_MAX_MESSAGE_LENGTH], failed=True)


def _all_of(expected: int, actual: int, state: str) -> Readiness:
    return READY if actual >= expected else _waiting(f"{actual} of {expected} {state}")


def _section(content: Json, name: str) -> Json:
    section = content.get(name)
    return cast("Json", section) if isinstance(section, Mapping) else {}


def _condition(status: Json, type: str) -> Json | None:
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return None
    entries = cast("list[object]", conditions)
    found = (cast("Json", entry) for entry in entries if isinstance(entry, Mapping))
    return next((condition for condition in found if condition.get("type") == type), None)


def _is_behind(observer: Json, generation: object) -> bool:
    """Return True if a status or condition has an older generation."""
    observed = observer.get("observedGeneration")
    return isinstance(observed, int) and isinstance(generation, int) and observed < generation


def _is_true(condition: Json | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _text(condition: Json | None) -> str:
    found = condition or {}
    return str(found.get("message") or found.get("reason") or "no reason is given")
