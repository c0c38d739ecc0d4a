"""The sidecar as a process of this machine. A container is a session that the test started.

Usage: ``python sidecar_process.py DIRECTORY KILL_MARGIN``. The directory has a file for each session.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from leader_operator.sidecar.processes import PodProcesses

_SESSION_FIELD = 3


def main(directory: Path, kill_margin: float) -> None:
    """Run the sidecar until SIGTERM."""

    def container_of(entry: Path) -> str | None:
        session = (entry / "stat").read_text().rpartition(")")[2].split()[_SESSION_FIELD]
        return session if (directory / session).exists() else None

    asyncio.run(PodProcesses(time.monotonic, container_of=container_of).kill())
    from leader_operator.sidecar.runner import run_sidecar
    from leader_operator.sidecar.settings import SidecarSettings

    settings = replace(SidecarSettings.from_environment(os.environ), kill_margin=kill_margin)
    asyncio.run(run_sidecar(settings, container_of))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
