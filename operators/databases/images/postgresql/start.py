#!/usr/bin/python3 -I
"""steersman-start: prepares the pod for Patroni and becomes it.

`steersman-start fenced` only keeps the pod, `steersman-start upgrade` becomes steersman-upgrade, and
`steersman-start check` checks the data.

Settings of the cluster are in Patroni's file, the same for all members. Settings of the pod come from its
environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from steersman_pod.contract import CONTRACT
from steersman_pod.crash_log import CrashLog
from steersman_pod.volumes import VolumeInUse, lock_volume

VOLUME = Path("/var/lib/steersman/data")
DATA = VOLUME / "pgdata"
UNFINISHED = VOLUME / ".pgdata.unfinished"
WAL = Path("/var/lib/steersman/wal")
RUN = Path("/run/steersman")
CONFIGURATION = Path("/etc/steersman/patroni/patroni.yaml")
UNREADABLE = 65  # EX_DATAERR of sysexits.h: the operator replaces such data by a copy
TERMINATION_LOG = Path("/dev/termination-log")
# It restarts after any end, so that an old level does not stay forever.
WATCH = ("sh", "-c", "until steersman-watch; do sleep 3; done")
WATCHDOG = ("sh", "-c", "until steersman-watchdog; do sleep 1; done")
WATCHDOG_DEVICE = RUN / "watchdog"
CRASHES = RUN / "crashes.json"
WATCHDOG_MARGIN = 3  # seconds between the watchdog and the end of the lock
# Patroni asks all members at once, and runs one task besides: a cluster has up to nine instances.
THREADS = 12
REST_THREADS = 20  # clients of the REST API: kubelet, members, operator, metrics
_WAIT_SECONDS = 60.0  # seconds until PostgreSQL must report why it does not start


def pod_configuration(environment: Mapping[str, str], version: str, cluster: str) -> dict[str, Any]:
    """Return the pod's own part of Patroni's configuration.

    Other members reach it by its address: names would need a DNS server, which may run on the lost node.
    """
    address = environment["POD_IPS"].split(",")[0]
    host = f"[{address}]" if ":" in address else address
    return {
        "name": environment["POD_NAME"],
        "kubernetes": {"namespace": environment["POD_NAMESPACE"], "pod_ip": address},
        # Programs of this image. Without them Patroni starts and promotes no member.
        "postgresql": {
            "connect_address": f"{host}:5432",
            "bin_name": {
                "initdb": "/usr/local/bin/steersman-initdb",
                "postgres": "/usr/local/bin/steersman-postgres",
            },
            "pre_promote": f"/usr/local/bin/steersman-room {cluster}",
        },
        "restapi": {"connect_address": f"{host}:8008", "thread_pool_size": REST_THREADS},
        "thread_pool_size": THREADS,
        "watchdog": {
            "mode": "required",
            "driver": "testing",  # the one whose device is a pipe
            "device": str(WATCHDOG_DEVICE),
            "safety_margin": WATCHDOG_MARGIN,
        },
        "tags": {"version": version, "contract": CONTRACT},
    }


def configure(environment: Mapping[str, str], version: str) -> Path:
    """Return the directory with Patroni's files: the cluster's and the pod's."""
    directory = RUN / "patroni"
    directory.mkdir(exist_ok=True)
    cluster = directory / "cluster.yaml"
    if not cluster.is_symlink():
        cluster.symlink_to(CONFIGURATION)
    name: str = json.loads(CONFIGURATION.read_text())["scope"]
    (directory / "pod.yaml").write_text(json.dumps(pod_configuration(environment, version, name)))
    return directory


def fail(message: str) -> NoReturn:
    """End the container with a message in its log."""
    sys.exit(f"steersman: {message}")


def server_version() -> str:
    """Return the version of PostgreSQL, such as 17.11."""
    reported = subprocess.run(["postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+", reported)
    return found[0] if found else fail(f"no version in {reported!r}")


def check_version(version: str) -> None:
    """Refuse data of another major version."""
    file = DATA / "PG_VERSION"
    data = file.read_text().strip() if file.exists() else ""
    if data and data != version.partition(".")[0]:
        fail(f"the data are PostgreSQL {data}'s, which PostgreSQL {version} cannot read")


def check_data() -> None:
    """Report data that are certainly broken.

    Patroni would otherwise serve them, or wait for a user to move them aside.
    """
    if not (DATA / "global/pg_control").exists():
        return
    reported = subprocess.run(["pg_controldata", DATA], capture_output=True, text=True, check=False)
    broken = next(missing_files(DATA), "") if is_consistent(reported.stdout) else ""
    if reported.returncode > 0:  # a negative code means a signal, which implies nothing about the data
        broken = reported.stderr.strip()
    if broken:
        report(f"the data are broken: {broken}")
        sys.exit(UNREADABLE)


def is_consistent(control: str) -> bool:
    """Return True if the files are consistent without a replay of WAL."""
    consistent = re.search(r"^Backup start location: *0/0$", control, re.MULTILINE)
    return consistent is not None and not (DATA / "backup_label").exists()


def missing_files(data: Path) -> Iterator[str]:
    """Yield files without which the server cannot serve, in words.

    Only files count that exist at each moment of a server's life, including crashes. A database that is being
    created
    or dropped lacks files, too, but never all databases do.
    """
    yield from missing_relations(data / "global")
    base, status = data / "base", data / "pg_xact"
    if not base.is_dir() or all(any(missing_relations(database)) for database in base.iterdir()):
        yield "no database is left in base"
    if not status.is_dir() or not any(status.iterdir()):
        yield "nothing is left in pg_xact"


def missing_relations(directory: Path) -> Iterator[str]:
    """Yield missing files of catalogs that the directory's map lists.

    Source: src/backend/utils/cache/relmapper.c, RelMapFile.
    """
    file = directory / "pg_filenode.map"
    content = file.read_bytes() if file.is_file() else b""
    if len(content) < 8:
        yield f"{file.relative_to(directory.parent)} is missing"
        return
    count = min(struct.unpack_from("=iI", content)[1], len(content) // 8 - 1)
    for _, number in struct.iter_unpack("=II", content[8 : 8 + 8 * count]):
        if not (directory / str(number)).exists():
            yield f"{directory.name}/{number} is missing"


def report_start_failure() -> None:
    """Report why the server did not start on new data.

    Patroni moves such data aside, ends, and is started again. Then this is the only source of the error message.
    Users
    see it if this attempt ends, too.
    """
    start_failed = VOLUME / "pgdata.failed"
    if DATA.exists() or not start_failed.exists():
        return
    command = ["postgres", "--single", "-D", str(start_failed), "postgres"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return
    lines = [re.sub(r".*? (?=(LOG|FATAL|DETAIL|HINT): )", "", line) for line in done.stderr.splitlines()]
    reported = [one for one in lines if one.startswith(("FATAL:", "DETAIL:", "HINT:")) or ' parameter "' in one]
    if done.returncode > 0 and reported:
        report(" ".join(reported))


def report(message: str) -> None:
    """Write a message to the log and to the termination log."""
    sys.stderr.write(f"steersman: {message}\n")
    if os.getpid() == 1 and os.access(TERMINATION_LOG, os.W_OK):
        TERMINATION_LOG.write_text(message)


def require_declared(environment: Mapping[str, str], version: str) -> None:
    """Refuse an image of another major version for new data and upgrades.

    `spec.image` may name one. It would create data of an undeclared version, revert a completed upgrade, or prevent
    the
    rollback of a failed one. For other data `check_version` reports the mismatch.
    """
    declared = environment.get("DECLARED_VERSION", "")
    of_one = (DATA / "PG_VERSION").exists() and not any(VOLUME.glob("pgdata.[0-9]*"))
    if of_one or declared in ("", version.partition(".")[0]):
        return
    report(f"the image has PostgreSQL {version}, and version {declared} is declared: use an image of {declared}")
    sys.exit(1)


def finish_upgrade(version: str) -> None:
    """Revert a failed upgrade, or complete a successful one.

    The previous data are in pgdata.<major> from their replacement until the first start of the new ones. Until then
    the
    previous major version takes them back. Afterwards they are in `former-<major>`, and only users move them.
    """
    major = version.partition(".")[0]
    returned, set_aside = VOLUME / f"pgdata.{major}", VOLUME / "pgdata.new"
    if returned.exists():
        if DATA.exists():
            shutil.rmtree(set_aside, ignore_errors=True)
            DATA.rename(set_aside)
        returned.rename(DATA)
    if DATA.exists():
        for previous in VOLUME.glob("pgdata.[0-9]*"):
            kept = VOLUME / f"former-{previous.suffix[1:]}"
            shutil.rmtree(kept, ignore_errors=True)
            previous.rename(kept)
        shutil.rmtree(set_aside, ignore_errors=True)
    finish_wal_move()


def finish_wal_move() -> None:
    """Move the WAL of the served data to its usual place.

    The previous data keep their own WAL next to it, so that clearing that place does not remove it. WAL whose data
    are
    gone, as after a rollback, is removed.
    """
    for previous in VOLUME.glob("former-*"):
        if (previous / "pg_wal").resolve() != (DATA / "pg_wal").resolve():
            move_wal(previous, f"pg_wal.{previous.name.removeprefix('former-')}")
    move_wal(DATA, "pg_wal")
    named = {link.resolve() for link in VOLUME.glob("*/pg_wal")}
    for log in WAL.glob("pg_wal.[0-9]*"):
        if log.resolve() not in named:
            shutil.rmtree(log, ignore_errors=True)


def move_wal(data: Path, name: str) -> None:
    """Move the WAL of `data` if it is on the WAL volume.

    It can be repeated after an interruption.
    """
    link, place = data / "pg_wal", WAL / name
    if not link.is_symlink() or link.readlink().parent != WAL or link.readlink() == place:
        return
    if link.exists():
        # The data that had it use another WAL by now, or do not exist.
        shutil.rmtree(place, ignore_errors=True)
        link.readlink().rename(place)
    # Two volumes have two journals: a link on the disk must not refer to a rename that is not.
    fsync_directory(WAL)
    fresh = data / ".pg_wal"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(place)
    fresh.replace(link)
    fsync_directory(data)


def fsync_directory(directory: Path) -> None:
    """Sync a directory, so that renames survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_unfinished() -> None:
    """Clear the data of a killed initdb or of a started copy.

    Data of initdb are moved aside, because Patroni would accept them: pg_control exists long before the end of
    initdb.
    After initdb Patroni renames the configuration that it wrote. A barely begun copy is removed. Without pg_control,
    which a copy receives last, Patroni would wait for a user forever. Such data have never been served: each start
    of
    a server writes postmaster.opts, which no copy includes. Data that lost pg_control later, or were not created
    here,
    stay.

    Source: src/backend/backup/basebackup.c, excludeFiles and perform_base_backup.
    """
    begun = VOLUME / ".pgdata.begun"  # distinguishes data that were not created here and may look the same
    control = DATA / "global/pg_control"
    if begun.exists() and control.exists() and not (DATA / "postgresql.base.conf").exists():
        shutil.rmtree(UNFINISHED, ignore_errors=True)
        DATA.rename(UNFINISHED)
    elif begun.exists() and DATA.exists() and not control.exists() and not (DATA / "postmaster.opts").exists():
        shutil.rmtree(DATA)
    if not DATA.exists() or not any(DATA.iterdir()):
        begun.touch()
        shutil.rmtree(WAL / "pg_wal", ignore_errors=True)


def start_watchdog() -> None:
    """Make the watchdog device and start the program that serves it.

    Patroni inherits an open end, so that it never waits for a reader. So it would lead without the program, which is
    tried first.
    """
    subprocess.run(["steersman-watchdog", "check"], check=True)
    WATCHDOG_DEVICE.unlink(missing_ok=True)
    os.mkfifo(WATCHDOG_DEVICE)
    os.set_inheritable(os.open(WATCHDOG_DEVICE, os.O_RDWR), True)
    subprocess.Popen(WATCHDOG)


def terminate(_signal: int, _frame: object) -> NoReturn:
    """End as requested."""
    sys.exit(0)


def keep_fenced() -> NoReturn:
    """Wait until the pod is deleted.

    The data can be inspected, and no server serves them.
    """
    for process in (signal.SIGTERM, signal.SIGINT):
        signal.signal(process, terminate)
    sys.stderr.write("steersman: fenced; PostgreSQL is not started\n")
    while True:
        signal.pause()


def main(arguments: Sequence[str]) -> NoReturn:
    """Run `fenced`, `upgrade`, `check` or Patroni."""
    os.umask(0o077)
    if list(arguments) == ["check"]:
        check_data()
        sys.exit(0)
    try:
        lock_volume(VOLUME)
    except VolumeInUse as error:
        fail(str(error))
    if list(arguments) == ["fenced"]:
        keep_fenced()
    if list(arguments) == ["upgrade"]:
        os.execvp("steersman-upgrade", ["steersman-upgrade", "run"])  # noqa: S606
    if arguments:
        fail("usage: steersman-start [fenced | upgrade | check]")
    version = server_version()
    require_declared(os.environ, version)
    CrashLog(CRASHES).record_container_start()
    finish_upgrade(version)
    check_version(version)
    clear_unfinished()
    check_data()
    report_start_failure()
    # A restarted container finds the socket of its predecessor, which must not be taken for the new server's.
    for stale in RUN.glob(".s.PGSQL.*"):
        stale.unlink()
    # Patroni becomes process 1 and their parent.
    start_watchdog()
    subprocess.Popen(WATCH)
    os.execvp("patroni", ["patroni", str(configure(os.environ, version))])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
