"""Annotations that mean nothing as they stand: who wrote one waits for something that does not come, and is told.

It stays where it is, other than a request that is over: it may come from a file that somebody would apply again.
"""

from __future__ import annotations

from collections.abc import Iterable

from steersman.controller import EventRecorder
from steersman.meta import Object, ObjectKey
from steersman_databases.api.group import unclear
from steersman_databases.clusters.observed import Observed
from steersman_databases.clusters.view import FENCED_INSTANCES, fenced_names
from steersman_databases.engines.cluster import ClusterView

_LONGEST = 200


class Annotations:
    """Those of all objects of one kind: each mistake is told once."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._told: dict[tuple[ObjectKey, str], str] = {}

    def look(self, obj: Object) -> None:
        """At those that every kind takes."""
        for name, value in unclear(obj).items():
            self._tell(obj, name, f'{_quoted([value])} means nothing: say "true", or take it off' if value else "")

    def look_at_fences(self, cluster: Object, view: ClusterView, observed: Observed) -> None:
        """At who is to be fenced. Who was there once may be named still."""
        numbers = {name: view.names.called(name) for name in fenced_names(cluster) if name != "*"}
        wrong = [name for name, number in numbers.items() if number is None or number >= observed.next_number]
        first, second = (view.names.instance(number) for number in (0, 1))
        accepted = f"instances or their pods, with commas between, such as {first},{second}, or * for all"
        words = f"no instance is called {_quoted(wrong)}: name {accepted}" if wrong else ""
        self._tell(cluster, FENCED_INSTANCES, words)

    def _tell(self, obj: Object, name: str, words: str) -> None:
        if words and self._told.get((obj.key, name)) != words:
            self._events.warning(obj, "AnnotationRefused", f"annotation {name}: {words}")
        if words:
            self._told[obj.key, name] = words
        else:
            self._told.pop((obj.key, name), None)

    def forget(self, key: ObjectKey) -> None:
        """The object is gone."""
        self._told = {about: words for about, words in self._told.items() if about[0] != key}


def _quoted(values: Iterable[str]) -> str:
    text = ", ".join(f'"{value}"' for value in values)
    return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…"'
