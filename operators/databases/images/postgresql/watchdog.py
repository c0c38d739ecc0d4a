#!/usr/bin/python3 -I
"""steersman-watchdog: ends PostgreSQL before a Patroni that hangs loses its lock.

`steersman-watchdog check` only shows that it can run.

It runs for the container's life and serves the watchdog device of Patroni, which is a named pipe. Patroni activates
it while it leads, and writes to it each time that it has renewed the lock. When nothing came for the timeout, each
process of the server is killed, so that a server without a lock acknowledges nothing.

Source: Patroni, patroni/watchdog/linux.py, TestingWatchdogDevice.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

DEVICE = Path("/run/steersman/watchdog")
DATA = Path("/var/lib/steersman/data/pgdata")
PROCESSES = Path("/proc")
DEFAULT_TIMEOUT_SECONDS = 12.0  # if this process has ended since Patroni set the timeout
_TICK_SECONDS = 0.25
_KILL_INTERVAL_SECONDS = 0.05  # a process that waits for its disk ends later
_COMMANDS = re.compile(rb"Ctimeout=(\d+)\n|([1V])")


class Timer:
    """The state of the watchdog. Times are in seconds."""

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT_SECONDS
        self._expires: float | None = None

    def receive(self, content: bytes, now: float) -> None:
        """Handle what Patroni wrote: a timeout, keepalives, or `V`, which deactivates."""
        for timeout, command in _COMMANDS.findall(content):
            if timeout:
                self._timeout = float(timeout)
            self._expires = None if command == b"V" else now + self._timeout

    def expired(self, now: float) -> bool:
        """Return True once after the timeout. The next keepalive starts the next one."""
        if self._expires is None or now < self._expires:
            return False
        self._expires = None
        return True


def servers(data: Path) -> Iterator[int]:
    """Yield all processes of the server with these data.

    Each of them works in the directory of the data, and most lead a session of their own. The volume is not read,
    because it may hang.
    """
    for entry in PROCESSES.iterdir():
        try:
            is_server = entry.name.isdigit() and (entry / "comm").read_bytes() == b"postgres\n"
            if is_server and (entry / "cwd").readlink() == data:
                yield int(entry.name)
        except OSError:
            continue  # It has ended, or belongs to another user.


def kill_servers(data: Path) -> int:
    """Kill all processes of the server until none is left. Returns their number."""
    killed: set[int] = set()
    while found := set(servers(data)):
        killed |= found
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_KILL_INTERVAL_SECONDS)
    return len(killed)


def clock() -> float:
    """Return seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(path: Path = DEVICE, data: Path = DATA) -> None:
    """Serve the device forever."""
    # Also for writing: a pipe without a writer would always be readable.
    device = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    timer = Timer()
    while True:
        written = select.select([device], [], [], _TICK_SECONDS)[0]
        # Before the pipe is read: after a pause of the whole pod it shows what Patroni wrote before.
        if timer.expired(clock()):
            killed = kill_servers(data)
            sys.stderr.write(f"steersman: Patroni has not renewed its lock: ended {killed} processes of PostgreSQL\n")
        if written:
            timer.receive(os.read(device, 4096), clock())


if __name__ == "__main__" and sys.argv[1:] != ["check"]:
    main()
