"""Bugs of the gallery are found, and corrected operators pass.

By default, each bug is replayed from the last line of its report. Corrected operators run with a small fixed number
of faults and changes. With SIMULATE=whole, tests search for each bug and try more faults and changes.
"""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import gallery
from gallery.bug_case import BugCase
from steersman.manager import Manager
from steersman.observability.logging import suppress_logs
from steersman_testing import run_virtual
from steersman_testing.simulation import SimulationFailed, World, simulate
from steersman_testing.simulation import SimulationReport as SweepReport
from steersman_testing.transitions import Budget, ExplorationReport, TransitionFailed, explore, in_memory

GALLERY = Path(gallery.__file__).parent
NAMES = sorted(f"{file.parent.name}.{file.stem}" for file in GALLERY.glob("*/[!_]*.py"))
ISSUE_REFERENCE = re.compile(r"[\w-]+/[\w.-]+#\d+")
REPLAY = re.compile(r"replay='([^']+)'")
WHOLE = os.environ.get("SIMULATE") == "whole"
MAX_PLACES, RANDOM_RUNS, MAX_CHANGES = (100, 20, 60) if WHOLE else (3, 1, 20)
SEARCH_CHANGES = 60
YEAR = 366 * 86400.0

Operator = Callable[[Manager, Any], None]
Scenario = Callable[[World[Any]], Awaitable[None]]


def load_module(name: str) -> Any:
    return importlib.import_module(f"gallery.{name}")


def load_case(name: str) -> BugCase[Any]:
    return load_module(name).BUG_CASE


def cases_detected_by(*finders: str) -> list[str]:
    return [name for name in NAMES if load_case(name).detector in finders]


def run_sweep(
    case: BugCase[Any],
    operator: Operator,
    scenario: Scenario,
    random_runs: int = 0,
    max_places: int | None = None,
    replay: str = "",
) -> SweepReport:
    return simulate(
        operator,
        scenario,
        outside=case.outside,
        kinds=case.kinds,
        actors=case.actors,
        invariants=case.invariants,
        random_runs=random_runs,
        max_places=max_places,
        replay=replay,
    )


def run_exploration(case: BugCase[Any], operator: Operator, changes: int) -> ExplorationReport:
    kind: Any = case.kinds[0]

    def setup(manager: Manager) -> None:
        operator(manager, case.outside())
        for stand_in in case.cluster_controllers:
            stand_in(manager)

    budget = Budget(changes=changes, failures=1)
    with suppress_logs():
        return run_virtual(explore(kind, in_memory(kind, setup), case.hints, budget=budget), limit=YEAR)


def checked_scenario(case: BugCase[Any]) -> Scenario:
    """Return the scenario with a check of the final state."""

    async def scenario(world: World[Any]) -> None:
        await case.scenario(world)
        await world.settle_after_faults()
        case.check(world)

    return scenario


def assert_in_report(report: str, parts: tuple[str, ...]) -> None:
    assert parts, f"the story is not asserted:\n{report}"
    rest = report
    for part in parts:
        assert part in rest, f"{part!r} is not told, or not in this order:\n{report}"
        rest = rest.partition(part)[2]


@pytest.mark.parametrize("name", cases_detected_by("simulation"))
def test_gallery_bug_is_found_by_simulation(name: str) -> None:
    case = load_case(name)
    replay = None if WHOLE else REPLAY.search(case.report_excerpts[-1])
    with pytest.raises(SimulationFailed) as failed:
        run_sweep(case, case.faulty, case.scenario, replay=replay[1] if replay else "")
    assert_in_report(str(failed.value), case.report_excerpts)
    assert len(failed.value.plan.faults) <= 1


@pytest.mark.parametrize("name", cases_detected_by("transitions"))
def test_gallery_bug_is_found_by_transitions(name: str) -> None:
    case = load_case(name)
    with pytest.raises(TransitionFailed) as failed:
        run_exploration(case, case.faulty, SEARCH_CHANGES).check()
    assert_in_report(str(failed.value), case.report_excerpts)


@pytest.mark.parametrize("name", NAMES)
def test_no_fault_alarms_the_corrected_twin(name: str) -> None:
    case = load_case(name)
    report = run_sweep(case, case.corrected, checked_scenario(case), random_runs=RANDOM_RUNS, max_places=MAX_PLACES)
    assert report.random_runs == RANDOM_RUNS
    assert sum(report.tried.values()) == min(MAX_PLACES, sum(report.places.values()))


@pytest.mark.parametrize("name", cases_detected_by("transitions"))
def test_no_change_alarms_the_corrected_twin(name: str) -> None:
    case = load_case(name)
    report = run_exploration(case, case.corrected, MAX_CHANGES)
    report.check()
    assert report.changes >= MAX_CHANGES
    assert report.coverage.count("alter")[0] > 0


@pytest.mark.parametrize("name", NAMES)
def test_gallery_bug_needs_fault_or_user_action(name: str) -> None:
    """A bug of a simulation needs a fault. Bugs without a fault fail the check."""
    case = load_case(name)
    if name.partition(".")[0] in ("intermediate_state", "stale_state", "unobserved_state"):
        run_sweep(case, case.faulty, checked_scenario(case), max_places=0)
        return
    with pytest.raises(SimulationFailed) as failed:
        run_sweep(case, case.faulty, checked_scenario(case), max_places=0)
    assert not failed.value.plan.faults


def test_each_class_has_three_at_least() -> None:
    classes = Counter(name.partition(".")[0] for name in NAMES)
    assert len(classes) == 7
    assert min(classes.values()) >= 3


def test_gallery_entry_names_bug_and_is_indexed() -> None:
    index = (GALLERY / "README.md").read_text()
    lines = {found[1]: found[0] for found in re.finditer(r"^\| \[[^]]+\]\(([\w/]+)\.py\) \|.*$", index, re.MULTILINE)}
    assert sorted(lines) == [name.replace(".", "/") for name in NAMES]
    for name in NAMES:
        published = ISSUE_REFERENCE.findall(load_module(name).__doc__)
        assert published, f"{name} names no published bug"
        assert published[0] in lines[name.replace(".", "/")]
        assert f"| {load_case(name).detector} |" in lines[name.replace(".", "/")]
