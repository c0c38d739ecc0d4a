"""Which changes are worth a reconcile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.cache import Change

Predicate = Callable[[Change[Any]], bool]


def generation_changed(change: Change[Any]) -> bool:
    """Lets through creations, deletions, and updates of the spec; not those of status or metadata alone.

    The start of a deletion counts: it sets ``deletionTimestamp`` and, in Kubernetes, the generation.
    """
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (
        old.metadata.generation != new.metadata.generation
        or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
    )
