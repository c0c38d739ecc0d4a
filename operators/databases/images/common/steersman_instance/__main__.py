"""``steersman-instance``: one program with sub-programs, each imported only when it runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

from . import jobs

PROGRAMS: Mapping[str, str] = {
    "agent": "agent",
    "archive": "archive.command",
    "archive-report": "archive.report",
    "binlog": "binlog.collector",
    "binlog-report": "binlog.report",
    "history": "metrics.history.program",
    "metrics": "metrics.exporter",
    "read-replica": "read_replica.program",
    "trial": "trial",
    "volumes": "volumes.report",
}
"""The module of each sub-program. It has ``main(arguments) -> int``, which returns the exit code."""


def main(arguments: Sequence[str]) -> int:
    """Run a sub-program. Return its exit code; 2 for a wrong command line."""
    if not arguments or arguments[0] not in (*PROGRAMS, *jobs.PROGRAMS):
        sys.stderr.write(f"usage: steersman-instance {'|'.join((*PROGRAMS, *jobs.PROGRAMS))} [ARGUMENTS]\n")
        return 2
    if arguments[0] in jobs.PROGRAMS:
        return jobs.main(arguments[0], arguments[1:])
    module = importlib.import_module(f".{PROGRAMS[arguments[0]]}", __package__)
    return int(module.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
