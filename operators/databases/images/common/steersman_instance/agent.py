"""The agent of an instance.

It keeps independent services running.

A service is a process. So a crash, a hang or a memory leak of one never reaches another, and stopping takes a bounded
time. The database server does not depend on the agent: it starts, serves and stops without it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from .services import SERVICES, Service

CHECK_INTERVAL_SECONDS = 5.0
STOP_SECONDS = 3.0  # from SIGTERM to SIGKILL
FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
STABLE_SECONDS = 60.0  # a service that ran for longer starts again with the first back-off

Version = tuple[tuple[int, int, int] | None, ...]


class Process(Protocol):
    """The part of `subprocess.Popen` that the supervisor uses."""

    pid: int

    def poll(self) -> int | None: ...
    def send_signal(self, sig: int, /) -> None: ...


def start_process(service: Service) -> Process:
    """Start the program of a service in its own session.

    Its children can then be ended with it.
    """
    return subprocess.Popen(
        list(service.command),
        stdin=subprocess.DEVNULL,
        env={**os.environ, **service.environment},
        start_new_session=True,
    )


def log(message: str) -> None:
    """Write a line to the logs of the container."""
    sys.stderr.write(f"steersman-agent: {message}\n")
    sys.stderr.flush()


class SupervisedService:
    """One service with its process and its back-off. Times are of the monotonic clock."""

    def __init__(self, service: Service, start: Callable[[Service], Process] = start_process) -> None:
        self.service = service
        self._start_process = start
        self._process: Process | None = None
        self._started_at = 0.0
        self._backoff_seconds = 0.0
        self._next_start_at = 0.0
        self._kill_at: float | None = None
        self._watched: Version | None = None
        self._last_error = ""

    @property
    def running(self) -> bool:
        """True while the process exists, also while it stops."""
        return self._process is not None

    def step(self, now: float) -> float:
        """Do what is due. Return the time of the next step."""
        self._reap(now)
        enabled = self._enabled(now)
        if self._process is not None:
            if enabled is False:
                self.stop(now)
            elif enabled is True:
                self._pass_changes_on(now)
            if self._kill_at is not None and now >= self._kill_at:
                self._signal_group(signal.SIGKILL)
                self._kill_at = now + STOP_SECONDS
        elif enabled and now >= self._next_start_at:
            self._start(now)
        return self._next_step_at(now)

    def stop(self, now: float) -> None:
        """Request the end of the process; SIGKILL follows after `STOP_SECONDS`."""
        if self._process is not None and self._kill_at is None:
            self._process.send_signal(signal.SIGTERM)
            self._kill_at = now + STOP_SECONDS

    def kill(self) -> None:
        """End the process and its children at once."""
        self._signal_group(signal.SIGKILL)

    def reap(self, now: float) -> None:
        """Notice that the process has ended."""
        self._reap(now)

    def _enabled(self, now: float) -> bool | None:
        """Return None if the service cannot report.

        A running process then stays as it is.
        """
        if self._process is None and now < self._next_start_at:
            return None
        try:
            enabled = self.service.enabled()
        except Exception as error:
            # A failure of one service must not end the others.
            self._report(f"{self.service.name}: {error}")
            self._fail(now)
            return None
        self._report("")
        return enabled

    def _start(self, now: float) -> None:
        self._watched = watched_version(self.service.watched)
        try:
            self._process = self._start_process(self.service)
        except OSError as error:
            self._report(f"{self.service.name}: {self.service.command[0]} cannot be started: {error.strerror}")
            self._fail(now)
            return
        self._started_at, self._kill_at = now, None

    def _reap(self, now: float) -> None:
        if self._process is None or (code := self._process.poll()) is None:
            return
        # Its children would hold locks and ports that the next process needs.
        self._signal_group(signal.SIGKILL)
        requested = self._kill_at is not None
        self._process, self._kill_at = None, None
        if requested:
            self._next_start_at = now
            return
        if now - self._started_at >= STABLE_SECONDS:
            self._backoff_seconds = 0.0
        self._fail(now)
        log(f"{self.service.name} ended with {code}; it is started again in {self._backoff_seconds:.0f} s")

    def _fail(self, now: float) -> None:
        doubled = max(FIRST_BACKOFF_SECONDS, 2 * self._backoff_seconds)
        self._backoff_seconds = min(MAX_BACKOFF_SECONDS, doubled)
        self._next_start_at = now + self._backoff_seconds

    def _pass_changes_on(self, now: float) -> None:
        version = watched_version(self.service.watched)
        if version == self._watched or self._process is None:
            return
        self._watched = version
        if self.service.on_change == "reload":
            self._process.send_signal(signal.SIGHUP)
        else:
            self.stop(now)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _next_step_at(self, now: float) -> float:
        if self._kill_at is not None:
            return self._kill_at
        if self._process is None and self._next_start_at > now:
            return self._next_start_at
        return now + CHECK_INTERVAL_SECONDS

    def _report(self, message: str) -> None:
        """Log an error once, until it changes or ends."""
        if message and message != self._last_error:
            log(message)
        self._last_error = message


def watched_version(files: Sequence[Path]) -> Version:
    """Return what changes when a file is replaced.

    The kubelet replaces mounted Secrets by a symbolic link.
    """
    return tuple(_file_version(path) for path in files)


def _file_version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Supervisor:
    """Runs services and stops them in a bounded time."""

    def __init__(self, services: Sequence[SupervisedService], clock: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._clock = clock

    def step(self) -> float:
        """Advance every service. Return the seconds until the next step."""
        now = self._clock()
        return max(0.0, min((each.step(now) for each in self._services), default=now + CHECK_INTERVAL_SECONDS) - now)

    def stop(self, wait: Callable[[float], object]) -> None:
        """Stop every service within `STOP_SECONDS`, then kill what is left.

        Args:
            wait: returns after the given seconds, or earlier when a process has ended.
        """
        deadline = self._clock() + STOP_SECONDS
        for each in self._services:
            each.stop(self._clock())
        while any(each.running for each in self._services):
            now = self._clock()
            for each in self._services:
                if now >= deadline:
                    each.kill()
                each.reap(now)
            if now >= deadline + 1:
                return
            if any(each.running for each in self._services):
                wait(max(0.1, deadline - now))


class SignalWaiter:
    """Waits for a time or a signal. SIGTERM and SIGINT set ``stopping``."""

    def __init__(self) -> None:
        self.stopping = False
        self._read_end, write_end = os.pipe()
        for descriptor in (self._read_end, write_end):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def wait(self, seconds: float) -> None:
        """Return after this time, or as soon as a signal has arrived."""
        if select.select([self._read_end], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_end, 4096)

    def _stop(self, _number: int, _frame: object) -> None:
        self.stopping = True


def main(arguments: Sequence[str]) -> int:
    """Run the agent of an engine: ``agent postgresql`` or ``agent mysql``."""
    if len(arguments) != 1 or arguments[0] not in SERVICES:
        sys.stderr.write(f"usage: steersman-instance agent {'|'.join(SERVICES)}\n")
        return 2
    os.umask(0o077)
    waiter = SignalWaiter()
    supervisor = Supervisor([SupervisedService(each) for each in SERVICES[arguments[0]]()])
    while not waiter.stopping:
        waiter.wait(supervisor.step())
    supervisor.stop(waiter.wait)
    return 0
