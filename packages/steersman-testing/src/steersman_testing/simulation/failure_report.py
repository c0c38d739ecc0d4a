"""Report of a failed run: faults, trace excerpt, problems and replay line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steersman_testing.simulation.run_result import RunResult
from steersman_testing.simulation.trace import TraceEntry

_LINES_BEFORE = 4
_LINES_AFTER = 14
_MAX_PROBLEMS = 12


def format_failure(result: RunResult, problems: Sequence[str]) -> str:
    """Format a failed run as about thirty lines."""
    faults = [fault.describe() for fault in result.plan.faults]
    parts = [
        _heading(result),
        *(f"  fault      {text}" for text in faults),
        "",
        *_trace_excerpt(result),
        "",
        *_labelled("  wrong      ", problems),
        "",
        f"  reproduce  simulate(…, replay={str(result.plan)!r})" if faults else "  reproduce  simulate(…)",
    ]
    return "\n".join(parts)


def _heading(result: RunResult) -> str:
    if not result.plan.faults:
        return "the scenario fails without any fault"
    return f"the operator does not recover from {'a fault' if len(result.plan.faults) == 1 else 'faults'}"


def _labelled(label: str, lines: Sequence[str]) -> Iterable[str]:
    for number, line in enumerate(lines[:_MAX_PROBLEMS]):
        yield (label if number == 0 else " " * len(label)) + line
    if len(lines) > _MAX_PROBLEMS:
        yield " " * len(label) + f"and {len(lines) - _MAX_PROBLEMS} more"


def _trace_excerpt(result: RunResult) -> Iterable[str]:
    """Lines around the faults, or else the end of the trace."""
    entries = result.trace.entries
    places = [
        place for place, entry in enumerate(entries) if entry.actor == "fault" or _is_faulty_call(entry, result)
    ]
    shown: set[int] = set()
    for place in places or [len(entries) - _LINES_AFTER]:
        shown.update(range(max(0, place - _LINES_BEFORE), min(len(entries), place + _LINES_AFTER)))
    last = -1
    for place in sorted(shown):
        if place != last + 1:
            yield "             …"
        yield f"  {entries[place]}"
        last = place
    if last != len(entries) - 1:
        yield "             …"


def _is_faulty_call(entry: TraceEntry, result: RunResult) -> bool:
    return any(not fault.resource and fault.at == entry.call_number for fault in result.plan.faults)
