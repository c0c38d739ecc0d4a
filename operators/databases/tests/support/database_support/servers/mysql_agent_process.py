"""One member's agent as a process of an unprivileged user, with its mysqld on loopback. Run by tests.

Its environment is that of the pod; the argument is what differs of the place, as JSON.
"""

from __future__ import annotations

import codecs
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from database_support.servers.member_paths import paths_in
from database_support.servers.process import UNPRIVILEGED_UID
from steersman_agent.__main__ import run
from steersman_agent.server.process import ServerPaths
from steersman_pod import api_client

_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """The process. What it needs of Python it has read before it becomes somebody else."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    directory = Path(given["directory"])
    api_client.ACCOUNT = Path(given["account"])
    codecs.lookup("idna")
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(UNPRIVILEGED_UID)
        os.setuid(UNPRIVILEGED_UID)
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)

    def place(_: str, instance: int) -> ServerPaths:
        return paths_in(directory, given["program"], given["port"], instance)

    run(os.environ, place)


if __name__ == "__main__":
    main()
