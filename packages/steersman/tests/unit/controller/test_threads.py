"""Synchronous reconcilers: threads, their requests and their cancellation."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from framework_support.controller_env import ControllerEnv, drain_event_loop, key, running
from framework_support.widget import Widget
from steersman.api.apply import core, meta
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap
from steersman.controller import (
    BlockingContext,
    ReconcileCancelled,
    Reconciler,
    ReconcilerContext,
    Result,
    current_reconcile,
)
from steersman.controller.threads import ReconcileThread
from steersman.errors import NotFound
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import Condition, ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing import virtual_time


def apply_config_map(ctx: BlockingContext, obj: Widget) -> Result | None:
    info = current_reconcile()
    assert info is not None
    assert threading.current_thread() is not threading.main_thread()
    with pytest.raises(NotFound):
        ctx.client.get(ConfigMap, key("absent"))
    assert ctx.client.is_served(ConfigMap)
    names = meta.ObjectMeta(name=obj.metadata.name, namespace=obj.metadata.namespace)
    ctx.client.apply(core.ConfigMap(metadata=names, data={"depth": str(obj.spec.depth)}), owner=obj)
    ctx.events.normal(obj, "Applied", "the ConfigMap is applied")
    if obj.spec.depth == 13 and info.attempt < 3:
        raise RuntimeError("unlucky")
    ready = Condition(type="Ready", status="True", reason="Applied")
    ctx.status(obj, depth=obj.spec.depth, conditions=[ready])
    return Result(requeue_after=60)


@pytest.mark.parametrize("depth", [3, 13])
@virtual_time
async def test_synchronous_function_reconciles(depth: int) -> None:
    world = ControllerEnv()
    world.create_widgets("a", "b", depth=depth)
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    controller = manager.controller(Widget).owns(ConfigMap).max_concurrent_reconciles(2).complete(apply_config_map)
    async with running(manager):
        await asyncio.sleep(150)
    for name in ("a", "b"):
        found = world.server.read(ConfigMap, key(name))
        assert found is not None
        assert found.data == {"depth": str(depth)}
        assert world.read_widget(name).status.depth == depth
    assert [info.result for info in controller.recent()].count("requeue_after") >= 6


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


@virtual_time
async def test_decorated_coroutine_function_needs_no_thread() -> None:
    reconciled: list[threading.Thread] = []

    @traced
    async def reconcile(ctx: ReconcilerContext, obj: Widget) -> None:
        reconciled.append(threading.current_thread())

    world = ControllerEnv()
    world.create_widgets("a")
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    manager.controller(Widget).complete(reconcile)
    async with running(manager):
        await asyncio.sleep(1)
    assert reconciled == [threading.main_thread()]


@virtual_time
async def test_timeout_rejects_later_calls_of_the_thread() -> None:
    errors: list[Exception] = []

    def reconcile(ctx: BlockingContext, obj: Widget) -> None:
        for _ in range(2):
            try:
                ctx.client.run(asyncio.sleep(3600))
            except ReconcileCancelled as error:
                errors.append(error)

    world = ControllerEnv()
    world.create_widgets("a")
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    controller = manager.controller(Widget).reconcile_timeout(10).complete(reconcile)
    async with running(manager):
        await asyncio.sleep(11)
        assert controller.recent()[0].errors == ("ReconcileTimeout",)
        assert len(errors) == 2


@virtual_time
async def test_blocking_call_on_the_event_loop_raises() -> None:
    def reconcile(ctx: BlockingContext, obj: Widget) -> None:
        # The condition runs on the event loop, which a blocking call would stop forever.
        ctx.client.list(Widget, where=lambda found: ctx.client.get_or_none(ConfigMap, found.key) is None)

    world = ControllerEnv()
    world.create_widgets("a")
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    controller = manager.controller(Widget).complete(reconcile)
    async with running(manager):
        await asyncio.sleep(0.001)
        assert controller.recent()[0].errors == ("RuntimeError",)


class Work:
    """A function that waits outside of the event loop."""

    def __init__(self) -> None:
        self.thread = ReconcileThread(Runtime())
        self.started = asyncio.Event()
        self.release = threading.Event()
        self.errors: list[str] = []

    def __call__(self) -> str:
        self.thread.call(self._start())
        self.release.wait(30)
        for _ in range(2):
            try:
                self.thread.call(self._start())
            except ReconcileCancelled as error:
                self.errors.append(str(error))
        return "done"

    async def _start(self) -> None:
        self.started.set()


async def test_cancelled_reconcile_waits_for_its_thread() -> None:
    work = Work()
    task = asyncio.create_task(work.thread.run(work))
    await work.started.wait()
    task.cancel()
    await drain_event_loop()
    assert not task.done()
    assert not work.thread.ended.is_set()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.thread.ended.is_set()
    assert work.errors == ["the reconcile was cancelled; return from the function"] * 2


async def test_second_cancellation_abandons_thread() -> None:
    work = Work()
    task = asyncio.create_task(work.thread.run(work))
    await work.started.wait()
    task.cancel()
    await drain_event_loop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not work.thread.ended.is_set()
    work.release.set()
    await asyncio.wait_for(work.thread.ended.wait(), 30)
    assert len(work.errors) == 2


async def test_uncancelled_thread_returns_its_result() -> None:
    work = Work()
    work.release.set()
    assert await work.thread.run(work) == "done"
    assert work.errors == []
    with pytest.raises(ReconcileCancelled):
        work.thread.call(asyncio.sleep(0))


async def cancelled_inside() -> None:
    raise asyncio.CancelledError


async def test_inner_cancellation_does_not_cancel_reconcile() -> None:
    work = Work()
    errors: list[BaseException] = []

    def reconcile() -> str:
        try:
            work.thread.call(cancelled_inside())
        except asyncio.CancelledError as error:
            errors.append(error)
        return work()

    task = asyncio.create_task(work.thread.run(reconcile))
    await work.started.wait()
    assert len(errors) == 1
    # The first cancellation still waits for the thread.
    task.cancel()
    await drain_event_loop()
    assert not task.done()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.thread.ended.is_set()


async def test_thread_that_cannot_start_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    work = Work()
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await work.thread.run(work)
    assert work.thread.ended.is_set()


class EndsLate(Reconciler[Widget]):
    """Has work that ends 100 seconds after a stop."""

    async def reconcile(self, obj: Widget) -> Result | None:
        return None

    async def wait_closed(self) -> None:
        await self.runtime.clock.sleep(100)


@virtual_time
async def test_leadership_is_released_after_threads_have_ended() -> None:
    world = ControllerEnv()
    options = ManagerOptions(leader_election=LeaderElection(name="tester", namespace="orders"))
    manager = Manager(world.server, options, world.runtime)
    manager.controller(Widget).complete(EndsLate)
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    manager.stop()
    await asyncio.sleep(90)
    lease = world.server.read(Lease, ObjectKey("orders", "tester"))
    assert lease is not None
    assert lease.spec.holder_identity
    await task
    lease = world.server.read(Lease, ObjectKey("orders", "tester"))
    assert lease is not None
    assert not lease.spec.holder_identity
