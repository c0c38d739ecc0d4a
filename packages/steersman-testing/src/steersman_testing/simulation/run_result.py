"""What one run came to, and what is wrong with it when it is held against the run without faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from steersman_testing.simulation.deletion_audit import DeletionAudit, audit_deletions, unexpected_deletions
from steersman_testing.simulation.faults import Fault, FaultPlan
from steersman_testing.simulation.run import SimulationConfig, SimulationRun
from steersman_testing.simulation.seeded_random import seeded_randomness
from steersman_testing.simulation.state import StateSnapshot, differences
from steersman_testing.simulation.trace import Trace, TraceEntry
from steersman_testing.simulation.world import run_scenario
from steersman_testing.virtual_clock import (
    VirtualClock,
    VirtualDeadlock,
    VirtualLivelock,
    VirtualTimeLimit,
    run_virtual,
)

W = TypeVar("W")

# A crash repeats the work of a few reconciles, and a refusal that of one; a multiple of all calls is a storm.
_REQUESTS_FACTOR = 10
_REQUESTS_EXTRA = 100
_DEFAULT_EXPECTED_REQUESTS = 1000
_TIME_LIMIT_SECONDS = 7 * 86400.0


class RunResult(Struct, frozen=True):
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

    plan: FaultPlan
    trace: Trace
    snapshots: tuple[StateSnapshot | None, ...]
    deletions: DeletionAudit
    violations: tuple[str, ...]
    event_counts: Mapping[str, int]
    injected: tuple[Fault, ...]
    request_count: int
    idle_restart_index: int

    @property
    def idle_writes(self) -> list[TraceEntry]:
        """What the operator wrote after it was started with nothing to do; nothing if a fault came then."""
        after_restart = self.trace.entries[self.idle_restart_index :] if self.idle_restart_index else []
        injected = {fault.at for fault in self.injected if not fault.resource}
        if any(entry.actor == "fault" or entry.call_number in injected for entry in after_restart):
            return []
        return [
            entry
            for entry in after_restart
            if entry.changed_state and entry.call_kind in ("create", "update", "delete")
        ]


def run_once(config: SimulationConfig[W], plan: FaultPlan, reference: RunResult | None = None) -> RunResult:
    """Plays the scenario under ``plan`` in a world of its own, in virtual time.

    Args:
        reference: the run without faults, by whose calls those of this run are bounded.
    """
    expected_requests = reference.request_count if reference is not None else _DEFAULT_EXPECTED_REQUESTS
    runs: list[SimulationRun[W]] = []

    async def main() -> None:
        # What setting makes, the outside world above all, repeats as well, and may need a loop.
        runs.append(
            SimulationRun(config, plan, VirtualClock(), _REQUESTS_FACTOR * expected_requests + _REQUESTS_EXTRA)
        )
        await run_scenario(runs[0])

    stuck = ""
    try:
        with seeded_randomness(config.seed):
            run_virtual(main(), limit=_TIME_LIMIT_SECONDS, max_loop_iterations=config.max_loop_iterations)
    except (VirtualDeadlock, VirtualTimeLimit, VirtualLivelock) as error:
        stuck = f"the world stands still: {error}"
    (run,) = runs
    if stuck:
        run.violations.append(stuck)
    return RunResult(
        plan,
        run.trace,
        tuple(run.snapshots),
        audit_deletions(run.server.history(), run.trace.calls, run.snapshot_versions),
        tuple(run.violations),
        run.event_counts,
        tuple(run.injected),
        run.request_count,
        run.idle_restart_index,
    )


def find_problems(result: RunResult, reference: RunResult | None) -> list[str]:
    """What is wrong with ``outcome``, a line each, no line twice; nothing, if all is well.

    Args:
        reference: the run without faults; None for that run itself.
    """
    if result.violations:
        return list(dict.fromkeys(result.violations))
    found = [f"needless write after a restart with nothing to do: {e.text}" for e in result.idle_writes]
    if reference is not None:
        found += _state_differences(result, reference)
        found += unexpected_deletions(result.deletions, reference.deletions)
    return list(dict.fromkeys(found))


def _state_differences(result: RunResult, reference: RunResult) -> Iterator[str]:
    """The first place at which the world is not as it is without faults."""
    for expected, actual in zip(reference.snapshots, result.snapshots, strict=False):
        if expected is None or actual is None:
            continue
        differing = list(differences(expected, actual))
        if differing:
            yield from differing
            return
