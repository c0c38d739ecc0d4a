"""Requests from other threads and from timers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import ControllerEnv, eventually, key
from framework_support.widget import Widget, widget
from steersman.controller import (
    LOW_PRIORITY,
    NORMAL_PRIORITY,
    Channel,
    Controller,
    ControllerSpec,
    Request,
    RequestReconciler,
    Result,
    Source,
    Ticker,
    current_reconcile,
)
from steersman.controller.sources import Enqueue
from steersman.observability import metrics
from steersman.observability.runtime import Runtime
from steersman_testing import virtual_time


class RecordingReconciler(RequestReconciler[Widget]):
    """Records the time, key and trigger of each run."""

    def __init__(self, world: ControllerEnv) -> None:
        super().__init__(world.context())
        self.calls: list[tuple[float, str, str]] = []

    async def reconcile(self, request: Request) -> Result:
        info = current_reconcile()
        assert info is not None
        why = ", ".join(str(trigger) for trigger in info.triggers)
        self.calls.append((self.runtime.clock.monotonic(), request.name, why))
        return Result()


class ScriptedSource(Source):
    """A source made for a test."""

    def __init__(self, behave: Callable[[Enqueue], None], name: str = "own") -> None:
        self._behave = behave
        self._name = name
        self.runs: list[float] = []

    @property
    def name(self) -> str:
        return self._name

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        self.runs.append(runtime.clock.monotonic())
        self._behave(enqueue)


def controller_with(
    *sources: Source, world: ControllerEnv | None = None, name: str = "fed"
) -> tuple[Controller, RecordingReconciler]:
    reconciler = RecordingReconciler(world or ControllerEnv())
    spec = ControllerSpec(
        name=name,
        resource=Widget.api_resource,
        get_cached=lambda request: widget(request.name),
        sources=sources,
    )
    return Controller(spec, reconciler, runtime=reconciler.runtime), reconciler


@virtual_time
async def test_channel_push_is_reconciled_with_source_name() -> None:
    channel = Channel("alarms")
    assert channel.enqueue(key("early"))
    controller, reconciler = controller_with(channel)
    controller.start()
    await asyncio.sleep(10)
    for name in ("a", "b", "a"):
        assert channel.enqueue(key(name))
    await asyncio.sleep(10)
    assert reconciler.calls == [
        (0, "early", "external by alarms"),
        (10, "a", "external by alarms"),
        (10, "b", "external by alarms"),
    ]
    await controller.stop(1)


@virtual_time
async def test_channel_is_bounded_and_deduplicates() -> None:
    channel = Channel(capacity=2)
    pushed = [channel.enqueue(key(name)) for name in ("a", "a", "b", "c", "b")]
    assert pushed == [True, True, True, False, True]
    controller, reconciler = controller_with(channel)
    controller.start()
    await asyncio.sleep(1)
    assert [name for _, name, _ in reconciler.calls] == ["a", "b"]
    assert channel.enqueue(key("c"))
    await asyncio.sleep(1)
    assert [name for _, name, _ in reconciler.calls] == ["a", "b", "c"]
    await controller.stop(1)


@virtual_time
async def test_priorities_of_a_channel() -> None:
    channel = Channel()
    for name, priority in (("a", LOW_PRIORITY), ("b", NORMAL_PRIORITY), ("c", LOW_PRIORITY), ("c", 5)):
        channel.enqueue(key(name), priority=priority)
    controller, reconciler = controller_with(channel)
    controller.start()
    await asyncio.sleep(1)
    assert [name for _, name, _ in reconciler.calls] == ["c", "b", "a"]
    await controller.stop(1)


async def test_threads_may_push() -> None:
    channel = Channel()
    controller, reconciler = controller_with(channel, world=ControllerEnv(runtime=Runtime()))
    controller.start()
    names = {f"b{number}" for number in range(200)}

    def enqueue_all(some: list[str]) -> None:
        for name in some:
            channel.enqueue(key(name))

    ordered = sorted(names)
    threads = [threading.Thread(target=enqueue_all, args=(ordered[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    await eventually(lambda: {name for _, name, _ in reconciler.calls} == names)
    for thread in threads:
        thread.join()
    await controller.stop(1)
    assert channel.enqueue(key("late"))


@virtual_time
async def test_channel_of_two_controllers_is_rejected() -> None:
    channel = Channel("shared")
    first, _ = controller_with(channel, name="first")
    second, _ = controller_with(channel, name="second")
    first.start()
    second.start()
    with capture_logs() as logs:
        await asyncio.sleep(0.5)
    [entry] = logs
    assert (entry["event"], entry["controller"]) == ("source failed", "second")
    assert "create one for each" in str(entry["exc_info"])
    await first.stop(1)
    await second.stop(1)


@pytest.mark.parametrize("awaited", [False, True])
@virtual_time
async def test_ticker_enqueues_keys_periodically(awaited: bool) -> None:
    async def later() -> list[Request]:
        await asyncio.sleep(1)
        return [key("a"), key("b")]

    every = Ticker(300, later if awaited else lambda: [key("a"), key("b")], jitter=0, name="tide")
    controller, reconciler = controller_with(every)
    controller.start()
    await asyncio.sleep(1000)
    step = 301 if awaited else 300
    assert reconciler.calls == [
        (pytest.approx(step * turn), name, "external by tide") for turn in (1, 2, 3) for name in ("a", "b")
    ]
    await controller.stop(1)


@virtual_time
async def test_interval_source_has_ten_percent_jitter() -> None:
    controller, reconciler = controller_with(Ticker(100, lambda: [key("a")]))
    controller.start()
    await asyncio.sleep(10_000)
    times = [moment for moment, _, _ in reconciler.calls]
    pauses = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    assert min(pauses) >= 100
    assert max(pauses) <= 110
    assert len({round(pause, 3) for pause in pauses}) > 10
    await controller.stop(1)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_ticker_without_interval_is_rejected(seconds: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Ticker(seconds, list)


@virtual_time
async def test_failing_source_is_restarted_without_blocking() -> None:
    def fail(enqueue: Enqueue) -> None:
        enqueue(key("a"))
        raise RuntimeError("no connection")

    failing, healthy = ScriptedSource(fail, "broken"), Ticker(10, lambda: [key("b")], jitter=0)
    controller, reconciler = controller_with(failing, healthy, name="failing source")
    controller.start()
    with capture_logs() as logs:
        await asyncio.sleep(199)
    assert failing.runs == pytest.approx([0, 1, 3, 7, 15, 31, 63, 123, 183])
    assert len([name for _, name, _ in reconciler.calls if name == "b"]) == 19
    assert {entry["source"] for entry in logs} == {"broken"}
    value = metrics.registry.get_sample_value("steersman_source_restarts_total", {"controller": "failing source"})
    assert value == 9
    await controller.stop(1)


@virtual_time
async def test_finished_source_is_not_restarted() -> None:
    once = ScriptedSource(lambda push: push(key("a")))
    controller, reconciler = controller_with(once)
    controller.start()
    await asyncio.sleep(1000)
    assert (once.runs, len(reconciler.calls)) == ([0], 1)
    await controller.stop(1)


@virtual_time
async def test_sources_stop_with_their_controller() -> None:
    controller, reconciler = controller_with(Ticker(10, lambda: [key("a")], jitter=0), Channel())
    controller.start()
    await asyncio.sleep(15)
    await controller.stop(1)
    await asyncio.sleep(100)
    assert len(reconciler.calls) == 1
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
