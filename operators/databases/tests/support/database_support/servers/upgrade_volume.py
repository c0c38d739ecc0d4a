"""A volume with data of PostgreSQL, and `steersman-upgrade` on it, with the programs of both majors.

Patroni, which only images have, is played.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from database_support.servers.process import UNPRIVILEGED_UID, data_directory, environment, program, run, unprivileged
from database_support.unit.image_script import IMAGES
from devcluster import database_servers
from devcluster.process import Process
from devcluster.target import wait_until

# As in an image, but for where things are and who runs them. Of what Patroni does this keeps that it leaves out what
# a version does not know. At the moment at which somebody wants to cut, it waits for its end.
_DRIVER = """
import importlib.util, json, os, signal, sys
from pathlib import Path
place = Path(__file__).parent
spec = importlib.util.spec_from_file_location("upgrade", place / "upgrade.py")
upgrade = sys.modules["upgrade"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upgrade)
upgrade.VOLUME, upgrade.WAL, upgrade.RUN = place / "volume", place / "wal", place / "run"
upgrade.PROGRAMS, upgrade.TERMINATION_LOG = place / "programs", place / "told"
upgrade.SUSPECT_INDEXES_FILE = place / "doubtful_indexes.sql"
upgrade.ADMINISTRATOR = upgrade._ENVIRONMENT["PGUSER"] = sys.argv[1]
upgrade.major_of_image = lambda: sys.argv[2]

def given(major, known):
    told = json.loads((upgrade.VOLUME / "pgdata/patroni.dynamic.json").read_text())["postgresql"]
    on_line = {n: v for n, v in told["parameters"].items() if n.startswith("max_")}
    in_file = {n: v for n, v in told["parameters"].items() if n in known}
    return upgrade.ServerSettings(on_line, in_file, told["pg_hba"], ())

def reach(words):
    if (moment := os.environ.get("MOMENT")) and moment in words:
        (place / "reached").touch()
        signal.pause()

def after(do, words):
    return lambda given: (do(given), reach(words(given)))

upgrade.patroni_settings = given
upgrade.log = after(upgrade.log, str)
upgrade.fsync_directory = after(upgrade.fsync_directory, "the names in {} are kept".format)
sys.exit(upgrade.run(["run"]))
"""
# A program of pg_upgrade's, which waits as well.
_HELD = """#!/bin/sh
case "${{MOMENT:+${{0##*/}} $*}}" in *"${{MOMENT:-none}}"*) touch {directory}/reached; exec sleep 600;; esac
exec {program} "$@"
"""
# Of the memory that a process has mapped: numbers and names of what would outlive it. In a pod it goes with the pod.
_SHARED = re.compile(r" (\d+) +(/SYSV|/dev/shm/PostgreSQL\.\d+)")
_PEERS = "local all all peer"


@dataclass(frozen=True)
class UpgradeVolume:
    """Data of `former` below a directory, of a server that was stopped in order, and programs of `major`."""

    directory: Path
    administrator: str
    former: str = "15"
    major: str = "17"

    @property
    def data(self) -> Path:
        return self.directory / "volume/pgdata"

    def programs(self, major: str) -> Path:
        return self.directory / "programs" / major / "bin"

    def fill(self, statements: str) -> None:
        """By a server of `former`: what a single user makes is numbered like initdb's own, which stays behind."""
        control = [str(self.programs(self.former) / "pg_ctl"), "-w", "-D", str(self.data)]
        alone = f"-c listen_addresses= -c unix_socket_directories={self.directory}"
        run([*control, "start", "-l", str(self.directory / "server.log"), "-o", alone], self.directory)
        try:
            where = ("-h", str(self.directory), "-U", self.administrator, "-d", "postgres")
            psql = [str(self.programs(self.former) / "psql"), "-Xq", "-v", "ON_ERROR_STOP=1", *where]
            run(psql, self.directory, statements)
        finally:
            run([*control, "stop"], self.directory)

    def give(self, parameters: Mapping[str, str], *rules: str) -> None:
        """What Patroni keeps in the data."""
        told = {"postgresql": {"parameters": parameters, "pg_hba": [*rules, _PEERS]}}
        (self.data / "patroni.dynamic.json").write_text(json.dumps(told))

    def add_wal_volume(self) -> None:
        """The log has a volume of its own from now on."""
        run(["mkdir", "wal"], self.directory)
        run(["mv", "volume/pgdata/pg_wal", "wal/pg_wal"], self.directory)
        run(["ln", "-s", f"{self.directory}/wal/pg_wal", "volume/pgdata/pg_wal"], self.directory)

    @property
    def _job(self) -> list[str]:
        """The command of its container."""
        driver = str(self.directory / "driver.py")
        return [*unprivileged(), program("python3", "/usr/bin"), "-I", driver, self.administrator, self.major]

    def upgrade(self) -> tuple[int, str]:
        """The code that the Job's container ends with, and its words."""
        done = subprocess.run(
            self._job, capture_output=True, text=True, cwd=self.directory, env=environment(self.directory)
        )
        told = (self.directory / "told").read_text()
        return done.returncode, told or done.stderr

    def interrupt(self, moment: str) -> None:
        """The Job's container is killed, with all that runs in it, as the upgrade says or does this."""
        variables, reached = {**environment(self.directory), "MOMENT": moment}, self.directory / "reached"
        with (self.directory / "job.log").open("w") as log:
            job = subprocess.Popen(self._job, stdout=log, stderr=log, cwd=self.directory, env=variables)

        def is_reached() -> bool:
            assert job.poll() is None, f"it ended before {moment!r}: {Path(log.name).read_text()}"
            return reached.exists()

        try:
            wait_until(f"the upgrade comes to {moment!r}", is_reached, seconds=240, interval=0.02)
        finally:
            self._kill()
            job.wait()
        reached.unlink()

    def _kill(self) -> None:
        """Ends what runs below the directory, servers in sessions of their own included, and what they shared."""
        shared: set[tuple[str, str]] = set()

        def is_dead() -> bool:
            found = list(self._processes())
            for process in found:
                with suppress(OSError):
                    shared.update(_SHARED.findall(Path(f"/proc/{process.pid}/maps").read_text()))
                process.kill()
            return not found

        wait_until("nothing of it runs", is_dead, seconds=20, interval=0.02)
        for number, file in shared:
            run(["ipcrm", f"--shmem-id={number}"] if file.startswith("/SYSV") else ["rm", "-f", file], self.directory)

    def _processes(self) -> Generator[Process]:
        for directory in Path("/proc").glob("[0-9]*/cwd"):
            process = Process.of(int(directory.parent.name))
            with suppress(OSError):
                if process is not None and directory.readlink().is_relative_to(self.directory):
                    yield process

    def intercept(self, major: str, *names: str) -> None:
        """Lets `cut` choose among what pg_upgrade calls these programs with."""
        real, ours = self.programs(major).resolve(), self.programs(major)
        ours.parent.unlink()
        ours.mkdir(parents=True)
        for path in real.iterdir():
            (ours / path.name).symlink_to(path)
        for name in names:
            (ours / name).unlink()
            (ours / name).write_text(_HELD.format(directory=self.directory, program=real / name))
            (ours / name).chmod(0o755)

    @contextmanager
    def restored_afterwards(self) -> Generator[None]:
        """Whatever the block does to both volumes, they are as before afterwards."""
        run(["mkdir", "kept"], self.directory)
        run(["cp", "-a", "volume", "wal", "kept"], self.directory)
        yield
        run(["rm", "-r", "volume", "wal"], self.directory)
        run(["mv", "kept/volume", "kept/wal", "."], self.directory)
        run(["rmdir", "kept"], self.directory)

    def ask(self, major: str, statement: str, database: str = "postgres") -> str:
        """What the data say to a single user."""
        server = str(self.programs(major) / "postgres")
        done = subprocess.run(
            [*unprivileged(), server, "--single", "-j", "-D", str(self.data), database],
            input=f"{statement};\n\n",
            capture_output=True,
            text=True,
            cwd=self.directory,
            env=environment(self.directory),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def names(self) -> list[str]:
        """What lies on the volumes."""
        found = [path for each in ("volume", "wal") for path in (self.directory / each).glob("*")]
        return sorted(str(path.relative_to(self.directory)) for path in found)

    def content(self) -> Mapping[str, bytes]:
        """All that is on it, by its name."""
        files = (path for path in (self.directory / "volume").rglob("*") if path.is_file())
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in files}


@contextmanager
def upgrade_volume(former: str = "15", major: str = "17", *options: str) -> Generator[UpgradeVolume]:
    """One with a table, for the time of the block. Skips the test where the programs cannot be had.

    Args:
        options: of initdb. Defaults to the locale C.UTF-8 of the C library, with checksums.
    """
    releases = {"15": Path("/"), "17": database_servers.root(database_servers.TRIXIE)}
    releases["18"] = database_servers.root(database_servers.FORKY)
    majors = {one: Path(f"{releases[one]}/usr/lib/postgresql/{one}") for one in (former, major)}
    if missing := [one for one, programs in majors.items() if not programs.exists()]:
        pytest.skip(f"PostgreSQL {', '.join(missing)} cannot be had; python -m devcluster servers says why")
    with data_directory() as directory:
        for name in ("volume", "run", "programs"):
            run(["mkdir", name], directory)
        run(["touch", "told"], directory)
        for one, programs in majors.items():
            (directory / "programs" / one).symlink_to(programs)
        for name in ("upgrade.py", "doubtful_indexes.sql"):
            shutil.copy(IMAGES / "postgresql" / name, directory)
        (directory / "driver.py").write_text(_DRIVER)
        administrator = pwd.getpwuid(UNPRIVILEGED_UID if os.getuid() == 0 else os.getuid()).pw_name
        made = UpgradeVolume(directory, administrator, former, major)
        locale = (
            "--encoding=UTF8",
            *(options or ("--locale=C.UTF-8", "--data-checksums")),
            "--no-sync",
            "--auth=peer",
        )
        initdb = str(made.programs(former) / "initdb")
        run([initdb, f"--pgdata={made.data}", f"--username={administrator}", *locale], directory)
        made.fill("CREATE TABLE book AS SELECT 'Ulysses'::text AS title")
        yield made
