"""Input model: creates valid and invalid changes of one kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steersman.errors import ApiError
from steersman_testing.apiserver.values import MISSING, JsonObject, clone, get_object
from steersman_testing.transitions.admission import AdmissionChecker
from steersman_testing.transitions.document_paths import DocumentPath, format_path, get_value, parse_path, with_value
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.kind_under_test import KindUnderTest, Property
from steersman_testing.transitions.spec_changes import REJECTED_KINDS, ChangeKind, FieldEdit, SpecChange
from steersman_testing.transitions.value_generator import CandidateValue, ValueGenerator


class InputModel:
    """Changes of one kind.

    Args:
        target: the kind.
        hints: hints of the author.
        seed: seed of generated values.

    Attributes:
        admission: admission check.
        properties: fields that may be changed.

    Raises:
        ValueError: if a hint names an unknown field.
    """

    def __init__(self, target: KindUnderTest, hints: Hints, seed: int) -> None:
        self.admission = AdmissionChecker(target)
        self._target = target
        self._generator = ValueGenerator(seed)
        all_properties = {p.path: p for p in target.properties()}
        self._examples = _by_path(hints.examples, all_properties)
        self._bad_values = _by_path(hints.bad, all_properties)
        excluded = [parse_path(text) for text in hints.exclude]
        for path in (*excluded, *self._examples, *self._bad_values):
            if path not in all_properties:
                names = ", ".join(map(format_path, all_properties))
                raise ValueError(f"{target.resource.kind} has no field {format_path(path)}. Its fields are {names}")
        self._schemas = {p.path: p.schema for p in all_properties.values()}
        candidates = (p for p in all_properties.values() if not _is_container(p))
        self.properties = [p for p in candidates if not any(p.path[: len(q)] == q for q in excluded)]
        self._hints = hints

    def initial_document(self) -> JsonObject:
        """Content of the first object.

        Raises:
            ValueError: if the generated content is rejected by the API server.
        """
        if self._hints.start is not None:
            document: JsonObject = clone(dict(self._hints.start))
        else:
            document = self._generator.simplest(self._target.desired_schema)
            for path, values in self._examples.items():
                if get_value(document, path) is not MISSING:
                    document = with_value(document, path, values[0])
        refusal = self.admission.rejection(None, document)
        if refusal is not None:
            raise ValueError(f"no first object can be generated from the schema: set Hints(start=…). {refusal}")
        return document

    def valid_values(self, prop: Property) -> list[CandidateValue]:
        """Values of a field: from the hints, or else from its schema."""
        if prop.path in self._examples:
            return [CandidateValue(v, "example") for v in self._examples[prop.path]]
        return self._generator.valid(prop.schema)

    def invalid_values(self, prop: Property) -> list[CandidateValue]:
        """Values that the schema forbids, including the absence of a required field."""
        missing = [CandidateValue(MISSING, "required")] if prop.required and "default" not in prop.schema else []
        return [*self._generator.invalid(prop.schema), *missing]

    def bad_values(self, prop: Property) -> list[CandidateValue]:
        """Bad values from the hints."""
        return [CandidateValue(v, "bad") for v in self._bad_values.get(prop.path, ())]

    # Changes

    def set_value(
        self, document: JsonObject, prop: Property, value: CandidateValue, kind: ChangeKind = "alter"
    ) -> SpecChange | None:
        """Create a change that sets a field, or None if impossible.

        A change without effect is impossible. The change becomes a recreation if only a new object may have the
        value.
        """
        edit = self._make_edit(document, prop, value.value)
        if edit is None:
            return None
        label = value.label if kind == "boundary" else ""
        actual = "set" if kind == "alter" and get_value(document, prop.path) is MISSING else kind
        change = SpecChange(actual, (edit,), label, (prop.name,))
        return self.to_accepted(document, change)

    def to_accepted(self, document: JsonObject, change: SpecChange) -> SpecChange | None:
        """Return ``change`` or an equivalent recreation.

        None if the API server would reject the result even as a new object.
        """
        wanted = change.apply_to(document)
        if self.admission.rejection(None, wanted) is not None:
            # Without a valid new object there is no reference state, even if an update is valid.
            return None
        if self.admission.rejection(document, wanted) is None:
            return change
        return SpecChange("recreate", change.edits, change.label, change.paths)

    def remove_field(self, document: JsonObject, prop: Property) -> SpecChange | None:
        """Create a change that removes a field, or None if impossible."""
        if get_value(document, prop.path) is MISSING:
            return None
        change = SpecChange("remove", (FieldEdit(prop.path, MISSING),), "", (prop.name,))
        return self.to_accepted(document, change)

    def invalid_change(self, document: JsonObject, prop: Property, value: CandidateValue) -> SpecChange | None:
        """Create a change that the API server rejects, or None."""
        edit = self._make_edit(document, prop, value.value)
        if edit is None:
            return None
        change = SpecChange("invalid", (edit,), value.label, (prop.name,))
        return change if self.admission.rejection(document, change.apply_to(document)) is not None else None

    def immutable_change(self, document: JsonObject, prop: Property, value: CandidateValue) -> SpecChange | None:
        """Create an invalid update to a value that new objects may have."""
        found = self.invalid_change(document, prop, value)
        if found is None or self.admission.rejection(None, found.apply_to(document)) is not None:
            return None
        return SpecChange("invalid", found.edits, "immutable", found.paths)

    def is_feasible(self, document: JsonObject, change: SpecChange) -> bool:
        """Return True if the API server responds as ``change.kind`` requires."""
        if change.kind in ("again", "rollback"):
            return True
        current = None if change.kind == "recreate" else document
        refusal = self.admission.rejection(current, change.apply_to(document))
        return (refusal is not None) is (change.kind in REJECTED_KINDS)

    def bad_change(self, document: JsonObject, prop: Property, value: CandidateValue) -> SpecChange | None:
        """Create a change that sets a bad value."""
        edit = self._make_edit(document, prop, value.value)
        if edit is None:
            return None
        change = SpecChange("bad", (edit,), "", (prop.name,))
        return change if self.admission.rejection(document, change.apply_to(document)) is None else None

    def misspell_field(self, document: JsonObject, prop: Property) -> SpecChange | None:
        """Create a change that adds a misspelt field, or None.

        None if the API server would not prune the field.
        """
        *parent, name = prop.path
        if isinstance(name, int) or get_value(document, tuple(parent)) is MISSING:
            return None
        siblings = get_object(self._schemas.get(tuple(parent), self._target.desired_schema), "properties")
        value = get_value(document, prop.path)
        value = self.valid_values(prop)[0].value if value is MISSING else value
        for wrong in _misspellings(name):
            if wrong in siblings:
                continue
            change = SpecChange("misspell", (FieldEdit((*parent, wrong), value),), "", (prop.name,))
            if self._is_dropped(document, change.apply_to(document)):
                return change
        return None

    def combine(self, document: JsonObject, chosen: Iterable[tuple[Property, CandidateValue]]) -> SpecChange | None:
        """Create a change of several fields."""
        edits: list[FieldEdit] = []
        names: list[str] = []
        wanted = document
        for prop, value in chosen:
            edit = self._make_edit(wanted, prop, value.value)
            if edit is not None and not any(_overlap(edit.path, e.path) for e in edits):
                edits.append(edit)
                names.append(prop.name)
                wanted = with_value(wanted, edit.path, edit.value)
        return (
            self.to_accepted(document, SpecChange("several", tuple(edits), "", tuple(names)))
            if len(edits) > 1
            else None
        )

    def rollback_change(self, document: JsonObject, good: JsonObject) -> SpecChange:
        """Create a change back to ``good``.

        It is a recreation if transition rules forbid the update.
        """
        if self.admission.rejection(document, good) is None:
            return SpecChange("rollback")
        edits = (FieldEdit((name,), good.get(name, MISSING)) for name in sorted(document.keys() | good.keys()))
        return SpecChange("recreate", tuple(e for e in edits if get_value(document, e.path) != e.value))

    def _is_dropped(self, document: JsonObject, misspelt: JsonObject) -> bool:
        if self.admission.rejection(document, misspelt) is None:
            return False
        try:
            kept = self.admission.update(document, misspelt, "Ignore")
            return kept == self.admission.update(document, document, "Ignore")
        except ApiError:
            return False

    def _make_edit(self, document: JsonObject, prop: Property, value: Any) -> FieldEdit | None:
        """Create the edit of a field and its missing parents, or None."""
        if get_value(document, prop.path) == value and type(get_value(document, prop.path)) is type(value):
            return None
        for depth in range(1, len(prop.path)):
            ancestor = prop.path[:depth]
            if get_value(document, ancestor) is MISSING or get_value(document, ancestor) is None:
                # The missing parent must contain its other required fields.
                return self._make_enclosing_edit(document, ancestor, prop.path, value)
        try:
            with_value(document, prop.path, value)
        except ValueError:
            return None
        return FieldEdit(prop.path, value)

    def _make_enclosing_edit(
        self, document: JsonObject, ancestor: DocumentPath, path: DocumentPath, value: Any
    ) -> FieldEdit | None:
        if value is MISSING:
            return None
        try:
            wanted = document
            for depth in range(len(ancestor), len(path)):
                outer = path[:depth]
                if outer in self._schemas and get_value(wanted, outer) in (MISSING, None):
                    wanted = with_value(wanted, outer, self._generator.simplest(self._schemas[outer]))
            wanted = with_value(wanted, path, value)
        except ValueError:
            return None
        return FieldEdit(ancestor, get_value(wanted, ancestor))


def _by_path(values: Mapping[str, Any], known: Mapping[DocumentPath, Property]) -> dict[DocumentPath, list[Any]]:
    return {parse_path(path): list(each) for path, each in values.items()}


def _is_container(prop: Property) -> bool:
    """Return True if ``prop`` is a required top-level object with fields.

    Such an object, for example ``spec``, is never changed as a whole. The input model changes its fields.
    """
    return len(prop.path) == 1 and prop.required and bool(get_object(prop.schema, "properties"))


def _overlap(one: DocumentPath, other: DocumentPath) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _misspellings(name: str) -> Iterator[str]:
    """Yield misspellings: two letters swapped, one missing, one added, other case."""
    if len(name) > 2:
        yield name[:-2] + name[-1] + name[-2]
        yield name[:-1]
    yield f"{name}s"
    yield name.upper() if name.islower() else name.lower()
