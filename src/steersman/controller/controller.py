"""The worker loop: takes keys from the queue and reconciles them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from steersman.controller.queue import QueueShutDown, WorkQueue
from steersman.controller.reconciler import Reconciler, Request, Result
from steersman.errors import Conflict, NotFound, TerminalError
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime


class Controller:
    """One queue, one reconciler and ``max_concurrent_reconciles`` workers.

    ``max_retry_delay``: seconds at most until a failed reconcile is tried again.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler[Any],
        *,
        runtime: Runtime,
        exists: Callable[[Request], bool],
        max_concurrent_reconciles: int = 1,
        max_retry_delay: float = 1000.0,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[Request] = WorkQueue(name, runtime=runtime, max_delay=max_retry_delay)
        self._reconciler = reconciler
        self._runtime = runtime
        self._exists = exists
        self._workers: list[asyncio.Task[Any]] = []
        self._concurrency = max_concurrent_reconciles
        self._log = get_logger("controller").bind(controller=name)
        self._active = metrics.active_workers.labels(name)
        self._duration = metrics.reconcile_time.labels(name)
        self._work_duration = metrics.work_duration.labels(name, name)
        self._errors = metrics.reconcile_errors.labels(name)
        metrics.max_concurrent_reconciles.labels(name).set(max_concurrent_reconciles)
        for result in ("success", "error", "requeue_after"):
            metrics.reconcile_total.labels(name, result)

    def start(self) -> None:
        """Starts the workers."""
        for number in range(self._concurrency):
            self._workers.append(self._runtime.spawn(self._work(), f"{self.name} worker {number}"))

    async def stop(self, grace: float) -> None:
        """Takes no new keys, lets running reconciles end for up to ``grace`` seconds, then cancels them."""
        self.queue.shut_down()
        if not self._workers:
            return
        _, late = await asyncio.wait(self._workers, timeout=grace)
        for worker in late:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            try:
                request = await self.queue.get()
            except QueueShutDown:
                return
            self._active.inc()
            started = self._runtime.clock.monotonic()
            try:
                await self._reconcile(request)
            finally:
                seconds = self._runtime.clock.monotonic() - started
                self._duration.observe(seconds)
                self._work_duration.observe(seconds)
                self._active.dec()
                self.queue.done(request)

    async def _reconcile(self, request: Request) -> None:
        structlog.contextvars.bind_contextvars(
            controller=self.name,
            namespace=request.namespace,
            name=request.name,
            reconcile_id=f"{self._runtime.random.getrandbits(64):016x}",
        )
        try:
            self._succeeded(request, await self._reconciler.reconcile(request))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not this worker was cancelled, but something that the reconciler waited for: no reason to lose a worker.
            self._failed(request, error)
        except NotFound as error:
            if self._exists(request):
                self._failed(request, error)
            else:
                # The object was deleted: there is nothing left to do.
                self.queue.forget(request)
                self._count("success")
        except TerminalError as error:
            self._count("error")
            metrics.terminal_reconcile_errors.labels(self.name).inc()
            self.queue.forget(request)
            self._log.error("reconcile failed for good; waiting for a change", error=str(error))
        except Conflict as error:
            # Somebody wrote between our read and our write: normal under optimistic concurrency, so no error level.
            self._count("error")
            self._log.info(
                "conflict, trying again on fresh data", error=str(error), retry_in_seconds=self._retry(request)
            )
        except Exception as error:
            self._failed(request, error)

    def _succeeded(self, request: Request, result: Result) -> None:
        after = result.requeue_after
        self.queue.forget(request)
        if after is not None:
            self.queue.add_after(request, after)
        self._count("success" if after is None else "requeue_after")

    def _failed(self, request: Request, error: BaseException) -> None:
        self._count("error")
        self._log.error("reconcile failed", exc_info=error, retry_in_seconds=self._retry(request))

    def _retry(self, request: Request) -> float:
        return self.queue.add_rate_limited(request)

    def _count(self, result: str) -> None:
        metrics.reconcile_total.labels(self.name, result).inc()
        if result == "error":
            self._errors.inc()
