"""Validation of built-in kinds that operators use. Others are not validated.

It covers ConfigMaps, Secrets, Services, PVCs, Leases, Events, roles and bindings, PodDisruptionBudgets, autoscalers
and Ingresses. Pods and workloads are in ``pods``. Source: ``pkg/apis/*/validation`` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from steersman_testing.apiserver.builtin.pods import (
    is_percent,
    validate_cron_job,
    validate_job,
    validate_pod_spec,
    validate_workload,
)
from steersman_testing.apiserver.failures import (
    InvalidFieldError,
    duplicate_value,
    invalid_value,
    required_value,
    unsupported_value,
)
from steersman_testing.apiserver.names import label_error
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

_KEY_PATTERN = r"[-._a-zA-Z0-9]+"
_is_key = re.compile(_KEY_PATTERN).fullmatch
_KEY_ERROR = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    f"or 'key-name', regex used for validation is '{_KEY_PATTERN}')"
)
_MAX_DATA_BYTES = 1024 * 1024
_REQUIRED_SECRET_KEYS = {
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_SERVICE_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PERCENT_ERROR = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_REQUIRED_EVENT_FIELDS = ("reportingController", "reportingInstance", "action", "reason")


def validate_content(kind: str, obj: JsonObject) -> Iterator[InvalidFieldError]:
    """Yield the errors of an object of a built-in kind."""
    if check := _VALIDATORS.get(kind):
        yield from check(obj)


def _config_map(obj: JsonObject) -> Iterator[InvalidFieldError]:
    data, binary = get_object(obj, "data"), get_object(obj, "binaryData")
    for field, values in (("data", data), ("binaryData", binary)):
        for key in values:
            if not _is_key(key):
                yield _invalid_key(field, key)
            if field == "data" and key in binary:
                yield invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    yield from _size_errors("[]", [*data.values(), *binary.values()])


def _secret(obj: JsonObject) -> Iterator[InvalidFieldError]:
    data, kind = get_object(obj, "data"), obj.get("type")
    for key in data:
        if not _is_key(key):
            yield _invalid_key("data", key)
    yield from _size_errors("data", data.values())
    missing = [k for k in _REQUIRED_SECRET_KEYS.get(str(kind), ()) if k not in data]
    # Either user name or password suffices.
    if kind != "kubernetes.io/basic-auth" or len(missing) == 2:
        yield from (required_value(f"data[{k}]") for k in missing)
    annotations = get_object(get_object(obj, "metadata"), "annotations")
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_SERVICE_ACCOUNT_ANNOTATION):
        yield required_value(f"metadata.annotations[{_SERVICE_ACCOUNT_ANNOTATION}]")


def _invalid_key(field: str, key: str) -> InvalidFieldError:
    return invalid_value(f"{field}[{key}]", key, _KEY_ERROR)


def _size_errors(path: str, values: Iterable[str]) -> Iterator[InvalidFieldError]:
    if sum(len(v.encode()) for v in values) > _MAX_DATA_BYTES:
        yield InvalidFieldError(path, "FieldValueTooLong", f"Too long: may not be more than {_MAX_DATA_BYTES} bytes")


def _service(obj: JsonObject) -> Iterator[InvalidFieldError]:
    spec = get_object(obj, "spec")
    ports = get_array(spec, "ports")
    if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield required_value("spec.ports")
    seen: set[str] = set()
    for position, port in enumerate(ports):
        yield from _port(port, f"spec.ports[{position}]", seen, named=len(ports) > 1)
    if spec.get("type") not in _SERVICE_TYPES:
        yield unsupported_value("spec.type", spec.get("type"), _SERVICE_TYPES)


def _port(port: JsonObject, path: str, seen: set[str], *, named: bool) -> Iterator[InvalidFieldError]:
    name = port.get("name") or ""
    if named and not name:
        yield required_value(f"{path}.name")
    elif name:
        if name_error := label_error(f"{path}.name", name):
            yield name_error
        if name in seen:
            yield duplicate_value(f"{path}.name", name)
        seen.add(name)
    number = port.get("port", 0)
    if not 1 <= number <= 65535:
        yield invalid_value(f"{path}.port", number, "must be between 1 and 65535, inclusive")
    if port.get("protocol") not in _PROTOCOLS:
        yield unsupported_value(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)


def _persistent_volume_claim(obj: JsonObject) -> Iterator[InvalidFieldError]:
    spec = get_object(obj, "spec")
    modes = get_array(spec, "accessModes")
    if not modes:
        yield required_value("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield unsupported_value("spec.accessModes", mode, _ACCESS_MODES)
    if "storage" not in get_object(get_object(spec, "resources"), "requests"):
        yield required_value("spec.resources[storage]")


def _lease(obj: JsonObject) -> Iterator[InvalidFieldError]:
    spec = get_object(obj, "spec")
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _event(obj: JsonObject) -> Iterator[InvalidFieldError]:
    namespace = get_object(obj, "metadata").get("namespace", "")
    if obj.get("apiVersion") == "events.k8s.io/v1":
        # Events of the other group without eventTime need not have the other fields.
        if obj.get("eventTime") or "resourceVersion" not in get_object(obj, "metadata"):
            yield from (required_value(n) for n in _REQUIRED_EVENT_FIELDS if not obj.get(n))
        return
    regarding_namespace = get_object(obj, "involvedObject").get("namespace") or ""
    # Events of cluster-scoped objects are in the namespace default.
    if regarding_namespace != namespace and not (not regarding_namespace and namespace == "default"):
        yield invalid_value("involvedObject.namespace", regarding_namespace, "does not match event.namespace")


def _rules(obj: JsonObject) -> Iterator[InvalidFieldError]:
    namespaced = obj.get("kind") == "Role"
    for position, rule in enumerate(get_array(obj, "rules")):
        path = f"rules[{position}]"
        if not rule.get("verbs"):
            yield required_value(f"{path}.verbs", "verbs must contain at least one value")
        if urls := rule.get("nonResourceURLs"):
            if namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                yield invalid_value(f"{path}.nonResourceURLs", urls, text)
            continue
        if not rule.get("apiGroups"):
            yield required_value(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required_value(f"{path}.resources", "resource rules must supply at least one resource")


def _binding(obj: JsonObject) -> Iterator[InvalidFieldError]:
    role = get_object(obj, "roleRef")
    kinds = ("Role", "ClusterRole") if obj.get("kind") == "RoleBinding" else ("ClusterRole",)
    if role.get("kind") not in kinds:
        yield unsupported_value("roleRef.kind", role.get("kind"), kinds)
    if not role.get("name"):
        yield required_value("roleRef.name")
    for position, subject in enumerate(get_array(obj, "subjects")):
        path = f"subjects[{position}]"
        if not subject.get("name"):
            yield required_value(f"{path}.name")
        if subject.get("kind") not in ("ServiceAccount", "User", "Group"):
            yield unsupported_value(f"{path}.kind", subject.get("kind"), ("ServiceAccount", "User", "Group"))


def _pod_disruption_budget(obj: JsonObject) -> Iterator[InvalidFieldError]:
    spec = get_object(obj, "spec")
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        yield from _int_or_percent(f"spec.{name}", spec.get(name))


def _int_or_percent(path: str, value: Any) -> Iterator[InvalidFieldError]:
    if isinstance(value, str) and not is_percent(value):
        yield invalid_value(path, value, _PERCENT_ERROR)
    elif isinstance(value, int) and value < 0:
        yield invalid_value(path, value, "must be greater than or equal to 0")


def _horizontal_pod_autoscaler(obj: JsonObject) -> Iterator[InvalidFieldError]:
    spec = get_object(obj, "spec")
    min_replicas, max_replicas = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if max_replicas < 1:
        yield invalid_value("spec.maxReplicas", max_replicas, "must be greater than 0")
    if max_replicas < min_replicas:
        yield invalid_value("spec.maxReplicas", max_replicas, "must be greater than or equal to `minReplicas`")


def _ingress(obj: JsonObject) -> Iterator[InvalidFieldError]:
    for number, rule in enumerate(get_array(get_object(obj, "spec"), "rules")):
        for position, path in enumerate(get_array(get_object(rule, "http"), "paths")):
            if not path.get("pathType"):
                field_path = f"spec.rules[{number}].http.paths[{position}].pathType"
                yield required_value(field_path, "pathType must be specified")


def _workload(obj: JsonObject) -> Iterator[InvalidFieldError]:
    return validate_workload(obj["kind"], get_object(obj, "spec"))


_VALIDATORS: dict[str, Callable[[JsonObject], Iterator[InvalidFieldError]]] = {
    "ConfigMap": _config_map,
    "Secret": _secret,
    "Service": _service,
    "PersistentVolumeClaim": _persistent_volume_claim,
    "Lease": _lease,
    "Event": _event,
    **dict.fromkeys(("Role", "ClusterRole"), _rules),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), _binding),
    "PodDisruptionBudget": _pod_disruption_budget,
    "HorizontalPodAutoscaler": _horizontal_pod_autoscaler,
    "Ingress": _ingress,
    "Pod": lambda obj: validate_pod_spec(get_object(obj, "spec"), "spec"),
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"), _workload),
    "Job": lambda obj: validate_job(get_object(obj, "spec")),
    "CronJob": lambda obj: validate_cron_job(get_object(obj, "spec")),
}
