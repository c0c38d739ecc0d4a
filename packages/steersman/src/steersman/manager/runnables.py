"""What a manager runs beside its controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

log = get_logger("manager")

RunnableFunc = Callable[[], Coroutine[Any, Any, None]]


class _Runnable(Struct, frozen=True):
    name: str
    run: RunnableFunc
    needs_leader_election: bool


class Runnables:
    """Coroutines that run as long as the manager, or as long as they like.

    Args:
        on_error: told of the first uncaught error of each.
    """

    def __init__(self, runtime: Runtime, on_error: Callable[[BaseException], None]) -> None:
        self._runtime = runtime
        self._on_error = on_error
        self._pending: list[_Runnable] = []
        self._started: set[bool] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, run: RunnableFunc, name: str, *, needs_leader_election: bool) -> None:
        """Starts ``run`` with its like, or at once where those run."""
        runnable = _Runnable(name, run, needs_leader_election)
        if needs_leader_election in self._started:
            self._spawn(runnable)
        else:
            self._pending.append(runnable)

    def start(self, *, needs_leader_election: bool) -> None:
        """Starts those that need to be the leader, or those that do not."""
        self._started.add(needs_leader_election)
        selected = [r for r in self._pending if r.needs_leader_election is needs_leader_election]
        self._pending = [r for r in self._pending if r not in selected]
        for runnable in selected:
            self._spawn(runnable)

    async def stop(self, grace: float) -> None:
        """Cancels all, and waits up to ``grace`` seconds for what they still have to do."""
        self._started.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=grace)
            for task in unfinished:
                log.warning("a runnable did not end in time", runnable=task.get_name())

    def _spawn(self, runnable: _Runnable) -> None:
        task = self._runtime.spawn(runnable.run(), runnable.name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a runnable failed", runnable=task.get_name(), error=str(error))
            self._on_error(error)
