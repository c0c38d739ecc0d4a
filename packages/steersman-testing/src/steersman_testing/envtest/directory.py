"""Directory of an environment, with cleanup after killed processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "steersman-envtest-"
_LOCK_FILE = "in-use"


class EnvironmentDirectory:
    """A new temporary directory. The logs of etcd need about 130 MB.

    A kernel lock marks the directory as used until this process ends. The next environment removes directories
    without a lock.

    Attributes:
        path: path of the directory.
    """

    def __init__(self) -> None:
        _remove_stale(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Renamed after locking, because an unlocked lock file marks a stale directory.
        new = self.path / f"{_LOCK_FILE}.new"
        self._lock = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _LOCK_FILE)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file with mode 0600."""
        path = self.path / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path

    def remove(self) -> None:
        """Remove the directory. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_stale(temporary: Path) -> None:
    for lock in temporary.glob(f"{_PREFIX}*/{_LOCK_FILE}"):
        # Directories of other users cannot be opened, and used ones are locked.
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
