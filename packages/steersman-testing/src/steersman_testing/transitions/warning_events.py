"""Warning Events about the explored object."""

from __future__ import annotations

from collections.abc import Iterable

from steersman.meta import ApiResource, ObjectKey
from steersman_testing.apiserver.values import JsonObject, get_object


class WarningEventTracker:
    """Tells which Warning Events are new.

    Args:
        resource: of the object that they are about.
        key: of the object.
    """

    def __init__(self, resource: ApiResource, key: ObjectKey) -> None:
        self._resource = resource
        self._key = key
        self._known_counts: dict[str, int] = {}

    def take_new(self, events: Iterable[JsonObject]) -> tuple[str, ...]:
        """Those of ``events`` that were not there at the last call, or occurred again, as ``Reason: note``.

        Args:
            events: all that there are, in wire form, of either API group.
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
