"""Crashes of PostgreSQL that end no container.

When a backend crashes, the postmaster ends all other processes and starts them again. So a crash has happened if the
checkpointer is another process and the postmaster is the same. A checkpointer otherwise lives as long as its
postmaster.

Source: PostgreSQL, src/backend/postmaster/postmaster.c, HandleChildCrash.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROCESSES = Path("/proc")
INTERVAL_SECONDS = 1.0
_TITLE = b"postgres:"
_CHECKPOINTER = b"checkpointer"


@dataclass(frozen=True)
class Checkpointer:
    """A checkpointer. `started` is in clock ticks since boot, since process IDs are used again."""

    pid: int
    postmaster: int
    started: int


def find_checkpointer(processes: Path = PROCESSES) -> Checkpointer | None:
    """Return the running checkpointer, or None."""
    for entry in processes.iterdir():
        if entry.name.isdigit() and (found := _checkpointer(entry)) is not None:
            return found
    return None


class CrashWatch:
    """Records crashes: checkpointers that replace another one of the same postmaster."""

    def __init__(self, record: Callable[[], None], processes: Path = PROCESSES) -> None:
        self._record, self._processes = record, processes
        self._last: Checkpointer | None = None

    def check(self) -> None:
        """Compare the checkpointer with the last one."""
        last = self._last
        if last is not None and _checkpointer(self._processes / str(last.pid)) == last:
            return
        found = find_checkpointer(self._processes)
        if found is None:
            return
        if last is not None and found.postmaster == last.postmaster:
            self._record()
        self._last = found

    def run(self, stop: threading.Event) -> None:
        """Check until `stop` is set."""
        while not stop.wait(INTERVAL_SECONDS):
            try:
                self.check()
            except OSError as error:
                sys.stderr.write(f"steersman: crashes cannot be recorded: {error}\n")


def _checkpointer(entry: Path) -> Checkpointer | None:
    """Return the process if it is a checkpointer."""
    try:
        if (entry / "comm").read_bytes() != b"postgres\n":
            return None
        title = (entry / "cmdline").read_bytes().rstrip(b"\0 ")
        if not title.startswith(_TITLE) or not title.endswith(_CHECKPOINTER):
            return None
        # The name of the program is in parentheses and may contain spaces.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None  # It has ended, or belongs to another user.
    return Checkpointer(pid=int(entry.name), postmaster=int(fields[1]), started=int(fields[19]))
