"""Filters for watch events of pods and ConfigMaps.

Heartbeats, which are written every two seconds, are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from steersman.cache import InformerEvent
from steersman.meta import Object

_HEARTBEATS = frozenset({"renewTime", "optime", "transitions", "failsafe"})
"""Annotations of Patroni's leader that change constantly. The leader's identity is in others."""
_STATUS = "status"
_SLOTS = "slots"
_WAL_POSITIONS = frozenset(
    {"xlog_location", "received_location", "replayed_location", "lag", "replay_lag", "receive_lag"}
)


def is_significant(change: InformerEvent[Any]) -> bool:
    """Return True if a cluster is reconciled for this change."""
    if change.old is None or change.new is None:
        return True
    return _without_heartbeats(change.old) != _without_heartbeats(change.new)


def _without_heartbeats(obj: Object) -> object:
    metadata = obj.metadata
    annotations = {key: value for key, value in metadata.annotations.items() if key not in _HEARTBEATS}
    if _STATUS in annotations:
        annotations[_STATUS] = _member(annotations[_STATUS])
    if _SLOTS in annotations:
        annotations[_SLOTS] = _slot_names(annotations[_SLOTS])
    return (
        annotations,
        metadata.labels,
        metadata.owner_references,
        metadata.deletion_timestamp,
        getattr(obj, "spec", None),
        getattr(obj, "status", None),
        getattr(obj, "data", None),
    )


def _member(status: str) -> str:
    """A member's own status without its replication position."""
    try:
        reported = json.loads(status)
    except ValueError:
        return status
    if not isinstance(reported, dict):
        return status
    members = cast(Mapping[str, Any], reported)
    return json.dumps({key: value for key, value in members.items() if key not in _WAL_POSITIONS}, sort_keys=True)


def _slot_names(slots: str) -> str:
    """The primary's replication slots without their positions."""
    try:
        return " ".join(sorted(json.loads(slots)))
    except (ValueError, TypeError):
        return slots
