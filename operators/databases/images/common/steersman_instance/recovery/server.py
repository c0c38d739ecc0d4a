"""Private PostgreSQL server that replays WAL and stops.

It listens on a socket in a private directory and archives nothing by default. Command-line settings outrank
everything in the data directory, which may be another cluster's.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .wal import Segment, SegmentSize, parse_lsn

SUPERUSER = "postgres"
STOP_SECONDS = 3600.0  # a shutdown checkpoint writes all that replay left in memory
STALL_SECONDS = 1800.0
STOPPED_STATES = ("shut down", "shut down in recovery")
_LOG_BYTES = 64 * 1024
_POLL_SECONDS = (0.1, 0.2, 0.5, 1.0)
_RECOVERY_FAILURE = re.compile(r"^(?:\S+ )?(?:FATAL|PANIC):  (.*)$", re.MULTILINE)
# Names that pg_controldata prints, of settings that replay needs at least as high as the primary had them.
_CONTROLLED = {
    "max_prepared_xacts setting": "max_prepared_transactions",
    "max_locks_per_xact setting": "max_locks_per_transaction",
    "max_worker_processes setting": "max_worker_processes",
    "wal_level setting": "wal_level",
    "track_commit_timestamp setting": "track_commit_timestamp",
}
# A replica that accepts queries needs these as well.
_REPLICA_CONTROLLED = {
    "max_connections setting": "max_connections",
    "max_wal_senders setting": "max_wal_senders",
}
_ISOLATION = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "ssl": "off",
    "archive_mode": "off",
    "archive_command": "",
    "archive_library": "",
    "primary_conninfo": "",
    "primary_slot_name": "",
    "synchronous_standby_names": "",
    "external_pid_file": "",
    "autovacuum": "off",
    # A subscription of the source would take the changes that its publisher keeps for the source.
    "max_logical_replication_workers": "0",
    # Without queries during replay, settings of the primary that changed later do not stop it.
    "hot_standby": "off",
    # The Job's memory limit is not the primary's.
    "shared_buffers": "128MB",
    "huge_pages": "off",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": "",
    "log_min_messages": "warning",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "lc_messages": "C",
}

# Of the client, so they outrank settings of databases and roles.
_SESSION_OPTIONS = " ".join(
    f"-c {setting}"
    for setting in (
        "search_path=pg_catalog",
        "default_transaction_read_only=off",
        "statement_timeout=0",
        "lock_timeout=0",
        "role=none",
    )
)


class ServerFailed(Exception):
    """The server ended by itself; the message is its last error."""


class RecoveryServer:
    """A server on a data directory.

    Args:
        run: a private directory for the socket and the authentication file.
        log: appended to, so that a repeated run still has what the first one logged.
    """

    def __init__(self, data: Path, run: Path, log: Path) -> None:
        self._data = data
        self._run = run
        self._log = log

    @contextmanager
    def started(self, settings: Mapping[str, str], *, replica: bool = False) -> Generator[None]:
        """Run the server until the block ends, then stop it. It is open for queries when the block begins.

        Args:
            replica: the data have ``standby.signal``, so the server opens without a promotion.

        Raises:
            ServerFailed: it ended by itself, or did not stop.
        """
        self._run.mkdir(mode=0o700, parents=True, exist_ok=True)
        authentication = self._run / "pg_hba.conf"
        authentication.write_text("local all all trust\n")
        maps = self._run / "pg_ident.conf"
        maps.write_text("")
        # A killed predecessor in another container leaves its lock file; the volume's lock rules out a live one.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        own = {"unix_socket_directories": str(self._run), "hba_file": str(authentication), "ident_file": str(maps)}
        given = {**_ISOLATION, **self._controlled(_REPLICA_CONTROLLED if replica else {}), **own, **settings}
        options = [option for name, value in given.items() for option in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                ["postgres", "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_open(process, STALL_SECONDS if replica else None)
            yield
            self._stop(process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGQUIT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait()

    def query(self, statement: str, database: str = "postgres") -> list[str]:
        """Run a statement as the superuser. Return its rows.

        Raises:
            ServerFailed: the server refuses it.
        """
        done = self._psql(statement, database)
        if done.returncode:
            raise ServerFailed(done.stderr.strip()[:500])
        return done.stdout.splitlines()

    def control(self) -> Mapping[str, str]:
        """Return what pg_controldata prints."""
        return control_data(self._data)

    def logged(self) -> str:
        """Return the end of the server's log."""
        with self._log.open("rb") as file:
            file.seek(max(self._log.stat().st_size - _LOG_BYTES, 0))
            return file.read().decode(errors="replace")

    def _controlled(self, more: Mapping[str, str]) -> Mapping[str, str]:
        control = self.control()
        found = {setting: control[name] for name, setting in {**_CONTROLLED, **more}.items() if name in control}
        return found if found.get("wal_level") != "minimal" else {**found, "wal_level": "replica"}

    def _control_written(self) -> int:
        """Return when the control file was written. The server may be writing it, so its content is not read."""
        return (self._data / "global/pg_control").stat().st_mtime_ns

    def _wait_open(self, process: subprocess.Popen[bytes], stall_seconds: float | None) -> None:
        """Wait until the server accepts queries. Replay has no deadline: it takes as long as the WAL is long.

        Args:
            stall_seconds: a replica that lacks WAL waits for it forever, and leaves the control file as it is.
        """
        attempt, since, written = 0, time.monotonic(), self._control_written()
        while process.poll() is None:
            if self._psql("SELECT 1").returncode == 0:
                return
            if (current := self._control_written()) != written:
                since, written = time.monotonic(), current
            elif stall_seconds is not None and time.monotonic() - since > stall_seconds:
                raise ServerFailed(f"replay made no progress for {stall_seconds / 60:.0f} minutes")
            time.sleep(_POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)])
            attempt += 1
        errors = _RECOVERY_FAILURE.findall(self.logged())
        raise ServerFailed(errors[-1][:500] if errors else f"PostgreSQL ended with code {process.returncode}")

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServerFailed("PostgreSQL does not stop") from None
        state = self.control().get("Database cluster state")
        if state not in STOPPED_STATES:
            raise ServerFailed(f"PostgreSQL did not stop cleanly: {state}")

    def run_program(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a client program that connects to the server as the superuser."""
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=self.environment(),
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of a client program of the superuser."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PG")},
            "PGHOST": str(self._run),
            "PGPORT": "5432",
            "PGUSER": SUPERUSER,
            "PGCONNECT_TIMEOUT": "5",
            "PGOPTIONS": _SESSION_OPTIONS,
        }

    def _psql(self, statement: str, database: str = "postgres") -> subprocess.CompletedProcess[str]:
        # Not a plain name: libpq takes one with "=" for connection parameters.
        quoted = database.replace("\\", "\\\\").replace("'", "\\'")
        options = ("-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=terse")
        return self.run_program(["psql", *options, "-d", f"dbname='{quoted}'", "-c", statement])


def control_data(data: Path) -> Mapping[str, str]:
    """Return what pg_controldata prints about a data directory.

    Raises:
        ServerFailed: there are no data, or their control file is damaged.
    """
    done = subprocess.run(
        ["pg_controldata", "-D", str(data)],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        check=False,
    )
    if done.returncode or "WARNING" in done.stdout + done.stderr:
        raise ServerFailed(f"pg_controldata: {(done.stderr or done.stdout).strip()[:300]}")
    pairs = (line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def checkpoint(control: Mapping[str, str]) -> tuple[Segment, int]:
    """Return the segment and the position of the last checkpoint.

    Args:
        control: of pg_controldata.
    """
    size = SegmentSize(int(control["Bytes per WAL segment"]))
    lsn = parse_lsn(control["Latest checkpoint location"])
    return Segment(int(control["Latest checkpoint's TimeLineID"]), size.number(lsn)), lsn
