"""Server images fulfill the contract of their README, without Kubernetes."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster.images import MYSQL, POSTGRESQL, POSTGRESQL_15, POSTGRESQL_18, Recipe, ensure
from devcluster.progress import Progress
from framework_support.image_container import Container, Unpacked, unpack, writable

# Characters with a meaning in SQL strings, escapes and shells, and of several bytes.
PASSWORD = "it's \"quoted\" \\' -- $(x) `x` é %;\\"

# Tests run in parallel, and runc identifies containers by name.
PREFIX = f"steersman-image-test-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"

AUTHENTICATION_ERRORS = ("Access denied", "password authentication failed", "no password supplied")


@dataclass(frozen=True)
class ServerEngine:
    """Client command and data directory of a server."""

    administrator: str
    directory: str
    client: Callable[[str, str], tuple[list[str], list[str]]]


def _psql(password: str, sql: str) -> tuple[list[str], list[str]]:
    dsn = "host=127.0.0.1 user=postgres dbname=postgres sslmode=require"
    return ["psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, dsn], [f"PGPASSWORD={password}"]


def _mysql(password: str, sql: str) -> tuple[list[str], list[str]]:
    options = ["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=steersman_admin", "--skip-column-names"]
    return ["mysql", *options, "--execute", sql], [f"MYSQL_PWD={password}"]


ENGINES = {
    "postgresql": ServerEngine("postgres", "pgdata", _psql),
    "postgresql-15": ServerEngine("postgres", "pgdata", _psql),
    "postgresql-18": ServerEngine("postgres", "pgdata", _psql),
    "mysql": ServerEngine("steersman_admin", "mysql", _mysql),
}


@dataclass
class ImageServer:
    """A volume, and successive containers on it."""

    engine: ServerEngine
    image: Unpacked
    directory: Path
    container_count: int = 0

    def container(self, *arguments: str) -> Container:
        self.container_count += 1
        name = f"{PREFIX}-{self.container_count}"
        part = {name: self.directory / name for name in ("volume", "run", "admin")}
        return Container(
            name, self.image, self.directory / name, part["volume"], part["run"], part["admin"], arguments
        )

    def sql(self, container: Container, sql: str, password: str = PASSWORD) -> str:
        command, environment = self.engine.client(password, sql)
        done = container.execute(*command, environment=environment)
        assert done.returncode == 0, done.stderr + container.log
        return done.stdout.strip()

    def refuses(self, container: Container, password: str) -> bool:
        command, environment = self.engine.client(password, "SELECT 1")
        done = container.execute(*command, environment=environment)
        return done.returncode != 0 and any(word in done.stderr for word in AUTHENTICATION_ERRORS)


RECIPES: dict[str, Recipe] = {
    "postgresql": POSTGRESQL,
    "postgresql-15": POSTGRESQL_15,
    "postgresql-18": POSTGRESQL_18,
    "mysql": MYSQL,
}


@pytest.fixture(scope="module", params=RECIPES)
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Unpacked]]:
    built = ensure(RECIPES[request.param], Progress())
    directory = tmp_path_factory.mktemp("root")
    yield request.param, unpack(built.archive, directory)
    shutil.rmtree(directory)


@pytest.fixture
def server(image: tuple[str, Unpacked], tmp_path: Path) -> Iterator[ImageServer]:
    name, unpacked = image
    engine = ENGINES[name]
    # Like an emptyDir or a PVC with fsGroup.
    for part in ("volume", "run"):
        writable(tmp_path / part)
    admin = writable(tmp_path / "admin")
    (admin / "username").write_text(engine.administrator)
    (admin / "password").write_text(PASSWORD)
    server = ImageServer(engine, unpacked, tmp_path)
    yield server
    for number in range(1, server.container_count + 1):
        left = Container(f"{PREFIX}-{number}", unpacked, tmp_path, tmp_path, tmp_path, tmp_path)
        left.remove()
    shutil.rmtree(tmp_path)


def _ready(container: Container) -> None:
    container.until(lambda: container.probe("readiness"))


def test_empty_volume_is_initialised_with_password(
    server: ImageServer, record_property: Callable[[str, object], None]
) -> None:
    container = server.container()
    begun = time.monotonic()
    container.start()
    _ready(container)
    record_property("seconds from start to ready", round(time.monotonic() - begun, 1))
    record_property("MiB of memory", container.memory() >> 20)
    assert container.probe("startup")
    assert container.probe("liveness")
    assert server.sql(container, "SELECT 1") == "1"
    assert server.refuses(container, "wrong")
    assert server.refuses(container, "")
    assert container.memory() < 450 << 20
    begun = time.monotonic()
    assert container.stop() == 0, container.log
    record_property("seconds to end", round(time.monotonic() - begun, 1))
    assert "it's" not in container.log


def test_image_has_required_programs_and_scripts(server: ImageServer) -> None:
    """They also work with an empty environment."""
    container = server.container()
    container.start()
    _ready(container)
    scripts = [f"/usr/local/bin/steersman-{name}" for name in ("start", "role", "watch", "upgrade")]
    load = "import sys, runpy; [runpy.run_path(script) for script in sys.argv[1:]]"
    if "pgdata" in server.engine.directory:
        done = container.execute("python3", "-I", "-c", load, *scripts)
        assert done.returncode == 0, done.stderr
    else:
        assert "usage: steersman-agent" in container.execute("steersman-agent", "nonsense").stderr
        probe = container.execute("steersman-member", "readiness")
        assert probe.returncode == 1 and "has not said anything" in probe.stdout


def test_data_survives_any_container_exit(server: ImageServer) -> None:
    first = server.container()
    first.start()
    _ready(first)
    if "pgdata" in server.engine.directory:
        server.sql(first, "CREATE DATABASE kept")
    else:
        server.sql(first, "CREATE DATABASE kept; CREATE TABLE kept.rows_ (id int); INSERT INTO kept.rows_ VALUES (1)")
    first.kill()
    second = server.container()
    second.start()
    _ready(second)
    listed = "SELECT datname FROM pg_database" if "pgdata" in server.engine.directory else "SHOW DATABASES"
    assert "kept" in server.sql(second, listed).split()
    assert second.stop() == 0
    (server.directory / "admin" / "password").write_text("another")
    third = server.container()
    third.start()
    _ready(third)
    assert server.sql(third, "SELECT 1") == "1", "a new Secret does not touch existing data"
    assert third.stop() == 0


def test_kill_during_first_start_is_recovered(server: ImageServer) -> None:
    chance = random.Random(3)
    interrupted = 0
    for _ in range(12):
        shutil.rmtree(server.directory / "volume")
        writable(server.directory / "volume")
        killed = server.container()
        killed.start()
        killed.sleep(chance.uniform(0.1, 3.0))
        killed.kill()
        interrupted += not (server.directory / "volume" / server.engine.directory).exists()
        again = server.container()
        again.start()
        _ready(again)
        assert server.sql(again, "SELECT 1") == "1"
        again.kill()
    assert interrupted, "no kill hit the initialisation"


def test_sigterm_during_first_start_stops_at_once(server: ImageServer) -> None:
    container = server.container()
    container.start()
    unfinished = server.directory / "volume" / f".{server.engine.directory}.unfinished"
    container.until(unfinished.exists)
    assert not container.probe("startup")
    assert not container.probe("readiness")
    assert container.probe("liveness"), "a server in the making must not be killed"
    container.stop(5)
    assert not (server.directory / "volume" / server.engine.directory).exists()


def test_second_server_waits_for_the_volume(server: ImageServer) -> None:
    first = server.container()
    first.start()
    _ready(first)
    (server.directory / "run").rename(server.directory / "run-of-first")
    writable(server.directory / "run")
    second = server.container()
    second.start()
    second.sleep(3)
    assert second.running()
    assert not second.probe("readiness")
    assert server.sql(first, "SELECT 1") == "1"
    first.kill()
    _ready(second)
    assert second.stop() == 0


def test_arguments_reach_the_server(server: ImageServer) -> None:
    postgresql = "pgdata" in server.engine.directory
    container = server.container(*(("-c", "max_connections=37") if postgresql else ("--max-connections=37",)))
    container.start()
    _ready(container)
    assert server.sql(container, "SHOW max_connections" if postgresql else "SELECT @@max_connections") == "37"
    assert container.stop() == 0


def test_unwritable_volume_is_reported(server: ImageServer) -> None:
    (server.directory / "volume").chmod(0o500)
    container = server.container()
    container.start()
    assert container.wait(10) == 1
    assert "fsGroup" in container.log
