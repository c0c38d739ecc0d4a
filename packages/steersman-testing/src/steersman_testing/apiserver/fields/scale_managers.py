"""Who owns the number of replicas, as a scale is written: the managers of an object as those of its scale, and back.

On the way a manager that updated the object counts as another one than that who updates the scale, so that the number
is taken from it even where it stays what it is. Source: ``pkg/util/managedfields/scalehandler.go`` of
``k8s.io/apimachinery``.
"""

from __future__ import annotations

from collections.abc import Callable

from steersman_testing.apiserver.fields.field_paths import FieldPath
from steersman_testing.apiserver.fields.managed_fields import ManagedFields, ManagerIdentifier, VersionedSet

API_VERSION = "autoscaling/v1"
_REPLICAS_PATH: FieldPath = ("f:spec", "f:replicas")
# Tells where an object has its number, by version: None where that version has no scale.
ReplicasPathFunc = Callable[[str], FieldPath | None]


def to_subresource_managers(managers: ManagedFields, replicas_path: ReplicasPathFunc) -> ManagedFields:
    """Those of ``managers``, of an object, who own its number, as managers of its scale."""
    return {
        _with_api_version(key, API_VERSION): VersionedSet(frozenset({_REPLICAS_PATH}), API_VERSION, entry.time)
        for key, entry in managers.items()
        if replicas_path(entry.api_version) in entry.fields
    }


def to_parent_managers(
    before: ManagedFields, scale: ManagedFields, api_version: str, replicas_path: ReplicasPathFunc
) -> ManagedFields:
    """The managers of an object with those of its scale, which was written in ``api_version``."""
    path = replicas_path(api_version)
    assert path is not None
    after: dict[ManagerIdentifier, VersionedSet] = {}
    for key, entry in before.items():
        parent_path = replicas_path(entry.api_version)
        remaining = entry.fields if parent_path is None or key in scale else entry.fields - {parent_path}
        if remaining:
            after[key] = entry._replace(fields=remaining)
    for key, entry in scale.items():
        if _REPLICAS_PATH in entry.fields and key not in after:
            identifier = _with_api_version(key, api_version)
            # Two entries of one name are told until the next write, which finds one.
            after[key if identifier in after else identifier] = VersionedSet(frozenset({path}), api_version, "")
    return after


def _with_api_version(key: ManagerIdentifier, api_version: str) -> ManagerIdentifier:
    return key._replace(api_version=api_version) if key.operation == "Update" else key
