"""Descriptors of fields for consoles. Source: OpenShift, "OLM Descriptor Reference"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
Descriptor = dict[str, Any]

_ALM_PREFIX = "urn:alm:descriptor:"
_UI_PREFIX = f"{_ALM_PREFIX}com.tectonic.ui:"

_SPEC_TYPE_DESCRIPTORS = {"boolean": "booleanSwitch", "integer": "number", "number": "number", "string": "text"}
_SPEC_FIELD_DESCRIPTORS = ("imagePullPolicy", "namespaceSelector", "nodeAffinity", "podAffinity", "podAntiAffinity")
_STATUS_FIELD_DESCRIPTORS = {"phase": "io.kubernetes.phase", "reason": "io.kubernetes.phase:reason"}
# Words in field names that refer to a kind.
_REFERENCED_KINDS = {
    "Config Map": "ConfigMap",
    "Namespace": "Namespace",
    "Persistent Volume Claim": "PersistentVolumeClaim",
    "Secret": "Secret",
    "Service": "Service",
    "Service Account": "ServiceAccount",
    "Storage Class": "StorageClass",
}
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[-_ ]+")


def humanize(name: str) -> str:
    """Return a name as words: ``readyReplicas`` becomes "Ready Replicas"."""
    return " ".join(part[0].upper() + part[1:] for part in _WORD_BOUNDARY.split(name) if part)


def spec_descriptors(version: Schema) -> list[Descriptor]:
    """Return the descriptors of ``spec`` in a version of a CRD."""
    count = version.get("subresources", {}).get("scale", {}).get("specReplicasPath", "")
    return [
        _descriptor(f, _spec_x_descriptors(f, is_count=f".spec.{f.name}" == count)) for f in _fields(version, "spec")
    ]


def status_descriptors(version: Schema) -> list[Descriptor]:
    """Return the descriptors of ``status`` in a version of a CRD."""
    count = version.get("subresources", {}).get("scale", {}).get("statusReplicasPath", "")
    return [
        _descriptor(f, _status_x_descriptors(f, is_count=f".status.{f.name}" == count))
        for f in _fields(version, "status")
    ]


@dataclass(frozen=True)
class _Field:
    name: str
    schema: Schema

    @property
    def properties(self) -> dict[str, Schema]:
        return self.schema.get("properties", {})

    @property
    def referenced_kind(self) -> str:
        """Kind of the referenced object: ``Secret`` for ``adminSecretName``; empty without one."""
        if self.schema.get("type") != "string" and "name" not in self.properties:
            return ""
        name = humanize(self.name).removesuffix(" Name").removesuffix(" Ref")
        matching = [spoken for spoken in _REFERENCED_KINDS if f" {name}".endswith(f" {spoken}")]
        return _REFERENCED_KINDS[matching[0]] if matching else ""


def _fields(version: Schema, section: str) -> Iterator[_Field]:
    schema: Schema = version["schema"]["openAPIV3Schema"].get("properties", {}).get(section, {})
    properties: dict[str, Schema] = schema.get("properties", {})
    return (_Field(name, found) for name, found in properties.items())


def _descriptor(field: _Field, x_descriptors: list[str]) -> Descriptor:
    # For a reference object, consoles offer a list of names.
    path = f"{field.name}.name" if field.referenced_kind and field.properties else field.name
    found = {
        "path": path,
        "displayName": field.schema.get("title") or humanize(field.name),
        "description": field.schema.get("description", ""),
        "x-descriptors": x_descriptors,
    }
    return {key: value for key, value in found.items() if value}


def _spec_x_descriptors(field: _Field, *, is_count: bool) -> list[str]:
    schema = field.schema
    if is_count:
        return [f"{_UI_PREFIX}podCount"]
    if {"limits", "requests"} <= field.properties.keys():
        return [f"{_UI_PREFIX}resourceRequirements"]
    if field.name in _SPEC_FIELD_DESCRIPTORS:
        return [f"{_UI_PREFIX}{field.name}"]
    if "enum" in schema:
        return [f"{_UI_PREFIX}select:{value}" for value in schema["enum"]]
    if schema.get("format") == "password":
        return [f"{_UI_PREFIX}password"]
    return _reference_x_descriptors(field) or [
        f"{_UI_PREFIX}{_SPEC_TYPE_DESCRIPTORS[t]}" for t in [schema.get("type")] if t in _SPEC_TYPE_DESCRIPTORS
    ]


def _status_x_descriptors(field: _Field, *, is_count: bool) -> list[str]:
    schema = field.schema
    if is_count:
        return [f"{_UI_PREFIX}podCount"]
    if {"type", "status", "lastTransitionTime"} <= schema.get("items", {}).get("properties", {}).keys():
        return [f"{_ALM_PREFIX}io.kubernetes.conditions"]
    if field.name in _STATUS_FIELD_DESCRIPTORS:
        return [f"{_ALM_PREFIX}{_STATUS_FIELD_DESCRIPTORS[field.name]}"]
    if schema.get("format") == "uri":
        return [f"{_ALM_PREFIX}org.w3:link"]
    return _reference_x_descriptors(field) or [
        f"{_ALM_PREFIX}text" for t in [schema.get("type")] if t in _SPEC_TYPE_DESCRIPTORS
    ]


def _reference_x_descriptors(field: _Field) -> list[str]:
    return [f"{_ALM_PREFIX}io.kubernetes:{field.referenced_kind}"] if field.referenced_kind else []
