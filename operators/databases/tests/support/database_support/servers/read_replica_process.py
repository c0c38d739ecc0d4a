"""The program of a read replica with other paths, run by tests."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> int:
    given = json.loads(sys.argv[1])
    sys.path[:0] = given["path"]
    from steersman_instance.agent import SignalWaiter
    from steersman_instance.paths import InstancePaths
    from steersman_instance.read_replica import program
    from steersman_pod.volumes import lock_volume

    os.umask(0o077)
    program.RESTART_STAGGER_SECONDS = 1.0
    paths = InstancePaths(**{name: Path(path) for name, path in given["paths"].items()})
    lock_volume(paths.volume)
    setup = program.Setup(
        pod=given["pod"],
        version=given["version"],
        paths=paths,
        declaration=Path(given["declaration"]),
        program="postgres",
        listen="127.0.0.1",
        port=given["port"],
    )
    program.run(setup, SignalWaiter(), given["report_port"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
