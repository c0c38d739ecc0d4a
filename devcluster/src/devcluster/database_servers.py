"""Servers of other Debian releases, unpacked for tests on loopback.

Each program is run by the loader and the libraries of its own release, so neither an image nor root is needed to
start it, and PostgreSQL finds its files from where it lies.
"""

import os
import shlex
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from devcluster import apt, layout, lock, rootfs
from devcluster.commands import logged
from devcluster.errors import CommandFailed
from devcluster.progress import Progress

TOOLS = ("mmdebstrap", "debian-archive-keyring")
_POSTGRESQL = (
    *("postgres", "initdb", "psql", "pg_controldata", "pg_rewind", "pg_waldump"),
    *("pg_ctl", "pg_upgrade", "pg_resetwal", "pg_dump", "pg_dumpall", "pg_restore", "vacuumdb", "pg_amcheck"),
)
_RETRY_AFTER_SECONDS = 86400.0  # seconds before an unavailable release is tried again


@dataclass(frozen=True)
class ServerRelease:
    """Packages of a Debian release, and their programs.

    `version` must match the first program's own version, since sid changes daily. `recipe` is part of the
    directory's name: a new recipe unpacks the packages again.
    """

    suite: str
    title: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    version: str
    recipe: str


TRIXIE = ServerRelease(
    "trixie",
    "PostgreSQL 17, pgBackRest and MariaDB 11.8",
    ("postgresql-17", "pgbackrest", "mariadb-server-core"),
    (*(f"usr/lib/postgresql/17/bin/{name}" for name in _POSTGRESQL), "usr/bin/pgbackrest", "usr/sbin/mariadbd"),
    " 17.",
    "4",
)
FORKY = ServerRelease(
    "forky",
    "PostgreSQL 18",
    ("postgresql-18",),
    tuple(f"usr/lib/postgresql/18/bin/{name}" for name in _POSTGRESQL),
    " 18.",
    "1",
)
SID = ServerRelease(
    "sid",
    "MySQL 9.7",
    ("mysql-server-core", "mysql-client-core", "restic"),
    ("usr/sbin/mysqld", "usr/bin/restic", "usr/bin/mysql", "usr/bin/mysqldump"),
    " 9.7.",
    "3",
)
# Debian 12 builds Prometheus without the service discovery of Kubernetes.
PROMETHEUS = ServerRelease(
    "trixie",
    "Prometheus 2.53",
    ("prometheus", "promtool"),
    ("usr/bin/prometheus", "usr/bin/promtool"),
    " 2.53.",
    "prometheus-1",
)
RELEASES = (TRIXIE, FORKY, SID, PROMETHEUS)


def root(release: ServerRelease) -> Path | None:
    """Return the root directory of an unpacked release, or None."""
    directory = _release_directory(release)
    return directory if directory.is_dir() else None


def ensure(progress: Progress) -> list[Path]:
    """Unpack all available releases and report why others are missing.

    Raises Unsupported where nothing can be installed, CommandFailed where apt fails.
    """
    missing = [release for release in RELEASES if root(release) is None and _unavailable_reason(release) is None]
    if missing:
        apt.ensure(progress, TOOLS)
        with ThreadPoolExecutor(len(missing)) as pool:
            for future in [pool.submit(_ensure, release, progress) for release in missing]:
                future.result()
    for release in RELEASES:
        if reason := _unavailable_reason(release):
            retry_note = f"asked for again a day later, or once {_release_directory(release, '.lacking')} is gone"
            progress.note(f"{release.title} cannot be had, and is not tested ({retry_note}): {reason}")
    return [directory for release in RELEASES if (directory := root(release))]


def _ensure(release: ServerRelease, progress: Progress) -> None:
    with lock.exclusive(_directory() / f"{release.suite}.lock"):
        if root(release) is not None or _unavailable_reason(release) is not None:
            return
        try:
            with progress.step(f"Unpack {release.title} of Debian {release.suite} (half a minute)"):
                _unpack(release)
        except (CommandFailed, OSError) as error:
            shutil.rmtree(_release_directory(release, ".unfinished"), ignore_errors=True)
            _release_directory(release, ".lacking").write_text(str(error))


def _unavailable_reason(release: ServerRelease) -> str | None:
    """Return why a release was unavailable within the last day, or None."""
    marker = _release_directory(release, ".lacking")
    try:
        return marker.read_text() if time.time() - marker.stat().st_mtime < _RETRY_AFTER_SECONDS else None
    except FileNotFoundError:
        return None


def _unpack(release: ServerRelease) -> None:
    release_directory = _release_directory(release)
    # Without dpkg's scripts this takes half the time of a base image.
    staging = _release_directory(release, ".unfinished")
    shutil.rmtree(staging, ignore_errors=True)
    options = [f"--aptopt={option}" for option in rootfs.APT_OPTIONS]
    command = ["mmdebstrap", "--variant=extract", *options, f"--include={','.join(release.packages)}"]
    log = _directory() / f"{release.suite}.log"
    logged([*command, release.suite, str(staging), *rootfs.sources(release.suite)], log, seconds=900)
    staging.chmod(0o755)
    for program in release.programs:
        _wrap_program(staging, release_directory, program)
    # Complete it before the rename, after which other processes use it.
    version = [*_command(staging, staging, release.programs[0]), "--version"]
    completed = subprocess.run(version, capture_output=True, text=True, check=False)
    if release.version not in completed.stdout:
        raise CommandFailed(f"it says of itself: {(completed.stdout or completed.stderr).strip()}")
    staging.rename(release_directory)


def _wrap_program(staging: Path, release_directory: Path, program: str) -> None:
    """Replace a program with a script that uses its own loader."""
    (staging / program).rename(staging / f"{program}.elf")
    (staging / program).write_text(
        f'#!/bin/sh\nexec {shlex.join(_command(staging, release_directory, program))} "$@"\n'
    )
    (staging / program).chmod(0o755)


def _command(staging: Path, release_directory: Path, program: str) -> list[str]:
    """Return the command of a program. Raises FileNotFoundError without a loader."""
    loader = next((path for path in staging.glob("usr/lib*/ld-linux*") if path.is_file()), None)
    if loader is None:
        raise FileNotFoundError(f"there is no {staging}/usr/lib*/ld-linux*")
    libraries = [*staging.glob("usr/lib/*-linux-gnu"), staging / "usr/lib/mysql/private"]
    path = ":".join(str(release_directory / each.relative_to(staging)) for each in libraries)
    program_path = str(release_directory / program)
    return [
        str(release_directory / loader.relative_to(staging)),
        "--argv0",
        program_path,
        "--library-path",
        path,
        f"{program_path}.elf",
    ]


def _release_directory(release: ServerRelease, suffix: str = "") -> Path:
    return _directory() / f"{release.suite}-{release.recipe}{suffix}"


def _directory() -> Path:
    """Return a world-readable directory; servers do not run as root."""
    return Path("/var/cache/steersman/servers") if os.geteuid() == 0 else layout.cache_directory() / "servers"
