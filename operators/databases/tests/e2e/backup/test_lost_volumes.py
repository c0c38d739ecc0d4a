"""Volumes are lost under load: the object store has all rows but those of the last seconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from database_support.e2e.backups import BACKUP, wait_archived_after
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from devcluster.store import ObjectStore

pytestmark = [pytest.mark.xdist_group("lost-volumes"), pytest.mark.timeout(1500), EACH_ENGINE]

MAX_LOSS_SECONDS = 5 + 5
"""``archive.interval`` of ``BACKUP``, and the time to store a segment."""


@pytest.fixture(scope="module")
def served(shared: NamespaceClient, store: ObjectStore, of: EngineCommands) -> ClusterUnderTest:
    """A cluster with a database, a full backup and an archive."""
    instances = 2 if of is POSTGRESQL else 3
    spec = {**of.small, "instances": instances, "backup": BACKUP, "deletionPolicy": "Retain"}
    cluster = ClusterUnderTest(shared, "orders", spec, of)
    cluster.apply()
    shared.apply("Database", "shop", cluster.reference(deletionPolicy="Retain"))
    cluster.wait_ready()
    shared.wait_reason("database", "shop", "DatabaseReady")
    cluster.wait_reason("UpToDate", "BackedUp", 400)
    cluster.wait_reason("Archiving", "ContinuousArchiving", 240)
    return cluster


def test_volume_lost_during_store_outage_leaves_no_gap(served: ClusterUnderTest, store: ObjectStore) -> None:
    client, former = served.namespace_client, served.primary
    with writing(served, "shop-app", table="outage") as seen:
        store.blackhole()
        try:
            served.until("it is reported", lambda: _archiving(served) == "False", 180)
            seen.wait_for_writes(time.time())
            during = datetime.now(UTC)
            seen.wait_for_writes(time.time())
            _lose_volumes(served, former)
            served.until("another primary", lambda: served.leader not in ("", former), 90)
            seen.wait_for_writes(time.time())
        finally:
            store.end_faults()
        served.wait_reason("Archiving", "ContinuousArchiving", 300)
        seen.wait_for_writes(time.time())
        after = datetime.now(UTC)
        wait_archived_after(served, after)
    served.wait_ready()
    acknowledged = {row.number: row.moment for row in seen.acknowledged}
    clone = _recovered(served, "during", target={"time": during.isoformat()})
    assert {n for n, moment in acknowledged.items() if moment < during.timestamp() - 1} <= _numbers(clone, "outage")
    clone.delete()
    clone = _recovered(served, "latest")
    assert {n for n, moment in acknowledged.items() if moment < after.timestamp()} <= _numbers(clone, "outage")
    clone.delete()
    assert client.condition(served.kind, served.name)["status"] == "True"


@pytest.mark.requirement("overview/backup-and-recovery")
def test_all_volumes_lost_lose_at_most_the_interval(served: ClusterUnderTest, store: ObjectStore) -> None:
    client = served.namespace_client
    with writing(served, "shop-app", table="written") as seen:
        wait_archived_after(served, datetime.now(UTC))
        with client.expecting_events(served.name, "DataLost"):
            _lose_volumes(served)
            served.wait_reason("DataLost", seconds=240)
        seen.read_log()
    last = seen.acknowledged[-1].moment
    clone = _recovered(served, "recovered")
    numbers = _numbers(clone, "written")
    lost = [last - row.moment for row in seen.acknowledged if row.number not in numbers]
    assert max(lost, default=0.0) <= MAX_LOSS_SECONDS, f"{len(lost)} rows of the last {max(lost):.1f} s are lost"
    clone.delete()


def _archiving(cluster: ClusterUnderTest) -> str:
    condition = cluster.namespace_client.condition(cluster.kind, cluster.name, "ContinuousArchiving")
    return condition.get("status", "")


def _lose_volumes(cluster: ClusterUnderTest, instance: str = "") -> None:
    """Delete the PVCs of an instance, or of all, and kill its pods."""
    client = cluster.namespace_client
    pods = [f"{instance}-0"] if instance else sorted(cluster.pods())
    instances = {pod.removesuffix("-0") for pod in pods}
    names = {pvc["metadata"]["name"] for pvc in client.all("pvc")}
    lost = sorted(name for name in names if name.partition("-")[2] in instances)
    assert lost, f"no PVC of {instances} among {names}"
    client.kubectl("delete", "pvc", *lost, "--wait=false")
    client.kubectl("delete", "pod", *pods, "--grace-period=0", "--force")


def _recovered(cluster: ClusterUnderTest, name: str, **recovery: Any) -> ClusterUnderTest:
    """Return a new cluster with the data of the archive."""
    spec = {
        **cluster.engine.small,
        "instances": 1,
        "bootstrap": {"recovery": {"cluster": {"name": cluster.name}, **recovery}},
    }
    clone = ClusterUnderTest(cluster.namespace_client, name, spec, cluster.engine)
    clone.apply()
    clone.wait_ready(seconds=400)
    return clone


def _numbers(cluster: ClusterUnderTest, table: str) -> set[int]:
    return set(map(int, cluster.sql(f"SELECT number FROM {table}", "shop").split()))
