"""Metadata of reconciles in code, logs, spans and metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog

from framework_support.controller_env import (
    ControllerEnv,
    ScriptedReconciler,
    conflict,
    controller_for,
    key,
    metric_value,
    raising,
)
from framework_support.widget import widget
from steersman.cache import InformerEvent
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


@pytest.mark.requirement("overview/observability")
@virtual_time
async def test_log_lines_carry_object_and_reconcile_id() -> None:
    reconciler = ScriptedReconciler(ControllerEnv())

    async def behave(_: Request) -> Result:
        reconciler.log.warning("drifting")
        await asyncio.create_task(log_from_task())
        return Result()

    async def log_from_task() -> None:
        reconciler.log.warning("from a task")

    reconciler.behaviour = behave
    controller = controller_for(reconciler, "logged")
    controller.start()
    with rendered_logs() as lines:
        controller.queue.add(key("a"))
        controller.queue.add(key("b"))
        await asyncio.sleep(1)
    assert [(c["event"], c["controller"], c["namespace"], c["name"]) for c in lines] == [
        (event, "logged", "orders", name) for name in "ab" for event in ("drifting", "from a task")
    ]
    assert len({c["reconcile_id"] for c in lines}) == 2
    await controller.stop(1)


@virtual_time
async def test_recent_reconciles_are_bounded() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(conflict()))
    controller = controller_for(reconciler, "remembered")
    controller.start()
    controller.queue.add(
        key("a"), trigger=Trigger("for", InformerEvent(widget("a", 1, depth=1), widget("a", 2, depth=2)))
    )
    await asyncio.sleep(1)
    first, second = controller.recent()
    assert (first.result, first.errors, first.attempt) == ("error", ("Conflict",), 1)
    assert (second.result, second.errors, second.attempt) == ("success", (), 2)
    assert [str(each) for each in first.triggers] == ["Widget orders/a updated: spec.depth"]
    assert [str(each) for each in second.triggers] == ["retry after Conflict"]
    shown = json.loads(json.dumps(first.to_builtins()))
    assert shown["triggers"] == [
        {
            "reason": "updated",
            "origin": "for",
            "writer": "other",
            "kind": "Widget",
            "object": "orders/a",
            "fields": ["spec.depth"],
        }
    ]
    assert (shown["controller"], shown["name"], shown["result"]) == ("remembered", "a", "error")
    assert shown["started"].startswith("2030-01-01T00:00:00")
    for number in range(300):
        controller.queue.add(key(f"b{number}"))
    await asyncio.sleep(1)
    assert len(controller.recent()) == 256
    await controller.stop(1)


@virtual_time
async def test_current_reconcile_matches_running_list() -> None:
    async def behave(_: Request) -> Result:
        seen.append(current_reconcile())
        seen.append(await asyncio.create_task(current_in_task()))
        await asyncio.sleep(10)
        return Result(requeue_after=60)

    async def current_in_task() -> ReconcileInfo | None:
        return current_reconcile()

    seen: list[ReconcileInfo | None] = []
    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
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
async def test_debug_log_contains_triggers() -> None:
    reconciler = ScriptedReconciler(ControllerEnv())
    controller = controller_for(reconciler, "why")
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
async def test_span_wraps_each_reconcile() -> None:
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

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler, trace_span=span)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(1)
    failed = ["orders/a begins", "RuntimeError('broken')", "ends: error, None"]
    assert spans == [*failed, "orders/a begins", "ends: requeue_after, 7"]
    await controller.stop(1)


@virtual_time
async def test_failing_span_does_not_affect_reconcile() -> None:
    @contextmanager
    def span(info: ReconcileInfo) -> Generator[None, None, None]:
        if info.attempt == 1:
            raise RuntimeError("no traces today")
        yield

    reconciler = ScriptedReconciler(ControllerEnv())
    controller = controller_for(reconciler, trace_span=span)
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

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler, "slow", workers=2)
    controller.start()
    names = {"name": "slow", "controller": "slow"}
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    controller.queue.add(key("b"))
    await asyncio.sleep(5)
    assert metric_value("workqueue_unfinished_work_seconds", **names) == pytest.approx(20)
    assert metric_value("workqueue_longest_running_processor_seconds", **names) == pytest.approx(15)
    await asyncio.sleep(200)
    assert metric_value("workqueue_unfinished_work_seconds", **names) == 0
    assert metric_value("workqueue_work_duration_seconds_sum", **names) == pytest.approx(200)
    assert metric_value("controller_runtime_max_concurrent_reconciles", controller="slow") == 2
    await controller.stop(1)
