"""The archive command with PostgreSQL, pgBackRest and an object store, which fails in several ways."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from database_support.servers.archiving_instance import (
    ArchivingInstance,
    programs_directory,
    stored_segments,
)
from database_support.servers.process import data_directory
from devcluster.store import ObjectStore, local_store, programs

pytestmark = pytest.mark.skipif(not programs.are_built(), reason="no object store: run devcluster store build")


@pytest.fixture
def store(tmp_path: Path) -> Generator[ObjectStore]:
    with local_store(tmp_path / "store") as running:
        yield running


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    with data_directory() as found:
        linked = programs_directory(found)
        if linked is None:
            pytest.skip("pgBackRest is not unpacked: run devcluster servers")
        monkeypatch.setenv("PATH", str(linked), prepend=":")
        yield found


@pytest.fixture
def primary(directory: Path, store: ObjectStore) -> Generator[ArchivingInstance]:
    """A running primary without a declared store."""
    instance = ArchivingInstance(directory / "primary", store)
    instance.initialise()
    instance.start()
    yield instance
    instance.kill()


@pytest.fixture
def replicas(
    directory: Path, primary: ArchivingInstance, store: ObjectStore
) -> Generator[tuple[ArchivingInstance, ArchivingInstance]]:
    primary.stop_fast()
    instances = ArchivingInstance(directory / "first", store), ArchivingInstance(directory / "second", store)
    for instance in instances:
        instance.copy_from(primary)
    primary.start()
    for instance in instances:
        instance.start(primary)
    yield instances
    for instance in instances:
        instance.kill()


@pytest.fixture
def replica(replicas: tuple[ArchivingInstance, ArchivingInstance]) -> ArchivingInstance:
    return replicas[0]


def test_store_declared_later_archives_without_restart(primary: ArchivingInstance, store: ObjectStore) -> None:
    before = primary.switch_segment()
    primary.wait_until("released without a store", lambda: primary.status_of(before) == "done")
    primary.declare_store()
    segment = primary.switch_segment()
    primary.wait_until("stored", lambda: segment in stored_segments(store))
    primary.wait_until("released", lambda: primary.status_of(segment) == "done")
    assert before not in stored_segments(store)
    assert primary.archive_state()["state"] == "Archiving"
    assert primary.archive_state()["last"] == segment


def test_promoted_replica_stores_what_primary_could_not(
    primary: ArchivingInstance, replica: ArchivingInstance, store: ObjectStore
) -> None:
    for instance in (primary, replica):
        instance.declare_store()
    first = primary.switch_segment()
    replica.wait_until("released by the replica", lambda: replica.status_of(first) == "done")
    assert first in stored_segments(store)

    store.blackhole()
    waiting = [primary.switch_segment() for _ in range(3)]
    replica.wait_until("received", lambda: all(replica.status_of(each) == "ready" for each in waiting))
    primary.wait_until("handed over", lambda: primary.status_of(waiting[0]) == "ready")
    assert primary.stop_fast() < 5
    assert primary.run_command(waiting[0]).returncode == 1
    assert not stored_segments(store) & set(waiting)

    replica.promote()
    store.end_faults()
    replica.wait_until("stored", lambda: {*waiting, "00000002.history"} <= stored_segments(store))


def test_replica_after_failover_keeps_no_file_forever(
    primary: ArchivingInstance, replicas: tuple[ArchivingInstance, ArchivingInstance], store: ObjectStore
) -> None:
    """It hands over the incomplete last segment of the former timeline, which the store never receives."""
    successor, follower = replicas
    for instance in (primary, *replicas):
        instance.declare_store()
    primary.sql("CREATE TABLE orders (id int)")
    (written,) = primary.sql("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")[0]
    position = primary.sql("SELECT pg_current_wal_flush_lsn()")[0][0]
    for instance in replicas:
        received = f"SELECT pg_last_wal_receive_lsn() >= '{position}'"
        instance.wait_until("received", lambda each=instance, query=received: each.sql(query)[0][0])
    primary.kill()
    successor.promote()
    follower.stop_fast()
    follower.start(successor)
    follower.wait_until("handed over", lambda: follower.status_of(written) == "done")
    segment = successor.switch_segment()
    assert segment.startswith("00000002")
    follower.wait_until("released", lambda: follower.status_of(segment) == "done")
    assert segment in stored_segments(store)


def test_refused_credentials_keep_wal_until_corrected(primary: ArchivingInstance, store: ObjectStore) -> None:
    primary.declare_store(accessKeyId="WRONG", secretAccessKey="x" * 30)
    segment = primary.switch_segment()
    primary.wait_until("refused", lambda: primary.archive_state().get("state") == "CredentialsRejected")
    assert primary.status_of(segment) == "ready"
    logs = (primary.directory / "output.log").read_text()
    assert "x" * 30 not in logs
    primary.declare_store()
    primary.wait_until("stored", lambda: segment in stored_segments(store), seconds=90)
