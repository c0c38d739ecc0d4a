"""Order of the changes. Rounds touch each field once before pairs of fields."""

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
"""Kind of change that a round applies to each field."""

_MAX_FIELDS_PER_CHANGE = 4
_MAX_ATTEMPTS = 20
_MAX_PAIRS = 200

ChangeFactory = Callable[[JsonObject], "list[SpecChange]"]
"""Creates the changes for the current content. Empty if impossible."""


class _Task(NamedTuple):
    """One change of a round and the fields that it covers.

    ``may_retry``: whether to start again if the trial ends before all its changes were applied.
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
    """Tried changes per round and field.

    A field is covered in a round if all changes of the round were tried. Changes that the API server would reject,
    such as the removal of a required field, are not counted.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[Round, str], _Cell] = {}

    def plan(self, round: Round, name: str) -> None:
        """Add a planned change."""
        self._cell(round, name).planned += 1

    def record(self, round: Round, name: str, *, possible: bool) -> None:
        """Record that a change was tried or is impossible."""
        cell = self._cell(round, name)
        cell.done += possible
        cell.impossible += not possible

    def _cell(self, round: Round, name: str) -> _Cell:
        return self._cells.setdefault((round, name), _Cell())

    def count(self, round: Round | None = None) -> tuple[int, int]:
        """Number of covered fields and of all fields.

        Args:
            round: the round to count. None counts all rounds.
        """
        cells = [c for (r, _), c in self._cells.items() if round in (None, r) and c.impossible < c.planned]
        return sum(c.done + c.impossible == c.planned for c in cells), len(cells)

    def missing(self) -> list[str]:
        """Changes that were not tried, such as ``boundary spec.replicas``."""
        return [f"{r} {n}".rstrip() for (r, n), c in self._cells.items() if c.done + c.impossible < c.planned]

    def __str__(self) -> str:
        done, wanted = self.count()
        rounds: dict[Round, None] = dict.fromkeys(r for r, _ in self._cells)
        parts = [f"{r} {d}/{w}" for r in rounds for d, w in [self.count(r)] if w]
        share = f" ({100 * done // wanted}%)" if wanted else ""
        return f"coverage {done}/{wanted}{share}: " + ", ".join(parts)


class ExplorationPlan:
    """All changes in order. The last round is random and endless.

    Args:
        model: creates the changes.
        seed: seed of the order of pairs and of the last round.

    Attributes:
        coverage: changes returned so far.
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
        """Return the next change for ``document``, or None if none is possible."""
        if self._current is not None:
            task, remaining = self._current
            if remaining[0].is_applicable(document) and self._model.is_feasible(document, remaining[0]):
                return self._emit(task, remaining)
            # The change depends on the previous one, but the trial ended or was rolled back.
            self._current = None
            if task.may_retry:
                self._tasks.appendleft(task._replace(may_retry=False))
        while self._tasks:
            task = self._tasks.popleft()
            if changes := task.factory(document):
                return self._emit(task, deque(changes))
            self.coverage.record(task.round, task.name, possible=False)
        return self._random_change(document)

    def _emit(self, task: _Task, remaining: deque[SpecChange]) -> SpecChange:
        """Return the first of ``remaining``. The last one completes the task."""
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

    # Change factories

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
            # A value that the schema allows and the API server rejects violates a CEL rule.
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
        """Random change of the last round, including removals and recreation."""
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
