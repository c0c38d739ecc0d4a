"""Outcomes of reconciles: retries, terminal errors, status updates."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import (
    Behaviour,
    ControllerEnv,
    ScriptedReconciler,
    conflict,
    controller_for,
    key,
    metric_value,
    raising,
)
from steersman.controller import ReconcileOutcome, ReconcileTimeout, Request, Result
from steersman.errors import ApiStatus, ConnectionFailed, NotFound, StatusDetails, TerminalError
from steersman_testing import virtual_time


class StatusReconciler(ScriptedReconciler):
    """A scripted ``update_status`` that records its calls."""

    def __init__(self, world: ControllerEnv, behaviour: Behaviour | None = None, *errors: BaseException) -> None:
        super().__init__(world, behaviour)
        self.errors = list(errors)
        self.outcomes: list[ReconcileOutcome] = []

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        self.outcomes.append(outcome)
        if self.errors:
            raise self.errors.pop(0)


def not_found(name: str = "a", kind: str = "widgets", group: str = "shop.example.com") -> NotFound:
    """The API server's response for a missing object."""
    return NotFound(ApiStatus("scripted", "NotFound", 404, details=StatusDetails(name=name, kind=kind, group=group)))


@pytest.mark.requirement("design/terminal-errors")
@virtual_time
async def test_terminal_error_is_not_retried() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(TerminalError("no such engine"), TerminalError("again")))
    controller = controller_for(reconciler, "terminal")
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10_000)
    assert len(reconciler.calls) == 1
    controller.queue.add(key("a"))
    await asyncio.sleep(10_000)
    assert len(reconciler.calls) == 2
    assert metric_value("controller_runtime_terminal_reconcile_errors_total", controller="terminal") == 2
    await controller.stop(1)


@pytest.mark.requirement("design/deleted-object")
@virtual_time
async def test_not_found_of_a_deleted_object_is_quiet() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(not_found()))
    controller = controller_for(reconciler, exists=False)
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1000)
    assert (len(reconciler.calls), logs) == (1, [])
    await controller.stop(1)


@pytest.mark.parametrize(
    "error",
    [
        not_found("b"),
        not_found(kind="configmaps", group=""),
        not_found(group="lake.example.com"),
        NotFound(ApiStatus("the server could not find the requested resource", "NotFound", 404)),
    ],
)
@virtual_time
async def test_not_found_of_other_object_is_a_failure(error: NotFound) -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(error))
    controller = controller_for(reconciler, exists=False)
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    assert [entry["event"] for entry in logs] == ["reconcile failed"]
    await controller.stop(1)


@virtual_time
async def test_not_found_of_cached_object_is_retried() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(not_found()))
    controller = controller_for(reconciler, exists=True)
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    assert [entry["log_level"] for entry in logs] == ["info"]
    await controller.stop(1)


@pytest.mark.requirement("programming/conflict-retry")
@virtual_time
async def test_conflict_is_retried_at_info_level() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(conflict()))
    controller = controller_for(reconciler)
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    assert [entry["log_level"] for entry in logs] == ["info"]
    await controller.stop(1)


def wrapped(error: BaseException) -> BaseException:
    outer = RuntimeError("outer")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (wrapped(TerminalError("no such engine")), True),
        (wrapped(wrapped(TerminalError("no such engine"))), True),
        (ExceptionGroup("both", [TerminalError("one"), TerminalError("two")]), True),
        (wrapped(ExceptionGroup("both", [TerminalError("one"), TerminalError("two")])), True),
        (ExceptionGroup("both", [TerminalError("one"), not_found("a")]), True),
        (ExceptionGroup("both", [TerminalError("one"), ConnectionFailed("lost")]), False),
        (wrapped(ExceptionGroup("both", [TerminalError("one"), ConnectionFailed("lost")])), False),
        (wrapped(RuntimeError()), False),
    ],
)
@virtual_time
async def test_exception_group_is_terminal_only_if_all_members_are(error: BaseException, final: bool) -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(error))
    controller = controller_for(reconciler, exists=False)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == (1 if final else 2)
    await controller.stop(1)


@virtual_time
async def test_error_while_handling_terminal_error_is_retried() -> None:
    async def behave(_: Request) -> Result:
        if len(reconciler.calls) > 1:
            return Result()
        try:
            raise TerminalError("no such engine")
        except TerminalError:
            raise ConnectionFailed("lost")  # noqa: B904

    reconciler = ScriptedReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == 2
    await controller.stop(1)


@virtual_time
async def test_update_status_runs_after_success_and_failure() -> None:
    error = RuntimeError("broken")
    reconciler = StatusReconciler(ControllerEnv(), raising(error))
    controller = controller_for(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(1)
    assert reconciler.outcomes == [ReconcileOutcome(error=error), ReconcileOutcome(result=Result())]
    await controller.stop(1)


@virtual_time
async def test_neither_error_hides_the_other() -> None:
    reconciler = StatusReconciler(ControllerEnv(), raising(RuntimeError("no volume")), ConnectionFailed("no answer"))
    controller = controller_for(reconciler, "both")
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    [entry] = logs
    assert entry["error"] == "RuntimeError: no volume; ConnectionFailed: no answer"
    assert [str(each) for each in entry["exc_info"].exceptions] == ["no volume", "no answer"]
    assert controller.recent()[0].errors == ("RuntimeError", "ConnectionFailed")
    assert metric_value("controller_runtime_reconcile_errors_total", controller="both") == 1
    assert metric_value("steersman_status_update_errors_total", controller="both") == 1
    await controller.stop(1)


@pytest.mark.parametrize(
    ("reconcile", "status", "calls"),
    [
        (None, ConnectionFailed("lost"), 2),
        (None, conflict(), 2),
        (None, TerminalError("no such status"), 1),
        (None, not_found("a"), 1),
        (TerminalError("no such engine"), ConnectionFailed("lost"), 2),
        (ConnectionFailed("lost"), TerminalError("no such status"), 2),
        (TerminalError("no such engine"), TerminalError("no such status"), 1),
        (TerminalError("no such engine"), not_found("a"), 1),
    ],
)
@virtual_time
async def test_exception_group_is_retried_if_one_member_is(
    reconcile: BaseException | None, status: BaseException, calls: int
) -> None:
    reconciler = StatusReconciler(ControllerEnv(), raising(*filter(None, [reconcile])), status)
    controller = controller_for(reconciler, exists=False)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == calls
    await controller.stop(1)


@virtual_time
async def test_deleted_object_gets_no_error_status() -> None:
    reconciler = StatusReconciler(ControllerEnv(), raising(not_found("a")))
    controller = controller_for(reconciler, exists=False)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert (len(reconciler.calls), reconciler.outcomes) == (1, [])
    await controller.stop(1)


@virtual_time
async def test_reconcile_timeout_is_cancelled_and_retried() -> None:
    async def behave(request: Request) -> Result:
        if request.name == "slow" and len(reconciler.times("slow")) == 1:
            await asyncio.sleep(1e6)
        return Result()

    reconciler = StatusReconciler(ControllerEnv(), behave)
    controller = controller_for(reconciler, "timed", timeout=30)
    controller.start()
    controller.queue.add(key("slow"))
    controller.queue.add(key("quick"))
    await asyncio.sleep(100)
    assert reconciler.times("slow") == pytest.approx([0, 30.005])
    assert reconciler.times("quick") == pytest.approx([30])
    assert isinstance(reconciler.outcomes[0].error, ReconcileTimeout)
    assert metric_value("controller_runtime_reconcile_timeouts_total", controller="timed") == 1
    assert metric_value("controller_runtime_reconcile_panics_total", controller="timed") == 0
    await controller.stop(1)


@virtual_time
async def test_reconciler_timeout_error_is_not_a_reconcile_timeout() -> None:
    reconciler = ScriptedReconciler(ControllerEnv(), raising(TimeoutError("a database did not answer")))
    controller = controller_for(reconciler, "untimed", timeout=30)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(100)
    assert len(reconciler.calls) == 2
    assert metric_value("controller_runtime_reconcile_timeouts_total", controller="untimed") == 0
    await controller.stop(1)


@pytest.mark.requirement("overview/panics")
@pytest.mark.parametrize(
    ("error", "panics"),
    [
        (AttributeError("'NoneType' object has no attribute 'spec'"), 1),
        (IndexError(), 1),
        (AssertionError(), 1),
        (SystemExit(1), 1),
        (asyncio.CancelledError(), 1),
        (ExceptionGroup("both", [RuntimeError(), TypeError()]), 1),
        (RuntimeError(), 0),
        (ConnectionFailed("lost"), 0),
    ],
)
@virtual_time
async def test_bugs_are_counted_and_cost_one_object_one_reconcile(error: BaseException, panics: int) -> None:
    name = f"panic {error!r}"
    reconciler = ScriptedReconciler(ControllerEnv(), raising(error))
    controller = controller_for(reconciler, name)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    assert metric_value("controller_runtime_reconcile_panics_total", controller=name) == panics
    await controller.stop(1)
