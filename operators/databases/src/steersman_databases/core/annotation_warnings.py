"""Warnings about annotations without effect.

Their authors would otherwise wait in vain. Unlike a completed request such an annotation stays, because it may come
from a manifest that is applied again.
"""

from __future__ import annotations

from collections.abc import Iterable

from steersman.controller import EventRecorder
from steersman.meta import Object, ObjectKey
from steersman_databases.api.autopilot.maintenance import MAINTENANCE_UNTIL_ANNOTATION, maintenance_until
from steersman_databases.api.group import invalid_booleans
from steersman_databases.cluster.declared import FENCED_INSTANCES_ANNOTATION, requested_fences
from steersman_databases.cluster.state import ClusterState
from steersman_databases.engines.cluster_engine import DeclaredCluster

_MAX_LISTED_LENGTH = 200


class AnnotationWarnings:
    """Warnings for all objects of one kind. Each mistake is reported once."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._warned: dict[tuple[ObjectKey, str], str] = {}

    def check_common(self, obj: Object) -> None:
        """Check annotations that all kinds support."""
        for name, value in invalid_booleans(obj).items():
            self._warn_once(
                obj, name, f'{_quoted([value])} is not supported: set "true", or remove it' if value else ""
            )

    def check_maintenance(self, cluster: Object) -> None:
        """Check the end of the requested maintenance window."""
        value = cluster.metadata.annotations.get(MAINTENANCE_UNTIL_ANNOTATION, "")
        is_valid = not value.strip() or maintenance_until(cluster) is not None
        message = (
            "" if is_valid else f"{_quoted([value])} is not a time: write RFC 3339, such as 2030-01-31T22:00:00Z"
        )
        self._warn_once(cluster, MAINTENANCE_UNTIL_ANNOTATION, message)

    def check_fencing(self, cluster: Object, declared: DeclaredCluster, state: ClusterState) -> None:
        """Check the list of fenced instances.

        Removed instances may stay in the list.
        """
        ordinals = {
            name: declared.names.ordinal_of_instance(name) for name in requested_fences(cluster) if name != "*"
        }
        invalid = [name for name, ordinal in ordinals.items() if ordinal is None or ordinal >= state.next_ordinal]
        first, second = (declared.names.instance(number) for number in (0, 1))
        accepted = f"instances or pods separated by commas, such as {first},{second}, or * for all"
        message = f"no instance has the name {_quoted(invalid)}: list {accepted}" if invalid else ""
        self._warn_once(cluster, FENCED_INSTANCES_ANNOTATION, message)

    def _warn_once(self, obj: Object, name: str, message: str) -> None:
        if message and self._warned.get((obj.key, name)) != message:
            self._events.warning(obj, "AnnotationInvalid", f"annotation {name}: {message}")
        if message:
            self._warned[obj.key, name] = message
        else:
            self._warned.pop((obj.key, name), None)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""
        self._warned = {warned: message for warned, message in self._warned.items() if warned[0] != key}


def _quoted(values: Iterable[str]) -> str:
    text = ", ".join(f'"{value}"' for value in values)
    return text if len(text) <= _MAX_LISTED_LENGTH else f'{text[:_MAX_LISTED_LENGTH]}…"'
