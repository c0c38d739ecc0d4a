"""What managers own after a schema has changed: of a list or a map that became atomic the whole, where it was a part.

What became granular stays as it was owned. Source: ``typed/reconcile_schema.go`` of
``sigs.k8s.io/structured-merge-diff/v6``.
"""

from __future__ import annotations

from functools import lru_cache

from steersman_testing.apiserver.fields.field_paths import FieldPath, FieldSet
from steersman_testing.apiserver.fields.managed_fields import ManagedFields
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.shapes import DEDUCED, SchemaShape, Shape

_CACHE_SIZE = 4096
"""Sets of fields are the same from write to write, mostly."""


def reconcile_with_schema(managers: ManagedFields, kind: ServedKind) -> ManagedFields:
    """``managers`` with the fields that objects of ``kind`` have; themselves, where they are such."""
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
    """The beginning of ``path`` that is owned as one; all of it, mostly."""
    for length, element in enumerate(path):
        if shape is DEDUCED:
            break
        is_field = element.startswith("f:")
        if shape.relation == "atomic" or (not is_field and shape.relation == "granular"):
            return path[:length]
        shape = shape.field(element[2:]) if is_field else shape.item()
    return path
