"""The copy of the primary's data.

Directories on the volume: ``.pgdata.copying`` is an incomplete copy, and ``pgdata`` a complete one, after a rename.
``.pgdata.removing`` is a previous one, whose deletion may have been interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..paths import InstancePaths
from .configuration import Upstream
from .processes import LoggedProcess, environment

_COMMAND_TIMEOUT_SECONDS = 15.0


class PrimaryUnavailable(Exception):
    """The primary does not respond, or refuses a command. The message is its own."""


def run_on_primary(upstream: Upstream, command: str) -> str:
    """Run a replication command on the primary. Return the first row, columns separated by ``|``.

    Raises:
        PrimaryUnavailable: it failed.
    """
    try:
        done = subprocess.run(
            ["psql", "-XAtq", "-v", "VERBOSITY=terse", "-d", upstream.conninfo(replication="true"), "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment(),
            timeout=_COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PrimaryUnavailable("the primary does not respond") from None
    if done.returncode:
        raise PrimaryUnavailable(done.stderr.strip()[:500])
    return done.stdout.partition("\n")[0]


def system_identifier(upstream: Upstream) -> str:
    """Return the system identifier of the primary. Raises PrimaryUnavailable."""
    return run_on_primary(upstream, "IDENTIFY_SYSTEM").partition("|")[0]


class BaseCopy:
    """A copy that runs: it deletes the previous data, then copies.

    The slot is recreated in between. An invalidated slot cannot be used again, and one of the previous data retains
    WAL that is not needed any more.

    Raises:
        PrimaryUnavailable: it has no free slot, or does not respond.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._staging = upstream.paths.volume / ".pgdata.copying"
        system_identifier(upstream)
        self._copying = False
        self._process = self._begin()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs. A complete copy is adopted.

        Raises:
            PrimaryUnavailable: as the constructor.
            OSError: of the volume.
        """
        code = self._process.poll()
        if code != 0:
            return code
        if not self._copying:
            self._process = self._begin()
            return None
        self._staging.chmod(0o700)
        self._staging.rename(self._upstream.paths.postgresql_data)
        _sync(self._upstream.paths.volume)
        return code

    def _begin(self) -> LoggedProcess:
        """Start to delete previous data, or else to copy."""
        upstream = self._upstream
        set_aside(upstream.paths)
        present = [path for path in (self._staging, _removing(upstream.paths)) if path.exists()]
        if present:
            # It may take minutes.
            return LoggedProcess(["rm", "-rf", "--", *map(str, present)])
        _recreate_slot(upstream)
        self._copying = True
        return LoggedProcess(_copy_command(upstream, self._staging))

    @property
    def last_line(self) -> str:
        """Its last message."""
        return self._process.last_line

    def stop(self) -> None:
        """End it. The next one deletes the incomplete copy."""
        self._process.stop(signal.SIGTERM)


def set_aside(paths: InstancePaths) -> None:
    """Rename the data, so that no server uses them again. The next copy deletes them.

    A deletion in place that is interrupted leaves data that look complete.

    Raises:
        OSError: of the volume.
    """
    removing = _removing(paths)
    # Data that were set aside before are deleted first.
    if paths.postgresql_data.exists() and not removing.exists():
        paths.postgresql_data.rename(removing)
        _sync(paths.volume)


def _removing(paths: InstancePaths) -> Path:
    return paths.volume / ".pgdata.removing"


def _copy_command(upstream: Upstream, directory: Path) -> Sequence[str]:
    command = ["pg_basebackup", "-d", upstream.conninfo(), "-D", str(directory), "-S", upstream.slot]
    return [*command, "-X", "stream", "-c", "fast", "--no-password"]


def _recreate_slot(upstream: Upstream) -> None:
    # Patroni keeps the slot on every primary. Between the two commands it may create it, with the same result.
    for command, harmless in (
        (f"DROP_REPLICATION_SLOT {upstream.slot}", "does not exist"),
        (f"CREATE_REPLICATION_SLOT {upstream.slot} PHYSICAL RESERVE_WAL", "already exists"),
    ):
        try:
            run_on_primary(upstream, command)
        except PrimaryUnavailable as error:
            if harmless not in str(error):
                raise


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
