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
_FIRST_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_FIRST_LABEL_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_FIRST_LABEL}')"
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
_WITH_PREFIX = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
)

_LARGEST_ANNOTATIONS = 256 * 1024
METADATA_FIELDS = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    }
)

_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_LABEL_NAMED = {"Namespace", "Service"}
_FREELY_NAMED = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def generate(prefix: str, random: Random) -> str:
    """A name from ``metadata.generateName``."""
    return prefix[: _LONGEST_GENERATED - _SUFFIX_LENGTH] + "".join(random.choices(_ALPHABET, k=_SUFFIX_LENGTH))


def subdomain_problem(value: str) -> str:
    """Why ``value`` is no RFC 1123 subdomain; empty where it is one."""
    problems = ["must be no more than 253 characters"] if len(value) > 253 else []
    return ",".join(problems if re.fullmatch(_SUBDOMAIN, value) else [*problems, _SUBDOMAIN_TEXT])


def label_problem(value: str) -> str:
    """Why ``value`` is no RFC 1035 label; empty where it is one."""
    problems = ["must be no more than 63 characters"] if len(value) > 63 else []
    return ",".join(problems if re.fullmatch(_FIRST_LABEL, value) else [*problems, _FIRST_LABEL_TEXT])


def lower_label_problem(value: str) -> str:
    """Why ``value`` is no RFC 1123 label; empty where it is one."""
    problems = ["must be no more than 63 characters"] if len(value) > 63 else []
    return ",".join(problems if re.fullmatch(_LABEL, value) else [*problems, _LABEL_TEXT])


def label_value_problem(value: str) -> str:
    """Why ``value`` is not the value of a label; empty where it may be."""
    problems = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return ",".join(problems if re.fullmatch(_LABEL_VALUE, value) else [*problems, _LABEL_VALUE_TEXT])


def label_key_problem(value: str) -> str:
    """Why ``value`` is not the key of a label; empty where it may be."""
    return ",".join(e.text.partition(": ")[2].partition(": ")[2] for e in _check_key(value, ""))


def check_metadata(kind: str, metadata: JsonObject, *, custom: bool) -> Iterator[FieldError]:
    """What is wrong with the name, labels, annotations, finalizers and owner references of an object."""
    if prefix := metadata.get("generateName"):
        # A prefix may end with what a name may not.
        yield from _check_name(kind, re.sub("-$", "a", prefix), "metadata.generateName", prefix)
    yield from _check_name(kind, metadata.get("name", ""))
    yield from check_labels(metadata.get("labels"))
    yield from check_annotations(metadata.get("annotations"))
    for position, finalizer in enumerate(metadata.get("finalizers") or ()):
        yield from _check_key(finalizer, "metadata.finalizers")
        if not custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(f"metadata.finalizers[{position}]", finalizer, text)
    yield from _check_owners(metadata.get("ownerReferences"))


def _check_name(kind: str, name: str, path: str = "metadata.name", sent: str = "") -> Iterator[FieldError]:
    """What is wrong with ``name``; refusals show ``sent`` where that is another text."""
    if not name:
        yield required(path, "name or generateName is required")
    elif kind in _FREELY_NAMED:
        if name in (".", ".."):
            yield invalid_value(path, sent or name, f"may not be '{name}'")
        elif "/" in name or "%" in name:
            yield invalid_value(path, sent or name, f"may not contain '{'/' if '/' in name else '%'}'")
    else:
        pattern, text, longest = (
            (_LABEL, _LABEL_TEXT, 63) if kind in _LABEL_NAMED else (_SUBDOMAIN, _SUBDOMAIN_TEXT, 253)
        )
        if len(name) > longest:
            yield invalid_value(path, sent or name, f"must be no more than {longest} characters")
        if not re.fullmatch(pattern, name):
            problem = "must not contain dots" if pattern == _LABEL and "." in name else text
            yield invalid_value(path, sent or name, problem)


def label_error(path: str, value: str) -> FieldError | None:
    """Why ``value``, at ``path``, is no RFC 1123 label; None where it is one."""
    problem = lower_label_problem(value)
    return invalid_value(path, value, problem) if problem else None


def check_annotations(annotations: Any) -> Iterator[FieldError]:
    """What is wrong with the keys of annotations, and with their size together."""
    if not is_map(annotations):
        return
    for key in annotations:
        yield from _check_key(key.lower(), "metadata.annotations")
    if sum(len(k.encode()) + len(str(v).encode()) for k, v in annotations.items()) > _LARGEST_ANNOTATIONS:
        text = f"Too long: may not be more than {_LARGEST_ANNOTATIONS} bytes"
        yield FieldError("metadata.annotations", "FieldValueTooLong", text)


def check_labels(labels: Any) -> Iterator[FieldError]:
    """What is wrong with the keys and values of labels."""
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
    if key.count("/") > 1:
        noun = "label key" if path == "metadata.labels" else "qualified name"
        yield invalid_value(path, key, f"a valid {noun}{_NAME_PART_TEXT.removeprefix('name part')}{_WITH_PREFIX}")
        return
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield invalid_value(path, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if not name:
        yield invalid_value(path, key, "name part must be non-empty")
    elif len(name) > 63:
        yield invalid_value(path, key, "name part must be no more than 63 bytes")
    if not re.fullmatch(_NAME_PART, name):
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


def check_finalizers(old: JsonObject, new: JsonObject) -> Iterator[FieldError]:
    """No finalizer may be added to an object that is being deleted."""
    if "deletionTimestamp" not in old:
        return
    added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
    if added:
        listed = ", ".join(f'"{f}"' for f in added)
        text = "no new finalizers can be added if the object is being deleted, found new finalizers []string{%s}"
        # The real server checks the metadata twice.
        yield from [forbidden_field("metadata.finalizers", text % listed)] * 2
