"""Paths into objects, held to a schema: of rules, printer columns, the scale subresource, selectable fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_STEP = re.compile(
    r"\.(?P<name>(?:\\.|[^.\[\]\\])+)"
    r"|\[(?P<quote>['\"])(?P<key>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\]"
    r"|(?P<items>\[(?:\*|-?\d*(?::-?\d*)*|\?\(.*?\)|-?\d+(?:,-?\d+)*)\])"
)
_STRING: Schema = {"type": "string"}
_DATE_TIME: Schema = {"type": "string", "format": "date-time"}
_OBJECT_LIST: Schema = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
METADATA_FIELDS: dict[str, Schema] = {
    "name": _STRING,
    "generateName": _STRING,
    "namespace": _STRING,
    "uid": _STRING,
    "resourceVersion": _STRING,
    "generation": {"type": "integer"},
    "deletionGracePeriodSeconds": {"type": "integer"},
    "creationTimestamp": _DATE_TIME,
    "deletionTimestamp": _DATE_TIME,
    "labels": {"type": "object", "additionalProperties": _STRING},
    "annotations": {"type": "object", "additionalProperties": _STRING},
    "finalizers": {"type": "array", "items": _STRING},
    "ownerReferences": _OBJECT_LIST,
    "managedFields": _OBJECT_LIST,
}
"""What every object has, though no definition tells it."""


class FieldPathError(Exception):
    """A path leads nowhere; the text says why, as the end of a sentence."""


def resolve_path(schema: Schema, path: str, *, into_items: bool = False) -> Schema | None:
    """The schema of what ``path`` (``.spec.a['b']``) leads to; None where anything may be.

    Args:
        schema: where the path starts.
        path: with a point in front.
        into_items: whether the path may enter lists, as those of printer columns do (``[?(@.type=="Ready")]``).

    Raises:
        PathError: the path is malformed, or the schema has no such field.
    """
    found: Schema | None = schema
    prefix = ""
    for text, name in parse_path(path):
        if found is None:
            return None
        if name is None:
            if not into_items:
                raise FieldPathError(
                    "enters a list, which is not possible here: name fields only, such as .spec.replicas"
                )
            found = _item_schema(found, prefix)
        else:
            found = _member_schema(found, name, prefix)
        prefix += text
    return found


def parse_path(path: str) -> Iterator[tuple[str, str | None]]:
    """The parts of ``path``: their text, and the name of the field; None for what enters a list.

    Raises:
        PathError: it is malformed.
    """
    if not path.startswith((".", "[")) or path == ".":
        raise FieldPathError("is no path: write it with a point in front, such as .spec.replicas")
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise FieldPathError(f"cannot be read from {path[position:]!r} on: write fields as .name")
        position = step.end()
        name = step["key"] if step["name"] is None else step["name"]
        yield step[0], None if name is None else re.sub(r"\\(.)", r"\1", name)


def _item_schema(schema: Schema, prefix: str) -> Schema | None:
    if schema.get("type") == "array":
        return schema.get("items")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return None
    raise FieldPathError(f"takes {prefix or 'the object'} for a list, which it is not")


def _member_schema(schema: Schema, name: str, prefix: str) -> Schema | None:
    properties: Schema = schema.get("properties", {})
    if name in properties:
        return properties[name]
    if isinstance(schema.get("additionalProperties"), dict):
        return schema["additionalProperties"]
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return None
    if schema.get("type") == "array":
        raise FieldPathError(
            f'leads nowhere: {prefix} is a list, which is entered by [0], [*] or [?(@.type=="Ready")]'
        )
    known = f"it has {', '.join(properties)}" if properties else "it has no fields"
    raise FieldPathError(f"leads nowhere: there is no {name} in {prefix or 'the object'} ({known})")
