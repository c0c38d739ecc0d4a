"""The worker loop: one object's misfortune is its own, and stopping is orderly."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from buoy import Buoy, buoy
from steersman.cache import Change
from steersman.controller import (
    LOW,
    Controller,
    ControllerOptions,
    Outcome,
    ReconcileInfo,
    Reconciler,
    ReconcileTimeout,
    Request,
    Result,
    Trigger,
    current_reconcile,
)
from steersman.errors import Conflict, ConnectionFailed, NotFound, Status, StatusDetails, TerminalError
from steersman.observability import metrics
from steersman.testing import virtual_runtime, virtual_time
from steersman.testing.virtual_time import VirtualClock
from world import World, key

Behaviour = Callable[[Request], Awaitable[Result]]


class Scripted(Reconciler[Buoy]):
    """Does what it is told, and remembers when for whom."""

    def __init__(self, world: World, behaviour: Behaviour | None = None) -> None:
        super().__init__(world.context())
        self.behaviour = behaviour
        self.calls: list[tuple[float, str]] = []

    async def reconcile(self, request: Request) -> Result:
        self.calls.append((self.runtime.clock.monotonic(), request.name))
        return await self.behaviour(request) if self.behaviour is not None else Result()

    def times(self, name: str) -> list[float]:
        return [moment for moment, called in self.calls if called == name]


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


def controller_of(
    reconciler: Scripted, name: str = "buoy", *, exists: bool = True, workers: int = 1, timeout: float | None = None
) -> Controller:
    return Controller(
        name,
        reconciler,
        resource=Buoy.api_resource,
        runtime=reconciler.runtime,
        exists=lambda _: exists,
        options=ControllerOptions(max_concurrent_reconciles=workers, reconcile_timeout=timeout),
    )


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


def sample(metric: str, /, **labels: str) -> float:
    return metrics.registry.get_sample_value(metric, labels) or 0.0


def raising(*errors: BaseException) -> Behaviour:
    """Raises one error a call, then succeeds."""
    left = list(errors)

    async def behave(_: Request) -> Result:
        if left:
            raise left.pop(0)
        return Result()

    return behave


def conflict() -> Conflict:
    return Conflict(Status("scripted conflict", "Conflict", 409))


def missing(name: str = "a", kind: str = "buoys", group: str = "sea.example.com") -> NotFound:
    """As the API server answers when there is no such object."""
    return NotFound(Status("scripted", "NotFound", 404, details=StatusDetails(name=name, kind=kind, group=group)))


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
