"""Resolution of field paths in a schema.

Rules, printer columns, the scale subresource and selectable fields name fields by such paths.
"""

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
"""Metadata fields of each object, which definitions do not declare."""


class FieldPathError(Exception):
    """A path is malformed or does not exist. The message is the end of a sentence."""


def resolve_path(schema: Schema, path: str, *, into_items: bool = False) -> Schema | None:
    """The schema at ``path``. None if any value is allowed there.

    Args:
        schema: schema at the root of the path.
        path: such as ``.spec.a['b']``.
        into_items: the path may enter lists, as in printer columns (``[?(@.type=="Ready")]``).

    Raises:
        FieldPathError: the path is malformed, or the schema does not have the field.
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
    """The steps of ``path``: text and field name. The name is None for a step into a list.

    Raises:
        FieldPathError: the path is malformed.
    """
    if not path.startswith((".", "[")) or path == ".":
        raise FieldPathError("is not a path: start it with a dot, such as .spec.replicas")
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise FieldPathError(f"is malformed at {path[position:]!r}: write fields as .name")
        position = step.end()
        name = step["key"] if step["name"] is None else step["name"]
        yield step[0], None if name is None else re.sub(r"\\(.)", r"\1", name)


def _item_schema(schema: Schema, prefix: str) -> Schema | None:
    if schema.get("type") == "array":
        return schema.get("items")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return None
    raise FieldPathError(f"enters {prefix or 'the object'}, which is not a list")


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
            f'does not exist: {prefix} is a list, which is entered by [0], [*] or [?(@.type=="Ready")]'
        )
    known = f"it has {', '.join(properties)}" if properties else "it has no fields"
    raise FieldPathError(f"does not exist: {prefix or 'the object'} does not have the field {name} ({known})")
