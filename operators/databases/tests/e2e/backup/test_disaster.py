"""Recovery in a new Kubernetes cluster, by the how-to page "Recover from a disaster"."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from database_support.e2e.backups import BACKUP, wait_archived_after
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from database_support.e2e.plugin import install_plugin
from devcluster import cluster as devcluster
from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.store import ObjectStore, manifests

pytestmark = [
    pytest.mark.xdist_group("disaster"),
    pytest.mark.disruptive,
    pytest.mark.timeout(1800),
    EACH_ENGINE,
]

PASSWORD = "chosen by hand"


def _declare_database(cluster: ClusterUnderTest) -> None:
    client = cluster.namespace_client
    client.apply("Database", "stock", cluster.reference(deletionPolicy="Retain"))
    client.wait_reason("database", "stock", "DatabaseReady", seconds=180)


def _declare_user(cluster: ClusterUnderTest) -> None:
    """Declare a user with a password of its own, and wait until it can read the table."""
    client = cluster.namespace_client
    client.kubectl("create", "secret", "generic", "chosen", f"--from-literal=word={PASSWORD}")
    table = {"database": "stock", "tables": ["written"], "privileges": ["SELECT"]}
    grants = [table]
    if cluster.engine is POSTGRESQL:
        grants = [{"database": "stock", "privileges": ["CONNECT"]}, {**table, "schema": "public"}]
    clerk = {"user": "clerk", "password": {"name": "chosen", "key": "word"}, "grants": grants}
    client.apply("DatabaseUser", "clerk", cluster.reference(**clerk))
    client.wait_reason("databaseuser", "clerk", "ProvisionSucceeded", seconds=180)


def _replace_kubernetes_cluster(client: NamespaceClient) -> None:
    """Remove the devcluster with all volumes, and create an empty one with the operator."""
    nodes = len(client.target.kubectl("get", "nodes", "--output=name").split())
    subprocess.run([sys.executable, "-m", "devcluster", "down"], check=True, capture_output=True, timeout=300)
    devcluster.up(Progress(), nodes)
    install(client.target, Progress())
    client.target.kubectl("create", "namespace", client.namespace)


def test_new_kubernetes_cluster_recovers_users_and_rows(
    shared: NamespaceClient, store: ObjectStore, of: EngineCommands, tmp_path: Path
) -> None:
    spec = {**of.small, "instances": 1, "backup": BACKUP}
    lost = ClusterUnderTest(shared, "shop", spec, of)
    lost.apply()
    lost.wait_ready()
    _declare_database(lost)
    lost.sql("CREATE TABLE written (number INT PRIMARY KEY)", "stock")
    if of is POSTGRESQL:
        lost.sql("ALTER TABLE written OWNER TO stock", "stock")
    _declare_user(lost)
    lost.wait_reason("UpToDate", "BackedUp", 400)
    lost.sql("INSERT INTO written VALUES (42)", "stock")
    wait_archived_after(lost, datetime.now(UTC))
    key = tmp_path / "key.yaml"
    install_plugin(lost, tmp_path)("store", "key", manifests.STORE, f"--file={key}")
    path = lost.status["backup"]["path"]

    _replace_kubernetes_cluster(shared)

    shared.target.apply(key.read_text(), shared.namespace)
    shared.target.apply(manifests.render(store, shared.namespace), shared.namespace)
    source = {"storeRef": {"name": manifests.STORE}, "path": path}
    recovered = ClusterUnderTest(shared, "shop", {**spec, "bootstrap": {"recovery": {"store": source}}}, of)
    recovered.apply()
    recovered.wait_ready(seconds=400)
    assert recovered.sql("SELECT number FROM written", "stock") == "42"
    assert recovered.status["backup"]["path"] != path
    _declare_database(recovered)
    _declare_user(recovered)
    login = {**shared.secret("clerk-user"), "dbname": "stock"}
    assert login["password"] == PASSWORD
    assert shared.log_in(f"{recovered.primary}-0", login, "SELECT number FROM written", of.settings) == "42"
