"""Virtual time: hours of back-off in milliseconds, and the same order of events on every run.

A ``VirtualTimeLoop`` does not wait: when nothing is ready it jumps to the next timer. It has no sockets and no
threads, since neither would follow its clock; tests that use it reach the API server through
``steersman_testing.InMemoryApiServer``::

    @virtual_time
    async def test_gives_up_after_an_hour() -> None:
        await asyncio.sleep(3600)  # returns at once

Fixtures of such a test must be synchronous: an asynchronous one would run on pytest-asyncio's own loop.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

from steersman.observability.runtime import Runtime

T = TypeVar("T")
P = ParamSpec("P")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
"""Where virtual time starts unless told otherwise."""

MAX_LOOP_ITERATIONS = 1_000_000
"""Of an event loop within one moment of virtual time: what 100,000 objects take at once, with some room."""
# Timers that are nanoseconds away let no time pass either.
_WINDOW_SECONDS = 1e-2


class VirtualDeadlock(RuntimeError):
    """Nothing is ready and no timer is set: in real time this test would hang. Names the waiting tasks."""


class VirtualTimeLimit(RuntimeError):
    """The time limit of the run passed, in virtual seconds: something repeats for ever. Names the waiting tasks."""


class VirtualLivelock(RuntimeError):
    """Very many turns of the loop, and no time has passed: something goes round in circles. Names what runs."""


class _AutojumpSelector:
    """Stands where the loop asks the operating system to wait; moves the clock instead."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.advance(timeout)
        return []


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """An asyncio event loop whose ``time()`` is virtual and starts at 0.

    Args:
        start: the wall clock at loop time 0.
        limit: virtual seconds after which ``VirtualTimeLimit`` is raised; None for no limit.
        max_loop_iterations: of the loop within 10 ms of virtual time; None for no limit.

    Raises:
        VirtualDeadlock: from ``run_until_complete``, when nothing can ever happen again.
        VirtualTimeLimit: from ``run_until_complete``, when ``limit`` has passed.
        VirtualStandstill: from ``run_until_complete``, when time does not pass for ``max_loop_iterations``.
        RuntimeError: from whatever needs a thread or a socket.
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
        """Virtual seconds since the loop was made."""
        return self._now

    def now(self) -> datetime:
        """The virtual wall clock."""
        return self.start + timedelta(seconds=self._now)

    def advance(self, seconds: float | None) -> None:
        """Called by the loop once a turn: moves to the next timer, ``seconds`` away (0: something is ready; None: no
        timer).

        Raises:
            VirtualDeadlock: there is no timer, so nothing will ever happen again; names who waits.
            VirtualTimeLimit: the limit of the run has come.
            VirtualStandstill: so many turns have come without time; names what runs.
        """
        if seconds is None:
            raise VirtualDeadlock(f"nothing is ready and no timer is set; {self._describe_waiting()}")
        self._now += seconds
        self._count_iteration()
        if self._limit is not None and self._now > self._limit:
            self._limit = None  # so that the tasks can still be cancelled in an orderly way
            raise VirtualTimeLimit(f"not finished at virtual second {self._now:.0f}; {self._describe_waiting()}")

    def _count_iteration(self) -> None:
        self._iterations += 1
        if self._now - self._window_start > _WINDOW_SECONDS:
            self._iterations, self._window_start = 0, self._now
        elif self._max_loop_iterations is not None and self._iterations > self._max_loop_iterations:
            self._iterations = 0  # so that the tasks can still be cancelled in an orderly way
            raise VirtualLivelock(
                f"{self._max_loop_iterations} turns of the loop at virtual second {self._now:.3f}, "
                "and no time passes; "
                f"{self._describe_running()}"
            )

    def _describe_running(self) -> str:
        # Asyncio has no public word for what is ready or due; Handle tells its task in its own repr in the same way.
        loop: Any = self
        due = [handle for handle in loop._scheduled if handle.when() <= self._now + _WINDOW_SECONDS]  # noqa: SLF001
        callbacks = [handle._callback for handle in (*loop._ready, *due)]  # noqa: SLF001
        owners: list[Any] = [getattr(callback, "__self__", None) for callback in callbacks]
        tasks: list[asyncio.Task[Any]] = [owner for owner in owners if isinstance(owner, asyncio.Task)]
        lines = {f"  {_describe_task(task)}" for task in tasks}
        # Timers do not say whom they wake.
        return "running:\n" + "\n".join(sorted(lines)) if lines else self._describe_waiting()

    def _describe_waiting(self) -> str:
        lines = [f"  {_describe_task(task)}" for task in asyncio.all_tasks(self)]
        return "waiting tasks:\n" + "\n".join(sorted(lines)) if lines else "no task is waiting"

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no file descriptors, hence no events."""

    def _write_to_self(self) -> None:
        """There is no other thread to wake the loop from."""

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """As ``call_soon``: this loop lives in one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:
        """Refused by RuntimeError: a thread takes real time, which this loop does not have."""
        name = getattr(func, "__qualname__", repr(func))
        raise RuntimeError(
            f"{name} was handed to a thread, but threads do not follow virtual time: "
            "call it directly in this test, or run the test on an ordinary loop"
        )


def _describe_task(task: asyncio.Task[Any]) -> str:
    # Asyncio numbers tasks through the whole process: such a name tells nothing, and does not repeat.
    name = task.get_name()
    return _task_location(task) if re.fullmatch(r"Task-\d+", name) else f"{name}: {_task_location(task)}"


def _task_location(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return "not started"
    frame = frames[-1]
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"


class VirtualClock:
    """The ``Clock`` of the ``VirtualTimeLoop`` that runs at the moment of the call."""

    def monotonic(self) -> float:
        """Virtual seconds since the loop was made."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """The virtual wall clock; ``EPOCH`` where no loop runs yet, as when a test's world is set up.

        Raises:
            RuntimeError: the running loop is an ordinary one.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return EPOCH
        if not isinstance(loop, VirtualTimeLoop):
            raise RuntimeError("VirtualClock needs a VirtualTimeLoop: decorate the test with @virtual_time")
        return loop.now()

    async def sleep(self, seconds: float) -> None:
        """Lets ``seconds`` of virtual time pass."""
        await asyncio.sleep(seconds)


def virtual_runtime(seed: int = 0) -> Runtime:
    """A Runtime for virtual time, whose random numbers repeat from ``seed``."""
    return Runtime(clock=VirtualClock(), random=random.Random(seed))  # noqa: S311


def run_virtual(
    coroutine: Coroutine[Any, Any, T],
    start: datetime = EPOCH,
    limit: float | None = None,
    debug: bool | None = None,
    max_loop_iterations: int | None = MAX_LOOP_ITERATIONS,
) -> T:
    """Runs ``coroutine`` on a new ``VirtualTimeLoop`` and returns its result.

    Args:
        coroutine: what to run; its left-over tasks are cancelled at the end, as ``asyncio.run`` does.
        start: the wall clock at the beginning, with a time zone.
        limit: virtual seconds after which it fails.
        debug: asyncio's debug mode.
        max_loop_iterations: of the loop within 10 ms of virtual time; more for much work at one moment, None for
            no limit.

    Raises:
        VirtualDeadlock: it waits for something that cannot come.
        VirtualTimeLimit: it did not finish within ``limit``.
        VirtualStandstill: it goes round in circles, and time does not pass.
    """
    with asyncio.Runner(
        debug=debug, loop_factory=lambda: VirtualTimeLoop(start, limit, max_loop_iterations)
    ) as runner:
        return runner.run(coroutine)


@overload
def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]: ...
@overload
def virtual_time(
    *, max_loop_iterations: int | None = MAX_LOOP_ITERATIONS
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, T]]: ...
def virtual_time(test: Any = None, *, max_loop_iterations: int | None = MAX_LOOP_ITERATIONS) -> Any:
    """Decorator: makes an async test function an ordinary one that runs on a ``VirtualTimeLoop``.

    Virtual time is limited to a year, so that a test which waits for something that never comes fails.

    Args:
        test: the function, where it stands without brackets.
        max_loop_iterations: see ``run_virtual``.
    """
    if test is None:
        return functools.partial(virtual_time, max_loop_iterations=max_loop_iterations)

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        return run_virtual(test(*args, **kwargs), limit=366 * 86400.0, max_loop_iterations=max_loop_iterations)

    return run
