"""Virtual time: an event loop whose timers fire without waiting.

``VirtualTimeLoop`` advances its clock to the next timer as soon as no callback is ready. Hours of back-off take
milliseconds, and the order of events is deterministic. The loop has no sockets and no threads, which would not follow
its clock. Tests reach the API server through ``steersman_testing.InMemoryApiServer``::

    @virtual_time
    async def test_gives_up_after_an_hour() -> None:
        await asyncio.sleep(3600)  # returns at once

Fixtures of such a test must be synchronous: pytest-asyncio runs asynchronous ones on its own loop.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, ParamSpec, TypeVar

from steersman.observability.runtime import Runtime

T = TypeVar("T")
P = ParamSpec("P")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
"""Default start of virtual time."""

MAX_LOOP_ITERATIONS = 1_000_000
"""Default limit of iterations within 10 ms of virtual time. 100,000 objects at once stay below it."""
# Timers a few nanoseconds ahead do not count as progress.
_WINDOW_SECONDS = 1e-2
_TEST_LIMIT_SECONDS = 366 * 86400.0


class VirtualDeadlock(RuntimeError):
    """No callback is ready and no timer is set. Lists the waiting tasks."""


class VirtualTimeLimit(RuntimeError):
    """The run exceeded its limit of virtual time. Lists the waiting tasks."""


class VirtualLivelock(RuntimeError):
    """The loop iterates without progress of virtual time. Lists the running tasks."""


class _AutojumpSelector:
    """Selector that advances the virtual clock instead of waiting."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.advance(timeout)
        return []


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """An asyncio event loop whose ``time()`` is virtual and starts at 0.

    Args:
        start: wall clock time at loop time 0.
        limit: virtual seconds after which ``VirtualTimeLimit`` is raised. None for no limit.
        max_loop_iterations: iterations within 10 ms of virtual time. None for no limit.

    Raises:
        VirtualDeadlock: from ``run_until_complete``, if no callback is ready and no timer is set.
        VirtualTimeLimit: from ``run_until_complete``, after ``limit``.
        VirtualLivelock: from ``run_until_complete``, after ``max_loop_iterations`` without progress of time.
        RuntimeError: from calls that need a thread or a socket.
    """

    def __init__(
        self,
        start: datetime = EPOCH,
        limit: float | None = None,
        max_loop_iterations: int | None = MAX_LOOP_ITERATIONS,
    ) -> None:
        super().__init__()
        self.start = start
        self._now = 0.0
        self._limit = limit
        self._max_loop_iterations = max_loop_iterations
        self._iterations = 0
        self._window_start = 0.0
        self._clock_resolution = 1e-6
        self._selector = _AutojumpSelector(self)

    def time(self) -> float:
        """Virtual seconds since the creation of the loop."""
        return self._now

    def now(self) -> datetime:
        """Virtual wall clock time."""
        return self.start + timedelta(seconds=self._now)

    def advance(self, seconds: float | None) -> None:
        """Advance the clock by ``seconds``. The loop calls it once per iteration.

        Args:
            seconds: time to the next timer. 0 if a callback is ready, None if there is no timer.

        Raises:
            VirtualDeadlock: if there is no timer.
            VirtualTimeLimit: if the limit of the run is exceeded.
            VirtualLivelock: if too many iterations passed without progress of time.
        """
        if seconds is None:
            raise VirtualDeadlock(f"nothing is ready and no timer is set; {self._describe_waiting()}")
        self._now += seconds
        self._count_iteration()
        if self._limit is not None and self._now > self._limit:
            self._limit = None  # allows the tasks to be cancelled
            raise VirtualTimeLimit(f"not finished at virtual second {self._now:.0f}; {self._describe_waiting()}")

    def _count_iteration(self) -> None:
        self._iterations += 1
        if self._now - self._window_start > _WINDOW_SECONDS:
            self._iterations, self._window_start = 0, self._now
        elif self._max_loop_iterations is not None and self._iterations > self._max_loop_iterations:
            self._iterations = 0  # allows the tasks to be cancelled
            raise VirtualLivelock(
                f"{self._max_loop_iterations} loop iterations at virtual second {self._now:.3f} without progress; "
                f"{self._describe_running()}"
            )

    def _describe_running(self) -> str:
        # asyncio has no public API for ready callbacks. Handle.__repr__ reads the same attributes.
        loop: Any = self
        due = [handle for handle in loop._scheduled if handle.when() <= self._now + _WINDOW_SECONDS]  # noqa: SLF001
        callbacks = [handle._callback for handle in (*loop._ready, *due)]  # noqa: SLF001
        owners: list[Any] = [getattr(callback, "__self__", None) for callback in callbacks]
        tasks: list[asyncio.Task[Any]] = [owner for owner in owners if isinstance(owner, asyncio.Task)]
        lines = {f"  {_describe_task(task)}" for task in tasks}
        # Timer handles have no task.
        return "running:\n" + "\n".join(sorted(lines)) if lines else self._describe_waiting()

    def _describe_waiting(self) -> str:
        lines = [f"  {_describe_task(task)}" for task in asyncio.all_tasks(self)]
        return "waiting tasks:\n" + "\n".join(sorted(lines)) if lines else "no task is waiting"

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no file descriptors."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread."""

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Same as ``call_soon``, since the loop has only one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:
        """Raise RuntimeError, because threads do not follow virtual time."""
        name = getattr(func, "__qualname__", repr(func))
        raise RuntimeError(
            f"{name} cannot run in a thread, because threads do not follow virtual time: "
            "call it directly, or run the test on an ordinary loop"
        )


def _describe_task(task: asyncio.Task[Any]) -> str:
    # Default names are numbered per process, so they are not reproducible.
    name = task.get_name()
    return _task_location(task) if re.fullmatch(r"Task-\d+", name) else f"{name}: {_task_location(task)}"


def _task_location(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return "not started"
    frame = frames[-1]
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"


class VirtualClock:
    """Clock of the running ``VirtualTimeLoop``."""

    def monotonic(self) -> float:
        """Virtual seconds since the creation of the loop."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """Virtual wall clock time. ``EPOCH`` if no loop is running.

        Raises:
            RuntimeError: if the running loop is not a ``VirtualTimeLoop``.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return EPOCH
        if not isinstance(loop, VirtualTimeLoop):
            raise RuntimeError("VirtualClock needs a VirtualTimeLoop: decorate the test with @virtual_time")
        return loop.now()

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds`` of virtual time."""
        await asyncio.sleep(seconds)


def virtual_runtime(seed: int = 0) -> Runtime:
    """Create a Runtime with virtual time and random numbers from ``seed``."""
    return Runtime(clock=VirtualClock(), random=random.Random(seed))  # noqa: S311


def run_virtual(
    coroutine: Coroutine[Any, Any, T],
    start: datetime = EPOCH,
    limit: float | None = None,
    debug: bool | None = None,
    max_loop_iterations: int | None = MAX_LOOP_ITERATIONS,
) -> T:
    """Run ``coroutine`` on a new ``VirtualTimeLoop`` and return its result.

    Args:
        coroutine: coroutine to run. Remaining tasks are cancelled at the end, as by ``asyncio.run``.
        start: wall clock time at the start, with a time zone.
        limit: limit in virtual seconds. None for no limit.
        debug: debug mode of asyncio.
        max_loop_iterations: iterations within 10 ms of virtual time. None for no limit.

    Raises:
        VirtualDeadlock: if the coroutine waits without a timer.
        VirtualTimeLimit: if it does not finish within ``limit``.
        VirtualLivelock: if the loop iterates without progress of time.
    """
    with asyncio.Runner(
        debug=debug, loop_factory=lambda: VirtualTimeLoop(start, limit, max_loop_iterations)
    ) as runner:
        return runner.run(coroutine)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Decorator that runs an async test function on a ``VirtualTimeLoop``.

    The test fails with ``VirtualTimeLimit`` after one year of virtual time. Call ``run_virtual`` for other limits.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs), limit=_TEST_LIMIT_SECONDS)

    return run
