"""Sweeps an operator through every fault, in a world that repeats."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, overload

from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, Object
from steersman.observability.logging import suppress_logs
from steersman_testing.simulation.failure_report import format_failure
from steersman_testing.simulation.fault_space import random_plans, select_evenly, single_faults
from steersman_testing.simulation.faults import FaultPlan
from steersman_testing.simulation.report import SimulationReport
from steersman_testing.simulation.run import SimulationConfig
from steersman_testing.simulation.run_result import RunResult, find_problems, run_once
from steersman_testing.simulation.state import AdjustFunction
from steersman_testing.simulation.world import World
from steersman_testing.virtual_clock import MAX_LOOP_ITERATIONS

W = TypeVar("W")
Scenario = Callable[[World[Any]], Awaitable[None]]
Invariant = Callable[[World[Any]], None]


class SimulationFailed(AssertionError):
    """The operator does not come through; the text is the shortest story of it.

    Attributes:
        plan: the faults; ``replay`` takes their text.
        found: what is wrong, a line each.
        outcome: the run in which it is seen.
    """

    def __init__(self, result: RunResult, problems: Sequence[str]) -> None:
        super().__init__(format_failure(result, problems))
        self.plan = result.plan
        self.problems = tuple(problems)
        self.result = result


class Simulation:
    """A setting, and its run without faults, against which all others are held.

    Raises:
        SimulationFailed: the scenario goes wrong without any fault.
    """

    def __init__(self, config: SimulationConfig[Any]) -> None:
        self._config = config
        self.reference = run_once(config, FaultPlan())
        if problems := find_problems(self.reference, None):
            raise SimulationFailed(self.reference, problems)

    def check(self, plan: FaultPlan) -> RunResult:
        """Runs the scenario under ``plan``.

        Raises:
            SimulationFailed: something is wrong; with the fewest faults of the plan that show it.
        """
        result = run_once(self._config, plan, self.reference)
        if not (problems := find_problems(result, self.reference)):
            return result
        for fault in plan.faults if len(plan.faults) > 1 else ():
            self.check(plan.without(fault))
        raise SimulationFailed(result, problems)

    def replay(self, text: str) -> None:
        """Runs the scenario under the plan that ``text`` tells; see ``simulate``."""
        plan = FaultPlan.parse(text)
        result = self.check(plan)
        if not_injected := [str(fault) for fault in plan.faults if fault not in result.injected]:
            calls, events = len(result.trace.calls), sum(result.event_counts.values())
            raise ValueError(
                f"{', '.join(not_injected)} was not injected: nothing it could do came at its place "
                f"among {calls} calls and "
                f"{events} events, so that this replay proves nothing; the operator or the scenario has changed"
            )

    def sweep(self, random_runs: int, max_places: int | None) -> SimulationReport:
        """Tries every fault at every place, then several at random; see ``simulate``."""
        started = time.monotonic()
        places = list(single_faults(self.reference))
        tried: Counter[str] = Counter()
        for fault in select_evenly(places, max_places, self._config.seed):
            tried[fault.kind] += len(self.check(FaultPlan((fault,))).injected)
        for plan in itertools.islice(random_plans(self.reference, self._config.seed), random_runs):
            self.check(plan)
        place_counts = Counter(fault.kind for fault in places)
        return SimulationReport(dict(tried), dict(place_counts), random_runs, time.monotonic() - started)


@overload
def simulate(
    setup: Callable[[Manager], None],
    scenario: Scenario,
    *,
    kinds: Sequence[ApiResource | type[Object]] = (),
    manifests: Sequence[Any] = (),
    actors: Sequence[Scenario] = (),
    invariants: Sequence[Invariant] = (),
    options: ManagerOptions | None = None,
    adjust: AdjustFunction | None = None,
    seed: int = 0,
    max_loop_iterations: int | None = MAX_LOOP_ITERATIONS,
    random_runs: int = 50,
    max_places: int | None = None,
    replay: str = "",
) -> SimulationReport: ...


@overload
def simulate(
    setup: Callable[[Manager, W], None],
    scenario: Callable[[World[W]], Awaitable[None]],
    *,
    outside: Callable[[], W],
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
) -> SimulationReport: ...


def simulate(
    setup: Callable[..., None],
    scenario: Callable[[Any], Awaitable[None]],
    *,
    outside: Callable[[], Any] | None = None,
    observe: Callable[[Any], Any] | None = None,
    kinds: Sequence[ApiResource | type[Object]] = (),
    manifests: Sequence[Any] = (),
    actors: Sequence[Callable[[World[Any]], Awaitable[None]]] = (),
    invariants: Sequence[Callable[[World[Any]], None]] = (),
    options: ManagerOptions | None = None,
    adjust: AdjustFunction | None = None,
    seed: int = 0,
    max_loop_iterations: int | None = MAX_LOOP_ITERATIONS,
    random_runs: int = 50,
    max_places: int | None = None,
    replay: str = "",
) -> SimulationReport:
    """Plays ``scenario`` with the operator that ``setup`` makes: once without faults, then under every fault.

    The operator is the real one, on the in-memory API server and in virtual time, so that a run takes milliseconds
    and repeats exactly. Each of its calls is cut short, refused or lost; each event of its watches is late or never
    seen; each effect that has a ``fault_point`` fails: one at a time until the space is covered, then two or three at
    random. Whatever went wrong, in the end the world must be as it is without faults.

    Args:
        setup: gives a manager its controllers; takes ``outside`` as well where there is one.
        scenario: what users do, with ``await world.settle()`` between the steps.
        outside: makes the world outside Kubernetes, such as a SQL server, anew for each run.
        observe: gives what of ``outside`` is compared, in mappings, sequences and plain values.
        kinds: the custom kinds that the API server serves.
        manifests: objects that are there from the start.
        actors: coroutine functions that run beside the operator, such as a stand-in for the kubelet.
        invariants: called after every change; raise AssertionError where one does not hold.
        options: the manager's.
        adjust: takes out of an object, in wire form, what may differ between runs; None leaves the object out.
        seed: of all random numbers.
        max_loop_iterations: of the event loop within 10 ms of virtual time, beyond which the operator goes round in
            circles; None for no limit.
        random_runs: how many runs have several faults.
        max_places: at most so many places are tried, evenly spread by ``seed``; None for all, 0 for none.
        replay: the faults of one run, as a story names them; nothing else is run, and its logs are shown.

    Raises:
        SimulationFailed: a run ends in another state than the one without faults, writes when there is nothing to
            do, deletes what should live, asks without bound, or breaks an invariant; or the scenario itself fails.
        ValueError: ``replay`` is no plan, or one of its faults never strikes.

    Source: Sun et al., "Automatic Reliability Testing for Cluster Management Controllers" (Sieve), OSDI 2022.
    """
    described = SimulationConfig(
        setup=setup if outside is not None else lambda manager, _: setup(manager),
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
        simulation = Simulation(described)
    if replay:
        simulation.replay(replay)
        return SimulationReport()
    with suppress_logs():
        return simulation.sweep(random_runs, max_places)
