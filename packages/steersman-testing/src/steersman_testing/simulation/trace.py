"""What happened in a run, in order: the operator's calls, what others did, and what was made to go wrong."""

from __future__ import annotations

import hashlib
from typing import Literal

from msgspec import Struct

from steersman_testing.apiserver.storage import StorageEvent

Actor = Literal["operator", "user", "fault", "world"]
CallKind = Literal["", "read", "create", "update", "delete", "effect", "fallible"]
"""Of a call: what can go wrong with it. An effect is fallible where user code said which errors it may raise."""


class TraceEntry(Struct):
    """One thing that happened.

    Attributes:
        time: virtual seconds since the run began.
        actor: who did it.
        text: what, for people, such as ``APPLY configmaps default/web``.
        outcome: how it ended: a status code and reason, or an error; empty while it is under way.
        number: of the operator's calls, from 1; 0 for everything else.
        digest: of what was sent; two runs that are the same send the same.
        sort: of the operator's calls.
        changed: whether the call itself changed what is stored; an apply of what is there changes nothing, and
            neither does what is refused.
        ended: the changes by which the call ended objects of its resource, or marked them for deletion.
    """

    time: float
    actor: Actor
    text: str
    outcome: str = ""
    call_number: int = 0
    digest: str = ""
    call_kind: CallKind = ""
    changed_state: bool = False
    deletions: tuple[StorageEvent, ...] = ()

    def __str__(self) -> str:
        number = f"{self.call_number:>4} " if self.call_number else "     "
        return f"{self.time:>9.3f} {self.actor:<8} {number} {self.text}  {self.outcome}".rstrip()


class Trace:
    """The entries of one run."""

    def __init__(self) -> None:
        self.entries: list[TraceEntry] = []

    def add(self, entry: TraceEntry) -> TraceEntry:
        """Keeps ``entry``, whose outcome may be filled in later."""
        self.entries.append(entry)
        return entry

    @property
    def calls(self) -> list[TraceEntry]:
        """The operator's calls."""
        return [entry for entry in self.entries if entry.call_number]

    def to_text(self) -> str:
        """Everything, a line each, what was sent by its digest: the same in every repetition of the run."""
        return "\n".join(f"{entry} {entry.digest}".rstrip() for entry in self.entries)


def short_digest(content: bytes | None) -> str:
    """A short name for ``content``, which may hold a Secret."""
    return hashlib.sha256(content).hexdigest()[:12] if content else ""
