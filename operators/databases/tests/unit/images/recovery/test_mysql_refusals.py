"""Recoveries of MySQL that are refused before anything is restored."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from database_support.unit.binlog_events import UUID, Transaction, session
from database_support.unit.memory_archive import STORE, MemoryArchive
from steersman_instance.backup.mysql_base import MysqlArchive
from steersman_instance.backup.mysql_catalog import MysqlBackup
from steersman_instance.backup.restic import Restic
from steersman_instance.gtids import NO_GTIDS, GtidSet
from steersman_instance.jobs import JobFields, JobRefused
from steersman_instance.mysqld import MysqldProgram
from steersman_instance.paths import InstancePaths
from steersman_instance.recovery import mysql
from steersman_instance.recovery.mysql_restore import plan, recover
from steersman_instance.recovery.plan import RecoveryRefused
from steersman_instance.recovery.target import Latest

AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def archive(tmp_path: Path, *, size: int = 10, versions: tuple[str, ...] = ("9.7.4",)) -> MysqlArchive:
    """An archive with a backup for each version and two later transactions."""
    made = MemoryArchive()
    chunks, catalog = made.chunks(), made.catalog()
    for chunk in session("s", NO_GTIDS, [Transaction(1), Transaction(2)]):
        chunks.put(chunk)
    for number, version in enumerate(versions):
        stop = AT + datetime.timedelta(hours=number)
        catalog.add(
            MysqlBackup(
                id=f"b{number}",
                snapshot="0",
                start=AT,
                stop=stop,
                gtids=GtidSet.parse(f"{UUID}:1"),
                size=size,
                stored=5,
                version=version,
            )
        )
    return MysqlArchive(restic=Restic(STORE, paths=InstancePaths(run=tmp_path)), catalog=catalog, chunks=chunks)


def test_backups_of_another_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecoveryRefused) as refused:
        plan(archive(tmp_path, versions=("8.4.3", "8.4.6")), Latest(), "9.7")
    assert (refused.value.reason, refused.value.message) == (
        "WrongEngineVersion",
        "The backups are of MySQL 8.4.6, and the cluster runs 9.7. Set spec.version.",
    )


def test_named_backup_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecoveryRefused, match=r"Backup b0 is of MySQL 8\.4\.6, and the cluster runs 9\.7") as refused:
        plan(archive(tmp_path, versions=("8.4.6", "9.7.4")), Latest(), "9.7", "b0")
    assert refused.value.reason == "WrongEngineVersion"


def test_backup_larger_than_the_volume_is_refused(tmp_path: Path) -> None:
    made = archive(tmp_path, size=1 << 50)
    data = tmp_path / "volume/mysql.recovering"
    with pytest.raises(RecoveryRefused, match=r"needs 1073742336 MiB\. Set spec\.storage\.size\.$") as refused:
        recover(plan(made, Latest(), "9.7"), made, MysqldProgram(), data, tmp_path / "run")
    assert refused.value.reason == "NotEnoughSpace"
    assert list(data.parent.iterdir()) == []


def test_archive_of_another_engine_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store.json"
    fields = {"format": 1, "engine": "postgresql", "cluster_uid": "u", "path": "shop/postgresqlcluster.orders/u"}
    store.write_text(json.dumps({**fields, "bucket": "backups"}))
    with pytest.raises(JobRefused) as refused:
        mysql.run(JobFields({"version": "9.7"}), InstancePaths(volume=tmp_path, source_store_file=store))
    assert (refused.value.reason, refused.value.message) == (
        "WrongEngine",
        "The archive at shop/postgresqlcluster.orders/u is of postgresql, not of MySQL.",
    )
