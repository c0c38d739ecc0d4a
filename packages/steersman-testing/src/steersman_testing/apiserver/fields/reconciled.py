"""What managers own after a schema has changed: of a list or a map that became atomic the whole, where it was a part.

What became granular stays as it was owned. Source: ``typed/reconcile_schema.go`` of
``sigs.k8s.io/structured-merge-diff/v6``.
"""

from __future__ import annotations

from functools import lru_cache

from steersman_testing.apiserver.fields.ownership import Managers
from steersman_testing.apiserver.fields.sets import FieldSet, Path
from steersman_testing.apiserver.fields.shapes import DEDUCED, SchemaShape, Shape
from steersman_testing.apiserver.kinds import Kind

_MOST = 4096
"""Sets of fields are the same from write to write, mostly."""


def reconciled(managers: Managers, kind: Kind) -> Managers:
    """``managers`` with the fields that objects of ``kind`` have; themselves, where they are such."""
    fitting = {key: _fitting(owned.fields, _shape(kind, owned.api_version)) for key, owned in managers.items()}
    if all(fitting[key] is owned.fields for key, owned in managers.items()):
        return managers
    return {key: owned._replace(fields=fitting[key]) for key, owned in managers.items()}


def _shape(kind: Kind, api_version: str) -> Shape:
    version = api_version.rpartition("/")[2]
    if version == kind.resource.version or kind.versions is None or version not in kind.versions.schemas:
        return kind.shape
    return SchemaShape(kind.versions.schemas[version], root=True)


@lru_cache(maxsize=_MOST)
def _fitting(fields: FieldSet, shape: Shape) -> FieldSet:
    cut = {path: whole for path in fields if len(whole := _whole(path, shape)) < len(path)}
    return frozenset(cut.get(path, path) for path in fields) if cut else fields


def _whole(path: Path, shape: Shape) -> Path:
    """The beginning of ``path`` that is owned as one; all of it, mostly."""
    for length, element in enumerate(path):
        if shape is DEDUCED:
            break
        named = element.startswith("f:")
        if shape.relation == "atomic" or (not named and shape.relation == "granular"):
            return path[:length]
        shape = shape.field(element[2:]) if named else shape.item()
    return path
