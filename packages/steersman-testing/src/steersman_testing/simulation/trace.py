"""Trace of a run: calls, actions of users and injected faults."""

from __future__ import annotations

import hashlib
from typing import Literal

from msgspec import Struct

from steersman_testing.apiserver.storage import StorageEvent

Actor = Literal["operator", "user", "fault", "world"]
CallKind = Literal["", "read", "create", "update", "delete", "effect", "fallible"]
"""Kind of a call, which selects its faults. A fallible effect declares the errors that it may raise."""


class TraceEntry(Struct):
    """One event of a run.

    Attributes:
        time: virtual seconds since the start of the run.
        actor: component that caused the event.
        text: description, such as ``APPLY configmaps default/web``.
        outcome: status code and reason, or an error. Empty while the call is in flight.
        call_number: number of a call of the operator, from 1. 0 for other events.
        digest: digest of the request body.
        call_kind: kind of a call of the operator.
        changed_state: whether the call changed the stored objects. An apply without changes and a rejected request
            do not.
        deletions: events by which the call deleted objects of its resource, or marked them for deletion.
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
    """Entries of one run."""

    def __init__(self) -> None:
        self.entries: list[TraceEntry] = []

    def add(self, entry: TraceEntry) -> TraceEntry:
        """Append an entry. Its outcome may be set later."""
        self.entries.append(entry)
        return entry

    @property
    def calls(self) -> list[TraceEntry]:
        """Calls of the operator."""
        return [entry for entry in self.entries if entry.call_number]

    def to_text(self) -> str:
        """Format all entries, one per line, with digests of the bodies. Equal runs have equal texts."""
        return "\n".join(f"{entry} {entry.digest}".rstrip() for entry in self.entries)


def short_digest(content: bytes | None) -> str:
    """Return a short digest of ``content``, which may contain a Secret."""
    return hashlib.sha256(content).hexdigest()[:12] if content else ""
