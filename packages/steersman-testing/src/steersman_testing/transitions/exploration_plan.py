"""Which change comes next: in rounds, so that a short run has touched every field once before it comes to pairs."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from steersman_testing.apiserver.values import MISSING, JsonObject
from steersman_testing.transitions.document_paths import get_value
from steersman_testing.transitions.input_model import InputModel
from steersman_testing.transitions.kind_under_test import Property
from steersman_testing.transitions.spec_changes import SpecChange
from steersman_testing.transitions.value_generator import CandidateValue

Round = Literal["alter", "remove", "invalid", "misspell", "bad", "boundary", "recreate", "several"]
"""What is done to a field, or to several."""

_MAX_FIELDS_PER_CHANGE = 4
_MAX_ATTEMPTS = 20
_MAX_PAIRS = 200

ChangeFactory = Callable[[JsonObject], "list[SpecChange]"]
"""Makes changes for the object as it is; none if it cannot be done."""


class _Task(NamedTuple):
    """One thing to try, and what it covers: a round, and the name of a field or of two.

    ``again``: whether it is begun once more when its object goes before all of it was done.
    """

    round: Round
    name: str
    factory: ChangeFactory
    may_retry: bool = True


@dataclass(slots=True)
class _Cell:
    planned: int = 0
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
        self._cell(round, name).planned += 1

    def record(self, round: Round, name: str, *, possible: bool) -> None:
        """It was done, or turned out to be impossible."""
        cell = self._cell(round, name)
        cell.done += possible
        cell.impossible += not possible

    def _cell(self, round: Round, name: str) -> _Cell:
        return self._cells.setdefault((round, name), _Cell())

    def count(self, round: Round | None = None) -> tuple[int, int]:
        """How many fields were done and how many there are, in ``round`` or in all."""
        cells = [c for (r, _), c in self._cells.items() if round in (None, r) and c.impossible < c.planned]
        return sum(c.done + c.impossible == c.planned for c in cells), len(cells)

    def missing(self) -> list[str]:
        """What was not done, such as ``boundary spec.replicas``."""
        return [f"{r} {n}".rstrip() for (r, n), c in self._cells.items() if c.done + c.impossible < c.planned]

    def __str__(self) -> str:
        done, wanted = self.count()
        rounds: dict[Round, None] = dict.fromkeys(r for r, _ in self._cells)
        parts = [f"{r} {d}/{w}" for r in rounds for d, w in [self.count(r)] if w]
        share = f" ({100 * done // wanted}%)" if wanted else ""
        return f"coverage {done}/{wanted}{share}: " + ", ".join(parts)


class ExplorationPlan:
    """All changes in their order; endless, since the last round is random.

    Args:
        drafts: makes changes.
        seed: of the order of pairs, and of the last round.

    Attributes:
        coverage: what was given out so far.
    """

    def __init__(self, model: InputModel, seed: int) -> None:
        self._model = model
        self._random = random.Random(seed)  # noqa: S311
        self.coverage = Coverage()
        self._tasks = deque(self._generate_tasks())
        for task in self._tasks:
            self.coverage.plan(task.round, task.name)
        self._current: tuple[_Task, deque[SpecChange]] | None = None

    def next(self, document: JsonObject) -> SpecChange | None:
        """The next change of an object with the content ``document``; None if there is nothing to change at all."""
        if self._current is not None:
            task, remaining = self._current
            if remaining[0].is_applicable(document) and self._model.is_feasible(document, remaining[0]):
                return self._emit(task, remaining)
            # It was meant for what the last change has led to: the walk ended there, or went back.
            self._current = None
            if task.may_retry:
                self._tasks.appendleft(task._replace(again=False))
        while self._tasks:
            task = self._tasks.popleft()
            if changes := task.factory(document):
                return self._emit(task, deque(changes))
            self.coverage.record(task.round, task.name, possible=False)
        return self._random_change(document)

    def _emit(self, task: _Task, remaining: deque[SpecChange]) -> SpecChange:
        """The first change of ``rest``; with the last one the task is done."""
        change = remaining.popleft()
        self._current = (task, remaining) if remaining else None
        if not remaining:
            self.coverage.record(task.round, task.name, possible=True)
        return change

    def _generate_tasks(self) -> Iterator[_Task]:
        properties, model = self._model.properties, self._model
        for prop in properties:
            yield _Task("alter", prop.name, self._alter(prop))
        for prop in properties:
            yield _Task("remove", prop.name, self._remove(prop))
        for prop in properties:
            for value in model.invalid_values(prop):
                yield _Task("invalid", prop.name, self._violate(prop, value))
            yield _Task("invalid", prop.name, self._change_immutable(prop))
        for prop in properties:
            yield _Task("misspell", prop.name, self._misspell(prop))
        for prop in properties:
            for value in model.bad_values(prop):
                yield _Task("bad", prop.name, self._set_bad(prop, value))
        for prop in properties:
            for value in model.valid_values(prop):
                yield _Task("boundary", prop.name, self._set_boundary(prop, value))
        yield _Task("recreate", "", _recreate_unchanged)
        for prop in properties:
            yield _Task("recreate", prop.name, self._recreate(prop))
        pairs = list(itertools.combinations(properties, 2))
        self._random.shuffle(pairs)
        for one, other in pairs[:_MAX_PAIRS]:
            yield _Task("several", f"{one.name} and {other.name}", self._combine_fields(one, other))

    # Drafts

    def _alter(self, prop: Property) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            tried = (self._model.set_value(document, prop, v) for v in self._model.valid_values(prop))
            found = next((c for c in tried if c is not None), None)
            return [found] if found else []

        return draft

    def _remove(self, prop: Property) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            if get_value(document, prop.path) is not MISSING:
                found = self._model.remove_field(document, prop)
                return [found] if found else []
            first = self._alter(prop)(document)
            after = first[0].apply_to(document) if first else document
            found = self._model.remove_field(after, prop)
            return [*first, found] if found else []

        return draft

    def _violate(self, prop: Property, value: CandidateValue) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            found = self._model.invalid_change(document, prop, value)
            return [found] if found else []

        return draft

    def _change_immutable(self, prop: Property) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            tried = (self._model.immutable_change(document, prop, v) for v in self._model.valid_values(prop))
            found = next((c for c in tried if c is not None), None)
            return [found] if found else []

        return draft

    def _misspell(self, prop: Property) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            found = self._model.misspell_field(document, prop)
            if found is not None:
                return [found]
            first = self._alter(prop)(document)
            found = self._model.misspell_field(first[0].apply_to(document), prop) if first else None
            return [*first, found] if found else []

        return draft

    def _set_bad(self, prop: Property, value: CandidateValue) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            found = self._model.bad_change(document, prop, value)
            return [found] if found else []

        return draft

    def _set_boundary(self, prop: Property, value: CandidateValue) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            found = self._model.set_value(document, prop, value, "boundary")
            # What the schema suggests and the server refuses breaks a rule.
            found = found or self._model.invalid_change(document, prop, value)
            return [found] if found else []

        return draft

    def _recreate(self, prop: Property) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            first = self._alter(prop)(document)
            return [SpecChange("recreate", first[0].edits, "", (prop.name,))] if first else []

        return draft

    def _combine_fields(self, *properties: Property) -> ChangeFactory:
        def draft(document: JsonObject) -> list[SpecChange]:
            found = self._combine_values(document, properties)
            return [found] if found else []

        return draft

    def _combine_values(self, document: JsonObject, properties: tuple[Property, ...]) -> SpecChange | None:
        for _ in range(_MAX_ATTEMPTS):
            chosen = [(p, self._random.choice(self._model.valid_values(p))) for p in properties]
            found = self._model.combine(document, chosen)
            if found is not None:
                return found
        return None

    def _random_change(self, document: JsonObject) -> SpecChange | None:
        """The last round: any number of fields at once, to any values, now and then taken away or all anew."""
        properties = self._model.properties
        for _ in range(_MAX_ATTEMPTS if properties else 0):
            prop = self._random.choice(properties)
            match self._random.randrange(6):
                case 0:
                    found = self._model.remove_field(document, prop)
                case 1:
                    found = next(iter(self._recreate(prop)(document)), None)
                case 2 | 3:
                    found = self._model.set_value(document, prop, self._random.choice(self._model.valid_values(prop)))
                case _:
                    count = min(len(properties), self._random.randint(2, _MAX_FIELDS_PER_CHANGE))
                    found = self._combine_values(document, tuple(self._random.sample(properties, count)))
            if found is not None:
                return found
        return None


def _recreate_unchanged(document: JsonObject) -> list[SpecChange]:
    return [SpecChange("recreate")]
