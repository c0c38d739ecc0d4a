"""The story of a failure: which call, which fault, what differs, and how to see it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steersman_testing.simulation.journal import Entry
from steersman_testing.simulation.outcome import Outcome

_BEFORE = 4
_AFTER = 14
_FINDINGS = 12


def tell(outcome: Outcome, found: Sequence[str]) -> str:
    """The story of ``outcome``, in which ``found`` is wrong; some thirty lines at most."""
    faults = [fault.describe() for fault in outcome.plan.faults]
    parts = [
        _heading(outcome),
        *(f"  fault      {text}" for text in faults),
        "",
        *_lines(outcome),
        "",
        *_labelled("  wrong      ", found),
        "",
        f"  reproduce  simulate(…, replay={str(outcome.plan)!r})" if faults else "  reproduce  simulate(…)",
    ]
    return "\n".join(parts)


def _heading(outcome: Outcome) -> str:
    if not outcome.plan.faults:
        return "the scenario goes wrong without any fault"
    return f"the operator does not recover from {'a fault' if len(outcome.plan.faults) == 1 else 'faults'}"


def _labelled(label: str, lines: Sequence[str]) -> Iterable[str]:
    for number, line in enumerate(lines[:_FINDINGS]):
        yield (label if number == 0 else " " * len(label)) + line
    if len(lines) > _FINDINGS:
        yield " " * len(label) + f"and {len(lines) - _FINDINGS} more"


def _lines(outcome: Outcome) -> Iterable[str]:
    """What happened around the faults, and at last."""
    entries = outcome.journal.entries
    places = [place for place, entry in enumerate(entries) if entry.actor == "fault" or _suffered(entry, outcome)]
    shown: set[int] = set()
    for place in places or [len(entries) - _AFTER]:
        shown.update(range(max(0, place - _BEFORE), min(len(entries), place + _AFTER)))
    last = -1
    for place in sorted(shown):
        if place != last + 1:
            yield "             …"
        yield f"  {entries[place]}"
        last = place
    if last != len(entries) - 1:
        yield "             …"


def _suffered(entry: Entry, outcome: Outcome) -> bool:
    return any(not fault.resource and fault.at == entry.number for fault in outcome.plan.faults)
