"""State that archive commands share with each other and the agent."""

from __future__ import annotations

import json
import time
from pathlib import Path

from ..files import read_json, replace_file
from ..paths import PATHS, InstancePaths
from .errors import ArchiveError

DROPPED_FILE = "archive-dropped.json"


def state_directory(paths: InstancePaths = PATHS) -> Path:
    """Return the directory of the state. It is in memory: a new pod begins without it."""
    return paths.backup_run / "archive"


def dropped_file(paths: InstancePaths = PATHS) -> Path:
    """Return the file with the WAL that was given up. It is on the volume, since the gap outlives the pod."""
    return paths.volume / DROPPED_FILE


class FileRecord:
    """A record in files. Times are of the wall clock, since several processes and pods read them."""

    def __init__(self, paths: InstancePaths = PATHS) -> None:
        self._status = state_directory(paths) / "status.json"
        self._stopping = state_directory(paths) / "stopping.json"
        self._dropped = dropped_file(paths)

    def succeeded(self, name: str) -> None:
        """Record the file that was stored last."""
        self._write("Archiving", "", last=name)

    def failed(self, error: ArchiveError) -> None:
        """Record why a file was not stored."""
        self._write(error.reason, error.message)

    def seconds_since_failure(self) -> float | None:
        """Return None unless the last attempt failed."""
        status = read_json(self._status)
        at = status.get("at")
        if status.get("state", "Archiving") == "Archiving" or not isinstance(at, int | float):
            return None
        return max(0.0, time.time() - at)

    def dropped(self, name: str) -> None:
        """Extend the range of dropped files."""
        known = read_json(self._dropped)
        count = known.get("count")
        record = {
            "first": known.get("first") or name,
            "last": name,
            "count": (count if isinstance(count, int) else 0) + 1,
            "at": time.time(),
        }
        replace_file(self._dropped, json.dumps(record))

    def seconds_stopping(self, started: str) -> float:
        """Return the time since the first call for this server run."""
        known = read_json(self._stopping)
        at = known.get("at")
        if known.get("started") != started or not isinstance(at, int | float):
            replace_file(self._stopping, json.dumps({"started": started, "at": time.time()}))
            return 0.0
        return max(0.0, time.time() - at)

    def _write(self, state: str, message: str, last: str = "") -> None:
        now, known = time.time(), read_json(self._status)
        since = known.get("since") if known.get("state") == state else None
        status = {
            "state": state,
            "message": message,
            "since": since if isinstance(since, int | float) else now,
            "at": now,
            "last": last or known.get("last") or "",
        }
        replace_file(self._status, json.dumps(status))
