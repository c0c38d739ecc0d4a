"""Obstacles to an import. An import stops at the first one, and a check lists all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..jobs import JobRefused

MAX_NAMES = 50
"""Names that a report lists of one kind of objects."""


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """An obstacle to an import.

    Args:
        reason: of a condition.
        message: one sentence for users, and what to do.
        objects: names on the source.
    """

    reason: str
    message: str
    objects: Sequence[str] = ()

    def document(self) -> dict[str, object]:
        """Return the problem for a report. A message with its only name lists no names."""
        names = list(self.objects) if len(self.objects) > 1 else []
        return {"reason": self.reason, "message": self.message, **names_document(names)}


def names_document(names: Sequence[str]) -> dict[str, object]:
    """Return the first names, and the number of all."""
    return {"count": len(names), "names": [printable(name) for name in names[:MAX_NAMES]]}


def printable(text: str) -> str:
    """Return text without line breaks and control characters."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def require_none(problems: Iterable[ImportProblem]) -> None:
    """Reject an import at its first problem. Raises JobRefused."""
    for problem in problems:
        raise JobRefused(problem.reason, problem.message)


def amount(names: Sequence[str], kind: str) -> str:
    """Return a number of objects with an example, or the only one."""
    return printable(names[0]) if len(names) == 1 else f"{len(names)} {kind}, such as {printable(names[0])},"
