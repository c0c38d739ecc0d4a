"""Database servers of other Debian releases, unpacked beside the machine's own, for tests on loopback.

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

from devcluster import layout, lock, packages, rootfs
from devcluster.commands import logged
from devcluster.errors import CommandFailed
from devcluster.progress import Progress

TOOLS = ("mmdebstrap", "debian-archive-keyring")
_POSTGRESQL = (
    *("postgres", "initdb", "psql", "pg_controldata", "pg_rewind"),
    *("pg_ctl", "pg_upgrade", "pg_resetwal", "pg_dump", "pg_dumpall", "pg_restore", "vacuumdb", "pg_amcheck"),
)
_REMEMBERED = 86400.0  # seconds until what could not be had is asked for again


@dataclass(frozen=True)
class Release:
    """Packages of a Debian release, and the programs among what is in them that are started.

    `version` is what the first program must say of itself: sid is another every day. `recipe` is part of the
    directory's name: with another one, what was unpacked before is made anew.
    """

    suite: str
    title: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    version: str
    recipe: str


TRIXIE = Release(
    "trixie",
    "PostgreSQL 17 and MariaDB 11.8",
    ("postgresql-17", "mariadb-server-core"),
    (*(f"usr/lib/postgresql/17/bin/{name}" for name in _POSTGRESQL), "usr/sbin/mariadbd"),
    " 17.",
    "3",
)
SID = Release("sid", "MySQL 9.7", ("mysql-server-core",), ("usr/sbin/mysqld",), " 9.7.", "1")


def root(release: Release) -> Path | None:
    """The directory into which a release's packages were unpacked; None before they were."""
    directory = _place(release)
    return directory if directory.is_dir() else None


def ensure(progress: Progress) -> list[Path]:
    """The directories of all releases that can be had; of those that cannot, it is said why.

    Raises Unsupported where nothing can be installed, CommandFailed where apt fails.
    """
    wanted = [release for release in (TRIXIE, SID) if root(release) is None and _lacking(release) is None]
    if wanted:
        packages.ensure(progress, TOOLS)
        with ThreadPoolExecutor(len(wanted)) as pool:
            for made in [pool.submit(_ensure, release, progress) for release in wanted]:
                made.result()
    for release in (TRIXIE, SID):
        if reason := _lacking(release):
            again = f"asked for again a day later, or once {_place(release, '.lacking')} is gone"
            progress.note(f"{release.title} cannot be had, and is not tested ({again}): {reason}")
    return [found for release in (TRIXIE, SID) if (found := root(release))]


def _ensure(release: Release, progress: Progress) -> None:
    with lock.exclusive(_directory() / f"{release.suite}.lock"):
        if root(release) is not None or _lacking(release) is not None:
            return
        try:
            with progress.step(f"Unpack {release.title} of Debian {release.suite} (half a minute)"):
                _make(release)
        except (CommandFailed, OSError) as error:
            shutil.rmtree(_place(release, ".unfinished"), ignore_errors=True)
            _place(release, ".lacking").write_text(str(error))


def _lacking(release: Release) -> str | None:
    """Why it could not be had within the last day: sid may have another version for weeks."""
    written = _place(release, ".lacking")
    try:
        return written.read_text() if time.time() - written.stat().st_mtime < _REMEMBERED else None
    except FileNotFoundError:
        return None


def _make(release: Release) -> None:
    finished = _place(release)
    # Not the tarball of a base image: without dpkg's scripts it takes half of the time, and the same place always.
    made = _place(release, ".unfinished")
    shutil.rmtree(made, ignore_errors=True)
    options = [f"--aptopt={option}" for option in rootfs.APT_OPTIONS]
    command = ["mmdebstrap", "--variant=extract", *options, f"--include={','.join(release.packages)}"]
    log = _directory() / f"{release.suite}.log"
    logged([*command, release.suite, str(made), *rootfs.sources(release.suite)], log, seconds=900)
    made.chmod(0o755)
    for program in release.programs:
        _wrap(made, finished, program)
    # Before it has its name, by which others take it at once.
    version = [*_command(made, made, release.programs[0]), "--version"]
    told = subprocess.run(version, capture_output=True, text=True, check=False)
    if release.version not in told.stdout:
        raise CommandFailed(f"it says of itself: {(told.stdout or told.stderr).strip()}")
    made.rename(finished)


def _wrap(made: Path, finished: Path, program: str) -> None:
    """Put a script in a program's place, which starts it in its place."""
    (made / program).rename(made / f"{program}.elf")
    (made / program).write_text(f'#!/bin/sh\nexec {shlex.join(_command(made, finished, program))} "$@"\n')
    (made / program).chmod(0o755)


def _command(made: Path, place: Path, program: str) -> list[str]:
    """What starts a program of those in `made` once they are in `place`. Raises FileNotFoundError: no loader."""
    loader = next((path for path in made.glob("usr/lib*/ld-linux*") if path.is_file()), None)
    if loader is None:
        raise FileNotFoundError(f"there is no {made}/usr/lib*/ld-linux*")
    libraries = [*made.glob("usr/lib/*-linux-gnu"), made / "usr/lib/mysql/private"]
    path = ":".join(str(place / each.relative_to(made)) for each in libraries)
    called = str(place / program)
    return [str(place / loader.relative_to(made)), "--argv0", called, "--library-path", path, f"{called}.elf"]


def _place(release: Release, state: str = "") -> Path:
    return _directory() / f"{release.suite}-{release.recipe}{state}"


def _directory() -> Path:
    """Where other users can read: servers do not run as root, and root's own cache is closed to them."""
    return Path("/var/cache/steersman/servers") if os.geteuid() == 0 else layout.cache() / "servers"
