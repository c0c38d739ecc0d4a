"""API group of all kinds, and annotations that several kinds support."""

from __future__ import annotations

from typing import Literal

from steersman.meta import Object

GROUP = "databases.steersman.dev"
VERSION = "v1alpha1"

PAUSED_ANNOTATION = f"{GROUP}/paused"
"""`"true"` in any case: the operator stops writes for the object.

The deletion of the object is an exception.
"""
FORCE_DELETE_ANNOTATION = f"{GROUP}/force-delete"
"""`"true"` in any case: the deletion skips an unreachable server."""
ADOPT_ANNOTATION = f"{GROUP}/adopt"
"""`"true"` in any case: the operator adopts restored objects.

They have the operator's labels and no controller.
"""
ALLOWED_NAMESPACES_ANNOTATION = f"{GROUP}/allowed-namespaces"
"""Annotation of a Service or Secret: namespaces that may refer to it.

They are separated by commas, or `*`.
"""
TARGET_LABEL = "target"
"""Label of a `DatabaseUser`: its cluster, which `--target` selects."""

EngineName = Literal["postgresql", "mysql"]
DeletionPolicy = Literal["Retain", "Delete"]
Presence = Literal["Present", "Absent"]

NAME_PATTERN = "^[a-z]([-a-z0-9]{0,43}[a-z0-9])?$"
"""Names of objects that Services are named after."""


def is_paused(obj: Object) -> bool:
    """Return True if an annotation stops all writes for an object."""
    return _annotation_value(obj, PAUSED_ANNOTATION) == "true"


def is_deletion_forced(obj: Object) -> bool:
    """Return True if an annotation forces the deletion."""
    return _annotation_value(obj, FORCE_DELETE_ANNOTATION) == "true"


def is_adoption_requested(obj: Object) -> bool:
    """Return True if an annotation permits to adopt restored objects."""
    return _annotation_value(obj, ADOPT_ANNOTATION) == "true"


def invalid_booleans(obj: Object) -> dict[str, str]:
    """Return the annotations that are not Booleans, with their values.

    Valid annotations have an empty value.
    """
    names = (PAUSED_ANNOTATION, FORCE_DELETE_ANNOTATION, ADOPT_ANNOTATION)
    values = {name: obj.metadata.annotations.get(name, "") for name in names}
    return {
        name: "" if _annotation_value(obj, name) in ("", "true", "false") else value for name, value in values.items()
    }


def _annotation_value(obj: Object, annotation: str) -> str:
    return obj.metadata.annotations.get(annotation, "").strip().lower()
