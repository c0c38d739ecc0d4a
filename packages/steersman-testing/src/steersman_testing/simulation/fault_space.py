"""All single faults of a reference run, and random plans."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from steersman_testing.simulation.faults import DELAYED_WRITE_SECONDS, EVENT_FAULTS, Fault, FaultPlan
from steersman_testing.simulation.run_result import RunResult
from steersman_testing.simulation.trace import CallKind

LONG_FAULT_SECONDS = 300.0
"""Duration of faults during which the scenario continues."""
SHORT_FAULT_SECONDS = 5.0

_APPLICABLE_FAULTS: dict[CallKind, tuple[str, ...]] = {
    "read": ("crash-before", "timeout", "429", "500"),
    "create": ("crash-before", "crash-after", "lost", "timeout", "429", "500", "lease", "delayed-write"),
    "update": (
        "crash-before",
        "crash-after",
        "lost",
        "timeout",
        "409",
        "429",
        "500",
        "concurrent-write",
        "lease",
        "delayed-write",
    ),
    "delete": (
        "crash-before",
        "crash-after",
        "lost",
        "timeout",
        "409",
        "429",
        "500",
        "concurrent-write",
        "lease",
        "delayed-write",
    ),
    "effect": ("crash-before", "crash-after", "lease"),
    "fallible": ("crash-before", "crash-after", "lost", "error", "lease"),
}
_MAX_FAULTS = 3


def single_faults(reference: RunResult) -> Iterator[Fault]:
    """Yield each fault that applies at each place of the reference run."""
    for call in reference.trace.calls:
        for kind in _APPLICABLE_FAULTS[call.call_kind]:
            # Another client cannot write an object that does not exist.
            if kind == "concurrent-write" and call.outcome[:3] in ("201", "404"):
                continue
            yield Fault(kind, call.call_number, seconds=DELAYED_WRITE_SECONDS if kind == "delayed-write" else 0.0)
        yield Fault("crash-before", call.call_number, seconds=LONG_FAULT_SECONDS)
    for resource, count in sorted(reference.event_counts.items()):
        for at in range(1, count + 1):
            yield Fault("delay-watch", at, resource, SHORT_FAULT_SECONDS)
            yield Fault("delay-watch", at, resource, LONG_FAULT_SECONDS)
            yield Fault("relist", at, resource, LONG_FAULT_SECONDS)
            yield Fault("disconnect", at, resource)
            yield Fault("crash-on-event", at, resource, LONG_FAULT_SECONDS)


def select_evenly(places: Sequence[Fault], limit: int | None, seed: int) -> list[Fault]:
    """Select at most ``limit`` of ``places``, evenly and in order. Another ``seed`` selects others."""
    if limit is None or limit >= len(places):
        return list(places)
    step = len(places) / max(limit, 1)
    first = random.Random(seed).random()  # noqa: S311
    return [places[int((number + first) * step)] for number in range(limit)]


def random_plans(reference: RunResult, seed: int) -> Iterator[FaultPlan]:
    """Yield plans of two or three faults without end, deterministic by ``seed``.

    Call numbers may exceed those of the reference run, because retries after a fault add calls.
    """
    rng = random.Random(seed)  # noqa: S311
    choices = list(single_faults(reference))
    calls = len(reference.trace.calls)
    while choices:
        sample = rng.sample(choices, k=min(len(choices), rng.randint(2, _MAX_FAULTS)))
        yield FaultPlan.from_faults(
            _shift_call(fault, calls, rng) if fault.kind not in EVENT_FAULTS else fault for fault in sample
        )


def _shift_call(fault: Fault, calls: int, rng: random.Random) -> Fault:
    return Fault(fault.kind, fault.at + rng.randrange(calls) if rng.random() < 0.5 else fault.at, "", fault.seconds)
