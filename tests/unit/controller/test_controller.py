"""The worker loop: one object's misfortune is its own, and stopping is orderly."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from buoy import Buoy
from steersman.controller import Controller, ControllerOptions, Reconciler, Request, Result
from steersman.errors import Conflict, NotFound, Status, StatusDetails, TerminalError
from steersman.observability import metrics
from steersman.testing import virtual_time
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


def controller_of(reconciler: Scripted, name: str = "buoy", *, exists: bool = True, workers: int = 1) -> Controller:
    return Controller(
        name,
        reconciler,
        resource=Buoy.api_resource,
        runtime=reconciler.runtime,
        exists=lambda _: exists,
        options=ControllerOptions(max_concurrent_reconciles=workers),
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


def sample(name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


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
