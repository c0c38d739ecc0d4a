"""Objects held to the schema of their class, without a server."""

from __future__ import annotations

from functools import cache
from typing import Any

from steersman.crd.rules import Schema
from steersman.crd.schema import fields_schema, schema_of
from steersman.crd.values import violations as violations_of
from steersman.meta import FrozenStruct, Object, Resource, to_builtins

_OF_OBJECTS = ("apiVersion", "kind", "metadata")


def violations(value: FrozenStruct) -> tuple[str, ...]:
    """What the API server would refuse in ``value``, a custom resource or a part of one; empty where it fits.

    Bounds, patterns, formats, enums, lists and required fields are looked at; CEL rules are not. Each text names the
    path: ``.spec.replicas must be at most 9, but is 10``.

    Raises:
        SchemaError: its class has no structural schema.
    """
    if isinstance(value, Object):
        if Resource not in type(value).__mro__:
            # A kind of somebody else's may have other fields than a spec and a status.
            wire = {name: part for name, part in to_builtins(value).items() if name not in _OF_OBJECTS}
            return tuple(violations_of(_fields(type(value)), wire, ""))
        parts = ((part, getattr(value, part)) for part in ("spec", "status"))
        return tuple(v for name, part in parts if part is not None for v in _found(part, f".{name}"))
    return tuple(_found(value, ""))


def _found(value: FrozenStruct, path: str) -> tuple[str, ...]:
    return tuple(violations_of(_schema(type(value)), to_builtins(value), path))


@cache
def _fields(kind: type[Any]) -> Schema:
    return {"type": "object", **fields_schema(kind, without="metadata", builtin_descriptions=False)}


@cache
def _schema(kind: type[Any]) -> Schema:
    return schema_of(kind)
