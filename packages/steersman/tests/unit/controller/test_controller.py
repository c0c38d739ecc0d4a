"""The worker loop: one object's misfortune is its own, and stopping is orderly."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from framework_support.scripted_reconciler import Scripted, controller_of, raising, sample
from framework_support.world import World, key
from steersman.controller import LOW, Request, Result, current_reconcile
from steersman_testing import virtual_runtime, virtual_time
from steersman_testing.virtual_clock import VirtualClock


@virtual_time
async def test_each_object_is_reconciled_once() -> None:
    reconciler = Scripted(World())
    controller = controller_of(reconciler, "once")
    for name in ("a", "b", "a"):
        controller.queue.add(key(name))
    controller.start()
    await asyncio.sleep(1)
    assert [name for _, name in reconciler.calls] == ["a", "b"]
    assert sample("controller_runtime_reconcile_total", controller="once", result="success") == 2
    assert sample("controller_runtime_active_workers", controller="once") == 0
    await controller.stop(1)


@virtual_time
async def test_a_failure_is_retried_with_growing_pauses_and_hinders_nobody() -> None:
    async def behave(request: Request) -> Result:
        if request.name == "bad":
            raise RuntimeError("broken")
        return Result()

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler, "failing")
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
    assert sample("controller_runtime_reconcile_errors_total", controller="failing") == 8
    await controller.stop(1)


@virtual_time
async def test_success_ends_the_back_off() -> None:
    reconciler = Scripted(World(), raising(*[RuntimeError()] * 5))
    controller = controller_of(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == 6
    assert controller.queue.failures(key("a")) == 0
    await controller.stop(1)


@virtual_time
async def test_requeue_after() -> None:
    async def behave(_: Request) -> Result:
        return Result(requeue_after=30)

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler, "again")
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(100)
    assert reconciler.times("a") == pytest.approx([0, 30, 60, 90])
    assert sample("controller_runtime_reconcile_total", controller="again", result="requeue_after") == 4
    await controller.stop(1)


@pytest.mark.parametrize("mishap", ["cancelled", "nonsense"])
@virtual_time
async def test_no_mishap_of_a_reconciler_costs_a_worker(mishap: str) -> None:
    async def behave(request: Request) -> Result:
        if request.name == "good":
            return Result()
        if mishap == "cancelled":
            raise asyncio.CancelledError
        nothing: Any = None
        return nothing

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
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

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler, f"parallel{workers}", workers=workers)
    for number in range(9):
        controller.queue.add(key(f"b{number}"))
    controller.start()
    await asyncio.sleep(5)
    assert sample("controller_runtime_active_workers", controller=f"parallel{workers}") == workers
    await asyncio.sleep(90)
    assert (most, len(reconciler.calls)) == (workers, 9)
    await controller.stop(1)


@virtual_time
async def test_stopping_lets_running_reconciles_end_and_begins_no_others() -> None:
    ended: list[str] = []

    async def behave(request: Request) -> Result:
        await asyncio.sleep(20)
        ended.append(request.name)
        return Result(requeue_after=1)

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
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
async def test_stopping_does_not_wait_for_ever() -> None:
    cancelled: list[str] = []

    async def behave(request: Request) -> Result:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            cancelled.append(request.name)
            raise
        return Result()

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler, workers=2)
    controller.queue.add(key("a"))
    controller.start()
    await asyncio.sleep(1)
    await controller.stop(10)
    assert cancelled == ["a"]
    assert asyncio.get_running_loop().time() == pytest.approx(11)


@virtual_time
async def test_stopping_does_not_wait_for_what_cannot_be_cancelled() -> None:
    async def behave(_: Request) -> Result:
        while asyncio.get_running_loop().time() < 1000:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return Result()

    controller = controller_of(Scripted(World(), behave))
    controller.queue.add(key("a"))
    controller.start()
    await asyncio.sleep(1)
    with capture_logs() as lines:
        await controller.stop(10)
    assert asyncio.get_running_loop().time() == pytest.approx(13)
    assert [(line["event"], line["name"]) for line in lines] == [
        ("a reconcile does not end when it is cancelled", "a")
    ]


@virtual_time
async def test_requeue_is_a_retry_that_is_no_error() -> None:
    async def behave(_: Request) -> Result:
        return Result(requeue=len(reconciler.calls) < 5)

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler, "requeue")
    controller.start()
    controller.queue.add(key("a"))
    with capture_logs() as logs:
        await asyncio.sleep(10)
    times = reconciler.times("a")
    assert [round(b - a, 3) for a, b in itertools.pairwise(times)] == [0.005, 0.01, 0.02, 0.04]
    assert sample("controller_runtime_reconcile_total", controller="requeue", result="requeue") == 4
    assert sample("controller_runtime_reconcile_total", controller="requeue", result="success") == 1
    assert sample("controller_runtime_reconcile_errors_total", controller="requeue") == 0
    assert (controller.queue.failures(key("a")), logs) == (0, [])
    await controller.stop(1)


@virtual_time
async def test_what_follows_has_the_priority_of_what_it_follows_unless_told() -> None:
    priorities: list[int] = []
    results = [Result(requeue_after=1), Result(requeue=True), Result(requeue_after=1, priority=5), Result()]

    async def behave(_: Request) -> Result:
        info = current_reconcile()
        assert info is not None
        priorities.append(info.priority)
        if len(priorities) == 2:
            raise RuntimeError
        return results.pop(0)

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
    controller.start()
    controller.queue.add(key("a"), priority=LOW)
    await asyncio.sleep(10)
    assert priorities == [LOW, LOW, LOW, LOW, 5]
    await controller.stop(1)


@pytest.mark.parametrize("swallowed", [False, True])
@virtual_time
async def test_a_reconcile_that_cancels_its_own_worker_costs_it_a_second(swallowed: bool) -> None:
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

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
    controller.start()
    controller.queue.add(key("bad"))
    controller.queue.add(key("good"))
    await asyncio.sleep(5)
    assert reconciler.times("good") == pytest.approx([1])
    assert len(reconciler.times("bad")) == (1 if swallowed else 2)
    assert [each.request.name for each in controller.running()] == []
    await controller.stop(1)


class Ticking(VirtualClock):
    """Each look at the clock takes a millisecond, as if the machine were slow."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic() + self.looks / 1000


@virtual_time
async def test_reconciles_that_never_wait_let_others_run() -> None:
    reconciler = Scripted(World(runtime=replace(virtual_runtime(), clock=Ticking())))
    controller = controller_of(reconciler)
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
async def test_stopping_can_drain_what_is_ready() -> None:
    async def behave(_: Request) -> Result:
        await asyncio.sleep(1)
        return Result(requeue_after=1)

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
    for name in "abc":
        controller.queue.add(key(name))
    controller.start()
    await asyncio.sleep(0.5)
    await controller.stop(30, drain=True)
    assert [name for _, name in reconciler.calls] == ["a", "b", "c"]
    assert asyncio.get_running_loop().time() == pytest.approx(3)
