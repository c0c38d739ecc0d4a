"""Base backups, the archive of binary logs, and recovery, with a real MySQL and a real object store."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from database_support.servers.mysql_archive import (
    ArchivedServer,
    archive_of,
    archived_server,
    store_document,
    store_of,
)
from database_support.servers.mysql_collecting import collecting, wait_until_stored
from database_support.servers.process import data_directory
from devcluster import database_servers
from devcluster.store import ObjectStore, local_store, programs
from steersman_databases.features.backup_store.layout import ArchiveIdentity
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.archive.objects import open_objects
from steersman_instance.backup import mysql_final
from steersman_instance.backup.mysql_base import BackupRequest, MysqlArchive, back_up, open_archive
from steersman_instance.backup.mysql_catalog import MysqlBackup
from steersman_instance.jobs import JobFailed, JobFields
from steersman_instance.mysqld import running_server
from steersman_instance.paths import InstancePaths
from steersman_instance.recovery import mysql as mysql_recovery
from steersman_instance.recovery.gtid_plan import BeforeGtid
from steersman_instance.recovery.mysql_restore import plan, recover
from steersman_instance.recovery.plan import RecoveryRefused
from steersman_instance.recovery.target import Latest
from steersman_instance.verification import mysql as mysql_verification

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="MySQL is not unpacked: run python -m devcluster servers"),
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("mysql-archive"),
]


@pytest.fixture(scope="module")
def primary() -> Generator[ArchivedServer]:
    assert ROOT is not None
    with data_directory() as directory, archived_server(ROOT, directory / "pod") as server:
        yield server


@pytest.fixture
def archive(primary: ArchivedServer, tmp_path: Path) -> Generator[MysqlArchive]:
    with local_store(tmp_path / "store") as store:
        yield archive_of(store_of(store), primary.root, primary.paths)


@pytest.fixture
def job() -> Generator[Path]:
    """A Job's volumes, in memory where there is room."""
    with data_directory() as directory:
        yield directory


def insert(primary: ArchivedServer, count: int, table: str = "shop.orders") -> None:
    for _ in range(count):
        primary.sql(f"INSERT INTO {table} (note) VALUES (REPEAT('x', 100))")


def create_table(primary: ArchivedServer, name: str) -> None:
    primary.sql(
        "CREATE DATABASE IF NOT EXISTS shop", f"CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, note TEXT)"
    )


def test_collector_after_rotation_and_kill_has_no_gap(primary: ArchivedServer, archive: MysqlArchive) -> None:
    create_table(primary, "shop.rotated")
    with collecting(primary, archive):
        insert(primary, 20, "shop.rotated")
        primary.sql("FLUSH BINARY LOGS")
        insert(primary, 20, "shop.rotated")
        wait_until_stored(primary, archive)
    primary.kill()
    primary.start()
    insert(primary, 20, "shop.rotated")
    with collecting(primary, archive):
        executed = wait_until_stored(primary, archive)
    headers = [header for session in archive.chunks.sessions() for header in archive.chunks.headers(session)]
    covered = headers[0].before
    for header in headers:
        assert covered >= header.before
        covered |= header.after
    assert covered == executed
    assert sum(header.size for header in headers) == sum(
        len(archive.chunks.read(header.session, header.number).content) for header in headers
    )


def test_recovery_ends_before_a_dropped_table(primary: ArchivedServer, archive: MysqlArchive, job: Path) -> None:
    create_table(primary, "shop.orders")
    insert(primary, 10)
    with collecting(primary, archive):
        backup = back_up(
            BackupRequest(donors=[primary.donor()], host="orders"),
            archive,
            primary.program,
            job / "work",
            job / "run",
        )
        insert(primary, 10)
        before = primary.server.state().executed
        primary.sql("DROP TABLE shop.orders")
        dropped = primary.server.state().executed - before
        create_table(primary, "shop.later")
        wait_until_stored(primary, archive)
    data = job / "volume" / "mysql"
    chosen = plan(archive, BeforeGtid(dropped), "9.7")
    recovered = recover(chosen, archive, primary.program, data, job / "run")
    assert (recovered.backup.id, recovered.gtids) == (backup.id, before)
    with running_server(primary.program, data, job / "run", {"skip-log-bin": "ON"}) as server:
        assert server.query("SELECT COUNT(*) FROM shop.orders") == [(20,)]
        assert server.query("SHOW TABLES IN shop LIKE 'later'") == []
        assert server.state().server_uuid != primary.server.state().server_uuid


def test_recovery_across_purged_transactions_is_refused(primary: ArchivedServer, archive: MysqlArchive) -> None:
    create_table(primary, "shop.gap")
    now = datetime.now(UTC)
    executed = primary.server.state().executed
    archive.catalog.add(
        MysqlBackup(id="b", snapshot="0", start=now, stop=now, gtids=executed, size=1, stored=1, version="9.7.4")
    )
    with collecting(primary, archive):
        insert(primary, 1, "shop.gap")
        wait_until_stored(primary, archive)
    insert(primary, 3, "shop.gap")
    primary.sql("FLUSH BINARY LOGS")
    newest = str(primary.sql("SHOW BINARY LOGS")[-1][0])
    primary.sql(f"PURGE BINARY LOGS TO '{newest}'")
    with collecting(primary, archive):
        insert(primary, 1, "shop.gap")
        wait_until_stored(primary, archive)
    with pytest.raises(RecoveryRefused, match="lacks 3 transactions") as refused:
        plan(archive, Latest(), "9.7")
    assert refused.value.reason == "BinaryLogMissing"


@pytest.mark.parametrize("end", [ArchivedServer.stop, ArchivedServer.kill], ids=["stop", "crash"])
def test_final_backup_recovers_with_the_last_row(
    end: Callable[[ArchivedServer], None],
    primary: ArchivedServer,
    tmp_path: Path,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = f"shop.final_{end.__name__}"
    create_table(primary, table)
    insert(primary, 5, table)
    executed = primary.server.state().executed
    end(primary)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/restic").symlink_to(primary.root / "usr/bin/restic")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (job / "volume").mkdir()
    for module in (mysql_final, mysql_recovery):
        # Each Job is a process, which holds the volume until it ends.
        monkeypatch.setattr(module, "lock_volume", _no_lock)
    with local_store(tmp_path / "store") as store:
        (job / "store.json").write_text(json.dumps(store_document(store)))
        paths = InstancePaths(
            volume=primary.paths.volume,
            run=job / "run",
            store_file=job / "store.json",
            source_store_file=job / "store.json",
        )
        fields = JobFields({"version": "9.7", "cluster_uid": "new"})
        final = mysql_final.run(fields, paths, primary.program)
        again = mysql_final.run(fields, paths, primary.program)
        target = dataclasses.replace(paths, volume=job / "volume")
        result = mysql_recovery.run(fields, target, primary.program)
        assert mysql_recovery.run(fields, target, primary.program) == result
    primary.take_back()
    primary.start()
    assert final == again
    assert cast("dict[str, object]", final["backup"])["gtid"] == str(executed)
    assert cast("dict[str, object]", result["recovery"])["gtidExecuted"] == str(executed)
    with running_server(primary.program, target.mysql_data, job / "run", {"skip-log-bin": "ON"}) as server:
        assert server.query(f"SELECT COUNT(*) FROM {table}") == [(5,)]
    assert not list(target.mysql_data.glob("binlog.0*"))


def object_of(store: ObjectStore, kind: str) -> str:
    """Return the key of an object that a restore needs."""
    keys = store.keys()
    chunks = [key for key in keys if "/mysql/binlog/" in key and key.rpartition("/")[2].isdigit()]
    # The smaller packs have restic's own trees.
    packs = sorted((key for key in keys if "/mysql/base/data/" in key), key=lambda key: len(store.read(key)))
    return {"chunk": chunks[-1], "backup": packs[-1]}[kind]


def test_verification_reads_all_rows_and_finds_damage(
    primary: ArchivedServer, tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/restic").symlink_to(primary.root / "usr/bin/restic")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (job / "volume").mkdir()
    primary.sql("DROP DATABASE IF EXISTS shop")
    create_table(primary, "shop.`it's`")
    primary.sql("CREATE EVENT shop.cleanup ON SCHEDULE EVERY 1 SECOND DO DELETE FROM shop.`it's`")
    primary.sql("SET GLOBAL event_scheduler = OFF")
    with local_store(tmp_path / "store") as store:
        archive = archive_of(store_of(store), primary.root, primary.paths)
        insert(primary, 10, "shop.`it's`")
        with collecting(primary, archive):
            backup = back_up(
                BackupRequest(donors=[primary.donor()], host="orders"),
                archive,
                primary.program,
                job / "work",
                job / "run",
            )
            insert(primary, 10, "shop.`it's`")
            executed = wait_until_stored(primary, archive)
        (job / "store.json").write_text(json.dumps(store_document(store)))
        paths = InstancePaths(volume=job / "volume", run=job / "run", store_file=job / "store.json")
        before = {key: store.read(key) for key in store.keys("")}
        fields = JobFields({"version": "9.7", "backup_id": backup.id, "archived": str(executed)})

        def failure() -> str:
            with pytest.raises((JobFailed, ArchiveError)) as failed:
                mysql_verification.run(fields, paths, primary.program)
            return cast("JobFailed", failed.value).reason

        found = cast("dict[str, object]", mysql_verification.run(fields, paths, primary.program)["verification"])
        assert {key: store.read(key) for key in store.keys("")} == before
        assert (found["backup"], found["tables"], found["rows"]) == (backup.id, 1, 20)
        for kind in ("chunk", "backup"):
            with store.corrupted(object_of(store, kind)):
                assert failure() == "ArchiveDamaged", kind
        with store.missing(object_of(store, "chunk")):
            assert failure() == "BinaryLogMissing"
        with store.missing(object_of(store, "backup")):
            assert failure() == "ArchiveDamaged"
        assert not (job / "volume/mysql").exists()


def test_path_of_another_cluster_is_refused(primary: ArchivedServer, tmp_path: Path) -> None:
    with local_store(tmp_path / "store") as store:
        content = store_of(store)
        open_archive(content, primary.paths, read_only=True)
        identity = ArchiveIdentity(engine="mysql", cluster_uid="another")
        open_objects(content, "", primary.paths).create("steersman.json", identity.to_json())
        for read_only in (True, False):
            with pytest.raises(ArchiveError) as refused:
                open_archive(content, primary.paths, read_only=read_only)
            assert refused.value.reason == "PathBelongsToAnotherCluster"
        # The source of a recovery is another cluster's, whose UID may be unknown.
        open_archive(dataclasses.replace(content, cluster_uid=""), primary.paths, read_only=True)


def _no_lock(_volume: Path, _seconds: float = 0) -> None:
    return None
