"""What a write says beside its body."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from steersman.errors import Conflict, Invalid

FieldValidation = Literal["Strict", "Warn", "Ignore"]
"""What becomes of unknown and doubled fields: they are refused, dropped with a warning that is logged, or dropped."""

Propagation = Literal["Background", "Foreground", "Orphan"]
"""What becomes of the objects that a deleted one owns: collected after it, before it, or left."""


@lru_cache(maxsize=256)
def write_query(
    field_manager: str, field_validation: FieldValidation, dry_run: bool, force: bool | None = None
) -> Mapping[str, str]:
    """The query of a write; ``force`` is for apply alone. One mapping serves all requests that say the same."""
    query = {"fieldManager": field_manager, "fieldValidation": field_validation}
    if force is not None:
        query["force"] = str(force).lower()
    return query | ({"dryRun": "All"} if dry_run else {})


def delete_options(
    propagation: Propagation, uid: str, resource_version: str, grace_period_seconds: int | None, dry_run: bool
) -> dict[str, Any]:
    """``metav1.DeleteOptions`` in wire form."""
    options: dict[str, Any] = {"propagationPolicy": propagation}
    preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        # Options in the query do not count beside a body.
        options["dryRun"] = ["All"]
    return options


def uid_conflict(error: Invalid) -> Conflict | None:
    """What a DELETE with a UID says, where an apply with one meets another object: the server calls it invalid.

    None where ``error`` is about something else.
    """
    if all(cause.field != "metadata.uid" for cause in error.causes):
        return None
    conflict = Conflict(msgspec.structs.replace(error.status, reason="Conflict", code=409), error.retry_after)
    conflict.uncertain = error.uncertain
    return conflict
