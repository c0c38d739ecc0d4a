"""Synchronous reconcilers: one thread for each running reconcile.

A thread cannot be interrupted. A cancelled reconcile therefore waits until its thread has ended. Every client call of
the thread raises from then on. The requests of a thread run in the task of its reconcile. Timeouts, logs, traces and
the fence of the leader therefore apply to them.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog

from steersman.cache import CachedClient
from steersman.controller.events import EventRecorder
from steersman.controller.reconciler import Reconciler, ReconcilerContext, Result
from steersman.errors import SteersmanError
from steersman.meta import Condition, Object
from steersman.observability.runtime import Runtime, SystemClock

T = TypeVar("T", bound=Object)
P = ParamSpec("P")
R = TypeVar("R")


class ReconcileCancelled(SteersmanError):
    """The reconcile of this thread was cancelled: end the thread."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A coroutine that the thread waits for."""

    coroutine: Coroutine[Any, Any, Any]
    reply: Future[Any]

    def reject(self) -> None:
        self.coroutine.close()
        self.reply.set_exception(ReconcileCancelled("the reconcile was cancelled; return from the function"))


class ReconcileThread:
    """A thread with one reconcile, and the task that runs its requests.

    Args:
        runtime: with a virtual clock, the event loop waits for the thread. Virtual time then passes only while the
            thread waits for a request, and the order of events is deterministic.

    Attributes:
        ended: set when the thread has ended.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.ended = asyncio.Event()
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._is_lockstep = not isinstance(runtime.clock, SystemClock)
        self._messages: asyncio.Queue[_Call | None] = asyncio.Queue()
        self._lockstep_messages: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._is_cancelled = False
        self._outcome: Future[Any] = Future()

    async def run(self, function: Callable[[], R]) -> R:
        """Run ``function`` in a thread and return its result.

        A first cancellation waits for the end of the thread. A second one abandons it: at the end of the process.
        """
        context = contextvars.copy_context()
        # A daemon thread does not block the end of a process that has lost its leadership.
        thread = threading.Thread(target=context.run, args=(self._work, function), name="reconcile", daemon=True)
        try:
            thread.start()
        except BaseException:
            self.ended.set()
            raise
        cancellation: asyncio.CancelledError | None = None
        while True:
            try:
                message = await self._receive()
                if message is None:
                    break
                await self._serve(message)
            except asyncio.CancelledError as error:
                self._is_cancelled = True
                if cancellation is not None:
                    self._reject_waiting()
                    raise
                cancellation = error
        if cancellation is not None:
            raise cancellation
        return self._outcome.result()

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run ``coroutine`` in the task of the reconcile. The thread calls it and waits.

        Raises:
            ReconcileCancelled: the reconcile was cancelled, or has ended.
            RuntimeError: the call is made on the event loop, which it would block.
        """
        call = _Call(coroutine, Future())
        if self._is_cancelled or self._outcome.done():
            call.reject()
        elif threading.get_ident() == self._loop_thread:
            coroutine.close()
            raise RuntimeError("the call would block the event loop, which runs `where` and coroutines: use await")
        else:
            self._send(call)
        return call.reply.result()

    def _work(self, function: Callable[[], Any]) -> None:
        try:
            self._outcome.set_result(function())
        except BaseException as error:
            self._outcome.set_exception(error)
        self._send(None)

    def _send(self, message: _Call | None) -> None:
        if self._is_lockstep:
            self._lockstep_messages.put(message)
            return
        try:
            self._loop.call_soon_threadsafe(self._deliver, message)
        except RuntimeError:
            # The event loop has ended, and with it the process.
            if message is not None:
                message.reject()

    async def _receive(self) -> _Call | None:
        if not self._is_lockstep:
            return await self._messages.get()
        message = self._lockstep_messages.get()
        if message is None:
            self.ended.set()
        return message

    def _deliver(self, message: _Call | None) -> None:
        """Pass on a message, or reject an unexpected call."""
        if message is None:
            self.ended.set()
        elif self._is_cancelled or self.ended.is_set():
            message.reject()
            return
        self._messages.put_nowait(message)

    def _reject_waiting(self) -> None:
        while not self._messages.empty():
            if (message := self._messages.get_nowait()) is not None:
                message.reject()

    async def _serve(self, call: _Call) -> None:
        if self._is_cancelled:
            call.reject()
            return
        try:
            result = await call.coroutine
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling() == 0:
                # Something that the coroutine awaited was cancelled: the reconcile continues.
                call.reply.set_exception(error)
                return
            call.reply.set_exception(ReconcileCancelled("the reconcile was cancelled; return from the function"))
            raise
        except BaseException as error:
            call.reply.set_exception(error)
        else:
            call.reply.set_result(result)


def _blocking(
    verb: Callable[Concatenate[CachedClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingClient, P], R]:
    def call(self: BlockingClient, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.thread.call(verb(self.client, *args, **kwargs))

    call.__doc__ = verb.__doc__
    return call


class BlockingClient:
    """The client of a synchronous reconciler: the methods of ``CachedClient`` without ``await``.

    Attributes:
        client: the asynchronous client. Pass its coroutines to ``run``.
        thread: the thread of the reconcile.
    """

    def __init__(self, client: CachedClient, thread: ReconcileThread) -> None:
        self.client = client
        self.thread = thread

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run ``coroutine`` and return its result: ``client.run(client.client.live.evict(key))``."""
        return self.thread.call(coroutine)

    get = _blocking(CachedClient.get)
    get_or_none = _blocking(CachedClient.get_or_none)
    list = _blocking(CachedClient.list)
    is_served = _blocking(CachedClient.is_served)
    create = _blocking(CachedClient.create)
    apply = _blocking(CachedClient.apply)
    apply_status = _blocking(CachedClient.apply_status)
    patch = _blocking(CachedClient.patch)
    delete = _blocking(CachedClient.delete)


class BlockingEvents:
    """Records Events from a thread: see ``EventRecorder``."""

    def __init__(self, recorder: EventRecorder, thread: ReconcileThread) -> None:
        self._recorder = recorder
        self._thread = thread

    def normal(self, obj: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Record a Normal Event: ``reason`` in CamelCase, ``note`` for users."""
        self._emit(self._recorder.normal, obj, reason, note, action)

    def warning(self, obj: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Record a Warning Event; ``note`` says what to do."""
        self._emit(self._recorder.warning, obj, reason, note, action)

    def _emit(self, record: Callable[..., None], obj: Object, reason: str, note: str, action: str) -> None:
        async def emit() -> None:
            record(obj, reason, note, action=action)

        self._thread.call(emit())


class BlockingContext:
    """The dependencies of a synchronous reconciler."""

    def __init__(self, context: ReconcilerContext, thread: ReconcileThread) -> None:
        self._context = context
        self._thread = thread
        self.client = BlockingClient(context.client, thread)
        self.events = BlockingEvents(context.events, thread)
        self.log: structlog.typing.FilteringBoundLogger = context.log

    def status(self, obj: T, *, conditions: Iterable[Condition] = (), **fields: Any) -> T:
        """Update the status of ``obj``: see ``Reconciler.status``."""
        return self._thread.call(self._context.status(obj, conditions=conditions, **fields))


SyncReconcileFunc = Callable[[BlockingContext, T], Result | None]
"""``def reconcile(ctx, obj)``."""


class ThreadReconciler(Reconciler[T]):
    """The reconciler of a synchronous function.

    The number of threads is at most ``max_concurrent_reconciles``: a worker waits for its thread, even after a
    timeout.
    """

    def __init__(self, context: ReconcilerContext, function: SyncReconcileFunc[T]) -> None:
        super().__init__(context)
        self._function = function
        self._threads: set[ReconcileThread] = set()

    async def reconcile(self, obj: T) -> Result | None:
        """Call the function in a thread."""
        thread = ReconcileThread(self.runtime)
        context = BlockingContext(self.context, thread)
        self._threads.add(thread)
        try:
            return await thread.run(lambda: self._function(context, obj))
        finally:
            if thread.ended.is_set():
                self._threads.discard(thread)

    async def wait_closed(self) -> None:
        """Wait until all threads have ended."""
        for thread in tuple(self._threads):
            await thread.ended.wait()
            self._threads.discard(thread)
