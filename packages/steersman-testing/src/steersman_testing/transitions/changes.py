"""Changes of an object, one after another, and the line that repeats them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from steersman_testing.apiserver.values import MISSING, JsonObject, is_map
from steersman_testing.transitions.paths import Path, get, parsed, shown, with_value

Kind = Literal[
    "set", "alter", "remove", "boundary", "several", "invalid", "misspell", "bad", "rollback", "recreate", "again"
]
"""What a change does; see ``explore``."""

REFUSED: frozenset[Kind] = frozenset({"invalid", "misspell"})
"""The kinds of changes that the API server must refuse."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One field gets a value, or goes (MISSING)."""

    path: Path
    value: Any

    def __str__(self) -> str:
        return shown(self.path) if self.value is MISSING else f"{shown(self.path)}={_json(self.value)}"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a user does to the object.

    Attributes:
        kind: what it is.
        edits: what it changes; of ``again`` and ``rollback`` nothing.
        label: which value it is, such as ``maximum``, for people.
        paths: the fields that it covers, as reported.
    """

    kind: Kind
    edits: tuple[Edit, ...] = ()
    label: str = ""
    paths: tuple[str, ...] = ()

    def applied_to(self, document: JsonObject) -> JsonObject:
        """``document`` after this change. Raises ValueError where it does not fit."""
        for edit in self.edits:
            document = with_value(document, edit.path, edit.value)
        return document

    def fits(self, document: JsonObject) -> bool:
        """Whether it would change ``document``, or needs not."""
        try:
            return self.kind in ("again", "rollback", "recreate") or self.applied_to(document) != document
        except ValueError:
            return False

    def to_json(self) -> list[Any]:
        """For a replay: kind, values by path, the paths that go, and the label; less what is empty at the end."""
        values = {shown(e.path): e.value for e in self.edits if e.value is not MISSING}
        gone = [shown(e.path) for e in self.edits if e.value is MISSING]
        told: list[Any] = [self.kind, values, gone, self.label]
        while not told[-1]:
            told.pop()
        return told

    def __str__(self) -> str:
        text = {
            "again": "apply the same again and restart the operator",
            "rollback": "go back to the last good spec",
            "misspell": "misspell a field as",
            "invalid": "try what is not valid:",
            "bad": "set what cannot work:",
            "several": "change at once",
            "recreate": "delete and create again" + (" with" if self.edits else ""),
            "boundary": "set",
        }.get(self.kind, self.kind)
        label = f" ({self.label})" if self.label else ""
        removes = all(e.value is MISSING for e in self.edits) and self.edits
        text = "remove" if removes and self.kind in ("boundary", "set", "alter") else text
        return " ".join((text, ", ".join(_told(e, plain=self.kind == "remove") for e in self.edits))).rstrip() + label


@dataclass(frozen=True, slots=True)
class Story:
    """A first object and what is done to it.

    Attributes:
        start: the first object's content, without apiVersion, kind and metadata.
        changes: in order.
    """

    start: JsonObject
    changes: tuple[Change, ...] = ()

    def then(self, change: Change) -> Story:
        """This story with one change more."""
        return replace(self, changes=(*self.changes, change))

    def documents(self) -> list[JsonObject]:
        """The content that is wanted at first, and after each change.

        Raises:
            ValueError: a change does not fit what is there.
        """
        good = current = self.start
        found = [current]
        for change, following in zip(self.changes, (*self.changes[1:], None), strict=False):
            if change.kind == "rollback":
                current = good
            elif change.kind not in REFUSED:
                current = change.applied_to(current)
                undone = following is not None and following.kind == "rollback"
                good = good if change.kind == "bad" or undone else current
            found.append(current)
        return found

    @property
    def replay(self) -> str:
        """One line that repeats it: ``explore(…, replay=…)``."""
        return _json({"start": self.start, "changes": [c.to_json() for c in self.changes]})

    @staticmethod
    def of(replay: str) -> Story:
        """The story of a replay line. Raises ValueError."""
        try:
            told = json.loads(replay)
            return Story(dict(told["start"]), tuple(_change_of(c) for c in told["changes"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{replay!r} is not a replay: copy the line from a failure ({error})") from error

    def __str__(self) -> str:
        fields = ", ".join(str(Edit(p, get(self.start, p))) for p in leaves_of(self.start))
        lines = [f"create with {fields}" if fields else "create", *(str(c) for c in self.changes)]
        return "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, start=1))


def leaves_of(document: Any, path: Path = ()) -> list[Path]:
    """The paths of all that is not an object with fields."""
    if is_map(document) and (document or not path):
        return [found for name, value in document.items() for found in leaves_of(value, (*path, name))]
    return [path]


def _change_of(told: list[Any]) -> Change:
    kind: Any = told[0]
    if kind not in get_args(Kind):
        raise ValueError(f"{kind!r} is no kind of change")
    values: JsonObject = told[1] if len(told) > 1 else {}
    gone: list[str] = told[2] if len(told) > 2 else []
    label: str = told[3] if len(told) > 3 else ""
    edits = [Edit(parsed(p), v) for p, v in values.items()]
    return Change(kind, (*edits, *(Edit(parsed(p), MISSING) for p in gone)), label)


def _told(edit: Edit, *, plain: bool) -> str:
    return f"{edit} away" if edit.value is MISSING and not plain else str(edit)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
