"""Commands whose output goes to a log file."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.errors import CommandFailed

_ERROR_TAIL_LINES = 15  # number of log lines that an error message repeats


def logged(
    arguments: Sequence[str],
    log: Path,
    *,
    seconds: float,
    extra: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> None:
    """Run a command to its end, with its output appended to `log`.

    It has this process's environment, for its proxies and certificates, with `extra` on top. Raises CommandFailed
    with the last lines and the log's place, also when it takes longer than `seconds`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+b") as output:
        output.write(f"$ {' '.join(arguments)}\n".encode())
        output.flush()
        output_start = output.tell()
        try:
            returncode = subprocess.run(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(extra or {})},
                cwd=directory,
                timeout=seconds,
                check=False,
            ).returncode
            outcome = f"ended with {returncode}"
        except subprocess.TimeoutExpired:
            returncode, outcome = -1, f"had no end after {seconds:.0f} s"
        if returncode != 0:
            output.seek(output_start)
            tail = output.read().decode(errors="replace").strip().splitlines()[-_ERROR_TAIL_LINES:]
            raise CommandFailed("\n".join([f"{arguments[0]} {outcome}; all of it is in {log}", *tail]))
