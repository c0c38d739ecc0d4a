"""The group of all kinds, the annotations that every kind takes, and what several of them say alike."""

from __future__ import annotations

from typing import Literal

from steersman.meta import Object

GROUP = "databases.steersman.dev"
VERSION = "v1alpha1"

PAUSED = f"{GROUP}/paused"
"""``"true"``, in any case of letters, on an object: nothing is written for it, but for its deletion."""
FORCE_DELETE = f"{GROUP}/force-delete"
"""The same on an object that is being deleted: do not wait for a server that never comes back."""
ALLOWED_NAMESPACES = f"{GROUP}/allowed-namespaces"
"""On a Service or a Secret: the namespaces, separated by commas, or ``*``, whose objects may refer to it."""
TARGET_LABEL = "target"
"""On a ``DatabaseUser``: the cluster that it is for, and what ``--target`` chooses by."""

EngineName = Literal["postgresql", "mysql"]
DeletionPolicy = Literal["Retain", "Delete"]
Presence = Literal["Present", "Absent"]

NAME_PATTERN = "^[a-z]([-a-z0-9]{0,43}[a-z0-9])?$"
"""Names of objects that Services are named after."""


def is_paused(of: Object) -> bool:
    """Whether an annotation stops all writes for an object."""
    return _says(of, PAUSED) == "true"


def is_forced(of: Object) -> bool:
    """Whether an annotation has a deletion not wait."""
    return _says(of, FORCE_DELETE) == "true"


def unclear(of: Object) -> dict[str, str]:
    """The annotations of every kind: what each says that is neither yes nor no, and empty where it does not."""
    said = {name: of.metadata.annotations.get(name, "") for name in (PAUSED, FORCE_DELETE)}
    return {name: "" if _says(of, name) in ("", "true", "false") else value for name, value in said.items()}


def _says(of: Object, annotation: str) -> str:
    return of.metadata.annotations.get(annotation, "").strip().lower()
