"""Virtual time jumps, is deterministic, and reports deadlocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman_testing.virtual_clock import (
    EPOCH,
    VirtualClock,
    VirtualDeadlock,
    VirtualLivelock,
    VirtualTimeLimit,
    run_virtual,
    virtual_runtime,
    virtual_time,
)


def test_virtual_hours_take_no_real_time() -> None:
    async def main() -> tuple[float, datetime]:
        await asyncio.sleep(36000)
        return asyncio.get_running_loop().time(), VirtualClock().now()

    began = time.monotonic()
    elapsed, now = run_virtual(main(), start=datetime(2024, 2, 29, tzinfo=UTC))
    assert time.monotonic() - began < 5
    assert elapsed == pytest.approx(36000)
    assert now == datetime(2024, 2, 29, 10, tzinfo=UTC)


@virtual_time
async def test_decorated_tests_run_in_virtual_time() -> None:
    runtime = virtual_runtime()
    assert runtime.clock.now() == EPOCH
    await runtime.clock.sleep(90)
    assert runtime.clock.monotonic() == pytest.approx(90)
    assert runtime.clock.now() == EPOCH + timedelta(seconds=90)


@pytest.mark.parametrize("value", [1, 2])
@virtual_time
async def test_decorated_tests_take_parameters_and_fixtures(value: int, tmp_path: object) -> None:
    await asyncio.sleep(value)
    assert asyncio.get_running_loop().time() == pytest.approx(value)


@virtual_time
async def test_virtual_timers_fire_in_order() -> None:
    order: list[int] = []

    async def wait(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    await asyncio.gather(*(wait(s) for s in (30, 10, 86400 * 3, 20)))
    assert order == [10, 20, 30, 86400 * 3]


@virtual_time
async def test_time_limits_are_virtual() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == pytest.approx(5)


def test_deadlock_names_waiting_task() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(stuck(), name="worker-7")

    with pytest.raises(VirtualDeadlock, match="worker-7"):
        run_virtual(main())


def test_endless_run_stops_at_limit() -> None:
    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(1)

    with pytest.raises(VirtualTimeLimit, match="virtual second 61"):
        run_virtual(main(), limit=60)


@virtual_time
async def test_threads_are_refused() -> None:
    with pytest.raises(RuntimeError, match="threads do not follow virtual time"):
        await asyncio.to_thread(time.monotonic)


async def test_the_virtual_clock_refuses_an_ordinary_loop() -> None:
    with pytest.raises(RuntimeError, match="@virtual_time"):
        VirtualClock().now()


def test_pending_tasks_are_cancelled() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append("background")

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtual(main())
    assert ended == ["background"]


def test_virtual_runtime_is_deterministic_per_seed() -> None:
    assert virtual_runtime(7).random.random() == virtual_runtime(7).random.random()


async def spin() -> None:
    while True:
        await asyncio.sleep(0)


async def spin_by_nanoseconds() -> None:
    while True:
        await asyncio.sleep(1e-9)


@pytest.mark.parametrize("circle", [spin, spin_by_nanoseconds])
def test_busy_loop_is_stopped_and_named(circle: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        going = asyncio.create_task(circle(), name="worker-7")
        await asyncio.sleep(60)
        going.cancel()

    with pytest.raises(VirtualLivelock, match=f"virtual second 0.*(?s:.*)  worker-7: .*{circle.__name__}"):
        run_virtual(work(), max_loop_iterations=1000)


def test_the_story_of_a_standstill_repeats() -> None:
    async def work() -> None:
        await asyncio.gather(spin(), spin_by_nanoseconds())

    def message() -> str:
        with pytest.raises(VirtualLivelock) as stopped:
            run_virtual(work(), max_loop_iterations=1000)
        return str(stopped.value)

    assert message() == message()


def test_loop_iteration_limit_can_be_disabled() -> None:
    async def spin() -> None:
        for _ in range(5000):
            await asyncio.sleep(0)

    with pytest.raises(VirtualLivelock):
        run_virtual(spin(), max_loop_iterations=1000)
    run_virtual(spin(), max_loop_iterations=None)


def test_many_turns_in_one_moment_are_allowed() -> None:
    async def work() -> None:
        for _ in range(5000):
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        for _ in range(5000):
            await asyncio.sleep(0)

    run_virtual(work(), max_loop_iterations=6000)
