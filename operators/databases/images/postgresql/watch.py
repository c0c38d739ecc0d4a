#!/usr/bin/python3 -I
"""steersman-watch: checks of this member in addition to Patroni's.

It runs for the container's life. It reports the fill levels of the volumes on the pod, each time that one changes.

It restores the accounts of the cluster on a primary, whose keepers could not log in otherwise.

It reports the use of CPU, memory and disk on the pod.

It reports on the pod why a primary accepts no writes, as a write of its own shows it. It also reports crashes of the
server.

It excludes a replica from reads while it does not follow a serving primary. The readiness probe depends on Patroni's
tag `noloadbalance`. It also stops a replica whose data files are lost: open files hide the loss from Patroni, and
the next start reports it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol

from steersman_instance import system_accounts
from steersman_instance.postgresql_crashes import CrashWatch
from steersman_instance.resource_usage import report as resource_usage
from steersman_instance.write_check import postgresql
from steersman_instance.write_check.check import WriteCheck
from steersman_pod.crash_log import CrashLog
from steersman_pod.volumes import usage_levels

VOLUMES = {"data": Path("/var/lib/steersman/data"), "wal": Path("/var/lib/steersman/wal")}
SEGMENT = 16 << 20  # default size of a WAL segment in bytes: a server that cannot create the next one stops
PATRONI = 1  # process ID
CLUSTER = Path("/etc/steersman/patroni/patroni.yaml")
POD = Path("/run/steersman/patroni/pod.yaml")
CRASHES = Path("/run/steersman/crashes.json")
STANDBY = VOLUMES["data"] / "pgdata/standby.signal"
EXIT_CODE_DATA_LOST = 65  # exit code of steersman-start in this case
GRACE_SECONDS = 60.0  # seconds that a restart, a new primary or a free leader lock may last
_STATUS_INTERVAL_SECONDS = 15.0  # seconds; each check is a request to the API server
_DATA_CHECK_INTERVAL_SECONDS = 30.0
_ACCOUNTS_INTERVAL_SECONDS = 10.0
_REPEAT_SECONDS = 300.0  # seconds until a report is written again, because another client may have removed it
_LOOP_INTERVAL_SECONDS = 3.0  # seconds between two rounds
_RESPONSE_TIMEOUT_SECONDS = 5.0  # seconds until Patroni must respond
_COMMAND_TIMEOUT_SECONDS = 30.0  # seconds for another program; the next round tries again


def segment_size() -> int | None:
    """Return the size of WAL segments, or None without data."""
    command = ["pg_controldata", str(VOLUMES["data"] / "pgdata")]
    reported = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"^Bytes per WAL segment: *(\d+)", reported, re.MULTILINE)
    return int(found[1]) if found else None


def run(command: Sequence[str]) -> int | None:
    """Return a program's exit code, or None after a timeout."""
    try:
        return subprocess.run(command, timeout=_COMMAND_TIMEOUT_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        return None


class Check(Protocol):
    """A check that runs in each round. `now` is in seconds."""

    def run(self, now: float) -> None: ...


class DiskUsageCheck:
    """Fill levels of the volumes."""

    def __init__(self) -> None:
        self._reported: Mapping[str, int] | None = None
        self._levels: dict[str, int] = {}
        self._size: int | None = None

    def run(self, now: float) -> None:
        """Report changed levels on the pod."""
        self._size = self._size or segment_size()
        self._levels = usage_levels(VOLUMES, self._levels, self._size or SEGMENT)
        if self._levels != self._reported and run(["steersman-role", "note", json.dumps(self._levels)]) == 0:
            self._reported = self._levels


class ReadRoutingCheck:
    """Readiness of this member for reads."""

    def __init__(self) -> None:
        self._due_at: float | None = None
        self._is_following = 0

    def run(self, now: float) -> None:
        """Exclude a replica that does not follow a serving primary for `GRACE_SECONDS`.

        It is included again when one of both changes. If the API server is unreachable, nothing changes.
        """
        status = patroni_status("/patroni")
        if status is None:
            return
        if not is_not_following(status):
            self._is_following += 1
            # A replica that requests missing WAL streams for a moment at each attempt.
            if self._due_at is None or self._is_following > 1:
                self._due_at = None
                set_reads(True)
            return
        self._is_following = 0
        if self._due_at is None:
            self._due_at = now + GRACE_SECONDS
        elif now >= self._due_at:
            self._due_at = now + _STATUS_INTERVAL_SECONDS
            serves = run(["steersman-role", "serves", cluster_name()])
            if serves in (0, 1):
                set_reads(serves == 1)


def is_not_following(status: Mapping[str, Any]) -> bool:
    """Return True for a running replica that does not follow the leader."""
    serves = status.get("role") == "replica" and status.get("state") == "running"
    return serves and status.get("replication_state") != "streaming" and not status.get("cluster_unlocked")


def patroni_status(path: str) -> Mapping[str, Any] | None:
    """Return Patroni's status of this member, or None.

    The status of the cluster is not used: for `/cluster` Patroni would read the lock outside of its own loop, which
    could then acquire a lock that it has not checked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # Patroni runs in this pod.
    connection = HTTPSConnection("localhost", 8008, timeout=_RESPONSE_TIMEOUT_SECONDS, context=context)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def cluster_name() -> str:
    """Return the cluster's name."""
    return json.loads(CLUSTER.read_text())["scope"]


def set_reads(reads: bool) -> None:
    """Set the tag in Patroni's file, and make Patroni reload it."""
    response = json.loads(POD.read_text())
    if response["tags"].get("noloadbalance", False) is not reads:
        return
    response["tags"]["noloadbalance"] = not reads
    new_configuration = POD.with_suffix(".fresh")
    new_configuration.write_text(json.dumps(response))
    new_configuration.replace(POD)
    os.kill(PATRONI, signal.SIGHUP)


class DataCheck:
    """Existence of the data."""

    def __init__(self) -> None:
        self._next_check = 0.0
        self._lost_before = False

    def run(self, now: float) -> None:
        """Stop a replica whose data are lost in two consecutive checks.

        A single missing file may be in the middle of a change. A primary is left alone.
        """
        if now < self._next_check or not STANDBY.exists():
            return
        self._next_check = now + _DATA_CHECK_INTERVAL_SECONDS
        lost = run(["steersman-start", "check"]) == EXIT_CODE_DATA_LOST
        if lost and self._lost_before:
            os.kill(PATRONI, signal.SIGTERM)
        self._lost_before = lost


class AccountCheck:
    """Accounts of the cluster on a primary."""

    def __init__(self) -> None:
        self._next_check = 0.0

    def run(self, now: float) -> None:
        """Restore missing or changed accounts. They reach replicas with the WAL."""
        if now < self._next_check or STANDBY.exists():
            return
        self._next_check = now + _ACCOUNTS_INTERVAL_SECONDS
        if system_accounts.are_current() is not False:
            return
        try:
            system_accounts.ensure()
            sys.stderr.write("steersman: restored the accounts of the cluster\n")
        except system_accounts.AccountsNotRestored as error:
            sys.stderr.write(f"steersman: the accounts of the cluster cannot be restored: {error}\n")


class WriteReport:
    """Report of a primary that accepts no writes."""

    def __init__(self, writes: WriteCheck) -> None:
        self._writes = writes
        self._reported: str | None = None
        self._repeat_at = 0.0

    def run(self, now: float) -> None:
        """Write a changed report, and an error periodically."""
        error = self._writes.error
        if error == self._reported and (not error or now < self._repeat_at):
            return
        if run(["steersman-role", "writes", error]) == 0:
            self._reported, self._repeat_at = error, now + _REPEAT_SECONDS


class CrashReport:
    """Report of the server's crashes."""

    def __init__(self, crashes: CrashLog) -> None:
        self._crashes = crashes
        self._reported: Sequence[int] = ()
        self._repeat_at = 0.0

    def run(self, now: float) -> None:
        """Write changed times, and the same ones periodically."""
        times = self._crashes.times
        if not times or (times == self._reported and now < self._repeat_at):
            return
        if run(["steersman-role", "crashes", json.dumps(times)]) == 0:
            self._reported, self._repeat_at = times, now + _REPEAT_SECONDS


def start_crash_watch(crashes: CrashLog) -> None:
    """Start to watch the server's processes. The thread ends with the process."""
    watch = CrashWatch(crashes.record_crash)
    threading.Thread(target=watch.run, args=(threading.Event(),), name="crashes", daemon=True).start()


def start_write_check() -> WriteCheck:
    """Start the writes. The thread ends with the process."""
    address = postgresql.ServerAddress()
    writes = WriteCheck(lambda: postgresql.Writer(address), lambda: postgresql.describe_wait(address))
    thread = threading.Thread(
        target=writes.run, args=(lambda: not STANDBY.exists(), threading.Event()), name="writes", daemon=True
    )
    thread.start()
    return writes


def main() -> None:
    """Run all checks forever.

    After an error the process ends, and steersman-start starts it again.
    """
    resource_usage.start(VOLUMES["data"], os.environ)
    writes, crashes = WriteReport(start_write_check()), CrashLog(CRASHES)
    start_crash_watch(crashes)
    checks: Sequence[Check] = (
        *(DiskUsageCheck(), ReadRoutingCheck(), DataCheck(), AccountCheck()),
        *(writes, CrashReport(crashes)),
    )
    while True:
        for each in checks:
            each.run(time.monotonic())
        time.sleep(_LOOP_INTERVAL_SECONDS)


if __name__ == "__main__":
    main()
