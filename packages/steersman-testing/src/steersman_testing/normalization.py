"""Normalization shared by simulation and transition tests."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from steersman_testing.apiserver.values import JsonObject

SERVER_SET_METADATA = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""Metadata fields that the API server sets."""
TIMESTAMP_PATTERN = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def group_kind(obj: JsonObject) -> tuple[str, str]:
    """Group and kind of an object in wire form."""
    return obj["apiVersion"].rpartition("/")[0], obj["kind"]


def canonical_json(value: Any) -> bytes:
    """Encode ``value`` so that equal values have equal bytes."""
    return msgspec.json.encode(value, order="deterministic")


def with_unique_names(objects: Iterable[tuple[str, JsonObject]]) -> dict[str, JsonObject]:
    """Objects by name. Objects with equal names are numbered by content."""
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
    """Map of ``fields``. Values of equal names become a sorted list."""
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
