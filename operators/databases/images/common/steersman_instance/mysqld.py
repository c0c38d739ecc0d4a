"""MySQL server of a Job, without a network and outside a group."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .binlog.stream import LocalServer, ServerUnavailable

_START_SECONDS = 3600.0  # crash recovery of a large server
_STOP_SECONDS = 600.0
_POLL_SECONDS = 0.1
_MAX_LOG_BYTES = 1 << 20
_MAX_ERROR = 300


class MysqldFailed(Exception):
    """The server ended, or did not stop."""


@dataclass(frozen=True, slots=True)
class MysqldProgram:
    """Program and its files.

    Args:
        defaults: file with the image's settings.
        options: system variables of every server, by name.
    """

    command: Sequence[str] = ("mysqld",)
    defaults: Path | None = Path("/usr/local/share/steersman/mysql.cnf")
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def arguments(self, options: Mapping[str, str]) -> list[str]:
        """Return the command line. No option may be a secret."""
        defaults = f"--defaults-file={self.defaults}" if self.defaults else "--no-defaults"
        merged = {**self.options, **options}
        return [*self.command, defaults, *(f"--{name}={value}" for name, value in merged.items())]


@contextmanager
def running_server(
    program: MysqldProgram, data: Path, run: Path, options: Mapping[str, str]
) -> Generator[LocalServer]:
    """Run a server on existing data, and stop it cleanly.

    Args:
        run: directory for its socket and its log.
        options: system variables by name.

    Raises:
        MysqldFailed: it did not start, or did not stop cleanly. The message has its last error.
    """
    run.mkdir(parents=True, exist_ok=True)
    socket, log = run / "job.sock", run / "job.log"
    for left in (socket, run / "job.sock.lock"):
        # After a kill, the process ID in the lock may be that of another process.
        left.unlink(missing_ok=True)
    base = {
        "datadir": str(data),
        "socket": str(socket),
        "pid-file": str(run / "job.pid"),
        "skip-networking": "ON",
        "mysqlx": "OFF",
        "persisted-globals-load": "OFF",
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "skip-replica-start": "ON",
        # Events of the data would change them.
        "event-scheduler": "DISABLED",
        "log-error": str(log),
    }
    log.unlink(missing_ok=True)
    process = subprocess.Popen(program.arguments({**base, **options}), stdin=subprocess.DEVNULL)
    server = LocalServer(socket)
    try:
        _wait_until_ready(server, process, log)
        yield server
        process.send_signal(signal.SIGTERM)
        if process.wait(_STOP_SECONDS):
            raise MysqldFailed(_last_error(log))
    except subprocess.TimeoutExpired:
        raise MysqldFailed(f"the server did not stop in {_STOP_SECONDS:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def initialise(program: MysqldProgram, data: Path, run: Path, options: Mapping[str, str]) -> None:
    """Make an empty server's data directory. Raises MysqldFailed."""
    shutil.rmtree(data, ignore_errors=True)
    for directory in (data.parent, run):
        directory.mkdir(parents=True, exist_ok=True)
    log = run / "initialise.log"
    log.unlink(missing_ok=True)
    base = {"datadir": str(data), "log-error": str(log)}
    command = [*program.arguments({**base, **options}), "--initialize-insecure"]
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
        raise MysqldFailed(_last_error(log))


def _wait_until_ready(server: LocalServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise MysqldFailed(_last_error(log))
        try:
            server.query("SELECT 1")
        except ServerUnavailable:
            time.sleep(_POLL_SECONDS)
        else:
            return
    raise MysqldFailed("the server did not start in an hour")


def _last_error(log: Path) -> str:
    """Return the last error of the log, and copy the log.

    It goes to the container's logs.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _MAX_LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        text = ""
    sys.stderr.write(text)
    lines = [line.partition("[ERROR]")[2].strip() for line in text.splitlines() if "[ERROR]" in line]
    errors = [line for line in lines if not line.endswith("Aborting")]
    return (errors[-1] if errors else "mysqld ended without an error in its log")[:_MAX_ERROR]
