"""Makes changes that fit an object as it is now: each candidate is put to the API server's rules first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steersman.errors import ApiError
from steersman_testing.apiserver.values import MISSING, JsonObject, clone, map_at
from steersman_testing.transitions.admission import Admission
from steersman_testing.transitions.changes import REFUSED, Change, Edit, Kind
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.paths import Path, get, parsed, shown, with_value
from steersman_testing.transitions.subject import Property, Subject
from steersman_testing.transitions.values import Value, Values


class Drafts:
    """Changes of one kind.

    Args:
        subject: the kind.
        hints: what its author knows.
        seed: of all that is random.

    Attributes:
        admission: what the API server takes.
        properties: the fields that may be changed.

    Raises:
        ValueError: a hint names a field that the kind does not have.
    """

    def __init__(self, subject: Subject, hints: Hints, seed: int) -> None:
        self.admission = Admission(subject)
        self._subject = subject
        self._values = Values(seed)
        every = {p.path: p for p in subject.properties()}
        self._examples = _by_path(hints.examples, every)
        self._bad = _by_path(hints.bad, every)
        left = [parsed(text) for text in hints.leave]
        for path in (*left, *self._examples, *self._bad):
            if path not in every:
                names = ", ".join(map(shown, every))
                raise ValueError(f"{subject.resource.kind} has no field {shown(path)}, but {names}")
        self._schemas = {p.path: p.schema for p in every.values()}
        offered = (p for p in every.values() if not _is_frame(p))
        self.properties = [p for p in offered if not any(p.path[: len(q)] == q for q in left)]
        self._hints = hints

    def start(self) -> JsonObject:
        """The first object's content.

        Raises:
            ValueError: none that the API server takes can be made of the schema.
        """
        if self._hints.start is not None:
            document: JsonObject = clone(dict(self._hints.start))
        else:
            document = self._values.simplest(self._subject.wanted)
            for path, values in self._examples.items():
                if get(document, path) is not MISSING:
                    document = with_value(document, path, values[0])
        refusal = self.admission.refusal(None, document)
        if refusal is not None:
            raise ValueError(f"no first object can be made of the schema, give Hints(start=…): {refusal}")
        return document

    def good(self, prop: Property) -> list[Value]:
        """The values of a field: those of the hints, or else those of its schema."""
        if prop.path in self._examples:
            return [Value(v, "example") for v in self._examples[prop.path]]
        return self._values.good(prop.schema)

    def breaking(self, prop: Property) -> list[Value]:
        """Values that the schema forbids; the absence of a required field is one."""
        missing = [Value(MISSING, "required")] if prop.required and "default" not in prop.schema else []
        return [*self._values.bad(prop.schema), *missing]

    def failing(self, prop: Property) -> list[Value]:
        """Values that the hints call bad."""
        return [Value(v, "bad") for v in self._bad.get(prop.path, ())]

    # Changes

    def sets(self, document: JsonObject, prop: Property, value: Value, kind: Kind = "alter") -> Change | None:
        """Gives a field a value; None if that cannot be, or changes nothing.

        Where only a new object may have the value, the object is deleted and created again.
        """
        edit = self._edit(document, prop, value.value)
        if edit is None:
            return None
        label = value.label if kind == "boundary" else ""
        actual = "set" if kind == "alter" and get(document, prop.path) is MISSING else kind
        change = Change(actual, (edit,), label, (prop.name,))
        return self.accepted(document, change)

    def accepted(self, document: JsonObject, change: Change) -> Change | None:
        """``change``, or the recreation that does the same; None if no new object can have what it leads to."""
        wanted = change.applied_to(document)
        if self.admission.refusal(None, wanted) is not None:
            # Not even one that an update may lead to: there would be nothing to compare with.
            return None
        if self.admission.refusal(document, wanted) is None:
            return change
        return Change("recreate", change.edits, change.label, change.paths)

    def removes(self, document: JsonObject, prop: Property) -> Change | None:
        """Takes a field away, if it is there and need not be."""
        if get(document, prop.path) is MISSING:
            return None
        change = Change("remove", (Edit(prop.path, MISSING),), "", (prop.name,))
        return self.accepted(document, change)

    def refused(self, document: JsonObject, prop: Property, value: Value) -> Change | None:
        """What the API server refuses; None if it does not."""
        edit = self._edit(document, prop, value.value)
        if edit is None:
            return None
        change = Change("invalid", (edit,), value.label, (prop.name,))
        return change if self.admission.refusal(document, change.applied_to(document)) is not None else None

    def forbidden(self, document: JsonObject, prop: Property, value: Value) -> Change | None:
        """What only a new object may have, tried on one that is there."""
        found = self.refused(document, prop, value)
        if found is None or self.admission.refusal(None, found.applied_to(document)) is not None:
            return None
        return Change("invalid", found.edits, "cannot be changed", found.paths)

    def is_possible(self, document: JsonObject, change: Change) -> bool:
        """Whether the API server does with ``change`` what its kind says."""
        if change.kind in ("again", "rollback"):
            return True
        current = None if change.kind == "recreate" else document
        refusal = self.admission.refusal(current, change.applied_to(document))
        return (refusal is not None) is (change.kind in REFUSED)

    def fails(self, document: JsonObject, prop: Property, value: Value) -> Change | None:
        """Sets a value that cannot work."""
        edit = self._edit(document, prop, value.value)
        if edit is None:
            return None
        change = Change("bad", (edit,), "", (prop.name,))
        return change if self.admission.refusal(document, change.applied_to(document)) is None else None

    def misspells(self, document: JsonObject, prop: Property) -> Change | None:
        """Adds a field whose name is one letter off, if the API server would drop it."""
        *around, name = prop.path
        if isinstance(name, int) or get(document, tuple(around)) is MISSING:
            return None
        siblings = map_at(self._schemas.get(tuple(around), self._subject.wanted), "properties")
        value = get(document, prop.path)
        value = self.good(prop)[0].value if value is MISSING else value
        for wrong in _misspelt(name):
            if wrong in siblings:
                continue
            change = Change("misspell", (Edit((*around, wrong), value),), "", (prop.name,))
            if self._is_dropped(document, change.applied_to(document)):
                return change
        return None

    def several(self, document: JsonObject, chosen: Iterable[tuple[Property, Value]]) -> Change | None:
        """Changes more than one field at once."""
        edits: list[Edit] = []
        names: list[str] = []
        wanted = document
        for prop, value in chosen:
            edit = self._edit(wanted, prop, value.value)
            if edit is not None and not any(_overlap(edit.path, e.path) for e in edits):
                edits.append(edit)
                names.append(prop.name)
                wanted = with_value(wanted, edit.path, edit.value)
        return self.accepted(document, Change("several", tuple(edits), "", tuple(names))) if len(edits) > 1 else None

    def way_back(self, document: JsonObject, good: JsonObject) -> Change:
        """From ``document`` to ``good``; where rules such as "never smaller" forbid that, by a new object."""
        if self.admission.refusal(document, good) is None:
            return Change("rollback")
        edits = (Edit((name,), good.get(name, MISSING)) for name in sorted(document.keys() | good.keys()))
        return Change("recreate", tuple(e for e in edits if get(document, e.path) != e.value))

    def _is_dropped(self, document: JsonObject, misspelt: JsonObject) -> bool:
        if self.admission.refusal(document, misspelt) is None:
            return False
        try:
            kept = self.admission.update(document, misspelt, "Ignore")
            return kept == self.admission.update(document, document, "Ignore")
        except ApiError:
            return False

    def _edit(self, document: JsonObject, prop: Property, value: Any) -> Edit | None:
        """The edit that sets a field, with all that must be around it; None if it changes nothing."""
        if get(document, prop.path) == value and type(get(document, prop.path)) is type(value):
            return None
        for depth in range(1, len(prop.path)):
            around = prop.path[:depth]
            if get(document, around) is MISSING or get(document, around) is None:
                # What is required beside it must be there as well.
                return self._edit_within(document, around, prop.path, value)
        try:
            with_value(document, prop.path, value)
        except ValueError:
            return None
        return Edit(prop.path, value)

    def _edit_within(self, document: JsonObject, around: Path, path: Path, value: Any) -> Edit | None:
        if value is MISSING:
            return None
        try:
            wanted = document
            for depth in range(len(around), len(path)):
                outer = path[:depth]
                if outer in self._schemas and get(wanted, outer) in (MISSING, None):
                    wanted = with_value(wanted, outer, self._values.simplest(self._schemas[outer]))
            wanted = with_value(wanted, path, value)
        except ValueError:
            return None
        return Edit(around, get(wanted, around))


def _by_path(values: Mapping[str, Any], known: Mapping[Path, Property]) -> dict[Path, list[Any]]:
    return {parsed(path): list(each) for path, each in values.items()}


def _is_frame(prop: Property) -> bool:
    """Whether it is such as ``spec`` itself, whose fields are what is changed."""
    return len(prop.path) == 1 and prop.required and bool(map_at(prop.schema, "properties"))


def _overlap(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _misspelt(name: str) -> Iterator[str]:
    """Names one letter off: two swapped, one left out, one too many, another case."""
    if len(name) > 2:
        yield name[:-2] + name[-1] + name[-2]
        yield name[:-1]
    yield f"{name}s"
    yield name.upper() if name.islower() else name.lower()
