"""Translation of managed fields between an object and its scale.

A manager that updated the object differs from the manager that updates the scale. So it loses the replicas even if
they stay the same. Source: ``pkg/util/managedfields/scalehandler.go`` of ``k8s.io/apimachinery``.
"""

from __future__ import annotations

from collections.abc import Callable

from steersman_testing.apiserver.fields.field_paths import FieldPath
from steersman_testing.apiserver.fields.managed_fields import ManagedFields, ManagerIdentifier, VersionedSet

API_VERSION = "autoscaling/v1"
_REPLICAS_PATH: FieldPath = ("f:spec", "f:replicas")
# Returns the path of the replicas in an API version, or None without a scale.
ReplicasPathFunc = Callable[[str], FieldPath | None]


def to_subresource_managers(managers: ManagedFields, replicas_path: ReplicasPathFunc) -> ManagedFields:
    """Return the managers of a scale: the owners of the replicas."""
    return {
        _with_api_version(key, API_VERSION): VersionedSet(frozenset({_REPLICAS_PATH}), API_VERSION, entry.time)
        for key, entry in managers.items()
        if replicas_path(entry.api_version) in entry.fields
    }


def to_parent_managers(
    before: ManagedFields, scale: ManagedFields, api_version: str, replicas_path: ReplicasPathFunc
) -> ManagedFields:
    """Return the managers of an object after a write of its scale.

    Args:
        before: managers of the object before the write.
        scale: managers of the scale after the write.
        api_version: version of the object in the write.
    """
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
            # Two entries with the same manager exist until the next write merges them.
            after[key if identifier in after else identifier] = VersionedSet(frozenset({path}), api_version, "")
    return after


def _with_api_version(key: ManagerIdentifier, api_version: str) -> ManagerIdentifier:
    return key._replace(api_version=api_version) if key.operation == "Update" else key
