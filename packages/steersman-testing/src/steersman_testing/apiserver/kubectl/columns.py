"""Columns of built-in kinds and their cells.

Source: ``pkg/printers/internalversion`` of Kubernetes 1.36. All columns are sent, and the client selects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from steersman_testing.apiserver.kinds import Column
from steersman_testing.apiserver.kubectl.cells import (
    container_cells,
    endpoint_cell,
    event_cells,
    format_labels,
    format_selector,
    host_cell,
    load_balancer_addresses,
    metric_cell,
    node_cells,
    quota_cells,
    service_cells,
    subject_cells,
    truncated_list,
)
from steersman_testing.apiserver.kubectl.durations import human_age
from steersman_testing.apiserver.kubectl.pod_cells import pod_cells
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

AgeFunc = Callable[[str | None], str]
"""Formats the age of a timestamp."""


class PrintedObject(NamedTuple):
    """An object to print, by its parts."""

    object: JsonObject
    meta: JsonObject
    spec: JsonObject
    status: JsonObject
    format_age: AgeFunc

    @staticmethod
    def of(obj: JsonObject, format_age: AgeFunc) -> PrintedObject:
        return PrintedObject(
            obj, get_object(obj, "metadata"), get_object(obj, "spec"), get_object(obj, "status"), format_age
        )

    @property
    def name(self) -> str:
        return self.meta.get("name", "")

    @property
    def age(self) -> str:
        return self.format_age(self.meta.get("creationTimestamp"))

    @property
    def pod_spec(self) -> JsonObject:
        """Spec of the pod template."""
        return get_object(get_object(self.spec, "template"), "spec")


def _pod(v: PrintedObject) -> list[Any]:
    return pod_cells(v.object, v.format_age)


def _namespace(v: PrintedObject) -> list[Any]:
    return [v.name, v.status.get("phase", ""), v.age]


def _node(v: PrintedObject) -> list[Any]:
    status, roles, *wide = node_cells(v.object)
    return [v.name, status, roles, v.age, get_object(v.status, "nodeInfo").get("kubeletVersion", ""), *wide]


def _persistent_volume(v: PrintedObject) -> list[Any]:
    claim = get_object(v.spec, "claimRef")
    phase = "Terminating" if "deletionTimestamp" in v.meta else v.status.get("phase", "")
    return [
        v.name,
        get_object(v.spec, "capacity").get("storage", "0"),
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


def _persistent_volume_claim(v: PrintedObject) -> list[Any]:
    volume = v.spec.get("volumeName", "")
    phase = "Terminating" if "deletionTimestamp" in v.meta else v.status.get("phase", "")
    return [
        v.name,
        phase,
        volume,
        get_object(v.status, "capacity").get("storage", "0") if volume else "",
        _modes(v.status) if volume else "",
        v.spec.get("storageClassName", ""),
        v.spec.get("volumeAttributesClassName", "<unset>"),
        v.age,
        v.spec.get("volumeMode", "<unset>"),
    ]


def _modes(holder: JsonObject) -> str:
    modes: list[str] = get_array(holder, "accessModes")
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(text for mode, text in short.items() if mode in modes)


def _service(v: PrintedObject) -> list[Any]:
    return [v.name, *service_cells(v.spec, v.status), v.age, format_labels(get_object(v.spec, "selector"))]


def _secret(v: PrintedObject) -> list[Any]:
    return [v.name, v.object.get("type", ""), len(get_object(v.object, "data")), v.age]


def _config_map(v: PrintedObject) -> list[Any]:
    return [v.name, len(get_object(v.object, "data")) + len(get_object(v.object, "binaryData")), v.age]


def _name_and_age(v: PrintedObject) -> list[Any]:
    return [v.name, v.age]


def _name_and_created(v: PrintedObject) -> list[Any]:
    return [v.name, v.meta.get("creationTimestamp")]


def _event(v: PrintedObject) -> list[Any]:
    return [*event_cells(v.object, v.format_age), v.name]


def _endpoints(v: PrintedObject) -> list[Any]:
    return [v.name, endpoint_cell(v.object), v.age]


def _resource_quota(v: PrintedObject) -> list[Any]:
    return [v.name, *quota_cells(v.status), v.age]


def _stateful_set(v: PrintedObject) -> list[Any]:
    ready = f"{v.status.get('readyReplicas', 0)}/{v.spec.get('replicas', 0)}"
    return [v.name, ready, v.age, *container_cells(v.pod_spec)]


def _deployment(v: PrintedObject) -> list[Any]:
    ready = f"{v.status.get('readyReplicas', 0)}/{v.spec.get('replicas', 0)}"
    counts = [v.status.get(n, 0) for n in ("updatedReplicas", "availableReplicas")]
    return [v.name, ready, *counts, v.age, *container_cells(v.pod_spec), format_selector(v.spec.get("selector"))]


def _replica_set(v: PrintedObject) -> list[Any]:
    counts = [v.spec.get("replicas", 0), v.status.get("replicas", 0), v.status.get("readyReplicas", 0)]
    return [v.name, *counts, v.age, *container_cells(v.pod_spec), _selector(v.spec)]


def _daemon_set(v: PrintedObject) -> list[Any]:
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    return [
        v.name,
        *(v.status.get(n, 0) for n in (*counts, "numberAvailable")),
        format_labels(get_object(v.pod_spec, "nodeSelector")),
        v.age,
        *container_cells(v.pod_spec),
        _selector(v.spec),
    ]


def _selector(spec: JsonObject) -> str:
    return format_selector(spec.get("selector")) or "<none>"


def _controller_revision(v: PrintedObject) -> list[Any]:
    owner = next((o for o in get_array(v.meta, "ownerReferences") if o.get("controller")), None)
    return [v.name, _qualified_owner(owner) if owner else "<none>", v.object.get("revision", 0), v.age]


def _qualified_owner(owner: JsonObject) -> str:
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


def _job(v: PrintedObject) -> list[Any]:
    true = {c.get("type") for c in get_array(v.status, "conditions") if c.get("status") == "True"}
    if "deletionTimestamp" in v.meta:
        true.add("")
    state = next((formatted for name, formatted in _JOB_STATES.items() if name in true), "Running")
    succeeded, parallelism = v.status.get("succeeded", 0), v.spec.get("parallelism", 0)
    if "completions" in v.spec:
        completions = f"{succeeded}/{v.spec['completions']}"
    else:
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    return [v.name, state, completions, _job_duration(v), v.age, *container_cells(v.pod_spec), _selector(v.spec)]


def _job_duration(v: PrintedObject) -> str:
    started, completed_at = v.status.get("startTime"), v.status.get("completionTime")
    if started is None:
        return ""
    return v.format_age(started) if completed_at is None else human_age(started, datetime.fromisoformat(completed_at))


def _cron_job(v: PrintedObject) -> list[Any]:
    last = v.status.get("lastScheduleTime")
    job = get_object(get_object(v.spec, "jobTemplate"), "spec")
    pods = get_object(get_object(job, "template"), "spec")
    return [
        v.name,
        v.spec.get("schedule", ""),
        v.spec.get("timeZone", "<none>"),
        str(v.spec.get("suspend", "<unset>")),
        len(get_array(v.status, "active")),
        v.format_age(last) if last else "<none>",
        v.age,
        *container_cells(pods),
        _selector(job),
    ]


def _lease(v: PrintedObject) -> list[Any]:
    return [v.name, v.spec.get("holderIdentity", ""), v.age]


def _endpoint_slice(v: PrintedObject) -> list[Any]:
    ports = [str(p.get("port") or p.get("name") or "*") for p in get_array(v.object, "ports")]
    addresses = [a for e in get_array(v.object, "endpoints") for a in get_array(e, "addresses")]
    formatted = [truncated_list(values, 3) or "<unset>" for values in (ports, addresses)]
    return [v.name, v.object.get("addressType", ""), *formatted, v.age]


def _ingress(v: PrintedObject) -> list[Any]:
    return [
        v.name,
        v.spec.get("ingressClassName", "<none>"),
        host_cell(get_array(v.spec, "rules")),
        ",".join(load_balancer_addresses(v.status)),
        "80, 443" if v.spec.get("tls") else "80",
        v.age,
    ]


def _ingress_class(v: PrintedObject) -> list[Any]:
    parameters = get_object(v.spec, "parameters")
    formatted = "<none>"
    if parameters:
        group = parameters.get("apiGroup")
        kind = parameters.get("kind", "")
        formatted = f"{f'{kind}.{group}' if group is not None else kind}/{parameters.get('name', '')}"
    return [
        _name_with_default(v, "ingressclass.kubernetes.io/is-default-class"),
        v.spec.get("controller", ""),
        formatted,
        v.age,
    ]


def _name_with_default(v: PrintedObject, annotation: str) -> str:
    return f"{v.name} (default)" if get_object(v.meta, "annotations").get(annotation) == "true" else v.name


def _network_policy(v: PrintedObject) -> list[Any]:
    return [v.name, format_selector(get_object(v.spec, "podSelector")) or "<none>", v.age]


def _pod_disruption_budget(v: PrintedObject) -> list[Any]:
    bounds = [str(v.spec.get(n, "N/A")) for n in ("minAvailable", "maxUnavailable")]
    return [v.name, *bounds, v.status.get("disruptionsAllowed", 0), v.age]


def _horizontal_pod_autoscaler(v: PrintedObject) -> list[Any]:
    target = get_object(v.spec, "scaleTargetRef")
    return [
        v.name,
        f"{target.get('kind', '')}/{target.get('name', '')}",
        metric_cell(get_array(v.spec, "metrics"), get_array(v.status, "currentMetrics")),
        str(v.spec.get("minReplicas", "<unset>")),
        v.spec.get("maxReplicas", 0),
        v.status.get("currentReplicas", 0),
        v.age,
    ]


def _role_binding(v: PrintedObject) -> list[Any]:
    role = get_object(v.object, "roleRef")
    formatted = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [v.name, formatted, v.age, *subject_cells(get_array(v.object, "subjects"))]


def _priority_class(v: PrintedObject) -> list[Any]:
    obj = v.object
    return [v.name, obj.get("value", 0), obj.get("globalDefault", False), v.age, obj.get("preemptionPolicy", "")]


def _storage_class(v: PrintedObject) -> list[Any]:
    return [
        _name_with_default(v, "storageclass.kubernetes.io/is-default-class"),
        v.object.get("provisioner", ""),
        v.object.get("reclaimPolicy", "Delete"),
        v.object.get("volumeBindingMode", "Immediate"),
        v.object.get("allowVolumeExpansion", False),
        v.age,
    ]


def _webhook_configuration(v: PrintedObject) -> list[Any]:
    return [v.name, len(get_array(v.object, "webhooks")), v.age]


@cache
def builtin_columns(kind: str) -> tuple[Column, ...]:
    """Return the columns of a built-in kind."""
    return _parse_columns(_PRINTERS[kind][0])


def builtin_cells(kind: str, obj: JsonObject, format_age: AgeFunc) -> list[Any]:
    """Return the cells of ``obj``, one for each column."""
    return _PRINTERS[kind][1](PrintedObject.of(obj, format_age))


def _parse_columns(text: str) -> tuple[Column, ...]:
    """Parse a list of columns.

    ``:`` precedes a type other than string. ``+`` marks columns of the wide output.
    """
    columns: list[Column] = []
    for entry in text.split(", "):
        name, _, kind = entry.rstrip("+").partition(":")
        column_format = "name" if name == "Name" else ""
        columns.append(Column(name, kind or "string", "", format=column_format, priority=int(entry.endswith("+"))))
    return tuple(columns)


_NAME_AGE_COLUMNS = "Name, Age"
_NAME_CREATED_COLUMNS = "Name, Created At:date"
_BINDING_COLUMNS = "Name, Role, Age, Users+, Groups+, ServiceAccounts+"
_WORKLOAD_COLUMNS = "Containers+, Images+, Selector+"
_ADDRESS_COLUMNS = "Internal-IP+, External-IP+"
_CLASS_COLUMNS = "StorageClass, VolumeAttributesClass"
_COUNT_COLUMNS = "Desired:integer, Current:integer, Ready:integer"

_PRINTERS: Mapping[str, tuple[str, Callable[[PrintedObject], list[Any]]]] = {
    "Namespace": ("Name, Status, Age", _namespace),
    "Node": (
        f"Name, Status, Roles, Age, Version, {_ADDRESS_COLUMNS}, OS-Image+, Kernel-Version+, Container-Runtime+",
        _node,
    ),
    "PersistentVolume": (
        f"Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, {_CLASS_COLUMNS}, Reason, Age, VolumeMode+",
        _persistent_volume,
    ),
    "Pod": ("Name, Ready, Status, Restarts, Age, IP+, Node+, Nominated Node+, Readiness Gates+", _pod),
    "Service": ("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector+", _service),
    "Secret": ("Name, Type, Data, Age", _secret),
    "ConfigMap": ("Name, Data, Age", _config_map),
    "PersistentVolumeClaim": (
        f"Name, Status, Volume, Capacity, Access Modes, {_CLASS_COLUMNS}, Age, VolumeMode+",
        _persistent_volume_claim,
    ),
    "Event": (
        "Last Seen, Type, Reason, Object, Subobject+, Source+, Message, First Seen+, Count+, Name+",
        _event,
    ),
    "ServiceAccount": (_NAME_AGE_COLUMNS, _name_and_age),
    "Endpoints": ("Name, Endpoints, Age", _endpoints),
    "ResourceQuota": ("Name, Request, Limit, Age", _resource_quota),
    "LimitRange": (_NAME_CREATED_COLUMNS, _name_and_created),
    "StatefulSet": ("Name, Ready, Age, Containers+, Images+", _stateful_set),
    "Deployment": (f"Name, Ready, Up-to-date, Available, Age, {_WORKLOAD_COLUMNS}", _deployment),
    "ReplicaSet": (f"Name, {_COUNT_COLUMNS}, Age, {_WORKLOAD_COLUMNS}", _replica_set),
    "DaemonSet": (
        f"Name, {_COUNT_COLUMNS}, Up-to-date:integer, Available:integer, Node Selector, Age, {_WORKLOAD_COLUMNS}",
        _daemon_set,
    ),
    "ControllerRevision": ("Name, Controller, Revision, Age", _controller_revision),
    "Job": (f"Name, Status, Completions, Duration, Age, {_WORKLOAD_COLUMNS}", _job),
    "CronJob": (
        f"Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, {_WORKLOAD_COLUMNS}",
        _cron_job,
    ),
    "Lease": ("Name, Holder, Age", _lease),
    "EndpointSlice": ("Name, AddressType, Ports, Endpoints, Age", _endpoint_slice),
    "Ingress": ("Name, Class, Hosts, Address, Ports, Age", _ingress),
    "IngressClass": ("Name, Controller, Parameters, Age", _ingress_class),
    "NetworkPolicy": ("Name, Pod-Selector, Age", _network_policy),
    "PodDisruptionBudget": (
        "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age",
        _pod_disruption_budget,
    ),
    "HorizontalPodAutoscaler": (
        "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age",
        _horizontal_pod_autoscaler,
    ),
    "Role": (_NAME_CREATED_COLUMNS, _name_and_created),
    "RoleBinding": (_BINDING_COLUMNS, _role_binding),
    "ClusterRole": (_NAME_CREATED_COLUMNS, _name_and_created),
    "ClusterRoleBinding": (_BINDING_COLUMNS, _role_binding),
    "PriorityClass": ("Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy", _priority_class),
    "StorageClass": (
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
        _storage_class,
    ),
    "MutatingWebhookConfiguration": ("Name, Webhooks:integer, Age", _webhook_configuration),
    "ValidatingWebhookConfiguration": ("Name, Webhooks:integer, Age", _webhook_configuration),
    "CustomResourceDefinition": (_NAME_CREATED_COLUMNS, _name_and_created),
}
