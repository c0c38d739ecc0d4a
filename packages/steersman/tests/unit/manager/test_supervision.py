"""Background tasks end only if their owner cancels them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import ControllerEnv, drain_event_loop, key, running
from framework_support.widget import Widget
from steersman.api.events_v1 import Event
from steersman.cache import InformerOptions
from steersman.controller import ReconcilerContext, Request, RequestReconciler, Result, Source
from steersman.controller.sources import Enqueue
from steersman.manager import Manager, ManagerOptions
from steersman.observability.runtime import Runtime
from steersman_testing import virtual_time


class BadText(Exception):
    """An exception without a message."""

    def __str__(self) -> str:
        raise BadText


ENDS: dict[str, type[BaseException]] = {
    "Exception": ValueError,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "BadText": BadText,
}
ends = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


class FailsOnce:
    """Raises an exception at the first call."""

    def __init__(self, end: type[BaseException]) -> None:
        self._end = end
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1:
            raise self._end


class Recorder(RequestReconciler[Widget]):
    """Records the names that it reconciles, and fails at the first one."""

    def __init__(self, context: ReconcilerContext, fail: Callable[[], None] = lambda: None) -> None:
        super().__init__(context)
        self.names: list[str] = []
        self._fail = fail

    async def reconcile(self, request: Request) -> Result:
        self._fail()
        self.names.append(request.name)
        return Result()


def new_manager(world: ControllerEnv) -> Manager:
    return Manager(world.server, ManagerOptions(name="orders-operator"), world.runtime)


@ends
@virtual_time
async def test_worker_outlives_any_end_of_a_reconcile(end: type[BaseException]) -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b")
    manager, fail = new_manager(world), FailsOnce(end)
    reconcilers: list[Recorder] = []

    def create(context: ReconcilerContext) -> Recorder:
        reconcilers.append(Recorder(context, fail))
        return reconcilers[-1]

    manager.controller(Widget).max_concurrent_reconciles(1).complete(create)
    with capture_logs() as logs:
        async with running(manager):
            await asyncio.sleep(60)
    assert sorted(reconcilers[0].names) == ["a", "b"]
    assert any("error" in entry for entry in logs)


@pytest.mark.parametrize("callback", ["subscriber", "transform", "index function"])
@ends
@virtual_time
async def test_cache_outlives_any_end_of_a_callback(end: type[BaseException], callback: str) -> None:
    world = ControllerEnv()
    fail = FailsOnce(end)

    def call(obj: Widget) -> Widget:
        fail()
        return obj

    if callback == "transform":
        world.cache.configure(Widget, InformerOptions(transform=call))
    informer = world.cache.informer(Widget)
    if callback == "subscriber":
        informer.subscribe(lambda event: fail())
    elif callback == "index function":
        informer.store.add_index("name", lambda obj: (call(obj).metadata.name,))
    seen: list[str] = []
    informer.subscribe(lambda event: seen.append(event.object.metadata.name))
    with capture_logs() as logs:
        world.cache.start()
        world.create_widgets("a")
        await asyncio.sleep(5)
        world.create_widgets("b")
        await asyncio.sleep(5)
    await world.cache.stop()
    assert seen == ["a", "b"]
    assert [entry["event"].partition(":")[0] for entry in logs] == [f"{callback} failed"]


async def returns() -> None:
    """End without an exception."""


@pytest.mark.parametrize("end", [*ENDS.values(), None], ids=[*ENDS, "return"])
@virtual_time
async def test_ended_reflector_is_restarted(end: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerEnv()
    reflector = world.cache.informer(Widget).reflectors[0]
    run: Callable[[], Coroutine[Any, Any, None]] = reflector.run
    calls: list[int] = []

    async def fail_once() -> None:
        calls.append(1)
        if len(calls) > 1:
            await run()
        elif end is not None:
            raise end

    monkeypatch.setattr(reflector, "run", fail_once)
    with capture_logs() as logs:
        world.cache.start()
        world.create_widgets("a")
        await asyncio.sleep(5)
        assert world.cache.has_synced
        await world.cache.stop()
    assert [(entry["event"], entry["task"]) for entry in logs] == [
        ("task ended unexpectedly, restarting it", "reflector Widget")
    ]


@ends
@virtual_time
async def test_source_outlives_any_end(end: type[BaseException]) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    fail = FailsOnce(end)

    class Failing(Source):
        @property
        def name(self) -> str:
            return "failing"

        async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
            fail()
            enqueue(key("from-source"))
            await asyncio.Event().wait()

    manager = new_manager(world)
    recorders: list[Recorder] = []
    manager.controller(Widget).source(Failing()).complete(
        lambda context: recorders.append(Recorder(context)) or recorders[-1]
    )
    with capture_logs() as logs:
        async with running(manager):
            await asyncio.sleep(60)
    assert "from-source" in recorders[0].names
    assert "source failed" in [entry["event"] for entry in logs]


@ends
@virtual_time
async def test_failed_runnable_stops_the_manager(end: type[BaseException]) -> None:
    manager = new_manager(ControllerEnv())

    async def fail() -> None:
        raise end

    manager.add(fail, name="sync")
    with capture_logs() as logs, pytest.raises(ValueError if end is ValueError else Exception):
        await asyncio.wait_for(manager.run(), 60)
    assert "runnable failed" in [entry["event"] for entry in logs]


@ends
@virtual_time
async def test_event_writer_outlives_any_end(end: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    manager, fail = new_manager(world), FailsOnce(end)
    context: list[ReconcilerContext] = []
    manager.controller(Widget).complete(lambda found: context.append(found) or Recorder(found))
    create = context[0].events._create  # pyright: ignore[reportPrivateUsage]

    async def fail_once(pending: Any) -> Any:
        fail()
        return await create(pending)

    monkeypatch.setattr(context[0].events, "_create", fail_once)
    async with running(manager):
        for reason in ("First", "Second"):
            context[0].events.normal(world.read_widget("a"), reason, "note")
            await asyncio.sleep(5)
    written = await world.client.list(Event)
    assert [event.reason for event in written.items] == ["Second"]


@virtual_time
async def test_manager_cancelled_again_and_again_shuts_down() -> None:
    world = ControllerEnv()
    manager = new_manager(world)
    manager.controller(Widget).complete(Recorder)
    before = asyncio.all_tasks()
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    await drain_event_loop()
    assert asyncio.all_tasks() - before == set()
