"""Validation of metadata that all kinds share. Source: ``k8s.io/apimachinery/pkg/api/validation``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from steersman_cel.names import (
    LABEL_TEXT,
    LABEL_VALUE_TEXT,
    SUBDOMAIN_TEXT,
    is_label,
    is_label_value,
    is_subdomain,
    key_problems,
    lower_label_problem,
)
from steersman_testing.apiserver.failures import FieldError, forbidden_field, invalid_value, required
from steersman_testing.apiserver.values import JsonObject, is_list, is_map

# No vowels, and nothing that is easily mistaken: k8s.io/apimachinery/pkg/util/rand.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_GENERATED = 63
_SUFFIX_LENGTH = 5

_LARGEST_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_LABEL_NAMED = {"Namespace", "Service"}
_FREELY_NAMED = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def generate(prefix: str, random: Random) -> str:
    """A name from ``metadata.generateName``."""
    return prefix[: _LONGEST_GENERATED - _SUFFIX_LENGTH] + "".join(random.choices(_ALPHABET, k=_SUFFIX_LENGTH))


def check_metadata(kind: str, metadata: JsonObject, *, custom: bool) -> Iterator[FieldError]:
    """What is wrong with the name, labels, annotations, finalizers and owner references of an object."""
    if prefix := metadata.get("generateName"):
        # A prefix may end with what a name may not.
        yield from _check_name(kind, re.sub("-$", "a", prefix), "metadata.generateName", prefix)
    yield from _check_name(kind, metadata.get("name", ""))
    yield from check_labels(metadata.get("labels"))
    yield from check_annotations(metadata.get("annotations"))
    yield from finalizer_errors(metadata.get("finalizers") or (), "metadata.finalizers", custom=custom)
    yield from _check_owners(metadata.get("ownerReferences"))


def finalizer_errors(
    finalizers: Iterable[str], path: str, *, custom: bool = False, exact: bool = False
) -> Iterator[FieldError]:
    """What is wrong with the names of ``finalizers``.

    Args:
        path: of the list.
        custom: whether they are a custom resource's, of whom no name is a standard one.
        exact: whether the list of a namespace's spec is meant, which tells the position of each mistake.
    """
    for position, finalizer in enumerate(finalizers):
        place = f"{path}[{position}]"
        yield from key_errors(finalizer, place if exact else path)
        if not custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(place, finalizer, text)


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
        labelled = kind in _LABEL_NAMED
        fits, text, longest = (is_label, LABEL_TEXT, 63) if labelled else (is_subdomain, SUBDOMAIN_TEXT, 253)
        if len(name) > longest:
            yield invalid_value(path, sent or name, f"must be no more than {longest} characters")
        if not fits(name):
            problem = "must not contain dots" if labelled and "." in name else text
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
        yield from key_errors(key.lower(), "metadata.annotations")
    if sum(len(k.encode()) + len(str(v).encode()) for k, v in annotations.items()) > _LARGEST_ANNOTATIONS:
        text = f"Too long: may not be more than {_LARGEST_ANNOTATIONS} bytes"
        yield FieldError("metadata.annotations", "FieldValueTooLong", text)


def check_labels(labels: Any) -> Iterator[FieldError]:
    """What is wrong with the keys and values of labels."""
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
            yield invalid_value("metadata.labels", value, LABEL_VALUE_TEXT)


def key_errors(key: str, path: str) -> Iterator[FieldError]:
    """What is wrong with ``key``, which stands at ``path``, as the key of a label or the name of a finalizer."""
    noun = "label key" if path == "metadata.labels" else "qualified name"
    for problem in key_problems(key, noun):
        yield invalid_value(path, key, problem)


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
