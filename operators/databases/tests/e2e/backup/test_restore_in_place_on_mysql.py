"""A whole MySQL cluster goes back to a moment in place, and then to the data that it had before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from database_support.e2e.backups import wait_archived_after
from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import ON_MYSQL
from devcluster.store import ObjectStore

pytestmark = [pytest.mark.xdist_group("backup"), pytest.mark.timeout(1500), ON_MYSQL]


def rows(cluster: ClusterUnderTest, instance: str = "") -> list[str]:
    return cluster.sql("SELECT id FROM story ORDER BY id", "stock", instance=instance).split()


def insert(cluster: ClusterUnderTest, row: int) -> None:
    cluster.sql(f"INSERT INTO story VALUES ({row})", "stock")


def plan(cluster: ClusterUnderTest, name: str, **source: Any) -> dict[str, Any]:
    client = cluster.namespace_client
    client.kubectl("delete", "restore", name, "--ignore-not-found")
    client.apply("Restore", name, {**cluster.reference(), **source})
    client.wait_reason("restore", name, "Planned", "Complete", 400)
    return client.get("restore", name)["status"]["plan"]


def carry_out(cluster: ClusterUnderTest, name: str, planned: dict[str, Any], served: list[str]) -> None:
    client = cluster.namespace_client
    client.patch("restore", name, {"spec": {"confirm": planned["id"]}})
    client.wait_reason("restore", name, "Completed", "Complete", 600)
    cluster.until(f"rows {served} are served", lambda: rows(cluster) == served, 60)


def test_undo_brings_back_what_a_restore_replaced(archived: ClusterUnderTest, store: ObjectStore) -> None:
    cluster, client = archived, archived.namespace_client
    client.apply("Database", "stock", cluster.reference(deletionPolicy="Retain"))
    client.wait_reason("database", "stock", "DatabaseReady", seconds=180)
    cluster.sql("CREATE TABLE story (id INT PRIMARY KEY)", "stock")
    insert(cluster, 1)
    moment = datetime.now(UTC)
    insert(cluster, 2)
    wait_archived_after(cluster, datetime.now(UTC))
    before = cluster.pods()
    planned = plan(cluster, "back", target={"time": moment.isoformat()})
    assert cluster.pods() == before, "a plan stops nothing"
    assert datetime.fromisoformat(planned["restoresTo"]) <= moment
    assert planned["lostTransactions"] >= 1
    carry_out(cluster, "back", planned, ["1"])
    insert(cluster, 3)
    cluster.wait_ready(seconds=600)
    assert not set(cluster.pods()) & set(before)
    cluster.until("replicas follow", lambda: all(rows(cluster, r) == ["1", "3"] for r in cluster.replicas), 60)
    undone = datetime.now(UTC)
    insert(cluster, 4)
    wait_archived_after(cluster, datetime.now(UTC))
    returned = plan(cluster, "undo", undo={"name": "back"})
    assert returned["volume"].removeprefix("data-") + "-0" in before
    carry_out(cluster, "undo", returned, ["1", "2"])
    insert(cluster, 5)
    cluster.wait_ready(seconds=600)
    cluster.until("replicas follow", lambda: all(rows(cluster, r) == ["1", "2", "5"] for r in cluster.replicas), 60)
    # The archive continues, and has the history that was undone.
    wait_archived_after(cluster, datetime.now(UTC))
    cluster.wait_reason("Archiving", "ContinuousArchiving", 240)
    found = datetime.fromisoformat(plan(cluster, "again", target={"time": undone.isoformat()})["restoresTo"])
    assert moment < found <= undone
    client.kubectl("delete", "restore", "again")
