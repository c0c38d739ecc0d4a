"""What comparisons of two worlds have in common: what is left out, and what becomes of names that are told alike."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from steersman_testing.apiserver.values import JsonObject

SERVER_SET_METADATA = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""The metadata that the API server gives, and that says nothing of what an operator did."""
TIMESTAMP_PATTERN = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def group_kind(obj: JsonObject) -> tuple[str, str]:
    """Group and kind of an object in wire form."""
    return obj["apiVersion"].rpartition("/")[0], obj["kind"]


def canonical_json(value: Any) -> bytes:
    """``value``, equal where values are equal; orders what is otherwise told alike."""
    return msgspec.json.encode(value, order="deterministic")


def with_unique_names(objects: Iterable[tuple[str, JsonObject]]) -> dict[str, JsonObject]:
    """Objects by name; those that are named alike get a number, by what they are."""
    found: dict[str, JsonObject] = {}
    for name, same_name in _group_by_key(objects).items():
        for obj in same_name:
            unique, number = name, 1
            while unique in found:
                number += 1
                unique = f"{name} ({number})"
            found[unique] = obj
    return found


def merge_fields(fields: Iterable[tuple[str, Any]]) -> JsonObject:
    """A map of ``fields``; where two are named alike, all their values, ordered by what they are."""
    pairs = list(fields)
    found = dict(pairs)
    if len(found) == len(pairs):
        return {name: found[name] for name in sorted(found)}
    return {name: values[0] if len(values) == 1 else values for name, values in _group_by_key(pairs).items()}


def _group_by_key(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return {
        key: sorted(found[key], key=canonical_json) if len(found[key]) > 1 else found[key] for key in sorted(found)
    }
