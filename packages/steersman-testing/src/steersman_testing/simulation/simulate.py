"""Sweeps an operator through every fault, in a world that repeats."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, overload

from steersman.manager import Manager, ManagerOptions
from steersman.meta import ApiResource, Object
from steersman.observability.logging import silence
from steersman_testing.simulation.faults import Plan
from steersman_testing.simulation.outcome import Outcome, findings, run_once
from steersman_testing.simulation.report import Report
from steersman_testing.simulation.run import Setting
from steersman_testing.simulation.state import Adjust
from steersman_testing.simulation.story import tell
from steersman_testing.simulation.sweep import chosen, random_plans, single_faults
from steersman_testing.simulation.world import World
from steersman_testing.virtual_clock import MOST_TURNS

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

    def __init__(self, outcome: Outcome, found: Sequence[str]) -> None:
        super().__init__(tell(outcome, found))
        self.plan = outcome.plan
        self.found = tuple(found)
        self.outcome = outcome


class Simulation:
    """A setting, and its run without faults, against which all others are held.

    Raises:
        SimulationFailed: the scenario goes wrong without any fault.
    """

    def __init__(self, setting: Setting[Any]) -> None:
        self._setting = setting
        self.reference = run_once(setting, Plan())
        if found := findings(self.reference, None):
            raise SimulationFailed(self.reference, found)

    def check(self, plan: Plan) -> Outcome:
        """Runs the scenario under ``plan``.

        Raises:
            SimulationFailed: something is wrong; with the fewest faults of the plan that show it.
        """
        outcome = run_once(self._setting, plan, self.reference)
        if not (found := findings(outcome, self.reference)):
            return outcome
        for fault in plan.faults if len(plan.faults) > 1 else ():
            self.check(plan.without(fault))
        raise SimulationFailed(outcome, found)

    def replay(self, text: str) -> None:
        """Runs the scenario under the plan that ``text`` tells; see ``simulate``."""
        plan = Plan.parse(text)
        outcome = self.check(plan)
        if missed := [str(fault) for fault in plan.faults if fault not in outcome.struck]:
            calls, events = len(outcome.journal.calls), sum(outcome.events.values())
            raise ValueError(
                f"{', '.join(missed)} never struck: nothing it could do came at its place among {calls} calls and "
                f"{events} events, so that this replay proves nothing; the operator or the scenario has changed"
            )

    def sweep(self, random_runs: int, most: int | None) -> Report:
        """Tries every fault at every place, then several at random; see ``simulate``."""
        begun = time.monotonic()
        places = list(single_faults(self.reference))
        tried: Counter[str] = Counter()
        for fault in chosen(places, most, self._setting.seed):
            tried[fault.kind] += len(self.check(Plan((fault,))).struck)
        for plan in itertools.islice(random_plans(self.reference, self._setting.seed), random_runs):
            self.check(plan)
        found = Counter(fault.kind for fault in places)
        return Report(dict(tried), dict(found), random_runs, time.monotonic() - begun)


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
    adjust: Adjust | None = None,
    seed: int = 0,
    most_turns: int | None = MOST_TURNS,
    random_runs: int = 50,
    most: int | None = None,
    replay: str = "",
) -> Report: ...


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
    adjust: Adjust | None = None,
    seed: int = 0,
    most_turns: int | None = MOST_TURNS,
    random_runs: int = 50,
    most: int | None = None,
    replay: str = "",
) -> Report: ...


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
    adjust: Adjust | None = None,
    seed: int = 0,
    most_turns: int | None = MOST_TURNS,
    random_runs: int = 50,
    most: int | None = None,
    replay: str = "",
) -> Report:
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
        most_turns: of the event loop within 10 ms of virtual time, beyond which the operator goes round in circles;
            None for no limit.
        random_runs: how many runs have several faults.
        most: at most so many places are tried, evenly spread by ``seed``; None for all, 0 for none.
        replay: the faults of one run, as a story names them; nothing else is run, and its logs are shown.

    Raises:
        SimulationFailed: a run ends in another state than the one without faults, writes when there is nothing to
            do, deletes what should live, asks without bound, or breaks an invariant; or the scenario itself fails.
        ValueError: ``replay`` is no plan, or one of its faults never strikes.

    Source: Sun et al., "Automatic Reliability Testing for Cluster Management Controllers" (Sieve), OSDI 2022.
    """
    described = Setting(
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
        most_turns=most_turns,
    )
    with silence():
        simulation = Simulation(described)
    if replay:
        simulation.replay(replay)
        return Report()
    with silence():
        return simulation.sweep(random_runs, most)
