#!/usr/bin/python3 -I
"""steersman-start: makes the pod ready for Patroni and becomes it. `steersman-start fenced` only keeps the pod,
`steersman-start upgrade` becomes steersman-upgrade, and `steersman-start check` looks whether the data are there.

What is the cluster's stands in Patroni's file, the same for all members; what is the pod's comes from its
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

from steersman_pod.volumes import Taken, take_volume

VOLUME = Path("/var/lib/steersman/data")
DATA = VOLUME / "pgdata"
UNFINISHED = VOLUME / ".pgdata.unfinished"
WAL = Path("/var/lib/steersman/wal")
RUN = Path("/run/steersman")
CONFIGURATION = Path("/etc/steersman/patroni/patroni.yaml")
UNREADABLE = 65  # EX_DATAERR of sysexits.h: the operator makes a copy in place of such data
TOLD = Path("/dev/termination-log")
# Whatever ends it, the last level that it told must not stand for ever.
WATCH = ("sh", "-c", "until steersman-watch; do sleep 3; done")
_WAIT = 60.0  # seconds that PostgreSQL has to say what it does not start with


def about_pod(environment: Mapping[str, str], version: str, cluster: str) -> dict[str, Any]:
    """Patroni's configuration as far as it is this pod's own.

    The other members find it by its address: names would need a DNS server, and that may be on the node that is lost.
    """
    address = environment["POD_IPS"].split(",")[0]
    host = f"[{address}]" if ":" in address else address
    return {
        "name": environment["POD_NAME"],
        "kubernetes": {"namespace": environment["POD_NAMESPACE"], "pod_ip": address},
        # Programs of this image, as long as it runs: without them Patroni starts and promotes nobody.
        "postgresql": {
            "connect_address": f"{host}:5432",
            "bin_name": {"postgres": "/usr/local/bin/steersman-postgres"},
            "pre_promote": f"/usr/local/bin/steersman-room {cluster}",
        },
        "restapi": {"connect_address": f"{host}:8008"},
        "tags": {"version": version},
    }


def configure(environment: Mapping[str, str], version: str) -> Path:
    """The directory from which Patroni reads both: the cluster's file as it is mounted, and the pod's."""
    directory = RUN / "patroni"
    directory.mkdir(exist_ok=True)
    cluster = directory / "cluster.yaml"
    if not cluster.is_symlink():
        cluster.symlink_to(CONFIGURATION)
    name: str = json.loads(CONFIGURATION.read_text())["scope"]
    (directory / "pod.yaml").write_text(json.dumps(about_pod(environment, version, name)))
    return directory


def fail(message: str) -> NoReturn:
    """Ends the container with a word in its log."""
    sys.exit(f"steersman: {message}")


def server_version() -> str:
    """PostgreSQL's, as in 17.11."""
    told = subprocess.run(["postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+", told)
    return found[0] if found else fail(f"no version in {told!r}")


def check_version(version: str) -> None:
    """Data of another major are left alone."""
    file = DATA / "PG_VERSION"
    data = file.read_text().strip() if file.exists() else ""
    if data and data != version.partition(".")[0]:
        fail(f"the data are PostgreSQL {data}'s, which PostgreSQL {version} cannot read")


def check_readable() -> None:
    """Data that are broken beyond a doubt are no use: Patroni would wait for somebody to put them aside, or serve."""
    if not (DATA / "global/pg_control").exists():
        return
    told = subprocess.run(["pg_controldata", DATA], capture_output=True, text=True, check=False)
    broken = next(lost(DATA), "") if is_whole(told.stdout) else ""
    if told.returncode > 0:  # Below it was killed, which says nothing about the data.
        broken = told.stderr.strip()
    if broken:
        tell(f"the data are broken: {broken}")
        sys.exit(UNREADABLE)


def is_whole(control: str) -> bool:
    """Whether the files fit together, and are no copy that becomes so only as its log is replayed."""
    whole = re.search(r"^Backup start location: *0/0$", control, re.MULTILINE)
    return whole is not None and not (DATA / "backup_label").exists()


def lost(data: Path) -> Iterator[str]:
    """What is missing without which nobody can be served, in words.

    Only what is there at any moment of a server's life, crashes included: a database that is being made or dropped
    lacks files too, but never all of them do.
    """
    yield from unmapped(data / "global")
    base, status = data / "base", data / "pg_xact"
    if not base.is_dir() or all(any(unmapped(database)) for database in base.iterdir()):
        yield "no database is left in base"
    if not status.is_dir() or not any(status.iterdir()):
        yield "nothing is left in pg_xact"


def unmapped(directory: Path) -> Iterator[str]:
    """The files that catalogs should have in it, by its own map, and have not.

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


def tell_refusal() -> None:
    """Why the server did not start on the data that were made for it, in its own words.

    Patroni puts such data aside, ends, and is started again; then nobody else has these words any more. They are read
    if this attempt ends as well.
    """
    refused = VOLUME / "pgdata.failed"
    if DATA.exists() or not refused.exists():
        return
    command = ["postgres", "--single", "-D", str(refused), "postgres"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WAIT, check=False
        )
    except subprocess.TimeoutExpired:
        return
    lines = [re.sub(r".*? (?=(LOG|FATAL|DETAIL|HINT): )", "", line) for line in done.stderr.splitlines()]
    said = [one for one in lines if one.startswith(("FATAL:", "DETAIL:", "HINT:")) or ' parameter "' in one]
    if done.returncode > 0 and said:
        tell(" ".join(said))


def tell(message: str) -> None:
    """To the log, and to whoever reads why the container ended."""
    sys.stderr.write(f"steersman: {message}\n")
    if os.getpid() == 1 and os.access(TOLD, os.W_OK):
        TOLD.write_text(message)


def require_declared(environment: Mapping[str, str], version: str) -> None:
    """Leaves new data, and data of two majors, to an image of the one that is declared.

    Another, which ``spec.image`` may name, would make data of a version that nobody asked for, take the former data
    back from an upgrade that is done, or end the way back from one that is not. Of data of one major `check_version`
    says what does not fit.
    """
    declared = environment.get("DECLARED_VERSION", "")
    of_one = (DATA / "PG_VERSION").exists() and not any(VOLUME.glob("pgdata.[0-9]*"))
    if of_one or declared in ("", version.partition(".")[0]):
        return
    tell(f"the image has PostgreSQL {version}, and version {declared} is declared: use an image of {declared}")
    sys.exit(1)


def settle_upgrade(version: str) -> None:
    """Undoes an upgrade from this major that did not come through, or ends the way back from one that did.

    The former data lie in pgdata.<major> from the moment they are replaced until the new ones are first started: so
    long this major takes them back. Afterwards they are called former-<major>, and only a person moves them.
    """
    major = version.partition(".")[0]
    returned, aside = VOLUME / f"pgdata.{major}", VOLUME / "pgdata.new"
    if returned.exists():
        if DATA.exists():
            shutil.rmtree(aside, ignore_errors=True)
            DATA.rename(aside)
        returned.rename(DATA)
    if DATA.exists():
        for former in VOLUME.glob("pgdata.[0-9]*"):
            kept = VOLUME / f"former-{former.suffix[1:]}"
            shutil.rmtree(kept, ignore_errors=True)
            former.rename(kept)
        shutil.rmtree(aside, ignore_errors=True)
    settle_logs()


def settle_logs() -> None:
    """Gives the log of the data that are served the place where data that are made anew have theirs.

    The former data keep their own beside it: nobody who clears that place may take it away from them. A log
    whose data are gone, as on the way back, goes as well.
    """
    for former in VOLUME.glob("former-*"):
        if (former / "pg_wal").resolve() != (DATA / "pg_wal").resolve():
            move_log(former, f"pg_wal.{former.name.removeprefix('former-')}")
    move_log(DATA, "pg_wal")
    named = {link.resolve() for link in VOLUME.glob("*/pg_wal")}
    for log in WAL.glob("pg_wal.[0-9]*"):
        if log.resolve() not in named:
            shutil.rmtree(log, ignore_errors=True)


def move_log(data: Path, name: str) -> None:
    """Moves the log of ``data`` on the WAL volume, if it is there. Cut in between it ends when it is run again."""
    link, place = data / "pg_wal", WAL / name
    if not link.is_symlink() or link.readlink().parent != WAL or link.readlink() == place:
        return
    if link.exists():
        # Whose it was has another log by now, or none any more.
        shutil.rmtree(place, ignore_errors=True)
        link.readlink().rename(place)
    # Two volumes, so two journals: a name that is on the disk must not lead to where the log is not yet.
    keep_names(WAL)
    fresh = data / ".pg_wal"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(place)
    fresh.replace(link)
    keep_names(data)


def keep_names(directory: Path) -> None:
    """Brings the names in it to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_unfinished() -> None:
    """Puts aside what an initdb left that was killed, removes what it or a copy had barely begun, and makes room.

    Patroni would take the former for a database: pg_control is there long before initdb is through. When initdb is,
    Patroni renames the configuration that it wrote. What has no pg_control, which a copy gets last, it would leave to
    a person for ever. Nobody was served before: each start of a server writes postmaster.opts, and no copy takes it
    along. Data that lost their pg_control later, or that were not made here, stay as they are.

    Source: src/backend/backup/basebackup.c, excludeFiles and perform_base_backup.
    """
    begun = VOLUME / ".pgdata.begun"  # apart from data that were not made here, and may look the same
    control = DATA / "global/pg_control"
    if begun.exists() and control.exists() and not (DATA / "postgresql.base.conf").exists():
        shutil.rmtree(UNFINISHED, ignore_errors=True)
        DATA.rename(UNFINISHED)
    elif begun.exists() and DATA.exists() and not control.exists() and not (DATA / "postmaster.opts").exists():
        shutil.rmtree(DATA)
    if not DATA.exists() or not any(DATA.iterdir()):
        begun.touch()
        shutil.rmtree(WAL / "pg_wal", ignore_errors=True)


def leave(_signal: int, _frame: object) -> NoReturn:
    """Ends as asked."""
    sys.exit(0)


def keep() -> NoReturn:
    """Does nothing until the pod is deleted: its data can be looked at, and nobody serves them."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, leave)
    sys.stderr.write("steersman: fenced; PostgreSQL is not started\n")
    while True:
        signal.pause()


def main(arguments: Sequence[str]) -> NoReturn:
    """`fenced`, `upgrade`, `check` or nothing."""
    os.umask(0o077)
    if list(arguments) == ["check"]:
        check_readable()
        sys.exit(0)
    try:
        take_volume(VOLUME)
    except Taken as error:
        fail(str(error))
    if list(arguments) == ["fenced"]:
        keep()
    if list(arguments) == ["upgrade"]:
        os.execvp("steersman-upgrade", ["steersman-upgrade", "run"])  # noqa: S606
    if arguments:
        fail("usage: steersman-start [fenced | upgrade | check]")
    version = server_version()
    require_declared(os.environ, version)
    settle_upgrade(version)
    check_version(version)
    clear_unfinished()
    check_readable()
    tell_refusal()
    # A restarted container finds its predecessor's socket, and nobody must take it for the new server's.
    for stale in RUN.glob(".s.PGSQL.*"):
        stale.unlink()
    # Patroni, as process 1, is its parent then.
    subprocess.Popen(WATCH)
    os.execvp("patroni", ["patroni", str(configure(os.environ, version))])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
