"""Volume of a recovery.

Data are created in a staging directory, which one rename makes the instance's.

A restore over present data first gives them the name of the staging directory.

Files on the volume, in the order in which they appear:

- ``.recovery.json``: the job, the plan and the phase. Data of another job are discarded.
- ``.pgdata.recovering``: the data directory while it is restored and replayed. No instance starts from it.
- ``recovered.json``: the result. From here on the recovery is complete.
- ``pgdata``: the staging directory after its rename.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from ..files import read_json, replace_file
from ..jobs import JobRefused
from ..paths import InstancePaths

FORMAT = 1
MARKER = "recovered.json"
WAL_PREFIX = ".recovery-wal-"
"""Of temporary directories on the volume, in which planning reads WAL."""

Phase = Literal["Restoring", "Replaying"]


class Staging:
    """The state of a recovery on its volume.

    Args:
        job: identifies what is recovered. Another value begins again.
        overwrites: True if present data are replaced. Otherwise they are refused.
    """

    def __init__(self, paths: InstancePaths, job: str, *, overwrites: bool = False) -> None:
        self._paths = paths
        self._job = job
        self._overwrites = overwrites
        self._state_file = paths.volume / ".recovery.json"
        self._marker = paths.volume / MARKER
        self.data = paths.volume / ".pgdata.recovering"
        self.log = paths.volume / ".recovery.log"

    @property
    def wal(self) -> Path | None:
        """Directory for WAL on the WAL volume, or None."""
        return self._paths.wal / "pg_wal" if self._paths.wal.is_dir() else None

    def completed(self) -> Mapping[str, Any] | None:
        """Return the result of a complete recovery, after its last step.

        Raises:
            JobRefused: the volume has other data.
        """
        marker = read_json(self._marker)
        if marker.get("job") == self._job:
            self._adopt()
            return cast("Mapping[str, Any]", marker["recovery"])
        data = self._paths.postgresql_data
        if not self._overwrites and (marker or (data.is_dir() and any(data.iterdir()))):
            raise JobRefused(
                "VolumeNotEmpty", "The data volume has data of a database already. A recovery needs an empty volume."
            )
        return None

    def plan(self) -> tuple[Mapping[str, Any], Phase] | None:
        """Return plan and phase of an interrupted run of the same job. The data of another one are discarded."""
        state = read_json(self._state_file)
        if state.get("format") == FORMAT and state.get("job") == self._job:
            return state["plan"], state["phase"]
        self.discard()
        return None

    def save(self, plan: Mapping[str, Any], phase: Phase) -> None:
        """Persist plan and phase."""
        content = {"format": FORMAT, "job": self._job, "plan": plan, "phase": phase}
        replace_file(self._state_file, json.dumps(content))
        fsync(self._state_file)
        fsync(self._paths.volume)

    def take_over(self) -> None:
        """Make present data the staging directory.

        So only the differences are restored.

        The result of their own recovery goes first, since it no longer describes the volume.
        """
        data = self._paths.postgresql_data
        if not self._overwrites or not data.is_dir():
            return
        self._marker.unlink(missing_ok=True)
        fsync(self._paths.volume)
        shutil.rmtree(self.data, ignore_errors=True)
        data.rename(self.data)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        if (self.data / "pg_wal").is_symlink():
            # Its directory on the WAL volume was discarded, and pgBackRest creates both.
            (self.data / "pg_wal").unlink()
        fsync(self._paths.volume)

    def discard(self) -> None:
        """Remove what an unfinished recovery left. The state goes last."""
        shutil.rmtree(self.data, ignore_errors=True)
        for directory in self._paths.volume.glob(f"{WAL_PREFIX}*"):
            shutil.rmtree(directory, ignore_errors=True)
        if self.wal is not None:
            shutil.rmtree(self.wal, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self._state_file.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Return the space for data: free, or overwritten."""
        present = (file for data in (self.data, self._paths.postgresql_data) for file in data.rglob("*"))
        used = sum(file.lstat().st_size for file in present if file.is_file() and not file.is_symlink())
        return shutil.disk_usage(self._paths.volume).free + used

    def complete(self, recovery: Mapping[str, object]) -> None:
        """Make the staging directory the instance's data."""
        document = json.dumps({"format": FORMAT, "job": self._job, "recovery": recovery})
        replace_file(self._marker, document, 0o640)
        fsync(self._marker)
        fsync(self._paths.volume)
        self._adopt()

    def _adopt(self) -> None:
        data = self._paths.postgresql_data
        if self.data.is_dir():
            if data.is_dir():
                data.rmdir()
            self.data.rename(data)
            fsync(self._paths.volume)
        self.log.unlink(missing_ok=True)
        self._state_file.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
