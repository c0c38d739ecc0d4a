"""The state of PostgreSQL as its own files show it. It needs no connection, which a server that stops refuses.

Source: src/include/utils/pidfile.h, the lines and states of ``postmaster.pid``.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_STATUS_LINE = 7  # counted from 0
_START_TIME_LINE = 2
_MAX_BYTES = 4096
_CONNECT_SECONDS = 2.0
PROC = Path("/proc")

Phase = Literal["Absent", "Running", "Stopping"]


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of the server that the archiver depends on.

    Args:
        replica: True until the server is promoted.
        started: the start time in ``postmaster.pid``, which identifies this run of the server.
    """

    phase: Phase
    replica: bool = False
    started: str = ""


def read_server_state(data: Path, proc: Path = PROC, socket_file: Path | None = None) -> ServerState:
    """Read the state of the server that runs on a data directory.

    Args:
        socket_file: the server's socket, for a program in another container, which does not see its process.
    """
    try:
        with (data / "postmaster.pid").open(errors="replace") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return ServerState("Absent")
    replica = (data / "standby.signal").exists()
    runs = (
        _accepts_connections(socket_file) if socket_file else bool(lines) and _runs_on(data, lines[0].strip(), proc)
    )
    if not lines or not runs:
        return ServerState("Absent", replica)
    status = lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else ""
    started = lines[_START_TIME_LINE].strip() if len(lines) > _START_TIME_LINE else ""
    return ServerState("Stopping" if status == "stopping" else "Running", replica, started)


def _accepts_connections(socket_file: Path) -> bool:
    """Return True if a process listens on the socket. A crash leaves the file behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_SECONDS)
        try:
            client.connect(str(socket_file))
        except OSError:
            return False
        return True


def _runs_on(data: Path, pid: str, proc: Path) -> bool:
    """Return True if the process uses the data directory.

    After a crash another program may have its number.
    """
    try:
        return pid.isdigit() and (proc / pid / "cwd").samefile(data)
    except OSError:
        return False
