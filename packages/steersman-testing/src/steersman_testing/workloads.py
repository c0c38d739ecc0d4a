"""Status of workloads, without a cluster that runs them.

The in-memory API server and envtest have no kubelet, so Deployments never become ready there. ``complete_workloads``
writes the status that a cluster would write when everything goes well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.api.apps_v1 import DaemonSet, Deployment, StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Service
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext, Request, RequestReconciler, Result
from steersman.errors import NotFound
from steersman.manager import Manager
from steersman.meta import Object, Unstructured, unstructured

_JsonObject = dict[str, Any]
# The address range for documentation. Source: RFC 5737.
_LOAD_BALANCER_ADDRESS = "192.0.2.1"


def complete_workloads(manager: Manager) -> None:
    """Report workloads as complete and ready, soon after each change.

    Deployments, StatefulSets and DaemonSets become available, Jobs succeed, Pods run, PersistentVolumeClaims are
    bound, and Services of type LoadBalancer have an address. No pods are created.

    Args:
        manager: a manager of its own with the permissions of an administrator. It must not be that of the operator,
            because the field manager of the status must differ.

    Example:
        ``manager = Manager(apiserver, ManagerOptions(name="workloads")); complete_workloads(manager)``
    """
    for kind, status in _STATUSES.items():
        dynamic = unstructured(kind.api_resource)
        name = f"complete-{kind.api_resource.plural}"
        manager.controller(dynamic).named(name).complete(_factory(dynamic, status))


def _factory(kind: type[Unstructured], status: _StatusFunc) -> Callable[[ReconcilerContext], _StatusReconciler]:
    return lambda context: _StatusReconciler(context, kind, status)


class _StatusReconciler(RequestReconciler[Unstructured]):
    """Writes the status of one kind."""

    def __init__(self, context: ReconcilerContext, kind: type[Unstructured], status: _StatusFunc) -> None:
        super().__init__(context)
        self._kind = kind
        self._status = status

    async def reconcile(self, request: Request) -> Result | None:
        try:
            found = (await self.client.get(self._kind, request)).to_dict()
        except NotFound:
            return
        if found["metadata"].get("deletionTimestamp"):
            return
        now = f"{self.runtime.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        current: _JsonObject = found.get("status") or {}
        desired = self._status(found, current, now)
        if any(current.get(name) != value for name, value in desired.items()):
            await self.client.patch(self._kind, request, MergePatch({"status": desired}), subresource="status")


_StatusFunc = Callable[[_JsonObject, _JsonObject, str], _JsonObject]
"""Returns the new fields of a status."""


def _deployment(found: _JsonObject, current: _JsonObject, now: str) -> _JsonObject:
    replicas = _replicas(found)
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    reasons = {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}
    return {
        "observedGeneration": found["metadata"]["generation"],
        # The API server omits counts of 0.
        **dict.fromkeys(counts, replicas or None),
        "conditions": _conditions(current, reasons, now),
    }


def _stateful_set(found: _JsonObject, current: _JsonObject, now: str) -> _JsonObject:
    generation, replicas = found["metadata"]["generation"], _replicas(found)
    revision = f"{found['metadata']['name']}-{generation}"
    counts = ("currentReplicas", "updatedReplicas", "readyReplicas")
    return {
        "observedGeneration": generation,
        "replicas": replicas,
        "availableReplicas": replicas,
        **dict.fromkeys(counts, replicas or None),
        "currentRevision": revision,
        "updateRevision": revision,
    }


def _daemon_set(found: _JsonObject, current: _JsonObject, now: str) -> _JsonObject:
    # As on a cluster with one node.
    return {
        "observedGeneration": found["metadata"]["generation"],
        **dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled", "numberReady"), 1),
        **dict.fromkeys(("updatedNumberScheduled", "numberAvailable"), 1),
        "numberMisscheduled": 0,
    }


def _job(found: _JsonObject, current: _JsonObject, now: str) -> _JsonObject:
    if current.get("conditions") or found["spec"].get("suspend"):
        return {}
    reasons = {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    return {
        "startTime": now,
        "completionTime": now,
        "succeeded": found["spec"].get("completions") or 1,
        "conditions": _conditions(current, reasons, now),
    }


def _pod(found: _JsonObject, current: _JsonObject, now: str) -> _JsonObject:
    if current.get("phase") in ("Succeeded", "Failed"):
        return {}
    reasons = {"Ready": None, "ContainersReady": None, "PodScheduled": None, "Initialized": None}
    return {"phase": "Running", "conditions": _conditions(current, reasons, now)}


def _pvc(found: _JsonObject, current: _JsonObject, now: str) -> _JsonObject:
    spec = found["spec"]
    return {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["resources"]["requests"]}


def _service(found: _JsonObject, current: _JsonObject, now: str) -> _JsonObject:
    if found["spec"].get("type") != "LoadBalancer" or current.get("loadBalancer", {}).get("ingress"):
        return {}
    return {"loadBalancer": {"ingress": [{"ip": _LOAD_BALANCER_ADDRESS}]}}


def _replicas(found: _JsonObject) -> int:
    return found["spec"].get("replicas", 1)


def _conditions(current: _JsonObject, reasons: dict[str, Any], now: str) -> list[_JsonObject]:
    """Return conditions with status True. They keep their times, so that the next reconcile writes nothing."""
    present: dict[str, _JsonObject] = {c["type"]: c for c in current.get("conditions") or ()}
    return [
        present[kind]
        if present.get(kind, {}).get("status") == "True"
        else {
            "type": kind,
            "status": "True",
            "lastTransitionTime": now,
            **({"reason": reason, "message": ""} if reason else {}),
        }
        for kind, reason in reasons.items()
    ]


_STATUSES: dict[type[Object], _StatusFunc] = {
    Deployment: _deployment,
    StatefulSet: _stateful_set,
    DaemonSet: _daemon_set,
    Job: _job,
    Pod: _pod,
    PersistentVolumeClaim: _pvc,
    Service: _service,
}
