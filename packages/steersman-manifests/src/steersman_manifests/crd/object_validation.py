"""Validation of objects without a server."""

from __future__ import annotations

from functools import cache
from typing import Any

from steersman.meta import FrozenStruct, Object, Resource, to_builtins
from steersman_manifests.crd.defaults import with_defaults
from steersman_manifests.crd.definition import object_schema
from steersman_manifests.crd.rule_evaluation import has_rules, rule_violations
from steersman_manifests.crd.rules import Schema
from steersman_manifests.crd.schema import schema_of
from steersman_manifests.crd.value_validation import value_violations as violations_of

_OBJECT_FIELDS = ("apiVersion", "kind", "metadata")


def violations(value: FrozenStruct, old_value: FrozenStruct | None = None) -> tuple[str, ...]:
    """Validate a custom resource, or a part of it, without a server.

    CEL rules are evaluated only if the value is valid otherwise. Rules with functions that the engine does not
    implement are skipped.

    Args:
        value: new value.
        old_value: current value, of the same class, for transition rules and ratcheting. Defaults to None: the value
            is new.

    Returns:
        One message per violation, with its path: ``.spec.replicas must be at most 9, but is 10``. Empty if the value
        is valid.

    Raises:
        SchemaError: the class has no structural schema.
    """
    kind, schema = type(value), _schema(type(value))
    document = _to_document(value)
    fields = {
        name: part for name, part in document.items() if not issubclass(kind, Object) or name not in _OBJECT_FIELDS
    }
    if found := tuple(violations_of(_fields_schema(kind), fields, "")):
        return found
    if not _has_rules(kind):
        return ()
    old_document = None if old_value is None else with_defaults(schema, _to_document(old_value))
    return rule_violations(schema, with_defaults(schema, document), old_document, root=issubclass(kind, Object))


def _to_document(value: FrozenStruct) -> dict[str, Any]:
    # An absent spec or status is not validated.
    return {name: part for name, part in to_builtins(value).items() if part is not None}


@cache
def _schema(kind: type[Any]) -> Schema:
    return object_schema(kind, builtin_descriptions=False) if issubclass(kind, Object) else schema_of(kind)


@cache
def _has_rules(kind: type[Any]) -> bool:
    # The schema of a pod has thousands of nodes: search it once.
    return has_rules(_schema(kind))


@cache
def _fields_schema(kind: type[Any]) -> Schema:
    """The schema of ``kind`` without apiVersion, kind and metadata."""
    schema = _schema(kind)
    if not issubclass(kind, Object):
        return schema
    properties = {name: part for name, part in schema["properties"].items() if name not in _OBJECT_FIELDS}
    required = [
        name for name in schema.get("required", ()) if name not in _OBJECT_FIELDS and Resource not in kind.__mro__
    ]
    return {"type": "object", "properties": properties, "required": required}
