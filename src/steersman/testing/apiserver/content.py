"""Validation of built-in kinds' content, where operators meet it. All else is taken as it is sent.

Covered: keys of ConfigMaps and Secrets, ports of Services, names and images of containers, and that a workload's
selector fits its template. Source: ``pkg/apis/*/validation`` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from steersman.testing.apiserver.failures import FieldError, invalid_value, required, shown
from steersman.testing.apiserver.values import JsonObject, list_at, map_at

_KEY = r"[-._a-zA-Z0-9]+"
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    f"or 'key-name', regex used for validation is '{_KEY}')"
)
_WORKLOADS = {"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"}


def check_content(kind: str, obj: JsonObject) -> Iterator[FieldError]:
    """What is wrong with the content of an object of a built-in kind."""
    if kind in ("ConfigMap", "Secret"):
        for field in ("data", "binaryData"):
            yield from _keys(map_at(obj, field), field)
    elif kind == "Service":
        spec = map_at(obj, "spec")
        if not list_at(spec, "ports") and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
            yield required("spec.ports")
    elif kind == "Pod":
        yield from _containers(map_at(obj, "spec"), "spec")
    elif kind in _WORKLOADS:
        yield from _workload(map_at(obj, "spec"))
    elif kind == "Job":
        yield from _containers(map_at(map_at(map_at(obj, "spec"), "template"), "spec"), "spec.template.spec")


def _keys(data: JsonObject, field: str) -> Iterator[FieldError]:
    for key in data:
        if not re.fullmatch(_KEY, key):
            yield invalid_value(f"{field}[{key}]", key, _KEY_TEXT)


def _workload(spec: JsonObject) -> Iterator[FieldError]:
    template = map_at(spec, "template")
    wanted = map_at(map_at(spec, "selector"), "matchLabels")
    labels = map_at(map_at(template, "metadata"), "labels")
    if not spec.get("selector"):
        yield required("spec.selector")
    elif any(labels.get(k) != v for k, v in wanted.items()):
        text = "`selector` does not match template `labels`"
        yield FieldError(
            "spec.template.metadata.labels", "FieldValueInvalid", f"Invalid value: {shown(labels)}: {text}"
        )
    yield from _containers(map_at(template, "spec"), "spec.template.spec")


def _containers(spec: JsonObject, path: str) -> Iterator[FieldError]:
    containers = list_at(spec, "containers")
    if not containers:
        yield required(f"{path}.containers")
    for position, container in enumerate(containers):
        for field in ("name", "image"):
            if not container.get(field):
                yield required(f"{path}.containers[{position}].{field}")
