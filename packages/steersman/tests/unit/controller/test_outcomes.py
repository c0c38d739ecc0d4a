"""What comes of a reconcile: errors are tried again or wait for a change, and a status is reported."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from framework_support.scripted_reconciler import Behaviour, Scripted, conflict, controller_of, raising, sample
from framework_support.world import World, key
from steersman.controller import Outcome, ReconcileTimeout, Request, Result
from steersman.errors import ConnectionFailed, NotFound, Status, StatusDetails, TerminalError
from steersman_testing import virtual_time


class Reporting(Scripted):
    """Reports as it is told, and remembers what about."""

    def __init__(self, world: World, behaviour: Behaviour | None = None, *errors: BaseException) -> None:
        super().__init__(world, behaviour)
        self.errors = list(errors)
        self.reports: list[Outcome] = []

    async def update_status(self, request: Request, outcome: Outcome) -> None:
        self.reports.append(outcome)
        if self.errors:
            raise self.errors.pop(0)


def missing(name: str = "a", kind: str = "buoys", group: str = "sea.example.com") -> NotFound:
    """As the API server answers when there is no such object."""
    return NotFound(Status("scripted", "NotFound", 404, details=StatusDetails(name=name, kind=kind, group=group)))


@virtual_time
async def test_a_terminal_error_waits_for_a_change() -> None:
    reconciler = Scripted(World(), raising(TerminalError("no such engine"), TerminalError("again")))
    controller = controller_of(reconciler, "terminal")
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10_000)
    assert len(reconciler.calls) == 1
    controller.queue.add(key("a"))
    await asyncio.sleep(10_000)
    assert len(reconciler.calls) == 2
    assert sample("controller_runtime_terminal_reconcile_errors_total", controller="terminal") == 2
    await controller.stop(1)


@virtual_time
async def test_not_found_of_a_deleted_object_is_quiet() -> None:
    reconciler = Scripted(World(), raising(missing()))
    controller = controller_of(reconciler, exists=False)
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1000)
    assert (len(reconciler.calls), logs) == (1, [])
    await controller.stop(1)


@pytest.mark.parametrize(
    "error",
    [
        missing("b"),
        missing(kind="configmaps", group=""),
        missing(group="lake.example.com"),
        NotFound(Status("the server could not find the requested resource", "NotFound", 404)),
    ],
)
@virtual_time
async def test_not_found_of_something_else_is_a_failure_even_of_an_object_that_is_gone(error: NotFound) -> None:
    reconciler = Scripted(World(), raising(error))
    controller = controller_of(reconciler, exists=False)
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    assert [entry["event"] for entry in logs] == ["reconcile failed"]
    await controller.stop(1)


@virtual_time
async def test_not_found_of_an_object_that_the_cache_still_holds_is_looked_at_again() -> None:
    reconciler = Scripted(World(), raising(missing()))
    controller = controller_of(reconciler, exists=True)
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    assert [entry["log_level"] for entry in logs] == ["info"]
    await controller.stop(1)


@virtual_time
async def test_a_conflict_is_tried_again_without_alarm() -> None:
    reconciler = Scripted(World(), raising(conflict()))
    controller = controller_of(reconciler)
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
        (ExceptionGroup("both", [TerminalError("one"), missing("a")]), True),
        (ExceptionGroup("both", [TerminalError("one"), ConnectionFailed("lost")]), False),
        (wrapped(ExceptionGroup("both", [TerminalError("one"), ConnectionFailed("lost")])), False),
        (wrapped(RuntimeError()), False),
    ],
)
@virtual_time
async def test_an_error_is_terminal_if_what_caused_it_is_and_nothing_else_needs_a_retry(
    error: BaseException, final: bool
) -> None:
    reconciler = Scripted(World(), raising(error))
    controller = controller_of(reconciler, exists=False)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == (1 if final else 2)
    await controller.stop(1)


@virtual_time
async def test_an_error_on_the_way_out_of_a_terminal_one_is_tried_again() -> None:
    async def behave(_: Request) -> Result:
        if len(reconciler.calls) > 1:
            return Result()
        try:
            raise TerminalError("no such engine")
        except TerminalError:
            raise ConnectionFailed("lost")  # noqa: B904

    reconciler = Scripted(World(), behave)
    controller = controller_of(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == 2
    await controller.stop(1)


@virtual_time
async def test_the_status_is_updated_after_success_and_failure() -> None:
    error = RuntimeError("broken")
    reconciler = Reporting(World(), raising(error))
    controller = controller_of(reconciler)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(1)
    assert reconciler.reports == [Outcome(error=error), Outcome(result=Result())]
    await controller.stop(1)


@virtual_time
async def test_neither_error_hides_the_other() -> None:
    reconciler = Reporting(World(), raising(RuntimeError("no volume")), ConnectionFailed("no answer"))
    controller = controller_of(reconciler, "both")
    controller.start()
    with capture_logs() as logs:
        controller.queue.add(key("a"))
        await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    [entry] = logs
    assert entry["error"] == "RuntimeError: no volume; ConnectionFailed: no answer"
    assert [str(each) for each in entry["exc_info"].exceptions] == ["no volume", "no answer"]
    assert controller.recent()[0].errors == ("RuntimeError", "ConnectionFailed")
    assert sample("controller_runtime_reconcile_errors_total", controller="both") == 1
    assert sample("steersman_status_update_errors_total", controller="both") == 1
    await controller.stop(1)


@pytest.mark.parametrize(
    ("reconcile", "status", "calls"),
    [
        (None, ConnectionFailed("lost"), 2),
        (None, conflict(), 2),
        (None, TerminalError("no such status"), 1),
        (None, missing("a"), 1),
        (TerminalError("no such engine"), ConnectionFailed("lost"), 2),
        (ConnectionFailed("lost"), TerminalError("no such status"), 2),
        (TerminalError("no such engine"), TerminalError("no such status"), 1),
        (TerminalError("no such engine"), missing("a"), 1),
    ],
)
@virtual_time
async def test_of_two_errors_the_one_that_needs_a_retry_decides(
    reconcile: BaseException | None, status: BaseException, calls: int
) -> None:
    reconciler = Reporting(World(), raising(*filter(None, [reconcile])), status)
    controller = controller_of(reconciler, exists=False)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert len(reconciler.calls) == calls
    await controller.stop(1)


@virtual_time
async def test_nothing_is_reported_of_an_object_that_is_gone() -> None:
    reconciler = Reporting(World(), raising(missing("a")))
    controller = controller_of(reconciler, exists=False)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(10)
    assert (len(reconciler.calls), reconciler.reports) == (1, [])
    await controller.stop(1)


@virtual_time
async def test_a_reconcile_that_takes_too_long_is_cut_and_tried_again() -> None:
    async def behave(request: Request) -> Result:
        if request.name == "slow" and len(reconciler.times("slow")) == 1:
            await asyncio.sleep(1e6)
        return Result()

    reconciler = Reporting(World(), behave)
    controller = controller_of(reconciler, "timed", timeout=30)
    controller.start()
    controller.queue.add(key("slow"))
    controller.queue.add(key("quick"))
    await asyncio.sleep(100)
    assert reconciler.times("slow") == pytest.approx([0, 30.005])
    assert reconciler.times("quick") == pytest.approx([30])
    assert isinstance(reconciler.reports[0].error, ReconcileTimeout)
    assert sample("controller_runtime_reconcile_timeouts_total", controller="timed") == 1
    assert sample("controller_runtime_reconcile_panics_total", controller="timed") == 0
    await controller.stop(1)


@virtual_time
async def test_a_timeout_of_the_reconcilers_own_is_not_the_controllers() -> None:
    reconciler = Scripted(World(), raising(TimeoutError("a database did not answer")))
    controller = controller_of(reconciler, "untimed", timeout=30)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(100)
    assert len(reconciler.calls) == 2
    assert sample("controller_runtime_reconcile_timeouts_total", controller="untimed") == 0
    await controller.stop(1)


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
    reconciler = Scripted(World(), raising(error))
    controller = controller_of(reconciler, name)
    controller.start()
    controller.queue.add(key("a"))
    await asyncio.sleep(1)
    assert len(reconciler.calls) == 2
    assert sample("controller_runtime_reconcile_panics_total", controller=name) == panics
    await controller.stop(1)
