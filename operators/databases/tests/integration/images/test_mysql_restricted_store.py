"""Backups of MySQL in stores that lock new objects, or refuse deletions."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from database_support.archive.bucket_settings import add_user_without_deletion, lock_new_objects
from database_support.servers.mysql_archive import archive_of, store_of
from database_support.unit.binlog_events import UUID, Transaction, session
from devcluster import database_servers
from devcluster.store import ObjectStore, local_store, programs
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.backup.mysql_base import BackupRequest, MysqlArchive, remove, store_directory
from steersman_instance.backup.mysql_copy import CopyState
from steersman_instance.gtids import NO_GTIDS, GtidSet
from steersman_instance.paths import InstancePaths

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="restic is not unpacked: run python -m devcluster servers"),
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("mysql-restricted-store"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[ObjectStore]:
    """A store with a bucket that locks new objects for five days."""
    with local_store(tmp_path_factory.mktemp("store"), object_lock=True) as started:
        lock_new_objects(started, 5)
        yield started


class Cluster:
    """A cluster's path in the store, and data that grows with each backup."""

    def __init__(self, archive: MysqlArchive, directory: Path) -> None:
        self.archive, self._data, self._count = archive, directory / "data", 0
        self._data.mkdir()
        made = [Transaction(number) for number in range(1, 5)]
        for chunk in session("a", NO_GTIDS, made, (3, 6, 9)):
            archive.chunks.put(chunk)

    def back_up(self) -> str:
        """Make a backup as a Job does. Return its id."""
        self._count += 1
        (self._data / f"file{self._count}").write_text(str(self._count))
        self.archive.restic.open()
        at = datetime(2026, 1, self._count, tzinfo=UTC)
        copy = CopyState(version="9.7.4", gtids=GtidSet.parse(f"{UUID}:1-{self._count}"))
        request = BackupRequest(donors=[], host="orders")
        return store_directory(self.archive, self._data, copy, request, start=at, stop=at, instance="orders-0").id


def cluster(store: ObjectStore, directory: Path, name: str, *, may_delete: bool) -> Cluster:
    assert ROOT is not None
    fields = replace(store_of(store), path=f"default/mysqlcluster.{name}/0a1b2c3d")
    if not may_delete:
        user = add_user_without_deletion(store)
        fields = replace(fields, access_key_id=user.access_key_id, secret_access_key=user.secret_access_key)
    return Cluster(archive_of(fields, ROOT, InstancePaths(run=directory / "run")), directory)


def test_backups_expire_from_a_bucket_with_object_lock(store: ObjectStore, tmp_path: Path) -> None:
    """The bucket keeps the locked versions; the archive does not see them any more."""
    orders = cluster(store, tmp_path, "locked", may_delete=True)
    ids = [orders.back_up() for _ in range(3)]
    remove(orders.archive, ids[:2])
    remaining = orders.archive.catalog.backups()
    assert [backup.id for backup in remaining] == ids[2:]
    assert orders.archive.restic.snapshots() == {remaining[0].snapshot}
    assert [header.number for header in orders.archive.chunks.headers("a")] == [3]
    orders.archive.restic.restore(remaining[0].snapshot, tmp_path / "restored")
    assert len(list((tmp_path / "restored").iterdir())) == 3


def test_backups_continue_with_credentials_that_may_not_delete(store: ObjectStore, tmp_path: Path) -> None:
    orders = cluster(store, tmp_path, "kept", may_delete=False)
    ids = [orders.back_up() for _ in range(3)]
    sentence = (
        r"The credentials for bucket backups may not delete objects\."
        r" Permit their user to delete objects below default/mysqlcluster\.kept/0a1b2c3d\."
    )
    with pytest.raises(ArchiveError, match=sentence) as refused:
        remove(orders.archive, ids[:1])
    assert refused.value.reason == "CredentialsRejected"
    with pytest.raises(ArchiveError, match=sentence):
        orders.archive.restic.forget(sorted(orders.archive.restic.snapshots()), prune=True)
    with pytest.raises(ArchiveError, match=sentence):
        orders.archive.chunks.expire([GtidSet.parse(f"{UUID}:1-3")])
    ids.append(orders.back_up())
    found = orders.archive.catalog.backups()
    assert [backup.id for backup in found] == ids
    assert orders.archive.restic.snapshots() == {backup.snapshot for backup in found}
    assert len(orders.archive.chunks.headers("a")) == 4
