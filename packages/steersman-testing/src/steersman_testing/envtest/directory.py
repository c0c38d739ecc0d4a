"""The directory of one environment, which the next one removes where this process could not."""

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
    """A new directory for temporary files, of about 130 MB once etcd has written its logs there.

    Its lock is the kernel's: it ends with this process, however that ends. What such processes left behind goes when
    the next environment starts.

    Attributes:
        path: where it is.
    """

    def __init__(self) -> None:
        _remove_stale(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Under its name only once it is locked: a lock that is free says that nobody lives here any more.
        new = self.path / f"{_LOCK_FILE}.new"
        self._lock = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _LOCK_FILE)

    def write(self, name: str, content: bytes) -> Path:
        """A file that only we may read."""
        path = self.path / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path

    def remove(self) -> None:
        """Removes it with everything in it. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_stale(temporary: Path) -> None:
    for lock in temporary.glob(f"{_PREFIX}*/{_LOCK_FILE}"):
        # Others' directories cannot be opened, and those in use are locked.
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
