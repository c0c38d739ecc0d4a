"""Bounds the end of an operator's process.

A thread cannot be interrupted, and a reconcile may ignore its cancellation. Both could continue to change databases
or clouds after another replica became the leader. client-go exits for the same reason.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from steersman.manager.manager import Manager
from steersman.observability.logging import get_logger

# The grace period ends first, then the manager's own steps: cancellation, Events and the release of the Lease.
STOP_MARGIN_SECONDS = 10.0
# The next leader may start as soon as the Lease has expired.
LEADERSHIP_LOST_SECONDS = 5.0
# Cleanup of the event loop after the manager has ended, and of the interpreter after the main thread.
CLEANUP_SECONDS = 5.0

log = get_logger("manager")


class ExitDeadline:
    """Context manager that ends the process if its block is too slow.

    The block runs the event loop. Only the entry point of an operator may use it.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        _bound_interpreter_exit()

    async def follow(self, manager: Manager) -> None:
        """Set the deadline when ``manager`` stops or loses the leadership."""
        await manager.stopping()
        self.set(manager.options.graceful_shutdown_timeout + STOP_MARGIN_SECONDS)
        await manager.leadership_lost()
        self.set(LEADERSHIP_LOST_SECONDS)

    def set(self, seconds: float) -> None:
        """End the process in ``seconds``. Replaces an earlier deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, _exit, (seconds,))
        # The process must not wait for the timer.
        self._timer.daemon = True
        self._timer.start()


def _bound_interpreter_exit() -> None:
    """Limit how long Python joins threads of executors at its exit. It ends idle ones first."""
    executor = ThreadPoolExecutor(1)
    idle_thread = executor.submit(threading.current_thread).result()
    threading.Thread(target=_exit_after, args=(idle_thread, executor), daemon=True).start()


def _exit_after(idle_thread: threading.Thread, executor: ThreadPoolExecutor) -> None:
    # The thread would also end with its executor, so this frame holds it.
    idle_thread.join()
    time.sleep(CLEANUP_SECONDS)
    _exit(CLEANUP_SECONDS)


def _exit(seconds: float) -> None:
    log.error("process did not end in time, exiting: a thread or a reconcile ignores its cancellation", after=seconds)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(1)
