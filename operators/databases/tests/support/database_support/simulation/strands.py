"""Code that blocks, played in an event loop: each strand is a thread that runs only while the loop waits for it.

What such code waits for is awaited by the loop, in which other strands and tasks go on meanwhile. So one thing runs
at a time, in virtual time, and in the same order in each repetition. A strand that is cancelled is killed where it
waits, and waits for nothing any more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")

_here = threading.local()


class StrandKilled(BaseException):
    """The process of this strand has ended: it does nothing any more. Not to be caught by what it runs."""


class Strand:
    """A thread that runs ``work``."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._runs, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._asked: Callable[[], Awaitable[Any]] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.killed = False

    async def run(self) -> Any:
        """To its end; what ``work`` returned, or raised."""
        thread = threading.Thread(target=self._body, daemon=True)
        thread.start()
        try:
            while self._next():
                assert self._asked is not None
                try:
                    self._result, self._error = await self._asked(), None
                except Exception as error:
                    self._result, self._error = None, error
                self._runs.release()
        except BaseException:
            self.killed, self._error = True, StrandKilled()
            self._runs.release()
            thread.join()
            raise
        thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def _next(self) -> bool:
        """Lets the thread run until it waits; False once it is done."""
        self._waits.acquire()
        return self._asked is not None

    def _body(self) -> None:
        _here.strand = self
        try:
            result, error = self._work(), None
        except BaseException as failure:
            result, error = None, failure
        self._asked, self._result, self._error = None, result, error
        self._waits.release()

    def wait_for(self, asked: Callable[[], Awaitable[T]]) -> T:
        """From within: what the loop gets by awaiting it."""
        if self.killed:
            raise StrandKilled
        self._asked = asked
        self._waits.release()
        self._runs.acquire()
        if self._error is not None:
            raise self._error
        return self._result


def wait_for(asked: Callable[[], Awaitable[T]]) -> T:
    """From within a strand: what the loop gets by awaiting it. Raises Killed, and what that raises."""
    strand: Strand = _here.strand
    return strand.wait_for(asked)


class StrandExecutor(Executor):
    """Runs each thing in a strand of its own. ``submit`` is for strands.

    Args:
        process: is cancelled where one is killed: they are parts of it.
    """

    def __init__(self, process: asyncio.Task[Any] | None) -> None:
        self._process = process
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See ``Executor``."""
        done: Future[T] = Future()

        async def run() -> None:
            try:
                done.set_result(await Strand(lambda: fn(*args, **kwargs)).run())
            except StrandKilled:
                if self._process is not None:
                    self._process.cancel()
            except Exception as error:
                done.set_exception(error)

        async def start() -> None:
            task = asyncio.create_task(run(), name="deed")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        wait_for(start)
        return done

    def kill(self) -> None:
        """Ends all at once."""
        for task in [*self._tasks]:
            task.cancel()
