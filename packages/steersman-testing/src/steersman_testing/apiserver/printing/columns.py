"""The columns that built-in kinds are shown in, and what stands in them.

Source: ``pkg/printers/internalversion`` of Kubernetes 1.36, which shows every column and lets the client choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from steersman_testing.apiserver.kinds import Column
from steersman_testing.apiserver.printing.cells import (
    balancer_addresses,
    container_cells,
    endpoint_cell,
    event_cells,
    host_cell,
    metric_cell,
    node_cells,
    quota_cells,
    service_cells,
    shown_labels,
    shown_selector,
    subject_cells,
    with_more,
)
from steersman_testing.apiserver.printing.durations import shown_age
from steersman_testing.apiserver.printing.pod_cells import pod_cells
from steersman_testing.apiserver.values import JsonObject, list_at, map_at

Since = Callable[[str | None], str]
"""How long ago a timestamp was, as it is shown."""


class View(NamedTuple):
    """An object about to be shown, by its parts."""

    object: JsonObject
    meta: JsonObject
    spec: JsonObject
    status: JsonObject
    since: Since

    @staticmethod
    def of(obj: JsonObject, since: Since) -> View:
        return View(obj, map_at(obj, "metadata"), map_at(obj, "spec"), map_at(obj, "status"), since)

    @property
    def name(self) -> str:
        return self.meta.get("name", "")

    @property
    def age(self) -> str:
        return self.since(self.meta.get("creationTimestamp"))

    @property
    def pod_spec(self) -> JsonObject:
        """Of the template."""
        return map_at(map_at(self.spec, "template"), "spec")


def _pod(v: View) -> list[Any]:
    return pod_cells(v.object, v.since)


def _namespace(v: View) -> list[Any]:
    return [v.name, v.status.get("phase", ""), v.age]


def _node(v: View) -> list[Any]:
    status, roles, *wide = node_cells(v.object)
    return [v.name, status, roles, v.age, map_at(v.status, "nodeInfo").get("kubeletVersion", ""), *wide]


def _volume(v: View) -> list[Any]:
    claim = map_at(v.spec, "claimRef")
    phase = "Terminating" if "deletionTimestamp" in v.meta else v.status.get("phase", "")
    return [
        v.name,
        map_at(v.spec, "capacity").get("storage", "0"),
        _modes(v.spec),
        v.spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        v.spec.get("storageClassName", ""),
        v.spec.get("volumeAttributesClassName", "<unset>"),
        v.status.get("reason", ""),
        v.age,
        v.spec.get("volumeMode", "<unset>"),
    ]


def _claim(v: View) -> list[Any]:
    volume = v.spec.get("volumeName", "")
    phase = "Terminating" if "deletionTimestamp" in v.meta else v.status.get("phase", "")
    return [
        v.name,
        phase,
        volume,
        map_at(v.status, "capacity").get("storage", "0") if volume else "",
        _modes(v.status) if volume else "",
        v.spec.get("storageClassName", ""),
        v.spec.get("volumeAttributesClassName", "<unset>"),
        v.age,
        v.spec.get("volumeMode", "<unset>"),
    ]


def _modes(holder: JsonObject) -> str:
    modes: list[str] = list_at(holder, "accessModes")
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(text for mode, text in short.items() if mode in modes)


def _service(v: View) -> list[Any]:
    return [v.name, *service_cells(v.spec, v.status), v.age, shown_labels(map_at(v.spec, "selector"))]


def _secret(v: View) -> list[Any]:
    return [v.name, v.object.get("type", ""), len(map_at(v.object, "data")), v.age]


def _config_map(v: View) -> list[Any]:
    return [v.name, len(map_at(v.object, "data")) + len(map_at(v.object, "binaryData")), v.age]


def _named(v: View) -> list[Any]:
    return [v.name, v.age]


def _dated(v: View) -> list[Any]:
    return [v.name, v.meta.get("creationTimestamp")]


def _event(v: View) -> list[Any]:
    return [*event_cells(v.object, v.since), v.name]


def _endpoints(v: View) -> list[Any]:
    return [v.name, endpoint_cell(v.object), v.age]


def _quota(v: View) -> list[Any]:
    return [v.name, *quota_cells(v.status), v.age]


def _stateful_set(v: View) -> list[Any]:
    ready = f"{v.status.get('readyReplicas', 0)}/{v.spec.get('replicas', 0)}"
    return [v.name, ready, v.age, *container_cells(v.pod_spec)]


def _deployment(v: View) -> list[Any]:
    ready = f"{v.status.get('readyReplicas', 0)}/{v.spec.get('replicas', 0)}"
    counts = [v.status.get(n, 0) for n in ("updatedReplicas", "availableReplicas")]
    return [v.name, ready, *counts, v.age, *container_cells(v.pod_spec), shown_selector(v.spec.get("selector"))]


def _replica_set(v: View) -> list[Any]:
    counts = [v.spec.get("replicas", 0), v.status.get("replicas", 0), v.status.get("readyReplicas", 0)]
    return [v.name, *counts, v.age, *container_cells(v.pod_spec), _selector(v.spec)]


def _daemon_set(v: View) -> list[Any]:
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    return [
        v.name,
        *(v.status.get(n, 0) for n in (*counts, "numberAvailable")),
        shown_labels(map_at(v.pod_spec, "nodeSelector")),
        v.age,
        *container_cells(v.pod_spec),
        _selector(v.spec),
    ]


def _selector(spec: JsonObject) -> str:
    return shown_selector(spec.get("selector")) or "<none>"


def _revision(v: View) -> list[Any]:
    owner = next((o for o in list_at(v.meta, "ownerReferences") if o.get("controller")), None)
    return [v.name, _qualified(owner) if owner else "<none>", v.object.get("revision", 0), v.age]


def _qualified(owner: JsonObject) -> str:
    group = owner.get("apiVersion", "").rpartition("/")[0]
    kind = owner.get("kind", "").lower()
    return f"{kind}.{group}/{owner.get('name', '')}" if group else f"{kind}/{owner.get('name', '')}"


_JOB_STATES = {
    "Complete": "Complete",
    "Failed": "Failed",
    "": "Terminating",
    "Suspended": "Suspended",
    "FailureTarget": "FailureTarget",
    "SuccessCriteriaMet": "SuccessCriteriaMet",
}


def _job(v: View) -> list[Any]:
    true = {c.get("type") for c in list_at(v.status, "conditions") if c.get("status") == "True"}
    if "deletionTimestamp" in v.meta:
        true.add("")
    state = next((shown for name, shown in _JOB_STATES.items() if name in true), "Running")
    succeeded, parallelism = v.status.get("succeeded", 0), v.spec.get("parallelism", 0)
    if "completions" in v.spec:
        completions = f"{succeeded}/{v.spec['completions']}"
    else:
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    return [v.name, state, completions, _took(v), v.age, *container_cells(v.pod_spec), _selector(v.spec)]


def _took(v: View) -> str:
    started, ended = v.status.get("startTime"), v.status.get("completionTime")
    if started is None:
        return ""
    return v.since(started) if ended is None else shown_age(started, datetime.fromisoformat(ended))


def _cron_job(v: View) -> list[Any]:
    last = v.status.get("lastScheduleTime")
    job = map_at(map_at(v.spec, "jobTemplate"), "spec")
    pods = map_at(map_at(job, "template"), "spec")
    return [
        v.name,
        v.spec.get("schedule", ""),
        v.spec.get("timeZone", "<none>"),
        str(v.spec.get("suspend", "<unset>")),
        len(list_at(v.status, "active")),
        v.since(last) if last else "<none>",
        v.age,
        *container_cells(pods),
        _selector(job),
    ]


def _lease(v: View) -> list[Any]:
    return [v.name, v.spec.get("holderIdentity", ""), v.age]


def _slice(v: View) -> list[Any]:
    ports = [str(p.get("port") or p.get("name") or "*") for p in list_at(v.object, "ports")]
    addresses = [a for e in list_at(v.object, "endpoints") for a in list_at(e, "addresses")]
    shown = [with_more(values, 3) or "<unset>" for values in (ports, addresses)]
    return [v.name, v.object.get("addressType", ""), *shown, v.age]


def _ingress(v: View) -> list[Any]:
    return [
        v.name,
        v.spec.get("ingressClassName", "<none>"),
        host_cell(list_at(v.spec, "rules")),
        ",".join(balancer_addresses(v.status)),
        "80, 443" if v.spec.get("tls") else "80",
        v.age,
    ]


def _ingress_class(v: View) -> list[Any]:
    parameters = map_at(v.spec, "parameters")
    shown = "<none>"
    if parameters:
        group = parameters.get("apiGroup")
        kind = parameters.get("kind", "")
        shown = f"{f'{kind}.{group}' if group is not None else kind}/{parameters.get('name', '')}"
    return [_default(v, "ingressclass.kubernetes.io/is-default-class"), v.spec.get("controller", ""), shown, v.age]


def _default(v: View, annotation: str) -> str:
    return f"{v.name} (default)" if map_at(v.meta, "annotations").get(annotation) == "true" else v.name


def _policy(v: View) -> list[Any]:
    return [v.name, shown_selector(map_at(v.spec, "podSelector")) or "<none>", v.age]


def _budget(v: View) -> list[Any]:
    bounds = [str(v.spec.get(n, "N/A")) for n in ("minAvailable", "maxUnavailable")]
    return [v.name, *bounds, v.status.get("disruptionsAllowed", 0), v.age]


def _autoscaler(v: View) -> list[Any]:
    target = map_at(v.spec, "scaleTargetRef")
    return [
        v.name,
        f"{target.get('kind', '')}/{target.get('name', '')}",
        metric_cell(list_at(v.spec, "metrics"), list_at(v.status, "currentMetrics")),
        str(v.spec.get("minReplicas", "<unset>")),
        v.spec.get("maxReplicas", 0),
        v.status.get("currentReplicas", 0),
        v.age,
    ]


def _binding(v: View) -> list[Any]:
    role = map_at(v.object, "roleRef")
    shown = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [v.name, shown, v.age, *subject_cells(list_at(v.object, "subjects"))]


def _priority_class(v: View) -> list[Any]:
    obj = v.object
    return [v.name, obj.get("value", 0), obj.get("globalDefault", False), v.age, obj.get("preemptionPolicy", "")]


def _storage_class(v: View) -> list[Any]:
    return [
        _default(v, "storageclass.kubernetes.io/is-default-class"),
        v.object.get("provisioner", ""),
        v.object.get("reclaimPolicy", "Delete"),
        v.object.get("volumeBindingMode", "Immediate"),
        v.object.get("allowVolumeExpansion", False),
        v.age,
    ]


def _webhooks(v: View) -> list[Any]:
    return [v.name, len(list_at(v.object, "webhooks")), v.age]


@cache
def columns_of(kind: str) -> tuple[Column, ...]:
    """The columns of the built-in ``kind``."""
    return _columns(_PRINTERS[kind][0])


def cells_of(kind: str, obj: JsonObject, since: Since) -> list[Any]:
    """The cells of ``obj``, one a column."""
    return _PRINTERS[kind][1](View.of(obj, since))


def _columns(text: str) -> tuple[Column, ...]:
    """``Name`` has a format of its own; ``:`` is followed by another type than string; ``+`` marks what is wide."""
    columns: list[Column] = []
    for entry in text.split(", "):
        name, _, kind = entry.rstrip("+").partition(":")
        shape = "name" if name == "Name" else ""
        columns.append(Column(name, kind or "string", "", format=shape, priority=int(entry.endswith("+"))))
    return tuple(columns)


_AGED = "Name, Age"
_DATED = "Name, Created At:date"
_BINDING = "Name, Role, Age, Users+, Groups+, ServiceAccounts+"
_WORKLOAD = "Containers+, Images+, Selector+"
_ADDRESSES = "Internal-IP+, External-IP+"
_CLASSES = "StorageClass, VolumeAttributesClass"
_COUNTS = "Desired:integer, Current:integer, Ready:integer"

_PRINTERS: Mapping[str, tuple[str, Callable[[View], list[Any]]]] = {
    "Namespace": ("Name, Status, Age", _namespace),
    "Node": (
        f"Name, Status, Roles, Age, Version, {_ADDRESSES}, OS-Image+, Kernel-Version+, Container-Runtime+",
        _node,
    ),
    "PersistentVolume": (
        f"Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, {_CLASSES}, Reason, Age, VolumeMode+",
        _volume,
    ),
    "Pod": ("Name, Ready, Status, Restarts, Age, IP+, Node+, Nominated Node+, Readiness Gates+", _pod),
    "Service": ("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector+", _service),
    "Secret": ("Name, Type, Data, Age", _secret),
    "ConfigMap": ("Name, Data, Age", _config_map),
    "PersistentVolumeClaim": (
        f"Name, Status, Volume, Capacity, Access Modes, {_CLASSES}, Age, VolumeMode+",
        _claim,
    ),
    "Event": (
        "Last Seen, Type, Reason, Object, Subobject+, Source+, Message, First Seen+, Count+, Name+",
        _event,
    ),
    "ServiceAccount": (_AGED, _named),
    "Endpoints": ("Name, Endpoints, Age", _endpoints),
    "ResourceQuota": ("Name, Request, Limit, Age", _quota),
    "LimitRange": (_DATED, _dated),
    "StatefulSet": ("Name, Ready, Age, Containers+, Images+", _stateful_set),
    "Deployment": (f"Name, Ready, Up-to-date, Available, Age, {_WORKLOAD}", _deployment),
    "ReplicaSet": (f"Name, {_COUNTS}, Age, {_WORKLOAD}", _replica_set),
    "DaemonSet": (
        f"Name, {_COUNTS}, Up-to-date:integer, Available:integer, Node Selector, Age, {_WORKLOAD}",
        _daemon_set,
    ),
    "ControllerRevision": ("Name, Controller, Revision, Age", _revision),
    "Job": (f"Name, Status, Completions, Duration, Age, {_WORKLOAD}", _job),
    "CronJob": (
        f"Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, {_WORKLOAD}",
        _cron_job,
    ),
    "Lease": ("Name, Holder, Age", _lease),
    "EndpointSlice": ("Name, AddressType, Ports, Endpoints, Age", _slice),
    "Ingress": ("Name, Class, Hosts, Address, Ports, Age", _ingress),
    "IngressClass": ("Name, Controller, Parameters, Age", _ingress_class),
    "NetworkPolicy": ("Name, Pod-Selector, Age", _policy),
    "PodDisruptionBudget": (
        "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age",
        _budget,
    ),
    "HorizontalPodAutoscaler": ("Name, Reference, Targets, MinPods, MaxPods, Replicas, Age", _autoscaler),
    "Role": (_DATED, _dated),
    "RoleBinding": (_BINDING, _binding),
    "ClusterRole": (_DATED, _dated),
    "ClusterRoleBinding": (_BINDING, _binding),
    "PriorityClass": ("Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy", _priority_class),
    "StorageClass": (
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
        _storage_class,
    ),
    "MutatingWebhookConfiguration": ("Name, Webhooks:integer, Age", _webhooks),
    "ValidatingWebhookConfiguration": ("Name, Webhooks:integer, Age", _webhooks),
    "CustomResourceDefinition": (_DATED, _dated),
}
