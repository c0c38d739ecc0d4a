"""Only one running process holds the lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from devcluster import lock

HOLD_LOCK_SCRIPT = """
import sys, pathlib
from devcluster import lock
with lock.exclusive(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_lock_second_holder_waits_until_first_dies(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD_LOCK_SCRIPT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        waited: list[bool] = []

        def waiting() -> None:
            waited.append(True)
            holder.kill()

        with lock.exclusive(path, waiting):
            assert waited == [True]


def test_free_lock_is_acquired_without_notice(tmp_path: Path) -> None:
    waited: list[bool] = []
    with lock.exclusive(tmp_path / "lock", lambda: waited.append(True)):
        assert not waited
