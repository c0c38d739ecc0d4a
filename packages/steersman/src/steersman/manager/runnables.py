"""Background coroutines of a manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from steersman.errors import error_text
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

log = get_logger("manager")

RunnableFunc = Callable[[], Coroutine[Any, Any, None]]


class _Runnable(Struct, frozen=True):
    name: str
    run: RunnableFunc
    needs_leader_election: bool


class Runnables:
    """Starts and stops coroutines together with the controllers.

    Args:
        on_error: called with an exception that a runnable raises.
    """

    def __init__(self, runtime: Runtime, on_error: Callable[[BaseException], None]) -> None:
        self._runtime = runtime
        self._on_error = on_error
        self._pending: list[_Runnable] = []
        self._started: set[bool] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, run: RunnableFunc, name: str, *, needs_leader_election: bool) -> None:
        """Add a runnable. It starts at once if its group has been started."""
        runnable = _Runnable(name, run, needs_leader_election)
        if needs_leader_election in self._started:
            self._spawn(runnable)
        else:
            self._pending.append(runnable)

    def start(self, *, needs_leader_election: bool) -> None:
        """Start the runnables that need leader election, or those that do not."""
        self._started.add(needs_leader_election)
        selected = [r for r in self._pending if r.needs_leader_election is needs_leader_election]
        self._pending = [r for r in self._pending if r not in selected]
        for runnable in selected:
            self._spawn(runnable)

    async def stop(self, grace: float) -> None:
        """Cancel all runnables. They have ``grace`` seconds to clean up."""
        self._started.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=grace)
            for task in unfinished:
                log.warning("runnable did not stop within the grace period", runnable=task.get_name())

    async def wait_closed(self) -> None:
        """Wait for runnables that ignore their cancellation."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, runnable: _Runnable) -> None:
        task = self._runtime.spawn(runnable.run(), runnable.name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() and not task.cancelling():
            # Something that the runnable awaited was cancelled.
            error = RuntimeError(f"runnable {task.get_name()} ended with CancelledError")
        elif error is not None and not isinstance(error, Exception):
            error = RuntimeError(f"runnable {task.get_name()} ended with {type(error).__name__}")
        if error is not None:
            log.error("runnable failed", runnable=task.get_name(), error=error_text(error))
            self._on_error(error)
