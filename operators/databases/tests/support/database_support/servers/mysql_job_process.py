"""The recovery Job of MySQL as a process, which may end in the middle as a killed pod does. Run by tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from database_support.archive.job_process import KILLED, cut, cut_when
from steersman_instance.backup import restic
from steersman_instance.jobs import JobFields
from steersman_instance.mysqld import MysqldProgram
from steersman_instance.paths import InstancePaths
from steersman_instance.recovery import mysql, mysql_restore

_TIMEOUT_SECONDS = 110


@dataclass(frozen=True, slots=True)
class RecoveryOutcome:
    """How the Job ended. ``result`` is empty unless it was complete."""

    code: int
    result: Mapping[str, Any]
    logs: str


def run_recovery(
    paths: InstancePaths, fields: Mapping[str, object], program: MysqldProgram, *, moment: str = ""
) -> RecoveryOutcome:
    """Run the Job in a PID namespace of its own: as in a pod, its servers end with it.

    Args:
        moment: where it is killed; `arm` has the names.
    """
    given = {
        "paths": {name: str(getattr(paths, name)) for name in InstancePaths.__slots__},
        "fields": fields,
        "command": list(program.command),
        "options": dict(program.options),
        "moment": moment,
    }
    namespace = ["unshare", "--pid", "--fork", "--kill-child"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*namespace, sys.executable, __file__],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    return RecoveryOutcome(done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}, done.stderr)


def arm(moment: str, paths: InstancePaths) -> None:
    """Choose where the process ends."""
    staging = paths.volume / "mysql.recovering"
    moments: dict[str, Callable[[], None]] = {
        "planned": lambda: cut(mysql_restore, "_check_room", after=True),
        "restoring": lambda: cut_when(lambda: (staging / "ibdata1").exists()),
        "restored": lambda: cut(restic.Restic, "restore", after=True),
        "replaying": lambda: cut(mysql_restore, "_applied", after=False),
        "replayed": lambda: cut(mysql_restore, "_check_result", after=False),
        "recovered": lambda: cut(mysql, "_complete", after=False),
        "marked": lambda: cut(mysql, "_adopt", after=False),
        "adopted": lambda: cut(mysql, "_adopt", after=True),
    }
    moments[moment]()


def main() -> int:
    given = json.load(sys.stdin)
    paths = InstancePaths(**{name: Path(path) for name, path in given["paths"].items()})
    if given["moment"]:
        arm(given["moment"], paths)
    program = MysqldProgram(given["command"], None, given["options"])
    # Servers write to standard output as well.
    output = os.dup(1)
    os.dup2(2, 1)
    result = mysql.run(JobFields(given["fields"]), paths, program)
    with os.fdopen(output, "w") as file:
        json.dump(result, file)
    return 0


__all__ = ["KILLED", "RecoveryOutcome", "run_recovery"]

if __name__ == "__main__":
    sys.exit(main())
