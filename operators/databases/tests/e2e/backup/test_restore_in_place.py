"""A whole cluster goes back to a moment in place, and forward again, in each mode of synchronous replication."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from database_support.e2e import operator as e2e_operator
from database_support.e2e.backups import BACKUP, wait_archived_after
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import POSTGRESQL
from devcluster.store import ObjectStore
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("backup"), pytest.mark.timeout(1500)]

MODES: dict[str, dict[str, Any]] = {
    "quorum": {"mode": "Quorum", "standbys": 1, "required": True},
    "priority": {"mode": "Priority", "standbys": 1},
    "disabled": {"mode": "Disabled"},
}
RESTORE = "back"


@pytest.fixture
def serving(request: pytest.FixtureRequest, shared: NamespaceClient, store: ObjectStore) -> ClusterUnderTest:
    """A cluster of three instances with its first full backup."""
    mode: str = request.param
    settings = {"synchronous": MODES[mode]}
    spec = {**POSTGRESQL.small, "instances": 3, "backup": BACKUP, "postgresql": settings}
    found = ClusterUnderTest(shared, f"back-{mode}", spec, POSTGRESQL)
    found.apply()
    found.wait_ready(seconds=300)
    found.wait_reason("UpToDate", "BackedUp", 400)
    return found


def plan(cluster: ClusterUnderTest, name: str, **source: Any) -> dict[str, Any]:
    client = cluster.namespace_client
    client.kubectl("delete", "restore", name, "--ignore-not-found")
    client.apply("Restore", name, {**cluster.reference(), "keepPrevious": "1h", **source})
    client.wait_reason("restore", name, "Planned", "Complete", 400)
    return client.get("restore", name)["status"]["plan"]


def carry_out(cluster: ClusterUnderTest, name: str, planned: dict[str, Any], served: str) -> None:
    client = cluster.namespace_client
    client.patch("restore", name, {"spec": {"confirm": planned["id"]}})
    client.wait_reason("restore", name, "Completed", "Complete", 600)
    cluster.until(f"rows {served} are there", lambda: rows(cluster) == served, 60)


def rows(cluster: ClusterUnderTest, instance: str = "") -> str:
    return cluster.sql("SELECT string_agg(id::text, ',' ORDER BY id) FROM story", "postgres", instance=instance)


def wait_followed(cluster: ClusterUnderTest, expected: str) -> None:
    """Wait until all instances are ready and have these rows."""
    cluster.wait_ready(seconds=600)
    cluster.until("replicas follow", lambda: {rows(cluster, each) for each in cluster.replicas} == {expected}, 60)


def at(moment: datetime) -> dict[str, str]:
    return {"time": moment.isoformat()}


@pytest.mark.parametrize("serving", list(MODES), indirect=True)
def test_cluster_goes_back_and_clients_write_again(serving: ClusterUnderTest) -> None:
    cluster, client = serving, serving.namespace_client
    cluster.sql("CREATE TABLE story (id int PRIMARY KEY, filler text)", "postgres")
    cluster.sql("INSERT INTO story VALUES (1)", "postgres")
    moment = datetime.now(UTC)
    cluster.sql("INSERT INTO story VALUES (2)", "postgres")
    # The recorded position of the previous primary is far ahead of the restored data.
    cluster.sql("CREATE TABLE filled (n int, t text)", "postgres")
    for _ in range(5):
        rows = "SELECT n, repeat(md5(n::text), 40) FROM generate_series(1, 10000) n"
        cluster.sql(f"INSERT INTO filled {rows}", "postgres")
    abandoned = datetime.now(UTC)
    cluster.sql("INSERT INTO story VALUES (4)", "postgres")
    wait_archived_after(cluster, datetime.now(UTC))
    before = cluster.pods()
    found = plan(cluster, RESTORE, target=at(moment))
    assert cluster.pods() == before, "a plan stops nothing"
    assert datetime.fromisoformat(found["restoresTo"]) <= moment
    carry_out(cluster, RESTORE, found, "1")
    cluster.sql("INSERT INTO story VALUES (3)", "postgres")
    wait_followed(cluster, "1,3")
    assert not set(cluster.pods()) & set(before)
    kept = [p for p in client.all("persistentvolumeclaims") if _replaced(p, cluster.name)]
    assert len(kept) == 3
    # The archive has both histories.
    present = datetime.now(UTC)
    cluster.sql("INSERT INTO story VALUES (5)", "postgres")
    wait_archived_after(cluster, datetime.now(UTC))
    cluster.wait_reason("Archiving", "ContinuousArchiving", 240)
    assert plan(cluster, "again", target=at(abandoned))["timeline"] == found["timeline"]
    assert plan(cluster, "again", target=at(present))["timeline"] > found["timeline"]
    # The position of the present primary means nothing to the previous one.
    returned = plan(cluster, "undo", undo={"name": RESTORE})
    assert returned["volume"].removeprefix("data-") + "-0" in before
    carry_out(cluster, "undo", returned, "1,2,4")
    cluster.sql("INSERT INTO story VALUES (6)", "postgres")
    wait_followed(cluster, "1,2,4,6")


def test_volumes_are_overwritten_while_operator_is_killed(
    shared: NamespaceClient, store: ObjectStore, cluster: Target
) -> None:
    assert store
    spec = {**POSTGRESQL.small, "instances": 3, "backup": BACKUP}
    over = ClusterUnderTest(shared, "over", spec, POSTGRESQL)
    over.apply()
    over.wait_ready(seconds=300)
    over.wait_reason("UpToDate", "BackedUp", 400)
    over.sql("CREATE TABLE story (id int PRIMARY KEY)", "postgres")
    over.sql("INSERT INTO story VALUES (1)", "postgres")
    moment = datetime.now(UTC)
    over.sql("INSERT INTO story VALUES (2)", "postgres")
    wait_archived_after(over, datetime.now(UTC))
    primary = over.primary
    shared.apply("Restore", "over", {**over.reference(), "target": at(moment), "mode": "InPlace"})
    shared.wait_reason("restore", "over", "Planned", "Complete", 400)
    planned = shared.get("restore", "over")["status"]["plan"]
    assert planned["lostTransactions"] >= 1 and planned["id"].startswith("no-undo-")
    shared.patch("restore", "over", {"spec": {"confirm": planned["id"]}})
    over.until("the present data are given up", lambda: any(map(_is_overwritten, volumes(over))), 240)
    e2e_operator.kill(cluster)
    shared.wait_reason("restore", "over", "Completed", "Complete", 600)
    over.until("rows 1 are there", lambda: rows(over) == "1", 60)
    assert over.primary == primary
    over.sql("INSERT INTO story VALUES (3)", "postgres")
    wait_followed(over, "1,3")
    over.until("the other volumes are deleted", lambda: len(volumes(over)) == 3, 120)


def volumes(cluster: ClusterUnderTest) -> list[dict[str, Any]]:
    """The PVCs of a cluster."""
    label = "databases.steersman.dev/cluster"
    found = cluster.namespace_client.all("persistentvolumeclaims")
    return [pvc for pvc in found if pvc["metadata"].get("labels", {}).get(label) == cluster.name]


def _is_overwritten(pvc: dict[str, Any]) -> bool:
    return "databases.steersman.dev/overwriting" in pvc["metadata"].get("annotations", {})


def _replaced(pvc: dict[str, Any], cluster: str) -> bool:
    labels = pvc["metadata"].get("labels", {})
    return "databases.steersman.dev/replaced-by" in labels and labels["databases.steersman.dev/cluster"] == cluster
