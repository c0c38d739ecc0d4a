"""An operator of many namespaces has a connection for each watch: the soft limit is not in its way."""

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
    """Those of a process that began with these: a hard limit cannot be raised again."""
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


@pytest.mark.parametrize("soft", [64, 1024, 4096])
def test_the_soft_limit_becomes_the_hard_one(soft: int) -> None:
    assert limits(soft, 4096) == (4096, 4096)
