"""Validation of metadata that all kinds share. Source: ``k8s.io/apimachinery/pkg/api/validation``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

from steersman.testing.apiserver.failures import FieldError, forbidden_field, invalid_value, required
from steersman.testing.apiserver.values import JsonObject, is_list, is_map

# No vowels, and nothing that is easily mistaken: k8s.io/apimachinery/pkg/util/rand.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_GENERATED = 63
_SUFFIX_LENGTH = 5

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{_LABEL_VALUE}')"
)
_NAME_PART = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
)

_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_LABEL_NAMED = {"Namespace", "Service"}
_FREELY_NAMED = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def generate(prefix: str, random: Random) -> str:
    """A name from ``metadata.generateName``."""
    return prefix[: _LONGEST_GENERATED - _SUFFIX_LENGTH] + "".join(random.choices(_ALPHABET, k=_SUFFIX_LENGTH))


def check_metadata(kind: str, metadata: JsonObject, *, custom: bool) -> Iterator[FieldError]:
    """What is wrong with the name, labels, annotations, finalizers and owner references of an object."""
    yield from _check_name(kind, metadata.get("name", ""))
    yield from _check_labels(metadata.get("labels"))
    annotations = metadata.get("annotations")
    if is_map(annotations):
        for key in annotations:
            yield from _check_key(key.lower(), "metadata.annotations")
    for position, finalizer in enumerate(metadata.get("finalizers") or ()):
        yield from _check_key(finalizer, "metadata.finalizers")
        if not custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(f"metadata.finalizers[{position}]", finalizer, text)
    yield from _check_owners(metadata.get("ownerReferences"))


def _check_name(kind: str, name: str) -> Iterator[FieldError]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif kind in _FREELY_NAMED:
        if "/" in name or "%" in name:
            yield invalid_value("metadata.name", name, f"may not contain '{'/' if '/' in name else '%'}'")
    elif kind in _LABEL_NAMED:
        yield from _check_pattern(name, _LABEL, _LABEL_TEXT, 63)
    else:
        yield from _check_pattern(name, _SUBDOMAIN, _SUBDOMAIN_TEXT, 253)


def _check_pattern(name: str, pattern: str, text: str, longest: int) -> Iterator[FieldError]:
    if len(name) > longest:
        yield invalid_value("metadata.name", name, f"must be no more than {longest} bytes")
    if not re.fullmatch(pattern, name):
        yield invalid_value("metadata.name", name, text)


def _check_labels(labels: Any) -> Iterator[FieldError]:
    if not is_map(labels):
        return
    for key, value in labels.items():
        yield from _check_key(key, "metadata.labels")
        if not isinstance(value, str):
            yield invalid_value("metadata.labels", value, "must be a string", reason="FieldValueTypeInvalid")
            continue
        if len(value) > 63:
            yield invalid_value("metadata.labels", value, "must be no more than 63 bytes")
        if not re.fullmatch(_LABEL_VALUE, value):
            yield invalid_value("metadata.labels", value, _LABEL_VALUE_TEXT)


def _check_key(key: str, path: str) -> Iterator[FieldError]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield invalid_value(path, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if not name:
        yield invalid_value(path, key, "name part must be non-empty")
    elif len(name) > 63:
        yield invalid_value(path, key, "name part must be no more than 63 bytes")
    if name and not re.fullmatch(_NAME_PART, name):
        yield invalid_value(path, key, _NAME_PART_TEXT)


def _check_owners(owners: Any) -> Iterator[FieldError]:
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
        if owner.get("controller"):
            controllers.append(owner.get("name", ""))
    if len(controllers) > 1:
        text = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        yield invalid_value("metadata.ownerReferences", owners, text)


def check_finalizers(old: JsonObject, new: JsonObject) -> Iterator[FieldError]:
    """No finalizer may be added to an object that is being deleted."""
    if "deletionTimestamp" not in old:
        return
    added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
    if added:
        listed = ", ".join(f'"{f}"' for f in added)
        text = "no new finalizers can be added if the object is being deleted, found new finalizers []string{%s}"
        yield forbidden_field("metadata.finalizers", text % listed)
