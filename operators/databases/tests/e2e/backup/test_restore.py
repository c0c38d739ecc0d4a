"""A dropped table comes back from the archive, while the cluster serves."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL
from database_support.e2e.plugin import install_plugin
from devcluster.store import ObjectStore

pytestmark = [pytest.mark.xdist_group("backup"), pytest.mark.timeout(1500), EACH_ENGINE]

_ACCOUNTS = {
    "postgresql": "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'steersman_restore%'",
    "mysql": "SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'steersman_restore%'",
}


def declare_database(cluster: ClusterUnderTest) -> None:
    client = cluster.namespace_client
    client.apply("Database", "stock", cluster.reference(deletionPolicy="Delete"))
    client.wait_reason("database", "stock", "DatabaseReady", seconds=180)


def create_table(cluster: ClusterUnderTest, name: str) -> None:
    cluster.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, note VARCHAR(20))", "stock")
    if cluster.engine is POSTGRESQL:
        cluster.sql(f"ALTER TABLE {name} OWNER TO stock", "stock")
    cluster.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')", "stock")


def leftovers(cluster: ClusterUnderTest) -> list[str]:
    kinds = ("jobs", "pods", "persistentvolumeclaims", "secrets", "configmaps")
    found = [each["metadata"]["name"] for kind in kinds for each in cluster.namespace_client.all(kind)]
    return [name for name in found if name.startswith(f"{cluster.name}-restore-")]


def accounts(cluster: ClusterUnderTest) -> str:
    return cluster.sql(_ACCOUNTS[cluster.engine.settings], "postgres" if cluster.engine is POSTGRESQL else "mysql")


def test_dropped_table_comes_back_while_the_cluster_serves(
    archived: ClusterUnderTest, store: ObjectStore, tmp_path: Path
) -> None:
    declare_database(archived)
    create_table(archived, "parts")
    moment = datetime.now(UTC)
    # PostgreSQL replays until the next commit.
    create_table(archived, "later")
    archived.sql("DROP TABLE parts", "stock")
    before = archived.pods()
    plugin = install_plugin(archived, tmp_path)
    arguments = ("--before", moment.isoformat(), "--name", "back", "--output", "json")
    shown = plugin("undrop", archived.name, "stock.parts", *arguments, seconds=400)
    # Progress follows the output.
    found, _ = json.JSONDecoder().raw_decode(shown)
    (table,) = found["tables"]
    assert table["exists"] is False and found["phase"] == "Completed", found
    for statement in found["statements"]:
        archived.sql(statement, "stock")
    assert archived.sql("SELECT COUNT(*) FROM parts", "stock") == "2"
    assert archived.pods() == before, "nothing restarts"
    archived.until("nothing is left", lambda: leftovers(archived) == [], 60)
    assert accounts(archived) == "0"
    if archived.engine is POSTGRESQL:
        owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'parts'"
        assert archived.sql(owner, "stock") == "stock"


def test_deleted_restore_leaves_nothing(archived: ClusterUnderTest, store: ObjectStore) -> None:
    declare_database(archived)
    client = archived.namespace_client
    reference = {"kind": archived.engine.kind, "name": archived.name}
    only = [{"database": "stock", "table": "later"}]
    client.apply("Restore", "ended", {"clusterRef": reference, "target": {"latest": {}}, "only": only})
    archived.until("it runs", lambda: accounts(archived) == "1" and leftovers(archived), 120)
    client.kubectl("delete", "restore", "ended", "--timeout=120s")
    assert accounts(archived) == "0"
    archived.until("nothing is left", lambda: leftovers(archived) == [], 120)
