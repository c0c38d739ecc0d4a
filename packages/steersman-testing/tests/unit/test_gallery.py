"""The gallery: each bug is found and told in its shortest story, and no corrected twin raises an alarm.

What it costs is bounded by numbers of runs, so that it is the same on every machine: a faulty operator is swept until
it is found out, but for ``LATE``, which takes more than a hundred runs and whose plan is replayed; of a twin's places
``PLACES`` are tried, spread evenly, then ``SEVERAL`` plans of several faults; an explored one makes ``CHANGES``
changes. With SIMULATE=whole there are many more of them, and every bug is searched for.
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
from gallery.exhibit import Exhibit
from steersman.manager import Manager
from steersman.observability.logging import silence
from steersman_testing import run_virtual
from steersman_testing.simulation import Report as SweepReport
from steersman_testing.simulation import SimulationFailed, World, simulate
from steersman_testing.transitions import Budget, Report, TransitionFailed, explore, in_memory

GALLERY = Path(gallery.__file__).parent
NAMES = sorted(f"{file.parent.name}.{file.stem}" for file in GALLERY.glob("*/[!_]*.py"))
PUBLISHED = re.compile(r"[\w-]+/[\w.-]+#\d+")
REPLAY = re.compile(r"replay='([^']+)'")
WHOLE = os.environ.get("SIMULATE") == "whole"
PLACES, SEVERAL = (100, 20) if WHOLE else (12, 3)
LATE = () if WHOLE else ("stale_state.claim_of_a_namesake", "stale_state.two_members_down")
CHANGES = 60
YEAR = 366 * 86400.0

Operator = Callable[[Manager, Any], None]
Scenario = Callable[[World[Any]], Awaitable[None]]


def module(name: str) -> Any:
    return importlib.import_module(f"gallery.{name}")


def exhibit(name: str) -> Exhibit[Any]:
    return module(name).EXHIBIT


def found_by(*finders: str) -> list[str]:
    return [name for name in NAMES if exhibit(name).found_by in finders]


def swept(
    shown: Exhibit[Any],
    operator: Operator,
    scenario: Scenario,
    random_runs: int = 0,
    most: int | None = None,
    replay: str = "",
) -> SweepReport:
    return simulate(
        operator,
        scenario,
        outside=shown.outside,
        kinds=shown.kinds,
        actors=shown.actors,
        invariants=shown.invariants,
        random_runs=random_runs,
        most=most,
        replay=replay,
    )


def explored(shown: Exhibit[Any], operator: Operator, failures: int) -> Report:
    kind: Any = shown.kinds[0]

    def setup(manager: Manager) -> None:
        operator(manager, shown.outside())
        for stand_in in shown.cluster:
            stand_in(manager)

    budget = Budget(changes=CHANGES, failures=failures)
    with silence():
        return run_virtual(explore(kind, in_memory(kind, setup), shown.hints, budget=budget), limit=YEAR)


def checked(shown: Exhibit[Any]) -> Scenario:
    """The scenario, at whose end the world must be as the users asked."""

    async def whole(world: World[Any]) -> None:
        await shown.scenario(world)
        await world.rest()
        shown.check(world)

    return whole


def assert_told(story: str, parts: tuple[str, ...]) -> None:
    assert parts, f"the story is not asserted:\n{story}"
    rest = story
    for part in parts:
        assert part in rest, f"{part!r} is not told, or not in this order:\n{story}"
        rest = rest.partition(part)[2]


@pytest.mark.parametrize("name", found_by("simulation"))
def test_a_simulation_finds_the_bug_and_tells_it(name: str) -> None:
    shown = exhibit(name)
    replay = REPLAY.search(shown.story[-1]) if name in LATE else None
    with pytest.raises(SimulationFailed) as failed:
        swept(shown, shown.faulty, shown.scenario, replay=replay[1] if replay else "")
    assert_told(str(failed.value), shown.story)
    assert len(failed.value.plan.faults) <= 1


@pytest.mark.parametrize("name", found_by("transitions"))
def test_transitions_find_the_bug_and_tell_it(name: str) -> None:
    shown = exhibit(name)
    with pytest.raises(TransitionFailed) as failed:
        explored(shown, shown.faulty, failures=1).check()
    assert_told(str(failed.value), shown.story)


@pytest.mark.parametrize("name", NAMES)
def test_no_fault_alarms_the_corrected_twin(name: str) -> None:
    shown = exhibit(name)
    report = swept(shown, shown.corrected, checked(shown), random_runs=SEVERAL, most=PLACES)
    assert report.random_runs == SEVERAL
    assert sum(report.tried.values()) == min(PLACES, sum(report.places.values()))


@pytest.mark.parametrize("name", found_by("transitions"))
def test_no_change_alarms_the_corrected_twin(name: str) -> None:
    shown = exhibit(name)
    report = explored(shown, shown.corrected, failures=1)
    report.check()
    assert report.changes == CHANGES
    assert report.coverage.count("alter")[0] > 0


@pytest.mark.parametrize("name", NAMES)
def test_without_any_fault_only_what_users_bring_about_is_wrong(name: str) -> None:
    """What needs a fault to be seen is no bug of the scenario, and what needs none is seen by its check."""
    shown = exhibit(name)
    if name.partition(".")[0] in ("intermediate_state", "stale_state", "unobserved_state"):
        swept(shown, shown.faulty, checked(shown), most=0)
        return
    with pytest.raises(SimulationFailed) as failed:
        swept(shown, shown.faulty, checked(shown), most=0)
    assert not failed.value.plan.faults


def test_each_class_has_three_at_least() -> None:
    classes = Counter(name.partition(".")[0] for name in NAMES)
    assert len(classes) == 7
    assert min(classes.values()) >= 3


def test_each_names_the_published_bug_and_is_in_the_index() -> None:
    index = (GALLERY / "README.md").read_text()
    lines = {found[1]: found[0] for found in re.finditer(r"^\| \[[^]]+\]\(([\w/]+)\.py\) \|.*$", index, re.MULTILINE)}
    assert sorted(lines) == [name.replace(".", "/") for name in NAMES]
    for name in NAMES:
        published = PUBLISHED.findall(module(name).__doc__)
        assert published, f"{name} names no published bug"
        assert published[0] in lines[name.replace(".", "/")]
        assert f"| {exhibit(name).found_by} |" in lines[name.replace(".", "/")]
