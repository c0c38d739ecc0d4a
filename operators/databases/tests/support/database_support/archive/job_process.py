"""A Job's program with other paths, which may end in the middle as a killed pod does. Run by tests."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

KILLED = 137


def die() -> NoReturn:
    """End at once. All other processes of the PID namespace end as well."""
    os._exit(KILLED)


def cut(owner: Any, name: str, *, after: bool) -> None:
    """Have a method end the process, before or after its first call."""
    original: Callable[..., object] = getattr(owner, name)

    @wraps(original)
    def replaced(*arguments: Any, **options: Any) -> None:
        if after:
            original(*arguments, **options)
        die()

    setattr(owner, name, replaced)


def cut_when(condition: Callable[[], bool]) -> None:
    """End the process as soon as a condition holds."""

    def watch() -> None:
        while not condition():
            time.sleep(0.001)
        die()

    threading.Thread(target=watch, daemon=True).start()


def _free_bytes(_staging: object) -> int:
    return 1 << 20


def arm(moment: str, volume: Path) -> None:
    """Choose where the process ends, or that it finds a full volume."""
    from steersman_instance.recovery import postgresql, server, staging

    log = volume / ".recovery.log"
    moments: dict[str, Callable[[], None]] = {
        "full": lambda: setattr(staging.Staging, "free_bytes", _free_bytes),
        "planned": lambda: cut(staging.Staging, "save", after=True),
        "restored": lambda: cut(postgresql.PostgreSQLRecovery, "_restore", after=True),
        "replaying": lambda: cut_when(lambda: log.exists() and b"redo starts" in log.read_bytes()),
        "promoted": lambda: cut(server.RecoveryServer, "query", after=False),
        "stopped": lambda: cut(postgresql.PostgreSQLRecovery, "_push_history", after=False),
        "pushed": lambda: cut(postgresql.PostgreSQLRecovery, "_push_history", after=True),
        "marked": lambda: cut(staging.Staging, "_adopt", after=False),
        "adopted": lambda: cut(staging.Staging, "_adopt", after=True),
    }
    moments[moment]()


def main() -> int:
    given, program, spec, moment = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent))
    from steersman_instance import jobs
    from steersman_instance.archive.pgbackrest import write_configuration
    from steersman_instance.paths import InstancePaths

    paths = InstancePaths(**{name: Path(path) for name, path in json.loads(given).items()})
    if program == "render":
        write_configuration(jobs.require_store(paths.store_file), paths)
        return 0
    if moment:
        arm(moment, paths.volume)
    return jobs.main(program, ["--spec", spec], paths)


if __name__ == "__main__":
    sys.exit(main())
