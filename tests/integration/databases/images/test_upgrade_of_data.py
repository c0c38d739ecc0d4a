"""`steersman-upgrade` on data of 15, with the programs of both majors. Patroni, which only images have, is played."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster import servers
from image_script import IMAGES
from server_process import NOBODY, data_directory, environment, program, run, unprivileged
from steersman_databases.resources.upgrade_job import REFUSED

# As in an image, but for where things are and who runs them. Of what Patroni does this keeps that it leaves out what
# a version does not know.
DRIVER = """
import importlib.util, json, sys
from pathlib import Path
place = Path(__file__).parent
spec = importlib.util.spec_from_file_location("upgrade", place / "upgrade.py")
upgrade = sys.modules["upgrade"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upgrade)
upgrade.VOLUME, upgrade.WAL, upgrade.RUN = place / "volume", place / "wal", place / "run"
upgrade.PROGRAMS, upgrade.TOLD = place / "programs", place / "told"
upgrade.ADMINISTRATOR = upgrade._ENVIRONMENT["PGUSER"] = sys.argv[1]
upgrade.major_of_image = lambda: "17"

def given(major, known):
    told = json.loads((upgrade.VOLUME / "pgdata/patroni.dynamic.json").read_text())["postgresql"]
    on_line = {n: v for n, v in told["parameters"].items() if n.startswith("max_")}
    return upgrade.Given(on_line, {n: v for n, v in told["parameters"].items() if n in known}, told["pg_hba"], ())

upgrade.given_by_patroni = given
sys.exit(upgrade.run(["run"]))
"""
PEERS = "local all all peer"


@dataclass(frozen=True)
class Volume:
    """Data of 15 below a directory, of a server that was stopped in order."""

    directory: Path
    administrator: str

    @property
    def data(self) -> Path:
        return self.directory / "volume/pgdata"

    def fill(self, programs: Path, statement: str) -> None:
        """By a server that runs: what a single user makes is numbered like initdb's own, which stays behind."""
        control = [str(programs / "pg_ctl"), "-w", "-D", str(self.data)]
        alone = f"-c listen_addresses= -c unix_socket_directories={self.directory}"
        run([*control, "start", "-l", str(self.directory / "server.log"), "-o", alone], self.directory)
        try:
            where = ("-h", str(self.directory), "-U", self.administrator, "-d", "postgres")
            run([str(programs / "psql"), *where, "-c", statement], self.directory)
        finally:
            run([*control, "stop"], self.directory)

    def give(self, parameters: Mapping[str, str], *rules: str) -> None:
        """What Patroni keeps in the data."""
        told = {"postgresql": {"parameters": parameters, "pg_hba": [*rules, PEERS]}}
        (self.data / "patroni.dynamic.json").write_text(json.dumps(told))

    def upgrade(self) -> tuple[int, str]:
        """The code that the Job's container ends with, and its words."""
        python = program("python3", "/usr/bin")
        done = subprocess.run(
            [*unprivileged(), python, "-I", str(self.directory / "driver.py"), self.administrator],
            capture_output=True,
            text=True,
            cwd=self.directory,
            env=environment(self.directory),
        )
        told = (self.directory / "told").read_text()
        return done.returncode, told or done.stderr

    def ask(self, major: str, statement: str) -> str:
        """What the data say to a single user."""
        server = f"{self.directory}/programs/{major}/bin/postgres"
        done = subprocess.run(
            [*unprivileged(), server, "--single", "-j", "-D", str(self.data), "postgres"],
            input=f"{statement};\n\n",
            capture_output=True,
            text=True,
            cwd=self.directory,
            env=environment(self.directory),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def content(self) -> Mapping[str, bytes]:
        """All that is on it, by its name."""
        files = (path for path in (self.directory / "volume").rglob("*") if path.is_file())
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in files}


@pytest.fixture
def volume() -> Generator[Volume]:
    trixie = servers.root(servers.TRIXIE)
    majors = {"15": Path("/usr/lib/postgresql/15"), "17": Path(f"{trixie}/usr/lib/postgresql/17")}
    if missing := [major for major, programs in majors.items() if not programs.exists()]:
        pytest.skip(f"PostgreSQL {', '.join(missing)} cannot be had; python -m devcluster servers says why")
    with data_directory() as directory:
        for name in ("volume", "run", "programs"):
            run(["mkdir", name], directory)
        run(["touch", "told"], directory)
        for major, programs in majors.items():
            (directory / "programs" / major).symlink_to(programs)
        shutil.copy(IMAGES / "postgresql/upgrade.py", directory)
        (directory / "driver.py").write_text(DRIVER)
        administrator = pwd.getpwuid(NOBODY if os.getuid() == 0 else os.getuid()).pw_name
        made = Volume(directory, administrator)
        locale = ("--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums", "--no-sync", "--auth=peer")
        initdb = str(majors["15"] / "bin/initdb")
        run([initdb, f"--pgdata={made.data}", f"--username={administrator}", *locale], directory)
        made.fill(majors["15"] / "bin", "CREATE TABLE book AS SELECT 'Ulysses'::text AS title")
        yield made


@pytest.mark.parametrize(
    ("parameters", "rules", "words"),
    [
        ({"shared_preload_libraries": "absent"}, (), 'FATAL:  could not access file "absent"'),
        (
            {"max_connections": "50", "superuser_reserved_connections": "50"},
            (),
            'plus "reserved_connections" (0) must be less than "max_connections" (50)',
        ),
        # For 15 it is a name.
        ({}, ("local all /( peer",), 'invalid regular expression "("'),
    ],
)
def test_what_the_new_server_does_not_start_with_is_told_and_the_data_are_as_they_were(
    volume: Volume, parameters: dict[str, Any], rules: tuple[str, ...], words: str
) -> None:
    # Which it may, and which would leave nothing to be told of the rest.
    volume.give({"log_min_messages": "panic", "log_destination": "syslog", **parameters}, *rules)
    before = volume.content()
    code, said = volume.upgrade()
    assert code == REFUSED, said
    assert said.startswith("with the parameters of the cluster PostgreSQL 17 does not start: ") and words in said
    assert volume.content() == before
    assert "Ulysses" in volume.ask("15", "SELECT title FROM book")


@pytest.mark.timeout(600)
def test_what_the_new_version_does_not_know_is_in_nobodys_way(volume: Volume) -> None:
    (volume.data / "postgresql.auto.conf").write_text("work_mem = '5MB'\n")
    volume.give({"old_snapshot_threshold": "1h", "max_connections": "50", "shared_buffers": "16MB"})
    code, said = volume.upgrade()
    assert code == 0, said
    assert said == "2 databases, 0 indexes rebuilt for their collations, amcheck clean"
    assert sorted(path.name for path in (volume.directory / "volume").iterdir()) == ["pgdata", "pgdata.15"]
    assert "Ulysses" in volume.ask("17", "SELECT title FROM book")
    assert "5MB" in volume.ask("17", "SHOW work_mem")
    assert "shared_buffers = '16MB'" not in (volume.data / "postgresql.conf").read_text(), "Patroni's to write"
