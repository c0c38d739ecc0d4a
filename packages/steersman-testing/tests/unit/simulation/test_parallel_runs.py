"""Sweeps in several processes have the same result as in one."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

from steersman_testing import pytest_plugin
from steersman_testing.simulation.parallel_runs import run_all
from steersman_testing.sweep_settings import settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="several processes need Linux")
PLANS = list(range(20))


@pytest.fixture(autouse=True)
def three_processes() -> Generator[None]:
    before = settings.processes, settings.on_progress
    settings.processes, settings.on_progress = 3, None
    yield
    settings.processes, settings.on_progress = before


def square(plan: int) -> int:
    return plan * plan


def fail_from_seven(plan: int) -> int:
    if plan >= 7:
        raise AssertionError(f"plan {plan}")
    return plan


def test_results_have_the_order_of_the_plans() -> None:
    assert run_all(square, PLANS) == [plan * plan for plan in PLANS]


def test_runs_use_several_processes() -> None:
    processes = set(run_all(lambda _: os.getpid(), PLANS))
    assert len(processes) == 3
    assert os.getpid() not in processes


@pytest.mark.parametrize("processes", [1, 3])
def test_failure_is_that_of_the_first_failing_plan(processes: int) -> None:
    settings.processes = processes
    with pytest.raises(AssertionError, match=r"^plan 7$"):
        run_all(fail_from_seven, PLANS)


def test_progress_counts_all_runs() -> None:
    seen: list[tuple[int, int]] = []
    settings.on_progress = lambda finished, total: seen.append((finished, total))
    run_all(square, PLANS)
    assert seen == [(number, 20) for number in range(1, 21)]


def test_killed_process_is_reported() -> None:
    with pytest.raises(RuntimeError, match="ended unexpectedly"):
        run_all(lambda _: os._exit(1), PLANS)


def test_failure_in_another_process_only_is_reported() -> None:
    parent = os.getpid()

    def fail_in_children(plan: int) -> int:
        assert os.getpid() == parent
        return plan

    with pytest.raises(RuntimeError, match="fails only in another process"):
        run_all(fail_in_children, PLANS)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1000"])
def test_invalid_number_of_processes_is_rejected(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="neither auto nor a number from 1 to 256"):
        pytest_plugin._parse_processes(text)  # pyright: ignore[reportPrivateUsage]


def test_auto_uses_the_available_cores() -> None:
    assert pytest_plugin._parse_processes("auto") == len(os.sched_getaffinity(0))  # pyright: ignore[reportPrivateUsage]
