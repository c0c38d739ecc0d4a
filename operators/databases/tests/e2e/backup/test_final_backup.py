"""The final backup of deleted clusters and databases, as the article about operators demands it."""

from __future__ import annotations

import pytest

from database_support.e2e.backups import BACKUP, final_backup_of
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.database import DatabaseUnderTest
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from devcluster.store import ObjectStore

pytestmark = [pytest.mark.xdist_group("final-backup"), pytest.mark.timeout(1200), EACH_ENGINE]

KINDS = "statefulsets,pods,pvc,jobs"


def _wait_until_gone(client: NamespaceClient) -> None:
    assert not [name for name in client.names(KINDS) if "/data-" in name], "volumes go before the object"
    # Jobs and pods are garbage of the API server.
    client.until("nothing is left", lambda: not client.names(KINDS), 60)


@pytest.mark.requirement("pattern/final-backup")
@pytest.mark.parametrize("replicated", [False, True], ids=["one-instance", "replicated"])
def test_deleted_cluster_is_recovered_with_last_row(
    shared: NamespaceClient, store: ObjectStore, of: EngineCommands, *, replicated: bool
) -> None:
    instances = (2 if of is POSTGRESQL else 3) if replicated else 1
    name = f"stock-{instances}"
    cluster = ClusterUnderTest(
        shared, name, {**of.small, "instances": instances, "deletionPolicy": "Delete", "backup": BACKUP}, of
    )
    cluster.apply()
    cluster.wait_ready()
    shared.apply("Database", name, cluster.reference(deletionPolicy="Retain", databaseName="parts"))
    shared.wait_reason("database", name, "DatabaseReady")
    cluster.sql("CREATE TABLE written (number INT PRIMARY KEY)", "parts")
    cluster.sql("INSERT INTO written VALUES (41)", "parts")
    cluster.wait_reason("Archiving", "ContinuousArchiving", 240)
    cluster.sql("INSERT INTO written VALUES (42)", "parts")
    cluster.delete(seconds=400)
    _wait_until_gone(shared)
    backup = final_backup_of(shared, name)

    recovered = {**of.small, "instances": instances, "bootstrap": {"recovery": {"backup": {"name": backup}}}}
    copy = ClusterUnderTest(shared, f"copy-{instances}", {**recovered, "deletionPolicy": "Delete"}, of)
    copy.apply()
    copy.wait_ready(seconds=400)
    assert copy.sql("SELECT MAX(number) FROM written", "parts") == "42"
    for replica in copy.replicas:
        assert copy.sql("SELECT MAX(number) FROM written", "parts", replica) == "42"
    copy.delete()


@pytest.mark.requirement("pattern/final-backup")
def test_deleted_database_is_recovered_with_last_row(
    shared: NamespaceClient, store: ObjectStore, of: EngineCommands
) -> None:
    database = DatabaseUnderTest(shared.target, shared.namespace, "orders", of.settings)
    database.apply(deletionPolicy="Delete", backup=BACKUP)
    database.wait_ready()
    database.client_sql("CREATE TABLE written (number INT PRIMARY KEY)")
    database.client_sql("INSERT INTO written VALUES (42)")
    database.delete(seconds=400)
    _wait_until_gone(shared)
    backup = final_backup_of(shared, "orders")

    recovery = {"recovery": {"backup": {"name": backup}}}
    again = DatabaseUnderTest(shared.target, shared.namespace, "orders", of.settings)
    again.apply(deletionPolicy="Delete", bootstrap=recovery)
    again.wait_ready(seconds=400)
    assert again.client_sql("SELECT MAX(number) FROM written") == "42"
    again.delete()


def test_deletion_waits_for_unreachable_store(
    shared: NamespaceClient, store: ObjectStore, of: EngineCommands
) -> None:
    spec = {**of.small, "instances": 1, "deletionPolicy": "Delete", "backup": BACKUP}
    cluster = ClusterUnderTest(shared, "waits", spec, of)
    cluster.apply()
    cluster.wait_ready()
    with store.stopped():
        shared.kubectl("delete", cluster.kind, cluster.name, "--wait=false")
        condition = cluster.wait_reason("FinalBackupFailed", seconds=300)
        assert "skip-final-backup" in condition["message"]
        cluster.annotate("skip-final-backup", "true")
        shared.kubectl("wait", cluster.kind, cluster.name, "--for=delete", "--timeout=120s", seconds=130)
    shared.until("data stay", lambda: shared.names("pvc") == {"persistentvolumeclaim/data-waits-0"}, 60)
    shared.kubectl("delete", "pvc", "--all", "--wait=false")
