"""Changes of an object, and sequences of them with a replay line."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from steersman_testing.apiserver.values import MISSING, JsonObject, is_map
from steersman_testing.transitions.document_paths import DocumentPath, format_path, get_value, parse_path, with_value

ChangeKind = Literal[
    "set", "alter", "remove", "boundary", "several", "invalid", "misspell", "bad", "rollback", "recreate", "again"
]
"""Kind of a change. ``explore`` describes them."""

REJECTED_KINDS: frozenset[ChangeKind] = frozenset({"invalid", "misspell"})
"""Kinds of changes that the API server must reject."""


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """Assignment of a value to a field. MISSING removes the field."""

    path: DocumentPath
    value: Any

    def __str__(self) -> str:
        return (
            format_path(self.path)
            if self.value is MISSING
            else f"{format_path(self.path)}={_compact_json(self.value)}"
        )


@dataclass(frozen=True, slots=True)
class SpecChange:
    """A change that a user makes to the object.

    Attributes:
        kind: kind of the change.
        edits: changed fields. Empty for ``again`` and ``rollback``.
        label: label of the value, such as ``maximum``.
        paths: fields that the coverage report counts.
    """

    kind: ChangeKind
    edits: tuple[FieldEdit, ...] = ()
    label: str = ""
    paths: tuple[str, ...] = ()

    def apply_to(self, document: JsonObject) -> JsonObject:
        """Return ``document`` after this change. Raises ValueError if it does not apply."""
        for edit in self.edits:
            document = with_value(document, edit.path, edit.value)
        return document

    def is_applicable(self, document: JsonObject) -> bool:
        """Return True if the change modifies ``document`` or need not."""
        try:
            return self.kind in ("again", "rollback", "recreate") or self.apply_to(document) != document
        except ValueError:
            return False

    def to_json(self) -> list[Any]:
        """Encode for a replay line.

        The array holds kind, values by path, removed paths and label, without empty parts at the end.
        """
        values = {format_path(e.path): e.value for e in self.edits if e.value is not MISSING}
        removed = [format_path(e.path) for e in self.edits if e.value is MISSING]
        parts: list[Any] = [self.kind, values, removed, self.label]
        while not parts[-1]:
            parts.pop()
        return parts

    def __str__(self) -> str:
        text = {
            "again": "apply the same spec again and restart the operator",
            "rollback": "roll back to the last good spec",
            "misspell": "misspell a field as",
            "invalid": "try an invalid value:",
            "bad": "set a bad value:",
            "several": "change at once",
            "recreate": "delete and recreate" + (" with" if self.edits else ""),
            "boundary": "set",
        }.get(self.kind, self.kind)
        label = f" ({self.label})" if self.label else ""
        removes = all(e.value is MISSING for e in self.edits) and self.edits
        text = "remove" if removes and self.kind in ("boundary", "set", "alter") else text
        return (
            " ".join(
                (text, ", ".join(_format_edit(e, is_removal=self.kind == "remove") for e in self.edits))
            ).rstrip()
            + label
        )


@dataclass(frozen=True, slots=True)
class ChangeSequence:
    """A first object and its changes.

    Attributes:
        start: content of the first object, without apiVersion, kind and metadata.
        changes: changes in order.
    """

    start: JsonObject
    changes: tuple[SpecChange, ...] = ()

    def with_change(self, change: SpecChange) -> ChangeSequence:
        """Return the sequence with one more change."""
        return replace(self, changes=(*self.changes, change))

    def documents(self) -> list[JsonObject]:
        """Desired content at the start and after each change.

        Raises:
            ValueError: if a change does not apply.
        """
        last_good = current = self.start
        found = [current]
        for change, following in zip(self.changes, (*self.changes[1:], None), strict=False):
            if change.kind == "rollback":
                current = last_good
            elif change.kind not in REJECTED_KINDS:
                current = change.apply_to(current)
                is_rolled_back = following is not None and following.kind == "rollback"
                last_good = last_good if change.kind == "bad" or is_rolled_back else current
            found.append(current)
        return found

    @property
    def replay(self) -> str:
        """Replay line for ``explore(…, replay=…)``."""
        return _compact_json({"start": self.start, "changes": [c.to_json() for c in self.changes]})

    @staticmethod
    def from_replay(replay: str) -> ChangeSequence:
        """Parse a replay line. Raises ValueError."""
        try:
            decoded = json.loads(replay)
            return ChangeSequence(dict(decoded["start"]), tuple(_change_from_json(c) for c in decoded["changes"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{replay!r} is not a replay line: copy it from a failure report ({error})") from error

    def __str__(self) -> str:
        fields = ", ".join(str(FieldEdit(p, get_value(self.start, p))) for p in leaf_paths(self.start))
        lines = [f"create with {fields}" if fields else "create", *(str(c) for c in self.changes)]
        return "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, start=1))


def leaf_paths(document: Any, path: DocumentPath = ()) -> list[DocumentPath]:
    """Return the paths of all leaf values in ``document``.

    Lists and empty objects count as leaves. An empty ``document`` has none.
    """
    if is_map(document) and (document or not path):
        return [found for name, value in document.items() for found in leaf_paths(value, (*path, name))]
    return [path]


def _change_from_json(parts: list[Any]) -> SpecChange:
    kind: Any = parts[0]
    if kind not in get_args(ChangeKind):
        raise ValueError(f"{kind!r} is not a kind of change")
    values: JsonObject = parts[1] if len(parts) > 1 else {}
    removed: list[str] = parts[2] if len(parts) > 2 else []
    label: str = parts[3] if len(parts) > 3 else ""
    edits = [FieldEdit(parse_path(p), v) for p, v in values.items()]
    return SpecChange(kind, (*edits, *(FieldEdit(parse_path(p), MISSING) for p in removed)), label)


def _format_edit(edit: FieldEdit, *, is_removal: bool) -> str:
    return f"remove {edit}" if edit.value is MISSING and not is_removal else str(edit)


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
