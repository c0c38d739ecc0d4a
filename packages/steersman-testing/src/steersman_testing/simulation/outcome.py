"""What one run came to, and what is wrong with it when it is held against the run without faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from steersman_testing.simulation.entropy import seeded_entropy
from steersman_testing.simulation.faults import Fault, Plan
from steersman_testing.simulation.journal import Entry, Journal
from steersman_testing.simulation.removals import Removals, needless, removals
from steersman_testing.simulation.run import Run, Setting
from steersman_testing.simulation.state import State, differences
from steersman_testing.simulation.world import play
from steersman_testing.virtual_clock import (
    VirtualClock,
    VirtualDeadlock,
    VirtualStandstill,
    VirtualTimeLimit,
    run_virtual,
)

W = TypeVar("W")

# A crash repeats the work of a few reconciles, and a refusal that of one; a multiple of all calls is a storm.
_REQUESTS_FACTOR = 10
_REQUESTS_EXTRA = 100
_MOST_USUAL = 1000
_WEEK = 7 * 86400.0


class Outcome(Struct, frozen=True):
    """What a run came to.

    Attributes:
        plan: its faults.
        journal: what happened.
        sights: the state at each ``settle``, and at last; None where a fault was still in force.
        removals: what went, and what of that the operator ended.
        violations: what an invariant or the scenario found.
        events: how many events each watch gave.
        struck: the faults of the plan that were done: the operator came to their places.
        requests: how many the operator made.
        restarted_at: where in the journal the operator was started once more, with nothing to do; 0: never.
    """

    plan: Plan
    journal: Journal
    sights: tuple[State | None, ...]
    removals: Removals
    violations: tuple[str, ...]
    events: Mapping[str, int]
    struck: tuple[Fault, ...]
    requests: int
    restarted_at: int

    @property
    def needless_writes(self) -> list[Entry]:
        """What the operator wrote after it was started with nothing to do; nothing if a fault came then."""
        late = self.journal.entries[self.restarted_at :] if self.restarted_at else []
        struck = {fault.at for fault in self.struck if not fault.resource}
        if any(entry.actor == "fault" or entry.number in struck for entry in late):
            return []
        return [entry for entry in late if entry.changed and entry.sort in ("create", "update", "delete")]


def run_once(setting: Setting[W], plan: Plan, reference: Outcome | None = None) -> Outcome:
    """Plays the scenario under ``plan`` in a world of its own, in virtual time.

    Args:
        reference: the run without faults, by whose calls those of this run are bounded.
    """
    usual = reference.requests if reference is not None else _MOST_USUAL
    runs: list[Run[W]] = []

    async def begin() -> None:
        # What setting makes, the outside world above all, repeats as well, and may need a loop.
        runs.append(Run(setting, plan, VirtualClock(), _REQUESTS_FACTOR * usual + _REQUESTS_EXTRA))
        await play(runs[0])

    stuck = ""
    try:
        with seeded_entropy(setting.seed):
            run_virtual(begin(), limit=_WEEK, most_turns=setting.most_turns)
    except (VirtualDeadlock, VirtualTimeLimit, VirtualStandstill) as error:
        stuck = f"the world stands still: {error}"
    (run,) = runs
    if stuck:
        run.violations.append(stuck)
    return Outcome(
        plan,
        run.journal,
        tuple(run.sights),
        removals(run.server.history(), run.journal.calls, run.looks),
        tuple(run.violations),
        run.events,
        tuple(run.struck),
        run.requests,
        run.restarted_at,
    )


def findings(outcome: Outcome, reference: Outcome | None) -> list[str]:
    """What is wrong with ``outcome``, a line each, no line twice; nothing, if all is well.

    Args:
        reference: the run without faults; None for that run itself.
    """
    if outcome.violations:
        return list(dict.fromkeys(outcome.violations))
    found = [f"needless write after a restart with nothing to do: {e.text}" for e in outcome.needless_writes]
    if reference is not None:
        found += _state_findings(outcome, reference)
        found += needless(outcome.removals, reference.removals)
    return list(dict.fromkeys(found))


def _state_findings(outcome: Outcome, reference: Outcome) -> Iterator[str]:
    """The first place at which the world is not as it is without faults."""
    for expected, actual in zip(reference.sights, outcome.sights, strict=False):
        if expected is None or actual is None:
            continue
        differing = list(differences(expected, actual))
        if differing:
            yield from differing
            return
