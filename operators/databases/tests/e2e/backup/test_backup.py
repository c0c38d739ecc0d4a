"""Archiving and backups into a real object store, and recovery from it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from database_support.e2e.backups import backup_status, request_backup, wait_archived_after
from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL
from devcluster.store import ObjectStore

pytestmark = [pytest.mark.xdist_group("backup"), pytest.mark.timeout(1500), EACH_ENGINE]

DATABASE = "inventory"
_ARCHIVES = {"postgresql": "pgbackrest/archive", "mysql": "mysql/binlog"}


@pytest.fixture(scope="module")
def written(archived: ClusterUnderTest) -> ClusterUnderTest:
    """The cluster with a database and a table of 1,000 rows."""
    archived.namespace_client.apply("Database", DATABASE, archived.reference(deletionPolicy="Retain"))
    archived.namespace_client.wait_reason("database", DATABASE, "DatabaseReady")
    archived.sql("CREATE TABLE parts (number INT PRIMARY KEY, note VARCHAR(64))", DATABASE)
    rows = ",".join(f"({number}, 'part {number}')" for number in range(1000))
    archived.sql(f"INSERT INTO parts VALUES {rows}", DATABASE)
    return archived


def test_archive_reaches_store_within_the_interval(written: ClusterUnderTest, store: ObjectStore) -> None:
    path = f"{written.status['backup']['path']}/{_ARCHIVES[written.engine.settings]}"
    before = set(store.keys(path))
    written.sql("CREATE TABLE IF NOT EXISTS archived (n INT)", DATABASE)
    written.until("another object in the archive", lambda: set(store.keys(path)) - before, 30)


@pytest.mark.requirement(
    "design/operations", "overview/backup-and-recovery", "overview/level-3-backups", "pattern/backups"
)
def test_dropped_table_comes_back_by_time(written: ClusterUnderTest) -> None:
    client = written.namespace_client
    written.sql("INSERT INTO parts VALUES (5000, 'last before the mistake')", DATABASE)
    before = datetime.now(UTC)
    written.sql("DROP TABLE parts", DATABASE)
    written.sql("CREATE TABLE afterwards (n INT)", DATABASE)
    wait_archived_after(written, before)
    spec = {
        **written.engine.small,
        "instances": 1,
        "bootstrap": {"recovery": {"cluster": {"name": written.name}, "target": {"time": before.isoformat()}}},
    }
    clone = ClusterUnderTest(client, "before", spec, written.engine)
    clone.apply()
    clone.wait_ready(seconds=400)
    clone.wait_reason("RecoveryCompleted", "Recovered")
    assert clone.sql("SELECT COUNT(*), MAX(number) FROM parts", DATABASE).replace("\t", "|") == "1001|5000"
    tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'afterwards'"
    assert clone.sql(tables, DATABASE) == "0"
    clone.delete()


@pytest.mark.parametrize("kind", ["Incremental", "Differential"])
def test_dependent_backup_is_taken_from_replica(written: ClusterUnderTest, kind: str) -> None:
    if written.engine is not POSTGRESQL:
        pytest.skip("MySQL has full backups only")
    request_backup(written, kind.lower(), type=kind)
    written.namespace_client.wait_reason("backup", kind.lower(), "Completed", "Complete", 240)
    status = backup_status(written, kind.lower())
    assert status["dependsOn"]
    assert status["backupId"].endswith(kind[0])
    assert status["instance"] != written.primary


def test_backup_survives_failover(written: ClusterUnderTest) -> None:
    client = written.namespace_client
    request_backup(written, "failover", source="Primary")
    written.until("it runs", lambda: backup_status(written, "failover").get("phase") == "Running", 120)
    former = written.primary
    client.kubectl("delete", "pod", f"{former}-0", "--grace-period=0", "--force")
    written.until("another primary", lambda: written.primary not in ("", former), 120)
    # The Job tries again on the next primary. A backup that failed is followed by one that completes.
    written.until("it ends", lambda: backup_status(written, "failover").get("phase") in ("Completed", "Failed"), 400)
    written.wait_ready()
    written.wait_reason("Archiving", "ContinuousArchiving", 240)
    request_backup(written, "afterwards")
    client.wait_reason("backup", "afterwards", "Completed", "Complete", 400)


def test_failover_with_unresponsive_store_leaves_no_gap(written: ClusterUnderTest, store: ObjectStore) -> None:
    written.sql("CREATE TABLE meanwhile (number INT PRIMARY KEY)", DATABASE)
    former = written.primary
    store.blackhole()
    try:
        for number in range(5):
            written.sql(f"INSERT INTO meanwhile VALUES ({number})", DATABASE)
        written.namespace_client.kubectl("delete", "pod", f"{former}-0", "--grace-period=0", "--force")
        written.until("another primary", lambda: written.leader not in ("", former), 60)
        written.until("it takes writes", lambda: written.sql(written.engine.writable) == "1", 60)
        written.sql("INSERT INTO meanwhile VALUES (100)", DATABASE)
        after = datetime.now(UTC)
        # A condition that a user sees before the volume is full.
        written.until("it is reported", lambda: _archiving(written).get("status") == "False", 180)
    finally:
        store.end_faults()
    written.wait_reason("Archiving", "ContinuousArchiving", 240)
    wait_archived_after(written, after)
    spec = {**written.engine.small, "instances": 1, "bootstrap": {"recovery": {"cluster": {"name": written.name}}}}
    clone = ClusterUnderTest(written.namespace_client, "latest", spec, written.engine)
    clone.apply()
    clone.wait_ready(seconds=400)
    assert clone.sql("SELECT COUNT(*) FROM meanwhile", DATABASE) == "6"
    clone.delete()


def test_full_store_is_reported_and_caught_up(written: ClusterUnderTest, store: ObjectStore) -> None:
    written.sql("CREATE TABLE kept (number INT PRIMARY KEY)", DATABASE)
    pods = written.pods()
    store.fill()
    try:
        written.sql("INSERT INTO kept VALUES (1)", DATABASE)
        written.until("it is reported", lambda: _archiving(written).get("status") == "False", 120)
        written.sql("INSERT INTO kept VALUES (2)", DATABASE)
        after = datetime.now(UTC)
    finally:
        store.end_faults()
    written.wait_reason("Archiving", "ContinuousArchiving", 240)
    wait_archived_after(written, after)
    assert written.pods() == pods, "neither a restart nor a failover"


def _archiving(cluster: ClusterUnderTest) -> dict[str, Any]:
    return cluster.namespace_client.condition(cluster.kind, cluster.name, "ContinuousArchiving")
