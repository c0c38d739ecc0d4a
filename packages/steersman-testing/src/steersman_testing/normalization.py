"""Normalization shared by simulation and transition tests."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from steersman_testing.apiserver.values import MISSING, JsonObject, get_object, is_list, is_map
from steersman_testing.generated_names import GeneratedNames, canonical_json

SERVER_SET_METADATA = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""Metadata fields that the API server sets."""
TIMESTAMP_PATTERN = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def group_kind(obj: JsonObject) -> tuple[str, str]:
    """Group and kind of an object in wire form."""
    return obj["apiVersion"].rpartition("/")[0], obj["kind"]


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


class Normalizer:
    """Replaces values that differ between runs: UIDs, timestamps and generated names.

    Subclasses override ``normalize_field`` for fields that need more.

    Args:
        names: labels of generated names.
        owners: names of objects by UID.
    """

    def __init__(self, names: GeneratedNames, owners: Mapping[str, str]) -> None:
        self._names = names
        self._owners = owners

    def normalize(self, value: Any) -> Any:
        """Normalize a JSON value."""
        if is_map(value):
            fields = ((k, self.normalize_field(k, v)) for k, v in value.items())
            return merge_fields((self._names.replace_in(k), v) for k, v in fields if v is not MISSING)
        if is_list(value):
            return self._names.sort_generated(value, [self.normalize(v) for v in value])
        return self.normalize_text(value) if isinstance(value, str) else value

    def normalize_field(self, name: str, value: Any) -> Any:
        """Normalize the field ``name`` of an object. MISSING removes it."""
        return self.normalize(value)

    def normalize_text(self, text: str) -> str:
        """Normalize a string."""
        if text in self._owners:
            return f"(uid of {self._owners[text]})"
        return "(time)" if TIMESTAMP_PATTERN.fullmatch(text) else self.replace_names(text)

    def replace_names(self, text: str) -> str:
        """Replace generated names within ``text``."""
        return self._names.replace_in(text)


def stable_metadata(obj: JsonObject, ignored_annotations: Iterable[str]) -> JsonObject:
    """Metadata that clients set, without ``ignored_annotations``."""
    metadata: JsonObject = {k: v for k, v in obj["metadata"].items() if k not in SERVER_SET_METADATA}
    annotations = {k: v for k, v in get_object(metadata, "annotations").items() if k not in ignored_annotations}
    metadata.pop("annotations", None)
    return {**metadata, "annotations": annotations} if annotations else metadata
