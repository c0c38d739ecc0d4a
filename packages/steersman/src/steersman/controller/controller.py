"""The worker loop: takes requests from the queue and reconciles them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from steersman.controller.errors import ErrorClass, classify, combine, flatten, is_panic
from steersman.controller.own_write_loops import LIMIT, WINDOW_SECONDS, OwnWriteLoops
from steersman.controller.queue import NORMAL_PRIORITY, QueueItem, QueueShutDown, WorkQueue
from steersman.controller.reconcile_info import ReconcileInfo
from steersman.controller.reconciler import ReconcileOutcome, RequestReconciler, Result
from steersman.controller.request import Request
from steersman.controller.sources import Source
from steersman.controller.spec import ControllerSpec
from steersman.controller.triggers import REQUEUE, Trigger
from steersman.errors import SteersmanError, error_text
from steersman.meta import ApiResource, ObjectKey
from steersman.observability.controller_metrics import controller_metrics
from steersman.observability.logging import get_logger, log_context
from steersman.observability.runtime import Runtime
from steersman.observability.supervisor import is_cancelled, unexpected_end

ErrorCallback = Callable[[BaseException], Any]
TraceSpan = Callable[[ReconcileInfo], AbstractContextManager[ErrorCallback | None]]
"""Context manager around a reconcile. If it yields a callback, the callback receives the error."""

_NO_RESULT = Result()
_MAX_RECENT_RECONCILES = 256
# Limit for a worker whose reconciles never wait, so that the event loop can run other tasks.
_YIELD_INTERVAL_SECONDS = 0.01
_WORKER_RESTART_DELAY_SECONDS = 1.0
# Time for cancelled tasks to clean up.
_CANCELLATION_TIMEOUT_SECONDS = 2.0
_INITIAL_SOURCE_BACKOFF_SECONDS = 1.0
_MAX_SOURCE_BACKOFF_SECONDS = 60.0


class ReconcileTimeout(SteersmanError):
    """A reconcile exceeded its timeout and was cancelled; it is retried."""


class Controller:
    """A work queue, a reconciler and its workers.

    Args:
        spec: the declaration of the controller.
        reconciler: its ``reconcile`` runs for each request.
        runtime: clock, randomness and tasks.
        trace_span: entered for each reconcile, and left when ``info.result`` is known.

    Attributes:
        started: True once the workers run.
    """

    def __init__(
        self,
        spec: ControllerSpec,
        reconciler: RequestReconciler[Any],
        *,
        runtime: Runtime,
        trace_span: TraceSpan | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.resource = spec.resource
        self.options = spec.options
        self.queue: WorkQueue[Request] = WorkQueue(
            spec.name,
            runtime=runtime,
            base_delay=spec.options.base_retry_delay,
            max_delay=spec.options.max_retry_delay,
        )
        self._trace_span = trace_span
        self._reconciler = reconciler
        self._runtime = runtime
        self._workers: set[asyncio.Task[Any]] = set()
        self._source_tasks: list[asyncio.Task[Any]] = []
        self._running: dict[Request, ReconcileInfo] = {}
        self._recent: deque[ReconcileInfo] = deque(maxlen=_MAX_RECENT_RECONCILES)
        self._id_random = random.Random(runtime.random.getrandbits(64))  # noqa: S311
        self._has_status_update = reconciler.has_status_update
        self.started = self._stopping = self._debug = False
        self._own_write_loops = OwnWriteLoops()
        self._log = get_logger("controller")
        self._tally = controller_metrics(spec.name)
        self._tally.workers = self.options.max_concurrent_reconciles

    def exists(self, request: ObjectKey) -> bool:
        """Return True if the cache has the object."""
        return self.spec.get_cached(request) is not None

    @property
    def owned_resources(self) -> tuple[ApiResource, ...]:
        """The resources that the builder declared with ``owns``."""
        return tuple(kind.api_resource for kind in self.spec.owned_kinds)

    @property
    def needs_leader_election(self) -> bool:
        """True if the controller runs in the leader only."""
        return self.options.needs_leader_election

    def start(self) -> None:
        """Start workers and sources."""
        self.started = True
        # Not earlier: the process has configured its logs by now.
        self._log = get_logger("controller").bind()
        self._debug = self._log.is_enabled_for(logging.DEBUG)
        for _ in range(self.options.max_concurrent_reconciles):
            self._start_worker()
        for source in self.spec.sources:
            self._source_tasks.append(
                self._runtime.spawn(self._run_source(source), f"{self.name} source {source.name}")
            )

    async def stop(self, grace: float, *, drain: bool = False) -> None:
        """Stop the workers.

        Running reconciles may finish within ``grace`` and are cancelled after it. A reconcile that ignores its
        cancellation for 2 seconds is logged and abandoned.

        Args:
            grace: seconds.
            drain: reconcile ready requests as well, within ``grace``. Defaults to False: the next leader does it.
        """
        self._stopping = True
        for task in self._source_tasks:
            task.cancel()
        self.queue.shut_down(drain=drain)
        tasks = {*self._workers, *self._source_tasks}
        if self._workers:
            _, unfinished = await asyncio.wait(self._workers, timeout=grace)
            for worker in unfinished:
                worker.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCELLATION_TIMEOUT_SECONDS)
        for info in self.running():
            self._log.error("reconcile did not stop after cancellation", **info.log_fields())

    async def wait_closed(self) -> None:
        """Wait for threads, and for reconciles that ignore their cancellation."""
        if self._workers:
            await asyncio.wait(self._workers)
        await self._reconciler.wait_closed()

    def recent(self) -> tuple[ReconcileInfo, ...]:
        """Return the last 256 finished reconciles, oldest first."""
        return tuple(self._recent)

    def running(self) -> tuple[ReconcileInfo, ...]:
        """Return the running reconciles."""
        return tuple(self._running.values())

    def result_counts(self) -> dict[str, int]:
        """Return the number of finished reconciles by result.

        All controllers of this name in the process count.
        """
        return dict(self._tally.results)

    def reconcile_seconds(self) -> float:
        """Return the total duration of finished reconciles in seconds."""
        return self._tally.reconcile_durations.total

    def _start_worker(self) -> None:
        worker = self._runtime.spawn(self._work(), f"{self.name} worker")
        self._workers.add(worker)
        worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[Any]) -> None:
        self._workers.discard(worker)
        if not self._stopping:
            # A cancelled worker is replaced as well. At the end of the event loop this timer would not fire.
            reason = unexpected_end(worker) or "the task was cancelled"
            asyncio.get_running_loop().call_later(_WORKER_RESTART_DELAY_SECONDS, self._restart_worker, reason)

    def _restart_worker(self, reason: str) -> None:
        if not self._stopping:
            self._log.error("worker ended; starting a replacement", controller=self.name, error=reason)
            self._start_worker()

    async def _work(self) -> None:
        queue, tally = self.queue, self._tally
        task = asyncio.current_task()
        assert task is not None
        yielded_at = 0.0
        while True:
            try:
                item = queue.get_item_nowait()
                if item is None:
                    item = await queue.get_item()
                    yielded_at = item.since
            except QueueShutDown:
                return
            request, started_at = item.key, item.since
            if self._own_write_loops.record(request, item.triggers, started_at):
                self._warn_of_loop(item)
            info = ReconcileInfo(self.name, item, queue.failures(request) + 1, self._runtime.clock, self._id_random)
            log_context.set(info)
            self._running[request] = info
            tally.active += 1
            try:
                if self._trace_span is None:
                    await self._reconcile(info)
                else:
                    with self._trace_span(info) as on_error:
                        await self._reconcile(info, on_error)
            except Exception as error:
                # The span failed: keep the worker, and retry the object.
                self._failed(info, error)
            finally:
                tally.active -= 1
                del self._running[request]
                seconds = info.duration = queue.done(request)
                tally.reconcile_durations.observe(seconds)
                self._recent.append(info)
            if task.cancelling():
                raise asyncio.CancelledError
            if started_at + seconds - yielded_at > _YIELD_INTERVAL_SECONDS:
                yielded_at = started_at + seconds
                await asyncio.sleep(0)

    def _warn_of_loop(self, item: QueueItem[Request]) -> None:
        self._log.warning(
            "object reconciles in a loop, triggered only by own writes: write a value only if something else "
            "changes, or add .with_predicate(generation_changed)",
            controller=self.name,
            namespace=item.key.namespace,
            name=item.key.name,
            reconciles=LIMIT,
            seconds=WINDOW_SECONDS,
            triggers=[str(trigger) for trigger in item.triggers],
        )

    async def _reconcile(self, info: ReconcileInfo, on_error: ErrorCallback | None = None) -> None:
        request = info.request
        if self._debug:
            self._log.debug(
                "reconciling", triggers=[str(t) for t in info.triggers], attempt=info.attempt, priority=info.priority
            )
        result: Result | None = None
        error: BaseException | None = None
        try:
            if self.options.reconcile_timeout is None:
                result = await self._reconciler.reconcile(request)
            else:
                result = await self._with_timeout(self._reconciler.reconcile(request))
            if result is None:
                result = _NO_RESULT
            elif not isinstance(result, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"reconcile returned {result!r} instead of a Result or None")
        except BaseException as raised:
            if self._is_worker_cancellation(raised):
                self._abort(info, raised)
                raise
            result, error = None, raised
        try:
            if self._has_status_update and (
                error is None or self._classify(request, error) is not ErrorClass.DELETED
            ):
                error = combine(
                    error, await self._run_update_status(info, ReconcileOutcome(result=result, error=error))
                )
            if error is None:
                assert result is not None
                self._succeeded(info, result)
            else:
                self._failed(info, error)
                if on_error is not None and info.result == "error":
                    on_error(error)
        finally:
            # Breaks the reference cycle of error, traceback and frame.
            error = None

    async def _with_timeout(self, coroutine: Any) -> Any:
        seconds = self.options.reconcile_timeout
        if seconds is None:
            return await coroutine
        timeout = asyncio.timeout(seconds)
        try:
            async with timeout:
                return await coroutine
        except TimeoutError as error:
            if not timeout.expired():
                raise
            self._tally.timeouts += 1
            raise ReconcileTimeout(f"not done after {seconds:g} s") from error

    async def _run_update_status(self, info: ReconcileInfo, outcome: ReconcileOutcome) -> BaseException | None:
        """Call ``update_status`` and return the exception, if any."""
        try:
            await self._with_timeout(self._reconciler.update_status(info.request, outcome))
        except BaseException as raised:
            if self._is_worker_cancellation(raised):
                self._abort(info, raised)
                raise
            self._tally.status_errors += 1
            return raised
        return None

    def _is_worker_cancellation(self, error: BaseException) -> bool:
        """Return True if ``error`` ends the worker, not only the reconcile."""
        if isinstance(error, asyncio.CancelledError):
            # A task that the reconciler awaited may have been cancelled: the worker continues.
            return is_cancelled()
        if isinstance(error, GeneratorExit):
            # Python closes the coroutine of an abandoned worker, or the reconciler raised it.
            return not _runs_in_task()
        return isinstance(error, KeyboardInterrupt)

    def _abort(self, info: ReconcileInfo, error: BaseException) -> None:
        """The reconcile was cancelled: retry it unless the controller stops."""
        self._record_error(info, "error", error)
        if not self._stopping and not isinstance(error, GeneratorExit):
            self._retry(info, error)

    def _succeeded(self, info: ReconcileInfo, result: Result) -> None:
        queue, request = self.queue, info.request
        priority = info.priority if result.priority is None else result.priority
        delay = result.requeue_after
        if delay is not None:
            seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
            queue.forget(request)
            queue.add_after(request, seconds, priority=priority, trigger=REQUEUE)
            info.requeue_after = seconds
            info.result = "requeue_after"
        else:
            queue.forget(request)
            info.result = "success"
        self._tally.results[info.result] += 1

    def _failed(self, info: ReconcileInfo, error: BaseException) -> None:
        match self._classify(info.request, error):
            case ErrorClass.DELETED:
                # The object was deleted: there is nothing left to do.
                self._succeeded(info, _NO_RESULT)
            case ErrorClass.TERMINAL:
                self._record_error(info, "error", error)
                self._tally.terminal_errors += 1
                self.queue.forget(info.request)
                self._log.error(
                    "reconcile failed with a terminal error; waiting for a change", error=_format_error(error)
                )
            case ErrorClass.CONFLICT:
                # Another client wrote between our read and our write: normal under optimistic concurrency.
                self._record_error(info, "error", error)
                retry = self._retry(info, error)
                self._log.info(
                    "conflict; retrying with fresh data", error=_format_error(error), retry_in_seconds=retry
                )
            case ErrorClass.RETRYABLE:
                self._record_error(info, "error", error)
                retry = self._retry(info, error)
                if is_panic(error):
                    self._tally.panics += 1
                self._log.error(
                    "reconcile failed", exc_info=error, error=_format_error(error), retry_in_seconds=retry
                )

    def _classify(self, request: Request, error: BaseException) -> ErrorClass:
        return classify(error, self.resource, request, exists=self.exists(request))

    def _retry(self, info: ReconcileInfo, error: BaseException) -> float:
        trigger = Trigger(type(flatten(error)[0]).__name__, None, "retry")
        return self.queue.add_rate_limited(info.request, priority=info.priority, trigger=trigger)

    def _record_error(self, info: ReconcileInfo, result: str, error: BaseException) -> None:
        info.result = result
        info.errors = tuple(type(each).__name__ for each in flatten(error))
        self._tally.results[result] += 1
        self._tally.errors += 1

    async def _run_source(self, source: Source) -> None:
        """Run ``source``, and restart it after each failure."""
        trigger = Trigger(source.name, None, "external")
        clock, backoff = self._runtime.clock, _INITIAL_SOURCE_BACKOFF_SECONDS
        accepts = self.spec.source_filter

        def enqueue(request: ObjectKey, *, priority: int = NORMAL_PRIORITY) -> None:
            if accepts is None or accepts(request):
                self.queue.add(Request.of(request), priority=priority, trigger=trigger)

        while True:
            started_at = clock.monotonic()
            try:
                await source.run(enqueue, self._runtime)
            except BaseException as error:
                if self._is_worker_cancellation(error):
                    raise
                self._tally.source_restarts += 1
                if clock.monotonic() - started_at > _MAX_SOURCE_BACKOFF_SECONDS:
                    backoff = _INITIAL_SOURCE_BACKOFF_SECONDS
                fields = {"controller": self.name, "source": source.name}
                self._log.error("source failed", exc_info=error, retry_in_seconds=backoff, **fields)
            else:
                return
            await clock.sleep(backoff)
            backoff = min(backoff * 2, _MAX_SOURCE_BACKOFF_SECONDS)


def _runs_in_task() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def _format_error(error: BaseException) -> str:
    """Return the class and the message of each error in ``error``."""
    return "; ".join(_describe_error(each) for each in flatten(error))


def _describe_error(error: BaseException) -> str:
    name, text = type(error).__name__, error_text(error)
    return name if text == name else f"{name}: {text}"
