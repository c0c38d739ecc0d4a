"""Managed fields: the owner of each field of an object.

Source: ``sigs.k8s.io/structured-merge-diff/v6/merge`` and ``k8s.io/apimachinery/pkg/util/managedfields``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, Literal, NamedTuple

import msgspec

from steersman.errors import ApiError, StatusCause
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.fields.field_paths import (
    Comparison,
    FieldPath,
    FieldSet,
    compare,
    from_fields_v1,
    path_text,
    to_fields_v1,
)
from steersman_testing.apiserver.shapes import Shape
from steersman_testing.apiserver.values import JsonObject, is_list, is_map

# Without a field manager, the server uses the prefix of the User-Agent, which is that of Steersman's client.
DEFAULT_FIELD_MANAGER = "steersman"
# Fields that the server or the URL sets have no owner.
UNOWNED_FIELDS: frozenset[FieldPath] = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


class ManagerIdentifier(NamedTuple):
    """Identifies a manager.

    The API version distinguishes managers that update, but not managers that apply.
    """

    manager: str
    operation: Literal["Apply", "Update"]
    subresource: str = ""
    api_version: str = ""

    def __str__(self) -> str:
        text = msgspec.json.encode(self.manager).decode()
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


class VersionedSet(NamedTuple):
    """Fields of one manager, with their API version and time.

    The time is empty if the manager applied a configuration that changed nothing.
    """

    fields: FieldSet
    api_version: str
    time: str


ManagedFields = Mapping[ManagerIdentifier, VersionedSet]


class FieldScope(NamedTuple):
    """Fields that a write to an object or a subresource can own.

    Attributes:
        roots: root fields that the write changes. None for all.
        resets: fields that the write resets and does not own.
    """

    roots: FieldSet | None = None
    resets: FieldSet = frozenset()

    def filter(self, paths: Set[FieldPath]) -> Set[FieldPath]:
        """Return the paths that such a write can own."""
        ownable = paths - UNOWNED_FIELDS
        if self.roots is None and not self.resets:
            return ownable
        return {path for path in ownable if self._contains(path)}

    def _contains(self, path: FieldPath) -> bool:
        root = path[:1]
        if root in self.resets or path[:2] in self.resets:
            return False
        return self.roots is None or root in self.roots


def merged_on_read(managers: ManagedFields) -> ManagedFields:
    """Return ``managers`` as a write reads them.

    Of two entries with the same manager, which a write of a scale creates, the newer one counts.
    """
    if all(k.operation == "Apply" or k.api_version == entry.api_version for k, entry in managers.items()):
        return managers
    return {k: o for k, o in managers.items() if k.operation == "Apply" or k.api_version == o.api_version}


ConvertFunc = Callable[[str, JsonObject], tuple[JsonObject, Shape] | None]
"""Returns an object and its shape in another version, or None. May raise ApiError."""


class FieldChange:
    """Comparison of an object before and after a write, in each version.

    Managers own fields of the version that they wrote.

    Args:
        old: the object before the write, in ``api_version``.
        new: the object after it.
        shape: shape of both.
        convert: conversion to other versions. None if there is one version only.
    """

    def __init__(
        self, old: JsonObject, new: JsonObject, shape: Shape, api_version: str, convert: ConvertFunc | None = None
    ) -> None:
        self._old_and_new = old, new
        self._convert = convert
        self.api_version = api_version
        self._comparisons: dict[str, Comparison | None] = {api_version: compare(old, new, shape)}

    @property
    def in_own_version(self) -> Comparison:
        """Comparison in the version of the write."""
        found = self._comparisons[self.api_version]
        assert found is not None
        return found

    def in_version(self, api_version: str) -> Comparison | None:
        """Return the comparison in another version, or None.

        Raises:
            ApiError: the converted object does not match its schema.
        """
        if self._convert is None:
            return self.in_own_version
        if api_version not in self._comparisons:
            old, new = (self._convert(api_version, side) for side in self._old_and_new)
            found = None if old is None or new is None else compare(old[0], new[0], new[1])
            self._comparisons[api_version] = found
        return self._comparisons[api_version]


def update_ownership(
    managers: ManagedFields, key: ManagerIdentifier, change: FieldChange, *, time: str, scope: FieldScope
) -> ManagedFields:
    """Return the managers after a create, update or patch by ``key``.

    The manager owns what it changed, and other managers lose it.
    """
    changes = change.in_own_version
    result = _remove_from_others(managers, key, change)
    previous_fields = managers[key].fields if key in managers else frozenset[FieldPath]()
    fields = (previous_fields - changes.removed) | scope.filter(changes.added | changes.modified)
    return _with_manager_fields(result, managers, key, fields, change.api_version, time)


def apply_ownership(
    managers: ManagedFields, key: ManagerIdentifier, fields: FieldSet, *, api_version: str, time: str
) -> dict[ManagerIdentifier, VersionedSet]:
    """Return the managers after ``key`` applied ``fields``."""
    others = {k: entry for k, entry in managers.items() if k != key}
    return {**others, key: VersionedSet(fields, api_version, time)} if fields else others


def resolve_conflicts(
    managers: ManagedFields, key: ManagerIdentifier, change: FieldChange, *, force: bool
) -> ManagedFields:
    """Remove the fields of ``change`` from the other managers.

    Raises:
        ApiError: 409 without ``force``, with a cause for each field and manager.
    """
    conflicts: dict[ManagerIdentifier, FieldSet] = {}
    for other, entry in managers.items():
        changes = None if other == key else change.in_version(entry.api_version)
        if changes is not None and (conflicting_fields := entry.fields & (changes.added | changes.modified)):
            conflicts[other] = conflicting_fields
    if conflicts and not force:
        raise _conflict_error(conflicts)
    return _remove_from_others(managers, key, change)


def _remove_from_others(
    managers: ManagedFields, key: ManagerIdentifier, change: FieldChange
) -> dict[ManagerIdentifier, VersionedSet]:
    remaining: dict[ManagerIdentifier, VersionedSet] = {}
    for other, entry in managers.items():
        if other != key:
            changes = change.in_version(entry.api_version)
            if changes is None:
                continue
            entry = entry._replace(fields=entry.fields - changes.added - changes.modified - changes.removed)
        if entry.fields:
            remaining[other] = entry
    return remaining


def _with_manager_fields(
    result: dict[ManagerIdentifier, VersionedSet],
    managers: ManagedFields,
    key: ManagerIdentifier,
    fields: Set[FieldPath],
    api_version: str,
    time: str,
) -> dict[ManagerIdentifier, VersionedSet]:
    previous = managers.get(key)
    if not fields:
        result.pop(key, None)
    elif previous is None or previous.fields != fields or previous.api_version != api_version:
        result[key] = VersionedSet(frozenset(fields), api_version, time)
    return result


def _conflict_error(conflicts: Mapping[ManagerIdentifier, FieldSet]) -> ApiError:
    pairs = [(key, path) for key in sorted(conflicts, key=str) for path in sorted(conflicts[key])]
    causes = [
        StatusCause(reason="FieldManagerConflict", message=f"conflict with {key}", field=path_text(path))
        for key, path in pairs
    ]
    if len(pairs) == 1:
        key, path = pairs[0]
        message = f"Apply failed with 1 conflict: conflict with {key}: {path_text(path)}"
    else:
        lines = [
            line
            for key in sorted(conflicts, key=str)
            for line in (f"conflicts with {key}:", *(f"- {path_text(p)}" for p in sorted(conflicts[key])))
        ]
        message = f"Apply failed with {len(pairs)} conflicts: " + "\n".join(lines)
    return failures.apply_conflict(causes, message)


def decode_managers_or_live(metadata: JsonObject, old: ManagedFields) -> ManagedFields:
    """Return the managers of the body, or those of ``old``.

    An empty list or a list with an empty entry resets them. Malformed entries are ignored. Source: "Server-Side
    Apply", "Clearing managedFields"; ``decodeLiveOrNew`` of apimachinery's managedfields.
    """
    sent, old = metadata.get("managedFields"), merged_on_read(old)
    if not is_list(sent):
        return old
    if sent in ([], [{}]):
        return {}
    found = dict(_decode_entry(e) for e in sent if _is_valid_entry(e))
    return found if found and len(found) == len(sent) else old


def _is_valid_entry(entry: Any) -> bool:
    return is_map(entry) and entry.get("operation") in ("Apply", "Update") and is_map(entry.get("fieldsV1"))


def _decode_entry(entry: JsonObject) -> tuple[ManagerIdentifier, VersionedSet]:
    version, operation = entry.get("apiVersion", ""), entry["operation"]
    identity = entry.get("manager", ""), operation, entry.get("subresource", "")
    key = ManagerIdentifier(*identity, version if operation == "Update" else "")
    return key, VersionedSet(from_fields_v1(entry["fieldsV1"]), version, entry.get("time", ""))


def encode_managed_fields(managers: ManagedFields) -> list[JsonObject]:
    """Return the managed fields in wire form, oldest first."""
    entries: list[JsonObject] = []
    for key, versioned_set in sorted(
        managers.items(), key=lambda pair: (pair[0].operation, pair[1].time, pair[0].manager)
    ):
        entry: JsonObject = {
            "manager": key.manager,
            "operation": key.operation,
            "apiVersion": versioned_set.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(versioned_set.fields),
        }
        if versioned_set.time:
            entry["time"] = versioned_set.time
        if key.subresource:
            entry["subresource"] = key.subresource
        entries.append(entry)
    return entries
