"""`steersman-instance read-replica` with real PostgreSQL servers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from database_support.archive.archived_server import as_pod
from database_support.servers.matrix import WHOLE_MATRIX
from database_support.servers.read_replica import (
    POD,
    SLOT,
    Primary,
    ReadReplicaProcess,
    read_replica_of_new_primary,
)
from devcluster import database_servers
from devcluster.target import wait_until

pytestmark = pytest.mark.xdist_group("read-replica")


def programs() -> dict[str, Path]:
    """Directories of PostgreSQL's programs by major version."""
    trixie = database_servers.root(database_servers.TRIXIE)
    roots = [Path("/"), *([trixie] if trixie else [])]
    return {path.parts[-2]: path for root in roots for path in root.glob("usr/lib/postgresql/*/bin")}


def wrapped_copy_program(binaries: Path, directory: Path) -> Path:
    """Wrap `pg_basebackup` of another release as its `psql` is, so that it has its own C library."""
    psql = binaries / "psql"
    if not (binaries / "psql.elf").exists():
        return binaries
    program = directory / "pg_basebackup"
    program.write_text(psql.read_text().replace("psql.elf", "pg_basebackup"))
    program.chmod(0o755)
    return directory


VERSIONS = sorted(programs())


@pytest.fixture(params=VERSIONS if WHOLE_MATRIX else VERSIONS[-1:])
def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Generator[tuple[Primary, ReadReplicaProcess]]:
    """A primary that runs, and a read replica that does not yet."""
    binaries = programs()[request.param]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        wrapper = wrapped_copy_program(binaries, Path(directory))
        monkeypatch.setenv("PATH", f"{wrapper}:{binaries}:{os.environ['PATH']}")
        yield from started(request.param)


def started(version: str) -> Generator[tuple[Primary, ReadReplicaProcess]]:
    with read_replica_of_new_primary(version) as made:
        yield made


def copies(replica: ReadReplicaProcess) -> int:
    return replica.log.read_text().count("taking a new base copy")


def marks(replica: ReadReplicaProcess) -> set[str]:
    return {name for (name,) in replica.sql("SELECT name FROM marks")}


def wait_for_mark(replica: ReadReplicaProcess, name: str) -> None:
    def is_replayed() -> bool:
        try:
            return name in marks(replica)
        except psycopg.OperationalError:
            # It restarts.
            return False

    wait_until(f"{name} is replayed", is_replayed, seconds=30, interval=0.1)


def test_read_replica_copies_follows_and_stops_cleanly(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    primary.sql("INSERT INTO marks VALUES ('before')")
    replica.start()
    wait_until("it responds", lambda: replica.request("/liveness")[0] == 200, seconds=20, interval=0.1)
    replica.wait_ready()
    primary.sql("INSERT INTO marks VALUES ('after')")
    wait_for_mark(replica, "after")
    assert marks(replica) == {"before", "after"}
    [(name, sync)] = primary.sql("SELECT application_name, sync_state FROM pg_stat_replication")
    assert (name, sync) == (POD, "async")
    [(slot, active)] = primary.sql("SELECT slot_name, active FROM pg_replication_slots WHERE NOT temporary")
    assert (slot, active) == (SLOT, True)
    status = replica.status()
    assert (status["state"], status["ready"]) == ("Streaming", True)
    assert status["connections"] is not None
    assert replica.sql("SHOW archive_mode") == [("off",)]
    assert replica.stop() == 0
    control = as_pod(["pg_controldata", "-D", str(replica.paths.postgresql_data)])
    assert "shut down in recovery" in control
    # It continues with its data.
    primary.sql("INSERT INTO marks VALUES ('meanwhile')")
    replica.start()
    replica.wait_ready()
    wait_for_mark(replica, "meanwhile")
    assert copies(replica) == 1


def test_read_replica_killed_in_copy_begins_again(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    primary.sql("INSERT INTO marks SELECT repeat('x', 100) FROM generate_series(1, 100000)")
    replica.start()
    staging = replica.paths.volume / ".pgdata.copying"
    wait_until("it copies", lambda: (staging / "base").exists(), seconds=30, interval=0.01)
    replica.kill()
    replica.start()
    replica.wait_ready()
    assert not staging.exists()


def test_read_replica_that_diverged_takes_a_new_copy(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    replica.start()
    replica.wait_ready()
    successor = Primary(primary.directory.with_name("successor"), primary.certificates)
    try:
        successor.create_standby_of(primary)
        primary.sql("INSERT INTO marks VALUES ('both')")
        wait_until("copied", lambda: ("both",) in successor.sql("SELECT name FROM marks"), seconds=30)
        # From here on only the read replica has what is committed. The failover loses it.
        successor.stop()
        primary.sql("INSERT INTO marks VALUES ('lost')")
        wait_for_mark(replica, "lost")
        primary.stop()
        successor.start()
        successor.promote()
        wait_until("promoted", lambda: successor.sql("SELECT pg_is_in_recovery()") == [(False,)], seconds=30)
        successor.sql("INSERT INTO marks VALUES ('new')")
        replica.declare(successor)
        wait_until("it copies", lambda: copies(replica) == 2, seconds=60)
        replica.wait_ready()
        wait_for_mark(replica, "new")
        assert marks(replica) == {"both", "new"}
    finally:
        successor.stop()


def test_read_replica_without_its_wal_takes_a_new_copy(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    replica.start()
    replica.wait_ready()
    assert replica.stop() == 0
    primary.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    primary.sql("SELECT pg_reload_conf()")
    for _ in range(4):
        primary.sql("INSERT INTO marks VALUES ('new')")
        primary.sql("SELECT pg_switch_wal()")
    primary.sql("CHECKPOINT")
    assert primary.sql(f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{SLOT}'") == [("lost",)]
    replica.start()
    wait_until("it copies", lambda: copies(replica) == 2, seconds=60)
    replica.wait_ready()
    wait_for_mark(replica, "new")
    assert primary.sql("SELECT wal_status FROM pg_replication_slots WHERE NOT temporary") != [("lost",)]


def test_read_replica_is_not_ready_beyond_its_maximal_lag(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    replica.declare(primary, max_lag=3.0)
    replica.start()
    replica.wait_ready()
    primary.stop()
    wait_until("it is not ready", lambda: not replica.is_ready(), seconds=20, interval=0.1)
    status = replica.status()
    assert status["state"] == "Disconnected"
    assert status["lag_seconds"] > 3
    assert marks(replica) == set(), "it still responds to whoever is connected"
    primary.start()
    replica.wait_ready()


def test_read_replica_follows_raised_parameters(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    replica.start()
    replica.wait_ready()
    primary.stop()
    primary.configure(max_connections="150")
    primary.start()
    primary.sql("INSERT INTO marks VALUES ('raised')")
    # Replay waits until the server has as many, whatever is declared.
    wait_for_mark(replica, "raised")
    replica.wait_ready()
    assert replica.sql("SHOW max_connections") == [("150",)]
    replica.declare(primary, work_mem="5MB")
    wait_until("reloaded", lambda: replica.sql("SHOW work_mem") == [("5MB",)], seconds=20)
    assert copies(replica) == 1


def test_promoted_read_replica_takes_a_new_copy(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    replica.start()
    replica.wait_ready()
    replica.sql("SELECT pg_promote(wait => false)")
    wait_until("it copies", lambda: copies(replica) == 2, seconds=30)
    replica.wait_ready()
    primary.sql("INSERT INTO marks VALUES ('new')")
    wait_for_mark(replica, "new")
    assert not (replica.paths.volume / ".pgdata.removing").exists()


def test_replay_paused_by_a_user_restarts_no_server(world: tuple[Primary, ReadReplicaProcess]) -> None:
    primary, replica = world
    replica.declare(primary, max_lag=3.0)
    replica.start()
    replica.wait_ready()
    replica.sql("SELECT pg_wal_replay_pause()")
    primary.sql("INSERT INTO marks VALUES ('paused')")
    wait_until("it is not ready", lambda: not replica.is_ready(), seconds=20, interval=0.1)
    assert "stopping the server" not in replica.log.read_text()
    replica.sql("SELECT pg_wal_replay_resume()")
    wait_for_mark(replica, "paused")
