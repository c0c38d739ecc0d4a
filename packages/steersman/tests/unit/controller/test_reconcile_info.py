"""What is known of a reconcile, while it runs and afterwards: to itself, in logs, in spans and in metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog

from framework_support.buoy import buoy
from framework_support.scripted_reconciler import Scripted, conflict, controller_of, raising, sample
from framework_support.world import World, key
from steersman.cache import Change
from steersman.controller import ReconcileInfo, Request, Result, Trigger, current_reconcile
from steersman_testing import virtual_time


@contextmanager
def rendered_logs() -> Generator[list[dict[str, Any]], None, None]:
    """The log lines with what the running reconcile adds to them."""
    processors: list[Any] = structlog.get_config()["processors"]
    saved, lines = list(processors), list[dict[str, Any]]()

    def collect(_: Any, __: str, event: Any) -> Any:
        lines.append(dict(event))
        raise structlog.DropEvent

    processors.insert(processors.index(structlog.stdlib.add_log_level), collect)
    try:
        yield lines
    finally:
        processors[:] = saved


@virtual_time
async def test_log_lines_say_which_object_and_which_reconcile() -> None:
    reconciler = Scripted(World())

    async def behave(_: Request) -> Result:
        reconciler.log.warning("drifting")
        await asyncio.create_task(tell())
        return Result()

    async def tell() -> None:
        reconciler.log.warning("from a task")

    reconciler.behaviour = behave
    controller = controller_of(reconciler, "logged")
    controller.start()
    with rendered_logs() as lines:
        controller.queue.add(key("a"))
        controller.queue.add(key("b"))
        await asyncio.sleep(1)
    assert [(c["event"], c["controller"], c["namespace"], c["name"]) for c in lines] == [
        (event, "logged", "sea", name) for name in "ab" for event in ("drifting", "from a task")
    ]
    assert len({c["reconcile_id"] for c in lines}) == 2
    await controller.stop(1)


@virtual_time
async def test_what_ran_and_why_is_remembered_for_a_while() -> None:
    reconciler = Scripted(World(), raising(conflict()))
    controller = controller_of(reconciler, "remembered")
    controller.start()
    controller.queue.add(key("a"), trigger=Trigger("for", Change(buoy("a", 1, depth=1), buoy("a", 2, depth=2))))
    await asyncio.sleep(1)
    first, second = controller.recent()
    assert (first.result, first.errors, first.attempt) == ("error", ("Conflict",), 1)
    assert (second.result, second.errors, second.attempt) == ("success", (), 2)
    assert [str(each) for each in first.triggers] == ["Buoy sea/a updated: spec.depth"]
    assert [str(each) for each in second.triggers] == ["retry after Conflict"]
    shown = json.loads(json.dumps(first.to_builtins()))
    assert shown["triggers"] == [
        {"reason": "updated", "origin": "for", "kind": "Buoy", "object": "sea/a", "fields": ["spec.depth"]}
    ]
    assert (shown["controller"], shown["name"], shown["result"]) == ("remembered", "a", "error")
    assert shown["started"].startswith("2030-01-01T00:00:00")
    for number in range(300):
        controller.queue.add(key(f"b{number}"))
    await asyncio.sleep(1)
    assert len(controller.recent()) == 256
    await controller.stop(1)


@virtual_time
async def test_a_reconcile_sees_itself_and_is_seen() -> None:
    async def behave(_: Request) -> Result:
        seen.append(current_reconcile())
        seen.append(await asyncio.create_task(look()))
        await asyncio.sleep(10)
        return Result(requeue_after=60)

    async def look() -> ReconcileInfo | None:
        return current_reconcile()

    seen: list[ReconcileInfo | None] = []
    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(5)
    [info] = controller.running()
    assert seen == [info, info]
    assert (info.duration, info.result) == (None, "")
    await asyncio.sleep(10)
    assert (info.duration, info.result, controller.running()) == (pytest.approx(10), "requeue_after", ())
    await asyncio.sleep(60)
    assert [str(each) for each in controller.running()[0].triggers] == ["requeue"]
    assert current_reconcile() is None
    await controller.stop(100)


@virtual_time
async def test_debug_logs_say_why() -> None:
    reconciler = Scripted(World())
    controller = controller_of(reconciler, "why")
    former = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("debug"))
    try:
        controller.start()
    finally:
        structlog.configure(wrapper_class=former)
    with rendered_logs() as lines:
        controller.queue.add(key("a"), trigger=Trigger("alarms", None, "external"))
        await asyncio.sleep(1)
    [line] = lines
    assert (line["event"], line["name"], line["triggers"]) == ("reconciling", "a", ["external by alarms"])
    assert (line["attempt"], line["priority"]) == (1, 0)
    assert len(line["reconcile_id"]) == 16
    await controller.stop(1)


@virtual_time
async def test_a_span_goes_around_each_reconcile() -> None:
    spans: list[str] = []

    @contextmanager
    def span(info: ReconcileInfo) -> Generator[Callable[[BaseException], None], None, None]:
        spans.append(f"{info.request} begins")
        yield lambda error: spans.append(f"{error!r}")
        spans.append(f"ends: {info.result}, {info.requeue_after}")

    async def behave(_: Request) -> Result:
        if len(reconciler.calls) == 1:
            raise RuntimeError("broken")
        return Result(requeue_after=7)

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
    controller.span = span
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(1)
    failed = ["sea/a begins", "RuntimeError('broken')", "ends: error, None"]
    assert spans == [*failed, "sea/a begins", "ends: requeue_after, 7"]
    await controller.stop(1)


@virtual_time
async def test_a_span_that_fails_costs_neither_the_object_nor_the_worker() -> None:
    @contextmanager
    def span(info: ReconcileInfo) -> Generator[None, None, None]:
        if info.attempt == 1:
            raise RuntimeError("no traces today")
        yield

    reconciler = Scripted(World())
    controller = controller_of(reconciler)
    controller.span = span
    controller.start()
    for name in "ab":
        controller.queue.add(key(name))
    await asyncio.sleep(1)
    assert [name for _, name in reconciler.calls] == ["a", "b"]
    await controller.stop(1)


@virtual_time
async def test_work_in_progress_is_measured() -> None:
    async def behave(_: Request) -> Result:
        await asyncio.sleep(100)
        return Result()

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler, "slow", workers=2)
    controller.start()
    names = {"name": "slow", "controller": "slow"}
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    controller.queue.add(key("b"))
    await asyncio.sleep(5)
    assert sample("workqueue_unfinished_work_seconds", **names) == pytest.approx(20)
    assert sample("workqueue_longest_running_processor_seconds", **names) == pytest.approx(15)
    await asyncio.sleep(200)
    assert sample("workqueue_unfinished_work_seconds", **names) == 0
    assert sample("workqueue_work_duration_seconds_sum", **names) == pytest.approx(200)
    assert sample("controller_runtime_max_concurrent_reconciles", controller="slow") == 2
    await controller.stop(1)
