"""Validation of metadata.

Source: ``k8s.io/apimachinery/pkg/api/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from steersman_cel.name_validation import (
    DNS1123_LABEL_ERROR,
    DNS1123_SUBDOMAIN_ERROR,
    LABEL_VALUE_ERROR,
    dns1123_label_error,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_label_value,
    label_key_errors,
)
from steersman_testing.apiserver.failures import InvalidFieldError, forbidden_field, invalid_value, required_value
from steersman_testing.apiserver.values import JsonObject, is_list, is_map

# No vowels and no ambiguous characters. Source: k8s.io/apimachinery/pkg/util/rand.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED_LENGTH = 63
_SUFFIX_LENGTH = 5

_MAX_ANNOTATIONS_BYTES = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_DNS_LABEL_KINDS = {"Namespace", "Service"}
_PATH_SEGMENT_KINDS = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def generate_name(prefix: str, random: Random) -> str:
    """Return a name for ``metadata.generateName``."""
    return prefix[: _MAX_GENERATED_LENGTH - _SUFFIX_LENGTH] + "".join(
        random.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH)
    )


def validate_metadata(kind: str, metadata: JsonObject, *, custom: bool) -> Iterator[InvalidFieldError]:
    """Yield the errors of an object's metadata."""
    if prefix := metadata.get("generateName"):
        # Unlike a name, a prefix may end with a hyphen.
        yield from _name_errors(kind, re.sub("-$", "a", prefix), "metadata.generateName", prefix)
    yield from _name_errors(kind, metadata.get("name", ""))
    yield from validate_labels(metadata.get("labels"))
    yield from validate_annotations(metadata.get("annotations"))
    yield from finalizer_errors(metadata.get("finalizers") or (), "metadata.finalizers", custom=custom)
    yield from _owner_reference_errors(metadata.get("ownerReferences"))


def finalizer_errors(
    finalizers: Iterable[str], path: str, *, custom: bool = False, indexed_paths: bool = False
) -> Iterator[InvalidFieldError]:
    """Yield the errors of finalizer names.

    Args:
        path: path of the list.
        custom: whether the object is a custom resource, which has no standard finalizers.
        indexed_paths: whether errors have the index, as in the spec of a Namespace.
    """
    for position, finalizer in enumerate(finalizers):
        item_path = f"{path}[{position}]"
        yield from key_errors(finalizer, item_path if indexed_paths else path)
        if not custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(item_path, finalizer, text)


def _name_errors(kind: str, name: str, path: str = "metadata.name", sent: str = "") -> Iterator[InvalidFieldError]:
    """Yield the errors of a name.

    Args:
        sent: value in errors, if it differs from ``name``.
    """
    if not name:
        yield required_value(path, "name or generateName is required")
    elif kind in _PATH_SEGMENT_KINDS:
        if name in (".", ".."):
            yield invalid_value(path, sent or name, f"may not be '{name}'")
        elif "/" in name or "%" in name:
            yield invalid_value(path, sent or name, f"may not contain '{'/' if '/' in name else '%'}'")
    else:
        is_dns_label = kind in _DNS_LABEL_KINDS
        is_valid, text, max_length = (
            (is_dns1123_label, DNS1123_LABEL_ERROR, 63)
            if is_dns_label
            else (is_dns1123_subdomain, DNS1123_SUBDOMAIN_ERROR, 253)
        )
        if len(name) > max_length:
            yield invalid_value(path, sent or name, f"must be no more than {max_length} characters")
        if not is_valid(name):
            problem = "must not contain dots" if is_dns_label and "." in name else text
            yield invalid_value(path, sent or name, problem)


def label_error(path: str, value: str) -> InvalidFieldError | None:
    """Return the error of an RFC 1123 label, or None."""
    problem = dns1123_label_error(value)
    return invalid_value(path, value, problem) if problem else None


def validate_annotations(annotations: Any) -> Iterator[InvalidFieldError]:
    """Yield the errors of annotation keys and their total size."""
    if not is_map(annotations):
        return
    for key in annotations:
        yield from key_errors(key.lower(), "metadata.annotations")
    if sum(len(k.encode()) + len(str(v).encode()) for k, v in annotations.items()) > _MAX_ANNOTATIONS_BYTES:
        text = f"Too long: may not be more than {_MAX_ANNOTATIONS_BYTES} bytes"
        yield InvalidFieldError("metadata.annotations", "FieldValueTooLong", text)


def validate_labels(labels: Any) -> Iterator[InvalidFieldError]:
    """Yield the errors of label keys and values."""
    if not is_map(labels):
        return
    for key, value in labels.items():
        yield from key_errors(key, "metadata.labels")
        if not isinstance(value, str):
            yield invalid_value("metadata.labels", value, "must be a string", reason="FieldValueTypeInvalid")
            continue
        if len(value) > 63:
            yield invalid_value("metadata.labels", value, "must be no more than 63 bytes")
        if not is_label_value(value):
            yield invalid_value("metadata.labels", value, LABEL_VALUE_ERROR)


def key_errors(key: str, path: str) -> Iterator[InvalidFieldError]:
    """Yield the errors of a label key or a finalizer name."""
    noun = "label key" if path == "metadata.labels" else "qualified name"
    for problem in label_key_errors(key, noun):
        yield invalid_value(path, key, problem)


def _owner_reference_errors(owners: Any) -> Iterator[InvalidFieldError]:
    if not is_list(owners):
        return
    controllers: list[str] = []
    for owner in owners:
        path = "metadata.ownerReferences"
        if not owner.get("apiVersion"):
            yield invalid_value(f"{path}.apiVersion", "", "version must not be empty")
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                yield invalid_value(f"{path}.{field}", "", "must not be empty")
        if owner.get("kind") == "Event" and owner.get("apiVersion") == "v1":
            yield invalid_value(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:
        text = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        yield invalid_value("metadata.ownerReferences", owners, text)


def validate_finalizer_update(old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    """Reject new finalizers on an object that is being deleted."""
    if "deletionTimestamp" not in old:
        return
    added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
    if added:
        listed = ", ".join(f'"{f}"' for f in added)
        text = "no new finalizers can be added if the object is being deleted, found new finalizers []string{%s}"
        # The real server validates the metadata twice and reports the error twice.
        yield from [forbidden_field("metadata.finalizers", text % listed)] * 2
