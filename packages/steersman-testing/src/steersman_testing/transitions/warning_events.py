"""Warning Events about the object under test."""

from __future__ import annotations

from collections.abc import Iterable

from steersman.meta import ApiResource, ObjectKey
from steersman_testing.apiserver.values import JsonObject, get_object


class WarningEventTracker:
    """Finds Warning Events that are new since the last observation.

    Args:
        resource: resource of the regarding object.
        key: key of the regarding object.
    """

    def __init__(self, resource: ApiResource, key: ObjectKey) -> None:
        self._resource = resource
        self._key = key
        self._known_counts: dict[str, int] = {}

    def take_new(self, events: Iterable[JsonObject]) -> tuple[str, ...]:
        """Return Warning Events that are new or occurred again, as ``Reason: note``.

        Args:
            events: all Events in wire form, of either API group.
        """
        warnings = [e for e in events if e.get("type") == "Warning" and self._is_about_object(e)]
        known, self._known_counts = self._known_counts, {e["metadata"]["uid"]: _count(e) for e in warnings}
        new = [e for e in warnings if _count(e) > known.get(e["metadata"]["uid"], 0)]
        return tuple(f"{e.get('reason')}: {e.get('note', e.get('message', ''))}" for e in new)

    def _is_about_object(self, event: JsonObject) -> bool:
        involved = get_object(event, "regarding") or get_object(event, "involvedObject")
        return (involved.get("kind"), involved.get("name")) == (self._resource.kind, self._key.name)


def _count(event: JsonObject) -> int:
    return get_object(event, "series").get("count") or event.get("deprecatedCount") or event.get("count") or 1
