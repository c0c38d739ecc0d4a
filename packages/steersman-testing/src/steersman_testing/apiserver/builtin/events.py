"""Conversion of Events between ``v1`` and ``events.k8s.io/v1``.

Both groups have the same objects with different field names. They are stored in ``v1``. Source:
``pkg/apis/events/v1/conversion.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from steersman.meta import ApiResource
from steersman_testing.apiserver.builtin.zero_values import set_zero_values
from steersman_testing.apiserver.values import JsonObject

EVENTS_V1 = ApiResource("events.k8s.io", "v1", "Event", "events")
_CORE_EVENTS = ApiResource("", "v1", "Event", "events")
_EVENTS_V1_NAMES = {
    "involvedObject": "regarding",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "message": "note",
    "reportingComponent": "reportingController",
}
_CORE_NAMES = {newer: older for older, newer in _EVENTS_V1_NAMES.items()}
# Fields that ``v1`` writes even if they are empty.
_OMIT_EMPTY = ("reportingController", "reportingInstance")


def to_events_v1(event: JsonObject) -> JsonObject:
    """Convert a ``v1`` Event to ``events.k8s.io/v1``."""
    read = {_EVENTS_V1_NAMES.get(name, name): value for name, value in event.items()}
    return _convert(EVENTS_V1, {n: v for n, v in read.items() if v != "" or n not in _OMIT_EMPTY})


def to_core_v1(event: JsonObject) -> JsonObject:
    """Convert an ``events.k8s.io/v1`` Event to ``v1``."""
    return _convert(_CORE_EVENTS, {_CORE_NAMES.get(name, name): value for name, value in event.items()})


def _convert(resource: ApiResource, event: dict[str, Any]) -> JsonObject:
    found: JsonObject = {**event, "apiVersion": resource.api_version}
    set_zero_values(resource, found)
    return found
