"""Query parameters, delete options and error conversion of writes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from steersman.errors import Conflict, Invalid

FieldValidation = Literal["Strict", "Warn", "Ignore"]
"""Handling of unknown and duplicate fields.

``Strict`` rejects them, ``Warn`` drops them and logs a warning, ``Ignore`` drops them.
"""

Propagation = Literal["Background", "Foreground", "Orphan"]
"""Handling of the objects that a deleted object owns.

``Background`` deletes them after their owner, ``Foreground`` before it, ``Orphan`` keeps them.
"""


@lru_cache(maxsize=256)
def write_query(
    field_manager: str, field_validation: FieldValidation, dry_run: bool, force: bool | None = None
) -> Mapping[str, str]:
    """Return the query of a write. Only apply has ``force``.

    Equal arguments return the same mapping, which callers must not change.
    """
    query = {"fieldManager": field_manager, "fieldValidation": field_validation}
    if force is not None:
        query["force"] = str(force).lower()
    return query | ({"dryRun": "All"} if dry_run else {})


def delete_options(
    propagation: Propagation, uid: str, resource_version: str, grace_period_seconds: int | None, dry_run: bool
) -> dict[str, Any]:
    """Return ``metav1.DeleteOptions`` as JSON types."""
    options: dict[str, Any] = {"propagationPolicy": propagation}
    preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        # The server ignores options in the query if the request has a body.
        options["dryRun"] = ["All"]
    return options


def uid_conflict(error: Invalid) -> Conflict | None:
    """Return the Conflict for an apply whose UID differs, or None.

    The server reports a different UID as Invalid for an apply and as Conflict for a DELETE. The result is None if
    ``error`` has another cause.
    """
    if all(cause.field != "metadata.uid" for cause in error.causes):
        return None
    conflict = Conflict(msgspec.structs.replace(error.status, reason="Conflict", code=409), error.retry_after)
    conflict.uncertain = error.uncertain
    return conflict
