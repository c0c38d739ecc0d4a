"""What one run came to, and what is wrong with it when it is held against the run without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from steersman.testing.simulation.entropy import seeded_entropy
from steersman.testing.simulation.faults import Plan
from steersman.testing.simulation.journal import Entry, Journal
from steersman.testing.simulation.run import Run, Setting
from steersman.testing.simulation.state import State, differences
from steersman.testing.simulation.world import play
from steersman.testing.virtual_time import VirtualClock, VirtualDeadlock, VirtualTimeLimit, run_virtual

W = TypeVar("W")

# A crash repeats the work of a few reconciles, and a refusal that of one; a multiple of all calls is a storm.
_CALLS_FACTOR = 10
_CALLS_EXTRA = 100
_MOST_USUAL = 1000
_WEEK = 7 * 86400.0


class Outcome(Struct, frozen=True):
    """What a run came to.

    Attributes:
        plan: its faults.
        journal: what happened.
        sights: the state at each ``settle``, and at last; None where a fault was still in force.
        deletions: what the operator deleted, such as ``DELETE configmaps default/web``.
        removals: how often what went, in the same words, whoever deleted it.
        violations: what an invariant or the scenario found.
        events: how many events each watch gave.
        restarted_at: where in the journal the operator was started once more, with nothing to do; 0: never.
    """

    plan: Plan
    journal: Journal
    sights: tuple[State | None, ...]
    deletions: tuple[str, ...]
    removals: Mapping[str, int]
    violations: tuple[str, ...]
    events: Mapping[str, int]
    restarted_at: int

    @property
    def needless_writes(self) -> list[Entry]:
        """What the operator wrote after it was started with nothing to do; nothing if a fault came then."""
        late = self.journal.entries[self.restarted_at :] if self.restarted_at else []
        struck = {fault.at for fault in self.plan.faults if not fault.resource}
        if any(entry.actor == "fault" or entry.number in struck for entry in late):
            return []
        return [entry for entry in late if entry.changed and entry.sort in ("create", "update", "delete")]


def run_once(setting: Setting[W], plan: Plan, reference: Outcome | None = None) -> Outcome:
    """Plays the scenario under ``plan`` in a world of its own, in virtual time.

    Args:
        reference: the run without faults, by whose calls those of this run are bounded.
    """
    usual = len(reference.journal.calls) if reference is not None else _MOST_USUAL

    async def whole() -> Run[W]:
        run = Run(setting, plan, VirtualClock(), _CALLS_FACTOR * usual + _CALLS_EXTRA)
        await play(run)
        return run

    try:
        with seeded_entropy(setting.seed):
            run = run_virtual(whole(), limit=_WEEK)
    except (VirtualDeadlock, VirtualTimeLimit) as stuck:
        return Outcome(plan, Journal(), (), (), {}, (f"the world stands still: {stuck}",), {}, 0)
    return Outcome(
        plan,
        run.journal,
        tuple(run.sights),
        tuple(dict.fromkeys(entry.text for entry in run.journal.calls if entry.sort == "delete")),
        Counter(f"DELETE {resource} {key}" for resource, key in run.server.removals()),
        tuple(run.violations),
        run.events,
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
        found += _deletion_findings(outcome, reference)
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


def _deletion_findings(outcome: Outcome, reference: Outcome) -> Iterator[str]:
    for text in outcome.deletions:
        if outcome.removals.get(text, 0) > reference.removals.get(text, 0):
            yield f"{text}: it lives without faults"
