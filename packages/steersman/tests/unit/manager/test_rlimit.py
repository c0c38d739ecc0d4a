"""The manager raises the limit of open files."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from steersman.manager.rlimit import raise_nofile_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
raise_nofile_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits(soft: int, hard: int) -> tuple[int, ...]:
    """Limits of a process that starts with these and calls the function."""
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


@pytest.mark.parametrize("soft", [64, 1024, 4096])
def test_nofile_limit_is_raised_to_hard_limit(soft: int) -> None:
    assert limits(soft, 4096) == (4096, 4096)
