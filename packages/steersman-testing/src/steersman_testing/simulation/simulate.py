"""Sweep over all faults of a scenario."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, Object
from steersman.observability.logging import suppress_logs
from steersman_testing.simulation.failure_report import format_failure
from steersman_testing.simulation.fault_space import random_plans, select_evenly, single_faults
from steersman_testing.simulation.faults import FaultPlan
from steersman_testing.simulation.parallel_runs import run_all
from steersman_testing.simulation.report import SimulationReport
from steersman_testing.simulation.run import SimulationConfig
from steersman_testing.simulation.run_result import RunResult, find_problems, run_once
from steersman_testing.simulation.state import AdjustFunction
from steersman_testing.simulation.world import World
from steersman_testing.virtual_clock import MAX_LOOP_ITERATIONS

W = TypeVar("W")


class SimulationFailed(AssertionError):
    """The operator does not recover from a fault. The text is the report of the smallest plan.

    Attributes:
        plan: faults of the failed run. ``replay`` accepts its text.
        problems: differences and violations, one per line.
        result: result of the failed run.
    """

    def __init__(self, result: RunResult, problems: Sequence[str]) -> None:
        super().__init__(format_failure(result, problems))
        self.plan = result.plan
        self.problems = tuple(problems)
        self.result = result


class Simulation:
    """A configuration and its reference run.

    Raises:
        SimulationFailed: if the scenario fails without any fault.
    """

    def __init__(self, config: SimulationConfig[Any]) -> None:
        self._config = config
        self.reference = run_once(config, FaultPlan())
        if problems := find_problems(self.reference, None):
            raise SimulationFailed(self.reference, problems)

    def check(self, plan: FaultPlan) -> RunResult:
        """Run the scenario under ``plan``.

        Raises:
            SimulationFailed: if a problem is found, with the smallest subset of the plan that still shows one.
        """
        result = run_once(self._config, plan, self.reference)
        if not (problems := find_problems(result, self.reference)):
            return result
        for fault in plan.faults if len(plan.faults) > 1 else ():
            self.check(plan.without(fault))
        raise SimulationFailed(result, problems)

    def replay(self, text: str) -> None:
        """Run the scenario under the plan in ``text``. See ``simulate``."""
        plan = FaultPlan.parse(text)
        result = self.check(plan)
        if not_injected := [str(fault) for fault in plan.faults if fault not in result.injected]:
            calls, events = len(result.trace.calls), sum(result.event_counts.values())
            raise ValueError(
                f"{', '.join(not_injected)} was not injected: none of {calls} calls and {events} events "
                f"is a place for it. The operator or the scenario has changed: run the sweep again for a new replay"
            )

    def sweep(self, random_runs: int, max_places: int | None) -> SimulationReport:
        """Inject each fault at each place, then random combinations. See ``simulate``."""
        started = time.monotonic()
        places = list(single_faults(self.reference))
        selected = select_evenly(places, max_places, self._config.seed)
        combinations = itertools.islice(random_plans(self.reference, self._config.seed), random_runs)
        plans = [*(FaultPlan((fault,)) for fault in selected), *combinations]
        injected = run_all(lambda plan: len(self.check(plan).injected), plans)
        tried: Counter[str] = Counter()
        for fault, count in zip(selected, injected, strict=False):
            tried[fault.kind] += count
        place_counts = Counter(fault.kind for fault in places)
        return SimulationReport(dict(tried), dict(place_counts), random_runs, time.monotonic() - started)


def simulate(
    setup: Callable[[Manager], None] | Callable[[Manager, W], None],
    scenario: Callable[[World[W]], Awaitable[None]],
    *,
    outside: Callable[[], W] | None = None,
    observe: Callable[[W], Any] | None = None,
    kinds: Sequence[ApiResource | type[Object]] = (),
    manifests: Sequence[Any] = (),
    actors: Sequence[Callable[[World[W]], Awaitable[None]]] = (),
    invariants: Sequence[Callable[[World[W]], None]] = (),
    options: ManagerOptions | None = None,
    adjust: AdjustFunction | None = None,
    seed: int = 0,
    max_loop_iterations: int | None = MAX_LOOP_ITERATIONS,
    random_runs: int = 50,
    max_places: int | None = None,
    replay: str = "",
) -> SimulationReport:
    """Run a scenario without faults and then under every fault.

    The operator runs on the in-memory API server and in virtual time. A run takes milliseconds and is deterministic.
    Faults are injected one at a time into each request, each watch event and each ``fault_point``, then in random
    combinations of two or three. The state at the end must equal the state of the run without faults.

    Args:
        setup: registers controllers with a manager. Its second argument is the external system if ``outside`` is set.
        scenario: actions of the users, with ``await world.settle()`` between the steps.
        outside: creates the external system, such as a SQL server, for each run.
        observe: returns the comparable state of the external system as mappings, sequences and plain values.
        kinds: custom kinds that the API server serves.
        manifests: objects that exist before the operator starts.
        actors: coroutine functions that run concurrently with the operator, such as a fake kubelet.
        invariants: functions called after every change. They raise AssertionError if the invariant is violated.
        options: options of the manager.
        adjust: removes from an object in wire form the fields that may differ between runs. None ignores the object.
        seed: seed of all random numbers.
        max_loop_iterations: iterations of the event loop within 10 ms of virtual time, after which the run fails as a
            livelock. None disables the limit.
        random_runs: number of runs with several faults.
        max_places: number of single faults to inject, spread evenly by ``seed``. None injects all of them.
        replay: plan of one run, as printed in a failure report. Runs only this plan, with logs.

    Raises:
        SimulationFailed: if a run differs from the reference run, writes with nothing to do, deletes an object that
            survives without faults, sends requests without bound, violates an invariant, or if the scenario fails.
        ValueError: if ``replay`` is not a plan, or one of its faults is never injected.

    Source: Sun et al., "Automatic Reliability Testing for Cluster Management Controllers" (Sieve), OSDI 2022.
    """
    register: Callable[..., None] = setup
    config: SimulationConfig[Any] = SimulationConfig(
        setup=(lambda manager, _: register(manager)) if outside is None else register,
        scenario=scenario,
        outside=outside or (lambda: None),
        kinds=tuple(kinds),
        manifests=tuple(manifests),
        actors=tuple(actors),
        invariants=tuple(invariants),
        options=options or ManagerOptions(name="operator", instance="operator"),
        observe=observe,
        adjust=adjust,
        seed=seed,
        max_loop_iterations=max_loop_iterations,
    )
    with suppress_logs():
        simulation = Simulation(config)
    if replay:
        simulation.replay(replay)
        return SimulationReport()
    with suppress_logs():
        return simulation.sweep(random_runs, max_places)
