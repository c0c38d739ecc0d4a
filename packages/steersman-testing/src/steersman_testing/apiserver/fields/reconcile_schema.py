"""Reconciliation of managed fields with a changed schema.

If a list or map became atomic, a manager of its parts owns all of it. Nothing changes if it became granular. Source:
``typed/reconcile_schema.go`` of ``sigs.k8s.io/structured-merge-diff/v6``.
"""

from __future__ import annotations

from functools import lru_cache

from steersman_testing.apiserver.fields.field_paths import FieldPath, FieldSet
from steersman_testing.apiserver.fields.managed_fields import ManagedFields
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.shapes import DEDUCED, SchemaShape, Shape

# Most writes own the same sets of fields.
_CACHE_SIZE = 4096


def reconcile_with_schema(managers: ManagedFields, kind: ServedKind) -> ManagedFields:
    """Return ``managers`` reconciled with the schema of ``kind``."""
    reconciled_fields = {
        key: _reconcile_fields(owned.fields, _shape(kind, owned.api_version)) for key, owned in managers.items()
    }
    if all(reconciled_fields[key] is owned.fields for key, owned in managers.items()):
        return managers
    return {key: owned._replace(fields=reconciled_fields[key]) for key, owned in managers.items()}


def _shape(kind: ServedKind, api_version: str) -> Shape:
    version = api_version.rpartition("/")[2]
    if version == kind.resource.version or kind.versions is None or version not in kind.versions.schemas:
        return kind.shape
    return SchemaShape(kind.versions.schemas[version], root=True)


@lru_cache(maxsize=_CACHE_SIZE)
def _reconcile_fields(fields: FieldSet, shape: Shape) -> FieldSet:
    shortened = {path: atomic_path for path in fields if len(atomic_path := _atomic_prefix(path, shape)) < len(path)}
    return frozenset(shortened.get(path, path) for path in fields) if shortened else fields


def _atomic_prefix(path: FieldPath, shape: Shape) -> FieldPath:
    """Return the part of ``path`` down to its first atomic value."""
    for length, element in enumerate(path):
        if shape is DEDUCED:
            break
        is_field = element.startswith("f:")
        if shape.relation == "atomic" or (not is_field and shape.relation == "granular"):
            return path[:length]
        shape = shape.field(element[2:]) if is_field else shape.item()
    return path
