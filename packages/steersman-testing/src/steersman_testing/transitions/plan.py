"""Which change comes next: in rounds, so that a short run has touched every field once before it comes to pairs."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from steersman_testing.apiserver.values import MISSING, JsonObject
from steersman_testing.transitions.changes import Change
from steersman_testing.transitions.drafts import Drafts
from steersman_testing.transitions.paths import get
from steersman_testing.transitions.subject import Property
from steersman_testing.transitions.values import Value

Round = Literal["alter", "remove", "invalid", "misspell", "bad", "boundary", "recreate", "several"]
"""What is done to a field, or to several."""

_MOST_AT_ONCE = 4
_TRIES = 20
_PAIRS = 200

Draft = Callable[[JsonObject], "list[Change]"]
"""Makes changes for the object as it is; none if it cannot be done."""


class _Task(NamedTuple):
    """One thing to try, and what it covers: a round, and the name of a field or of two.

    ``again``: whether it is begun once more when its object goes before all of it was done.
    """

    round: Round
    name: str
    draft: Draft
    again: bool = True


@dataclass(slots=True)
class _Cell:
    wanted: int = 0
    done: int = 0
    impossible: int = 0


class Coverage:
    """What was tried of what could be: fields by what is done to them.

    A field counts for a round when all that the round has for it was done. What the API server would not allow, such
    as taking away a required field, does not count at all.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[Round, str], _Cell] = {}

    def plan(self, round: Round, name: str) -> None:
        """There is one thing more to do."""
        self._cell(round, name).wanted += 1

    def done(self, round: Round, name: str, *, possible: bool) -> None:
        """It was done, or turned out to be impossible."""
        cell = self._cell(round, name)
        cell.done += possible
        cell.impossible += not possible

    def _cell(self, round: Round, name: str) -> _Cell:
        return self._cells.setdefault((round, name), _Cell())

    def count(self, round: Round | None = None) -> tuple[int, int]:
        """How many fields were done and how many there are, in ``round`` or in all."""
        cells = [c for (r, _), c in self._cells.items() if round in (None, r) and c.impossible < c.wanted]
        return sum(c.done + c.impossible == c.wanted for c in cells), len(cells)

    def missing(self) -> list[str]:
        """What was not done, such as ``boundary spec.replicas``."""
        return [f"{r} {n}".rstrip() for (r, n), c in self._cells.items() if c.done + c.impossible < c.wanted]

    def __str__(self) -> str:
        done, wanted = self.count()
        rounds: dict[Round, None] = dict.fromkeys(r for r, _ in self._cells)
        parts = [f"{r} {d}/{w}" for r in rounds for d, w in [self.count(r)] if w]
        share = f" ({100 * done // wanted}%)" if wanted else ""
        return f"coverage {done}/{wanted}{share}: " + ", ".join(parts)


class Plan:
    """All changes in their order; endless, since the last round is random.

    Args:
        drafts: makes changes.
        seed: of the order of pairs, and of the last round.

    Attributes:
        coverage: what was given out so far.
    """

    def __init__(self, drafts: Drafts, seed: int) -> None:
        self._drafts = drafts
        self._random = random.Random(seed)  # noqa: S311
        self.coverage = Coverage()
        self._tasks = deque(self._rounds())
        for task in self._tasks:
            self.coverage.plan(task.round, task.name)
        self._begun: tuple[_Task, deque[Change]] | None = None

    def next(self, document: JsonObject) -> Change | None:
        """The next change of an object with the content ``document``; None if there is nothing to change at all."""
        if self._begun is not None:
            task, rest = self._begun
            if rest[0].fits(document) and self._drafts.is_possible(document, rest[0]):
                return self._given(task, rest)
            # It was meant for what the last change has led to: the walk ended there, or went back.
            self._begun = None
            if task.again:
                self._tasks.appendleft(task._replace(again=False))
        while self._tasks:
            task = self._tasks.popleft()
            if changes := task.draft(document):
                return self._given(task, deque(changes))
            self.coverage.done(task.round, task.name, possible=False)
        return self._anything(document)

    def _given(self, task: _Task, rest: deque[Change]) -> Change:
        """The first change of ``rest``; with the last one the task is done."""
        change = rest.popleft()
        self._begun = (task, rest) if rest else None
        if not rest:
            self.coverage.done(task.round, task.name, possible=True)
        return change

    def _rounds(self) -> Iterator[_Task]:
        properties, drafts = self._drafts.properties, self._drafts
        for prop in properties:
            yield _Task("alter", prop.name, self._alters(prop))
        for prop in properties:
            yield _Task("remove", prop.name, self._removes(prop))
        for prop in properties:
            for value in drafts.breaking(prop):
                yield _Task("invalid", prop.name, self._forbids(prop, value))
            yield _Task("invalid", prop.name, self._is_immutable(prop))
        for prop in properties:
            yield _Task("misspell", prop.name, self._misspells(prop))
        for prop in properties:
            for value in drafts.failing(prop):
                yield _Task("bad", prop.name, self._fails(prop, value))
        for prop in properties:
            for value in drafts.good(prop):
                yield _Task("boundary", prop.name, self._reaches(prop, value))
        yield _Task("recreate", "", _as_it_is)
        for prop in properties:
            yield _Task("recreate", prop.name, self._recreates(prop))
        pairs = list(itertools.combinations(properties, 2))
        self._random.shuffle(pairs)
        for one, other in pairs[:_PAIRS]:
            yield _Task("several", f"{one.name} and {other.name}", self._pairs(one, other))

    # Drafts

    def _alters(self, prop: Property) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            tried = (self._drafts.sets(document, prop, v) for v in self._drafts.good(prop))
            found = next((c for c in tried if c is not None), None)
            return [found] if found else []

        return draft

    def _removes(self, prop: Property) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            if get(document, prop.path) is not MISSING:
                found = self._drafts.removes(document, prop)
                return [found] if found else []
            first = self._alters(prop)(document)
            after = first[0].applied_to(document) if first else document
            found = self._drafts.removes(after, prop)
            return [*first, found] if found else []

        return draft

    def _forbids(self, prop: Property, value: Value) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            found = self._drafts.refused(document, prop, value)
            return [found] if found else []

        return draft

    def _is_immutable(self, prop: Property) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            tried = (self._drafts.forbidden(document, prop, v) for v in self._drafts.good(prop))
            found = next((c for c in tried if c is not None), None)
            return [found] if found else []

        return draft

    def _misspells(self, prop: Property) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            found = self._drafts.misspells(document, prop)
            if found is not None:
                return [found]
            first = self._alters(prop)(document)
            found = self._drafts.misspells(first[0].applied_to(document), prop) if first else None
            return [*first, found] if found else []

        return draft

    def _fails(self, prop: Property, value: Value) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            found = self._drafts.fails(document, prop, value)
            return [found] if found else []

        return draft

    def _reaches(self, prop: Property, value: Value) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            found = self._drafts.sets(document, prop, value, "boundary")
            # What the schema suggests and the server refuses breaks a rule.
            found = found or self._drafts.refused(document, prop, value)
            return [found] if found else []

        return draft

    def _recreates(self, prop: Property) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            first = self._alters(prop)(document)
            return [Change("recreate", first[0].edits, "", (prop.name,))] if first else []

        return draft

    def _pairs(self, *properties: Property) -> Draft:
        def draft(document: JsonObject) -> list[Change]:
            found = self._together(document, properties)
            return [found] if found else []

        return draft

    def _together(self, document: JsonObject, properties: tuple[Property, ...]) -> Change | None:
        for _ in range(_TRIES):
            chosen = [(p, self._random.choice(self._drafts.good(p))) for p in properties]
            found = self._drafts.several(document, chosen)
            if found is not None:
                return found
        return None

    def _anything(self, document: JsonObject) -> Change | None:
        """The last round: any number of fields at once, to any values, now and then taken away or all anew."""
        properties = self._drafts.properties
        for _ in range(_TRIES if properties else 0):
            prop = self._random.choice(properties)
            match self._random.randrange(6):
                case 0:
                    found = self._drafts.removes(document, prop)
                case 1:
                    found = next(iter(self._recreates(prop)(document)), None)
                case 2 | 3:
                    found = self._drafts.sets(document, prop, self._random.choice(self._drafts.good(prop)))
                case _:
                    count = min(len(properties), self._random.randint(2, _MOST_AT_ONCE))
                    found = self._together(document, tuple(self._random.sample(properties, count)))
            if found is not None:
                return found
        return None


def _as_it_is(document: JsonObject) -> list[Change]:
    return [Change("recreate")]
