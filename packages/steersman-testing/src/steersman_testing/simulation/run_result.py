"""Result of one run, and its comparison with the reference run."""

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

# A crash repeats a few reconciles and a rejected request repeats one. A multiple of all calls is a request storm.
_REQUESTS_FACTOR = 10
_REQUESTS_EXTRA = 100
_DEFAULT_EXPECTED_REQUESTS = 1000
_TIME_LIMIT_SECONDS = 7 * 86400.0


class RunResult(Struct, frozen=True):
    """Result of one run.

    Attributes:
        plan: faults of the run.
        trace: events of the run.
        snapshots: states after each ``settle`` and at the end. An item is None if a fault was active then.
        deletions: audit of the deletions, by the operator and by other clients.
        violations: violated invariants and failures of the scenario.
        event_counts: number of events per watched resource.
        injected: faults of the plan that were injected.
        request_count: number of requests of the operator.
        idle_restart_index: trace index of the operator's restart after the scenario, which should cause no
            writes. 0 if the run ended before it.
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
        """Writes of the operator after the restart with nothing to do. Empty if a fault occurred after it."""
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
    """Run the scenario under ``plan`` with a new API server.

    Args:
        config: inputs of the simulation.
        plan: faults to inject.
        reference: the run without faults, whose number of requests bounds those of this run.
    """
    expected_requests = reference.request_count if reference is not None else _DEFAULT_EXPECTED_REQUESTS
    runs: list[SimulationRun[W]] = []

    async def main() -> None:
        # Created inside the loop and with seeded randomness, because the external system may need both.
        runs.append(
            SimulationRun(config, plan, VirtualClock(), _REQUESTS_FACTOR * expected_requests + _REQUESTS_EXTRA)
        )
        await run_scenario(runs[0])

    stuck = ""
    try:
        with seeded_randomness(config.seed):
            run_virtual(main(), limit=_TIME_LIMIT_SECONDS, max_loop_iterations=config.max_loop_iterations)
    except (VirtualDeadlock, VirtualTimeLimit, VirtualLivelock) as error:
        stuck = f"the run is stuck: {error}"
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
    """Return the problems of a run, one per line, without duplicates.

    Args:
        reference: the run without faults. None if ``result`` is that run.
    """
    if result.violations:
        return list(dict.fromkeys(result.violations))
    found = [f"needless write after a restart with nothing to do: {e.text}" for e in result.idle_writes]
    if reference is not None:
        found += _state_differences(result, reference)
        found += unexpected_deletions(result.deletions, reference.deletions)
    return list(dict.fromkeys(found))


def _state_differences(result: RunResult, reference: RunResult) -> Iterator[str]:
    """Differences of the first snapshot that differs from the reference run."""
    for expected, actual in zip(reference.snapshots, result.snapshots, strict=False):
        if expected is None or actual is None:
            continue
        differing = list(differences(expected, actual))
        if differing:
            yield from differing
            return
