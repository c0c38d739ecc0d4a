"""Supervision of background tasks: only their owner ends them.

The end of an ``asyncio`` task has no effect on others. A stray ``CancelledError``, for example of a cancelled future
that user code awaits, would end a watch without a log line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from steersman.errors import error_text
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

_RESTART_DELAY_SECONDS = 1.0

log = get_logger("supervisor")


def is_cancelled() -> bool:
    """Return True if another task has cancelled the current one.

    Otherwise, a ``CancelledError`` is the one of something that the task awaited.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def unexpected_end(task: asyncio.Task[Any]) -> str | None:
    """Return the reason why a done ``task`` has ended by itself. None if it was cancelled."""
    if task.cancelled():
        return None if task.cancelling() else "CancelledError"
    error = task.exception()
    return "the function returned" if error is None else f"{type(error).__name__}: {error_text(error)}"


class Supervisor:
    """Runs tasks until they are stopped. A task that ends by itself is logged, and restarted after a second.

    Args:
        runtime: starts the tasks.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._stopping = False

    def start(self, run: Callable[[], Coroutine[Any, Any, object]], name: str) -> None:
        """Run ``run()`` in a task called ``name``."""
        task = self._runtime.spawn(run(), name)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._on_done(done, run, name))

    async def stop(self) -> None:
        """Cancel all tasks, and wait for their end."""
        self._stopping = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._stopping = False

    def _on_done(self, task: asyncio.Task[Any], run: Callable[[], Coroutine[Any, Any, object]], name: str) -> None:
        self._tasks.discard(task)
        reason = unexpected_end(task)
        if reason is None or self._stopping:
            return
        log.error("task ended unexpectedly, restarting it", task=name, error=reason)

        def restart() -> None:
            self._timers.discard(timer)
            self.start(run, name)

        timer = asyncio.get_running_loop().call_later(_RESTART_DELAY_SECONDS, restart)
        self._timers.add(timer)
