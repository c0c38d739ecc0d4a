"""Real servers and the numbers of their timelines: what `reserve_next` leaves in a log, they understand."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from database_support.e2e.engines import POSTGRESQL
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.process import (
    START_SECONDS,
    DatabaseServerProcess,
    data_directory,
    free_port,
    program,
    run,
)
from database_support.unit.image_script import IMAGES, script

timeline = script("postgresql", "timeline")
IS = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
FOLLOW = POSTGRESQL.is_following
ROWS = "SELECT string_agg(said, ' ' ORDER BY said) FROM log"


class Replicas:
    """Servers that begin as copies of one another's data, on timeline 1, each in a directory of its own."""

    def __init__(self, directory: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.programs, self.ports = directory, str(programs), dict[str, int]()
        self._monkeypatch = monkeypatch
        # The scripts look for the programs as in the image.
        monkeypatch.setenv("PATH", self.programs, prepend=":")
        # The servers' user may not be able to enter the checkout.
        shutil.copy(IMAGES / "postgresql/postgres.sh", directory)
        run(["mkdir", "template"], directory)
        data = self.data("template")
        options = (f"--pgdata={data}", "--no-sync", "--username=any", "--data-checksums")
        run([program("initdb", self.programs), *options], directory)
        with self.running("template"):
            self.ask("template", "CREATE TABLE log (said text)")
        (data / "standby.signal").touch()

    def data(self, name: str) -> Path:
        return self.directory / name / "data"

    def copy(self, *names: str) -> None:
        for name in names:
            run(["cp", "-a", "template", name], self.directory)

    @contextmanager
    def running(self, name: str, follows: str = "") -> Generator[None]:
        port = self.ports[name] = free_port()
        settings = {
            "unix_socket_directories": self.directory,
            "listen_addresses": "127.0.0.1",
            "port": port,
            "fsync": "off",
            "wal_retrieve_retry_interval": "100ms",
            **({"primary_conninfo": f"host={self.directory} port={self.ports[follows]} user=any"} if follows else {}),
        }
        data = self.data(name)
        start = ["sh", str(self.directory / "postgres.sh"), "-D", str(data), f"--config-file={data}/postgresql.conf"]
        process = DatabaseServerProcess(
            self.directory / name, [*start, *(f"-c{key}={value}" for key, value in settings.items())]
        )
        try:
            self.until(name, "SELECT 1", 1)
            yield
        finally:
            process.stop(signal.SIGINT)

    def ask(self, name: str, statement: str) -> object:
        where = f"host={self.directory} port={self.ports[name]} user=any dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return (cursor.fetchone() or [None])[0] if cursor.description else None

    def until(self, name: str, statement: str, answer: object) -> None:
        deadline, found = time.monotonic() + START_SECONDS, object()
        while time.monotonic() < deadline:
            try:
                found = self.ask(name, statement)
            except psycopg.OperationalError as error:
                found = error
            if found == answer:
                return
            time.sleep(0.05)
        log = (self.directory / name / "output.log").read_text(errors="replace")
        raise AssertionError(f"{name}: {statement} is {found} and not {answer}:\n{log}")

    def require_followed(self, name: str, by: str) -> None:
        """Starts a replica: what is written from then on must arrive there."""
        with self.running(by, follows=name):
            self.until(name, FOLLOW, 1)
            self.ask(name, "INSERT INTO log VALUES ('one')")
            self.until(by, ROWS, "one")

    def promote(self, name: str, reserved: int) -> int:
        """As Patroni does, where so many are ``reserved``; the timeline that this begins."""
        system, _ = timeline.control_data(self.data(name))
        store = {"metadata": {"resourceVersion": "1"}, "data": {system: str(reserved)}}

        class ApiServer:
            def __init__(self, manager: str) -> None:
                self.manager = manager

            def send(self, request: Any) -> Any:
                return timeline.ApiResponse(200, request.body or store)

        self._monkeypatch.setenv("POD_NAMESPACE", "shop")
        self._monkeypatch.setattr(timeline, "DATA", self.data(name))
        self._monkeypatch.setattr(timeline, "ApiClient", ApiServer)
        assert timeline.reserve_next("orders")
        for file in (self.data(name) / "pg_wal").glob("*.history"):
            file.chmod(0o644)
        self.ask(name, "SELECT pg_promote()")
        return int(str(self.ask(name, IS)))


@pytest.fixture
def replicas(postgresql: RealPostgreSQLServer, monkeypatch: pytest.MonkeyPatch) -> Generator[Replicas]:
    with data_directory() as directory:
        yield Replicas(directory, postgresql.programs, monkeypatch)


def test_promotion_unaware_of_timeline_starts_another(replicas: Replicas) -> None:
    """Two that are promoted without having heard of each other, as after an outage of all but one."""
    replicas.copy("lost", "next", "away")
    with replicas.running("lost"):
        assert replicas.promote("lost", 1) == 2
        replicas.ask("lost", "INSERT INTO log VALUES ('never acknowledged')")
    with ExitStack() as stack:
        stack.enter_context(replicas.running("next"))
        assert replicas.promote("next", 2) == 3
        replicas.ask("next", "INSERT INTO log VALUES ('one')")
        replicas.ask("next", "CHECKPOINT")
        stack.enter_context(replicas.running("away", follows="next"))
        replicas.until("next", FOLLOW, 1)
        replicas.until("away", ROWS, "one")

        # By its number alone pg_rewind would take the lost one's log for this one.
        rewind = [program("pg_rewind", replicas.programs), f"--target-pgdata={replicas.data('lost')}"]
        source = f"host={replicas.directory} port={replicas.ports['next']} user=any dbname=postgres"
        run([*rewind, f"--source-server={source}", "--no-sync"], replicas.directory)
        (replicas.data("lost") / "standby.signal").touch()
        stack.enter_context(replicas.running("lost", follows="next"))
        replicas.until("next", FOLLOW, 2)
        replicas.ask("next", "INSERT INTO log VALUES ('two')")
        for name in ("lost", "away"):
            replicas.until(name, ROWS, "one two")
    # Each begins again with what it has heard of.
    with replicas.running("next"), replicas.running("away", follows="next"), replicas.running("lost", follows="next"):
        replicas.until("next", FOLLOW, 2)
        assert replicas.promote("away", 3) == 4


def test_returning_member_follows_copy_without_all_timelines(replicas: Replicas) -> None:
    replicas.copy("first", "away")
    with replicas.running("first"):
        assert replicas.promote("first", 2) == 3
    run(["cp", "-a", "first", "copy"], replicas.directory)
    # As pg_basebackup leaves it: of the history files that of its own timeline is there.
    (replicas.data("copy") / "pg_wal/00000002.history").unlink()
    (replicas.data("copy") / "standby.signal").touch()
    with replicas.running("copy"):
        assert replicas.promote("copy", 3) == 4
        replicas.require_followed("copy", by="away")
    # What it hands on is the whole line.
    history = (replicas.data("copy") / "pg_wal/00000004.history").read_text().split()
    assert [word for word in history if word.isdecimal()] == ["1", "3"]


def test_replica_starts_after_failed_promotion(replicas: Replicas) -> None:
    replicas.copy("other", "cut")
    timeline.skip_timeline(replicas.data("cut") / "pg_wal", 1, 4)
    with replicas.running("other"):
        assert replicas.promote("other", 1) == 2
        replicas.require_followed("other", by="cut")
