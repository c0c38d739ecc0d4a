"""Which changes of pods and ConfigMaps matter: that members live, which they write every two seconds, does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from steersman.cache import InformerEvent
from steersman.meta import Object

_BEATS = frozenset({"renewTime", "optime", "transitions", "slots", "failsafe"})
"""Annotations of Patroni's leader that change all the time; who leads stands in others."""
_STATUS = "status"
_POSITIONS = frozenset(
    {"xlog_location", "received_location", "replayed_location", "lag", "replay_lag", "receive_lag"}
)


def matters(change: InformerEvent[Any]) -> bool:
    """Whether anything changed that a cluster is reconciled for."""
    if change.old is None or change.new is None:
        return True
    return _essence(change.old) != _essence(change.new)


def _essence(obj: Object) -> object:
    metadata = obj.metadata
    annotations = {key: value for key, value in metadata.annotations.items() if key not in _BEATS}
    if _STATUS in annotations:
        annotations[_STATUS] = _member(annotations[_STATUS])
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
    """What a member says of itself, without how far it is."""
    try:
        said = json.loads(status)
    except ValueError:
        return status
    if not isinstance(said, dict):
        return status
    members = cast(Mapping[str, Any], said)
    return json.dumps({key: value for key, value in members.items() if key not in _POSITIONS}, sort_keys=True)
