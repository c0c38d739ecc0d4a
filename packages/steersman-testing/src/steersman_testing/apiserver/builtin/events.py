"""Events, which are the same objects in the groups ``""`` and ``events.k8s.io``, with other names for some fields.

They are kept as those of ``v1``. Source: ``pkg/apis/events/v1/conversion.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from steersman.meta import ApiResource
from steersman_testing.apiserver.builtin.types import fill_blanks
from steersman_testing.apiserver.values import JsonObject

NEWER = ApiResource("events.k8s.io", "v1", "Event", "events")
_OLDER = ApiResource("", "v1", "Event", "events")
_NAMES = {
    "involvedObject": "regarding",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "message": "note",
    "reportingComponent": "reportingController",
}
_KEPT_NAMES = {newer: older for older, newer in _NAMES.items()}
# What ``v1`` writes even where it is empty.
_TEXTS = ("reportingController", "reportingInstance")


def as_newer(event: JsonObject) -> JsonObject:
    """An event of ``v1`` as one of ``events.k8s.io/v1``."""
    read = {_NAMES.get(name, name): value for name, value in event.items()}
    return _of(NEWER, {n: v for n, v in read.items() if v != "" or n not in _TEXTS})


def as_kept(event: JsonObject) -> JsonObject:
    """An event of ``events.k8s.io/v1`` as one of ``v1``."""
    return _of(_OLDER, {_KEPT_NAMES.get(name, name): value for name, value in event.items()})


def _of(resource: ApiResource, event: dict[str, Any]) -> JsonObject:
    found: JsonObject = {**event, "apiVersion": resource.api_version}
    fill_blanks(resource, found)
    return found
