"""Which plans are tried: every place with every fault that fits it, one after another; then several at random."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from steersman_testing.simulation.faults import EVENT_FAULTS, LATE, Fault, Plan
from steersman_testing.simulation.journal import Sort
from steersman_testing.simulation.outcome import Outcome

LONG = 300.0
"""Seconds of a fault during which a scenario goes on."""
SHORT = 5.0

_FITTING: dict[Sort, tuple[str, ...]] = {
    "read": ("crash-before", "timeout", "429", "500"),
    "create": ("crash-before", "crash-after", "lost", "timeout", "429", "500", "lease", "late"),
    "update": ("crash-before", "crash-after", "lost", "timeout", "409", "429", "500", "touch", "lease", "late"),
    "delete": ("crash-before", "crash-after", "lost", "timeout", "409", "429", "500", "touch", "lease", "late"),
    "effect": ("crash-before", "crash-after", "lease"),
    "fallible": ("crash-before", "crash-after", "lost", "error", "lease"),
}
_MOST_FAULTS = 3


def single_faults(reference: Outcome) -> Iterator[Fault]:
    """Every place of the run without faults, with every fault that fits it."""
    for call in reference.journal.calls:
        for kind in _FITTING[call.sort]:
            # Nobody else can write what is not there yet, or any more.
            if kind == "touch" and call.outcome[:3] in ("201", "404"):
                continue
            yield Fault(kind, call.number, seconds=LATE if kind == "late" else 0.0)
        yield Fault("crash-before", call.number, seconds=LONG)
    for resource, count in sorted(reference.events.items()):
        for at in range(1, count + 1):
            yield Fault("hold", at, resource, SHORT)
            yield Fault("hold", at, resource, LONG)
            yield Fault("miss", at, resource, LONG)
            yield Fault("break", at, resource)
            yield Fault("down", at, resource, LONG)


def chosen(places: Sequence[Fault], most: int | None, seed: int) -> list[Fault]:
    """``most`` of ``places``, in their order and of all parts of it; others with another ``seed``."""
    if most is None or most >= len(places):
        return list(places)
    step = len(places) / max(most, 1)
    first = random.Random(seed).random()  # noqa: S311
    return [places[int((number + first) * step)] for number in range(most)]


def random_plans(reference: Outcome, seed: int) -> Iterator[Plan]:
    """Plans of two or three faults, for ever; the same from the same ``seed``.

    Faults reach beyond the places of the run without faults, since what is done again after one has places too.
    """
    dice = random.Random(seed)  # noqa: S311
    choices = list(single_faults(reference))
    calls = len(reference.journal.calls)
    while choices:
        chosen = dice.sample(choices, k=min(len(choices), dice.randint(2, _MOST_FAULTS)))
        yield Plan.of(_later(fault, calls, dice) if fault.kind not in EVENT_FAULTS else fault for fault in chosen)


def _later(fault: Fault, calls: int, dice: random.Random) -> Fault:
    return Fault(fault.kind, fault.at + dice.randrange(calls) if dice.random() < 0.5 else fault.at, "", fault.seconds)
