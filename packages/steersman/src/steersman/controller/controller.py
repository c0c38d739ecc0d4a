"""The worker loop: takes keys from the queue and reconciles them, whatever becomes of the one before."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

from steersman.controller.current import ReconcileInfo
from steersman.controller.failures import Verdict, both, is_panic, judge, leaves
from steersman.controller.queue import NORMAL, QueueShutDown, WorkQueue
from steersman.controller.reconciler import Outcome, Reconciler, Request, Result
from steersman.controller.sources import Source
from steersman.controller.triggers import REQUEUE, Trigger
from steersman.errors import SteersmanError
from steersman.meta import ApiResource, Object
from steersman.observability.logging import get_logger, log_context
from steersman.observability.runtime import Runtime
from steersman.observability.tallies import controller_tally

Tell = Callable[[BaseException], Any]
Span = Callable[[ReconcileInfo], AbstractContextManager[Tell | None]]
"""What surrounds a reconcile and its status update. What entering it gives, if anything, is told why it failed."""

_REMEMBERED = 256
# Reconciles that never wait for anything must not keep the event loop from its other duties for longer.
_LONGEST_BREATH = 0.01
_REVIVAL_SECONDS = 1.0
# That what was cancelled gets for its own clean-up.
_UNWINDING_SECONDS = 2.0
_SOURCE_PAUSE_SECONDS = 1.0
_LONGEST_SOURCE_PAUSE_SECONDS = 60.0


class ReconcileTimeout(SteersmanError):
    """A reconcile took longer than the controller allows and was cancelled; it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Settings of a controller.

    Attributes:
        max_concurrent_reconciles: how many objects are worked on at once; the same object never is.
        base_retry_delay: seconds until the first retry; they double with each failure in a row.
        max_retry_delay: seconds at most until a failed reconcile is tried again.
        reconcile_timeout: seconds that a reconcile may take; None for any time.
        needs_leader_election: whether it runs in the leader only.
    """

    max_concurrent_reconciles: int = 1
    base_retry_delay: float = 0.005
    max_retry_delay: float = 1000.0
    reconcile_timeout: float | None = None
    needs_leader_election: bool = True


class Controller:
    """One queue, one reconciler and its workers.

    Args:
        name: in logs and metrics.
        reconciler: what is run for each key.
        resource: where the reconciled kind lives.
        runtime: the seams.
        exists: whether the cache holds an object.
        options: settings.
        sources: where requests come from besides watches.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler[Any],
        *,
        resource: ApiResource,
        runtime: Runtime,
        exists: Callable[[Request], bool],
        options: ControllerOptions | None = None,
        sources: tuple[Source, ...] = (),
    ) -> None:
        self.name = name
        self.resource = resource
        self.options = options or ControllerOptions()
        self.span: Span | None = None
        """Entered for each reconcile, such as the span of a trace; left when ``info.result`` is known."""
        self.find: Callable[[Request], Object | None] | None = None
        """Gives the reconciled object as the cache holds it."""
        self.admits: Callable[[Request], bool] | None = None
        """Asked whether a request from a source counts."""
        self.owned: tuple[ApiResource, ...] = ()
        """The kinds that it was declared to own."""
        self.queue: WorkQueue[Request] = WorkQueue(
            name,
            runtime=runtime,
            base_delay=self.options.base_retry_delay,
            max_delay=self.options.max_retry_delay,
        )
        self._reconciler = reconciler
        self._runtime = runtime
        self.exists = exists
        """Whether the cache holds an object."""
        self._sources = sources
        self._workers: set[asyncio.Task[Any]] = set()
        self._feeding: list[asyncio.Task[Any]] = []
        self._running: dict[Request, ReconcileInfo] = {}
        self._recent: deque[ReconcileInfo] = deque(maxlen=_REMEMBERED)
        self._identifiers = random.Random(runtime.random.getrandbits(64))  # noqa: S311
        mine, inherited = cast("Any", type(reconciler)), cast("Any", Reconciler)
        self._reports_status = mine.update_status is not inherited.update_status
        self._started = self._stopping = self._debug = False
        self._log = get_logger("controller")
        self._tally = controller_tally(name)
        self._tally.workers = self.options.max_concurrent_reconciles

    @property
    def started(self) -> bool:
        """Whether its workers were started."""
        return self._started

    @property
    def needs_leader_election(self) -> bool:
        """Whether it may run in the leader only."""
        return self.options.needs_leader_election

    def start(self) -> None:
        """Starts workers and sources."""
        self._started = True
        # Asked for here, as the process has configured its logs by now.
        self._log = get_logger("controller").bind()
        self._debug = self._log.is_enabled_for(logging.DEBUG)
        for _ in range(self.options.max_concurrent_reconciles):
            self._start_worker()
        for source in self._sources:
            self._feeding.append(self._runtime.spawn(self._feed(source), f"{self.name} source {source.name}"))

    async def stop(self, grace: float, *, drain: bool = False) -> None:
        """Takes no new keys, lets running reconciles end for up to ``grace`` seconds, then cancels them.

        Args:
            grace: seconds.
            drain: reconcile what is ready as well, within ``grace``. Unless told it is left to the next leader,
                who takes over the sooner.

        A reconcile that does not end when it is cancelled is left behind after two seconds more; the log names it.
        """
        self._stopping = True
        for task in self._feeding:
            task.cancel()
        self.queue.shut_down(drain=drain)
        ending = {*self._workers, *self._feeding}
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=grace)
            for worker in late:
                worker.cancel()
        if ending:
            await asyncio.wait(ending, timeout=_UNWINDING_SECONDS)
        for info in self.running():
            self._log.error("a reconcile does not end when it is cancelled", **info.log_fields())

    def recent(self) -> tuple[ReconcileInfo, ...]:
        """The last reconciles that ended, 256 at most, oldest first; for debug endpoints."""
        return tuple(self._recent)

    def running(self) -> tuple[ReconcileInfo, ...]:
        """The reconciles that run at the moment."""
        return tuple(self._running.values())

    def _start_worker(self) -> None:
        worker = self._runtime.spawn(self._work(), f"{self.name} worker")
        self._workers.add(worker)
        worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[Any]) -> None:
        self._workers.discard(worker)
        if worker.cancelled() and not self._stopping:
            # Somebody cancelled the task and not what it waited for. Were that the end of the whole event loop, no
            # timer would run any more.
            asyncio.get_running_loop().call_later(_REVIVAL_SECONDS, self._revive)

    def _revive(self) -> None:
        if not self._stopping:
            self._log.error("a worker was cancelled; another takes its place", controller=self.name)
            self._start_worker()

    async def _work(self) -> None:
        queue, tally = self.queue, self._tally
        task = asyncio.current_task()
        assert task is not None
        breathed = 0.0
        while True:
            try:
                item = queue.take_nowait()
                if item is None:
                    item = await queue.take()
                    breathed = item.since
            except QueueShutDown:
                return
            request, began = item.key, item.since
            info = ReconcileInfo(self.name, item, queue.failures(request) + 1, self._runtime.clock, self._identifiers)
            log_context.set(info)
            self._running[request] = info
            tally.active += 1
            try:
                if self.span is None:
                    await self._reconcile(info)
                else:
                    with self.span(info) as tell:
                        await self._reconcile(info, tell)
            except Exception as error:
                # What surrounds the reconcile failed: neither the worker nor the object may be lost by that.
                self._failed(info, error)
            finally:
                tally.active -= 1
                del self._running[request]
                seconds = info.duration = queue.done(request)
                tally.durations.observe(seconds)
                self._recent.append(info)
            if task.cancelling():
                raise asyncio.CancelledError
            if began + seconds - breathed > _LONGEST_BREATH:
                breathed = began + seconds
                await asyncio.sleep(0)

    async def _reconcile(self, info: ReconcileInfo, tell: Tell | None = None) -> None:
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
                result = await self._in_time(self._reconciler.reconcile(request))
            if not isinstance(result, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"reconcile returned {result!r} in place of a Result")
        except BaseException as raised:
            if self._ends_worker(raised):
                self._give_up(info, raised)
                raise
            result, error = None, raised
        try:
            if self._reports_status and (error is None or self._verdict(request, error) is not Verdict.GONE):
                error = both(error, await self._status_error(info, Outcome(result=result, error=error)))
            if error is None:
                assert result is not None
                self._succeeded(info, result)
            else:
                self._failed(info, error)
                if tell is not None and info.result == "error":
                    tell(error)
        finally:
            # An error holds its traceback, and that this frame.
            error = None

    async def _in_time(self, work: Any) -> Any:
        seconds = self.options.reconcile_timeout
        if seconds is None:
            return await work
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._tally.timeouts += 1
            raise ReconcileTimeout(f"not done after {seconds:g} s") from error

    async def _status_error(self, info: ReconcileInfo, outcome: Outcome) -> BaseException | None:
        """What ``update_status`` raised."""
        try:
            await self._in_time(self._reconciler.update_status(info.request, outcome))
        except BaseException as raised:
            if self._ends_worker(raised):
                self._give_up(info, raised)
                raise
            self._tally.status_errors += 1
            return raised
        return None

    def _ends_worker(self, error: BaseException) -> bool:
        """Whether ``error`` is meant for the worker or the process rather than raised by the reconcile."""
        if isinstance(error, asyncio.CancelledError):
            # What the reconciler waited for may have been cancelled: no reason to lose a worker.
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
        return isinstance(error, KeyboardInterrupt | GeneratorExit)

    def _give_up(self, info: ReconcileInfo, error: BaseException) -> None:
        """The reconcile was cut off; unless controller or event loop end, its object must not be forgotten."""
        self._note(info, "error", error)
        if not self._stopping and not isinstance(error, GeneratorExit):
            self._retry(info, error)

    def _succeeded(self, info: ReconcileInfo, result: Result) -> None:
        queue, request = self.queue, info.request
        priority = info.priority if result.priority is None else result.priority
        if result.requeue_after is not None:
            queue.forget(request)
            queue.add_after(request, result.requeue_after, priority=priority, trigger=REQUEUE)
            info.requeue_after = result.requeue_after
            info.result = "requeue_after"
        elif result.requeue:
            queue.add_rate_limited(request, priority=priority, trigger=REQUEUE)
            info.result = "requeue"
        else:
            queue.forget(request)
            info.result = "success"
        self._tally.results[info.result] += 1

    def _failed(self, info: ReconcileInfo, error: BaseException) -> None:
        match self._verdict(info.request, error):
            case Verdict.GONE:
                # The object was deleted: there is nothing left to do.
                self._succeeded(info, Result())
            case Verdict.TERMINAL:
                self._note(info, "error", error)
                self._tally.terminal_errors += 1
                self.queue.forget(info.request)
                self._log.error("reconcile failed for good; waiting for a change", error=_words(error))
            case Verdict.STALE:
                # Somebody wrote between our read and our write: normal under optimistic concurrency, no error level.
                self._note(info, "error", error)
                retry = self._retry(info, error)
                self._log.info("conflict, trying again on fresh data", error=_words(error), retry_in_seconds=retry)
            case Verdict.FAILED:
                self._note(info, "error", error)
                retry = self._retry(info, error)
                if is_panic(error):
                    self._tally.panics += 1
                self._log.error("reconcile failed", exc_info=error, error=_words(error), retry_in_seconds=retry)

    def _verdict(self, request: Request, error: BaseException) -> Verdict:
        return judge(error, self.resource, request, exists=self.exists(request))

    def _retry(self, info: ReconcileInfo, error: BaseException) -> float:
        trigger = Trigger(type(leaves(error)[0]).__name__, None, "retry")
        return self.queue.add_rate_limited(info.request, priority=info.priority, trigger=trigger)

    def _note(self, info: ReconcileInfo, result: str, error: BaseException) -> None:
        info.result = result
        info.errors = tuple(type(each).__name__ for each in leaves(error))
        self._tally.results[result] += 1
        self._tally.errors += 1

    async def _feed(self, source: Source) -> None:
        """Runs ``source``, again and again as long as it fails."""
        trigger = Trigger(source.name, None, "external")
        clock, pause = self._runtime.clock, _SOURCE_PAUSE_SECONDS

        def push(request: Request, *, priority: int = NORMAL) -> None:
            if self.admits is None or self.admits(request):
                self.queue.add(request, priority=priority, trigger=trigger)

        while True:
            began = clock.monotonic()
            try:
                await source.run(push, self._runtime)
            except Exception as error:
                self._tally.source_restarts += 1
                if clock.monotonic() - began > _LONGEST_SOURCE_PAUSE_SECONDS:
                    pause = _SOURCE_PAUSE_SECONDS
                names = {"controller": self.name, "source": source.name}
                self._log.error("a source failed", exc_info=error, retry_in_seconds=pause, **names)
            else:
                return
            await clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_SOURCE_PAUSE_SECONDS)


def _words(error: BaseException) -> str:
    """All errors in ``error``, each with its class."""
    return "; ".join(f"{type(each).__name__}: {each}" if str(each) else type(each).__name__ for each in leaves(error))
