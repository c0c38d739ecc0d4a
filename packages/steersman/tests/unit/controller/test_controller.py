"""The worker loop: errors stay with one object, and stop is orderly."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import (
    ControllerEnv,
    ScriptedReconciler,
    controller_for,
    key,
    metric_value,
    raising,
)
from steersman.controller import LOW_PRIORITY, Request, Result, current_reconcile
from steersman_testing import virtual_runtime, virtual_time
from steersman_testing.virtual_clock import VirtualClock


@virtual_time
async def test_each_object_is_reconciled_once() -> None:
    reconciler = ScriptedReconciler(ControllerEnv())
    controller = controller_for(reconciler, "once")
    for name in ("a", "b", "a"):
        controller.queue.add(key(name))
    controller.start()
    await asyncio.sleep(1)
    assert [name for _, name in reconciler.calls] == ["a", "b"]
    assert metric_value("controller_runtime_reconcile_total", controller="once", result="success") == 2
    assert metric_value("controller_runtime_active_workers", controller="once") == 0
    await controller.stop(1)


@pytest.mark.requirement("design/retries", "overview/back-off")
@virtual_time
async def test_failure_is_retried_with_back_off_without_blocking() -> None:
    async def behave(request: Request) -> Result:
        if request.name == "bad":
            raise RuntimeError("broken")
        return Result()

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler, "failing")
    controller.start()
    controller.queue.add(key("bad"))
    controller.queue.add(key("good"))
    with capture_logs() as logs:
        await asyncio.sleep(1)
    assert len(reconciler.times("good")) == 1
    times = reconciler.times("bad")
    assert [round(b - a, 3) for a, b in itertools.pairwise(times)] == [0.005 * 2**n for n in range(len(times) - 1)]
    assert len(times) == 8
    assert all(entry["log_level"] == "error" and "retry_in_seconds" in entry for entry in logs)
    assert metric_value("controller_runtime_reconcile_errors_total", controller="failing") == 8
    await controller.stop(1)


@virtual_time
async def test_success_ends_the_back_off() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(*[RuntimeError()] * 5))
    controller = controller_for(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == 6
    assert controller.queue.failures(key("a")) == 0
    await controller.stop(1)


@pytest.mark.requirement("design/retries", "user/next-loop")
@virtual_time
async def test_requeue_after() -> None:
    async def behave(_: Request) -> Result:
        return Result(requeue_after=30)

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler, "again")
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(100)
    assert reconciler.times("a") == pytest.approx([0, 30, 60, 90])
    assert metric_value("controller_runtime_reconcile_total", controller="again", result="requeue_after") == 4
    await controller.stop(1)


@pytest.mark.requirement("overview/panics")
@pytest.mark.parametrize("mishap", ["cancelled", "nonsense"])
@virtual_time
async def test_reconciler_errors_never_stop_a_worker(mishap: str) -> None:
    async def behave(request: Request) -> Result:
        if request.name == "good":
            return Result()
        if mishap == "cancelled":
            raise asyncio.CancelledError
        nonsense: Any = "done"
        return nonsense

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
    controller.start()
    controller.queue.add(key("bad"))
    with capture_logs() as logs:
        await asyncio.sleep(1)
    assert len(reconciler.times("bad")) > 3
    assert logs[0]["event"] == "reconcile failed"
    controller.queue.add(key("good"))
    await asyncio.sleep(1)
    assert len(reconciler.times("good")) == 1
    await controller.stop(1)


@pytest.mark.requirement("design/workers", "overview/concurrency")
@pytest.mark.parametrize("workers", [1, 3])
@virtual_time
async def test_as_many_at_once_as_allowed(workers: int) -> None:
    most = running = 0

    async def behave(_: Request) -> Result:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(10)
        running -= 1
        return Result()

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler, f"parallel{workers}", workers=workers)
    for number in range(9):
        controller.queue.add(key(f"b{number}"))
    controller.start()
    await asyncio.sleep(5)
    assert metric_value("controller_runtime_active_workers", controller=f"parallel{workers}") == workers
    await asyncio.sleep(90)
    assert (most, len(reconciler.calls)) == (workers, 9)
    await controller.stop(1)


@virtual_time
async def test_stop_waits_for_running_reconciles_only() -> None:
    ended: list[str] = []

    async def behave(request: Request) -> Result:
        await asyncio.sleep(20)
        ended.append(request.name)
        return Result(requeue_after=1)

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
    controller.queue.add(key("a"))
    controller.queue.add(key("b"))
    controller.start()
    await asyncio.sleep(5)
    await controller.stop(30)
    assert ended == ["a"]
    assert asyncio.get_running_loop().time() == pytest.approx(20)
    await asyncio.sleep(100)
    assert len(reconciler.calls) == 1


@virtual_time
async def test_stop_cancels_reconciles_after_timeout() -> None:
    cancelled: list[str] = []

    async def behave(request: Request) -> Result:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            cancelled.append(request.name)
            raise
        return Result()

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler, workers=2)
    controller.queue.add(key("a"))
    controller.start()
    await asyncio.sleep(1)
    await controller.stop(10)
    assert cancelled == ["a"]
    assert asyncio.get_running_loop().time() == pytest.approx(11)


@virtual_time
async def test_stop_logs_uncancellable_reconcile() -> None:
    async def behave(_: Request) -> Result:
        while asyncio.get_running_loop().time() < 1000:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return Result()

    controller = controller_for(ScriptedReconciler(ControllerEnv(), behave))
    controller.queue.add(key("a"))
    controller.start()
    await asyncio.sleep(1)
    with capture_logs() as lines:
        await controller.stop(10)
    assert asyncio.get_running_loop().time() == pytest.approx(13)
    assert [(line["event"], line["name"]) for line in lines] == [("reconcile did not stop after cancellation", "a")]


@pytest.mark.parametrize("delay", [0, -1, float("nan"), float("inf"), True, False, "60", timedelta(0), timedelta(-1)])
def test_result_with_invalid_delay_raises(delay: Any) -> None:
    with pytest.raises(ValueError, match="requeue_after must be a timedelta or a number of seconds above 0"):
        Result(requeue_after=delay)


@virtual_time
async def test_requeue_after_timedelta_waits_that_long() -> None:
    async def behave(_: Request) -> Result | None:
        return Result(requeue_after=timedelta(minutes=1)) if len(reconciler.calls) == 1 else None

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(100)
    assert reconciler.times("a") == [pytest.approx(0), pytest.approx(60)]
    assert [info.result for info in controller.recent()] == ["requeue_after", "success"]
    await controller.stop(1)


@virtual_time
async def test_requeue_keeps_priority_by_default() -> None:
    priorities: list[int] = []
    results = [Result(requeue_after=1), Result(requeue_after=2), Result(requeue_after=1, priority=5), Result()]

    async def behave(_: Request) -> Result:
        info = current_reconcile()
        assert info is not None
        priorities.append(info.priority)
        if len(priorities) == 2:
            raise RuntimeError
        return results.pop(0)

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
    controller.start()
    controller.queue.add(key("a"), priority=LOW_PRIORITY)
    await asyncio.sleep(10)
    assert priorities == [LOW_PRIORITY, LOW_PRIORITY, LOW_PRIORITY, LOW_PRIORITY, 5]
    await controller.stop(1)


@pytest.mark.parametrize("swallowed", [False, True])
@virtual_time
async def test_reconcile_cancelling_its_worker_restarts_worker(swallowed: bool) -> None:
    async def behave(request: Request) -> Result:
        if request.name == "bad" and len(reconciler.times("bad")) == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if not swallowed:
                    raise
        return Result()

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
    controller.start()
    controller.queue.add(key("bad"))
    controller.queue.add(key("good"))
    await asyncio.sleep(5)
    assert reconciler.times("good") == pytest.approx([1])
    assert len(reconciler.times("bad")) == (1 if swallowed else 2)
    assert [each.request.name for each in controller.running()] == []
    await controller.stop(1)


class SlowClock(VirtualClock):
    """A slow machine: each read of the clock takes a millisecond."""

    def __init__(self) -> None:
        self.reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return super().monotonic() + self.reads / 1000


@virtual_time
async def test_busy_reconciles_yield_to_others() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(runtime=replace(virtual_runtime(), clock=SlowClock())))
    controller = controller_for(reconciler)
    for number in range(1000):
        controller.queue.add(key(f"b{number}"))
    controller.start()
    done: list[int] = []
    while len(reconciler.calls) < 1000:
        done.append(len(reconciler.calls))
        await asyncio.sleep(0)
    assert max(b - a for a, b in itertools.pairwise(done)) < 20
    await controller.stop(1)


@virtual_time
async def test_stop_can_drain_ready_keys() -> None:
    async def behave(_: Request) -> Result:
        await asyncio.sleep(1)
        return Result(requeue_after=1)

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
    for name in "abc":
        controller.queue.add(key(name))
    controller.start()
    await asyncio.sleep(0.5)
    await controller.stop(30, drain=True)
    assert [name for _, name in reconciler.calls] == ["a", "b", "c"]
    assert asyncio.get_running_loop().time() == pytest.approx(3)
