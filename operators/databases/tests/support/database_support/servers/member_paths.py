"""Where a member of a MySQL group has its things when it runs on loopback, in a directory of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steersman_agent.server.process import ServerPaths


def paths_in(directory: Path, program: Sequence[str], port: int, instance: int) -> ServerPaths:
    """As `mysql_members.furnish` lays it out; ``program`` is mysqld with its first arguments."""
    return ServerPaths(
        volume=directory / "volume",
        run=directory / "run",
        tls=directory / "tls",
        peer=directory / "peer",
        accounts=directory / "accounts.sql",
        slices=directory / "slices",
        defaults=directory / "image.cnf",
        time_zones=directory / "time-zones.sql",
        program=program,
        listen="127.0.0.1",
        host="127.0.0.1",
        port=port,
        instance=instance,
    )
