"""Structs within a schema, and their class names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from steersman_cli.codegen.names import class_name_part

Schema = dict[str, Any]

# Keywords of the field, not of its struct.
FIELD_KEYWORDS = ("description", "default", "nullable", "example", "x-kubernetes-embedded-resource")


def is_struct(schema: Schema) -> bool:
    """Return True if ``schema`` is an object with declared fields, possibly none."""
    if schema.get("type") != "object" or "additionalProperties" in schema:
        return False
    if "properties" in schema:
        return True
    return not schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("x-kubernetes-embedded-resource")


def schema_fingerprint(schema: Schema) -> bytes:
    """A key that two schemas share if one class fits both."""
    struct_keywords = {key: value for key, value in schema.items() if key not in FIELD_KEYWORDS}
    return msgspec.json.encode(struct_keywords, order="sorted")


def find_structs(
    schema: Schema, path: tuple[str, ...], is_known: Callable[[Schema], bool]
) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Structs within ``schema`` with their paths, without known types."""
    if is_struct(schema):
        if is_known(schema):
            return
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from find_structs(inner, (*path, name), is_known)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from find_structs(schema[keyword], path, is_known)


def assign_class_names(
    found: Iterable[tuple[tuple[str, ...], Schema]], taken: set[str]
) -> dict[bytes, tuple[str, tuple[str, ...], Schema]]:
    """Name each struct by its shortest path. Adds the names to ``taken``.

    Returns:
        Name, path and schema by fingerprint.
    """
    shortest_paths: dict[bytes, tuple[tuple[str, ...], Schema]] = {}
    for path, schema in found:
        key = schema_fingerprint(schema)
        if key not in shortest_paths or (len(path), path) < (len(shortest_paths[key][0]), shortest_paths[key][0]):
            shortest_paths[key] = path, schema
    assigned: dict[bytes, tuple[str, tuple[str, ...], Schema]] = {}
    for key, (path, schema) in sorted(
        shortest_paths.items(), key=lambda item: (len(item[1][0]), item[1][0], item[0])
    ):
        base = "".join(class_name_part(part) for part in path)
        name, number = base, 2
        while name in taken:
            name, number = f"{base}{number}", number + 1
        taken.add(name)
        assigned[key] = name, path, schema
    return assigned
