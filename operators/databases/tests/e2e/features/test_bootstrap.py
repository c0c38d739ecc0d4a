"""A cluster's first database: made with its owner, configured once by SQL from a ConfigMap and a Secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, SqlClient
from database_support.e2e.engines import EACH_ENGINE, MYSQL, POSTGRESQL, EngineCommands
from devcluster.errors import CommandFailed

MEMBER = "databases.steersman.dev/cluster"
SOURCES = {
    "secretRefs": [{"name": "seed", "key": "seed.sql"}],
    "configMapRefs": [{"name": "tables", "key": "tables.sql"}],
}


@dataclass(frozen=True)
class Words:
    """What is particular to an engine: `left` of the tables there are after a failure."""

    seed: str
    broken: str
    mended: str
    refusal: str
    left: str


WORDS: Mapping[EngineCommands, Words] = {
    POSTGRESQL: Words(
        seed="CREATE TABLE secrets AS SELECT 'hunter2'::text AS value;",
        broken="CREATE TABLE visits (n int);\nINSERT INTO nowhere;",
        mended="CREATE TABLE visits (n int);",
        refusal="psql:configmap/tables/tables.sql:2: ERROR:",
        left="",
    ),
    # It undoes no CREATE: what has ended stays, and is not run again.
    MYSQL: Words(
        seed="CREATE TABLE secrets (value char(7) PRIMARY KEY); INSERT INTO secrets VALUES ('hunter2');",
        broken="CREATE TABLE visits (n int PRIMARY KEY);\nINSERT INTO nowhere VALUES (1);",
        mended="CREATE TABLE IF NOT EXISTS visits (n int PRIMARY KEY);",
        refusal="configmap/tables/tables.sql: ERROR 1146 (42S02) at line 2: Table 'shop.nowhere' doesn't exist",
        left="secrets visits",
    ),
}


def given(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def declared(of: EngineCommands, place: NamespaceClient) -> ClusterUnderTest:
    """A cluster of one, whose first database is somebody's."""
    initdb = {"database": "shop", "owner": "keeper", "postInitApplicationSQLRefs": SOURCES}
    spec = {**of.small, "instances": 1, "bootstrap": {"initdb": initdb}}
    cluster = ClusterUnderTest(place, "shop", spec, of)
    cluster.apply()
    return cluster


def tables(client: SqlClient) -> str:
    """Those of the user's."""
    named = "SELECT table_name FROM information_schema.tables WHERE table_name IN ('secrets', 'visits') ORDER BY 1"
    return " ".join(client.sql(named).split())


@pytest.mark.requirement("overview/postgresql-cluster", "pattern/new-database")
@EACH_ENGINE
@pytest.mark.timeout(900)
def test_bootstrap_database_runs_post_init_sql_once(place: NamespaceClient, of: EngineCommands) -> None:
    words = WORDS[of]
    place.create(given("Secret", "seed", stringData={"seed.sql": words.seed}))
    shop = declared(of, place)

    def condition(what: str, status: str, reason: str, seconds: float = 120) -> str:
        said = shop.wait_reason(reason, what, seconds)
        assert said["status"] == status
        return said["message"]

    assert "ConfigMap tables does not exist" in condition("PostInitSQLApplied", "Unknown", "Waiting", 240)
    condition("BootstrapDatabaseReady", "True", "DatabaseReady")

    place.create(given("ConfigMap", "tables", data={"tables.sql": words.broken}))
    assert words.refusal in condition("PostInitSQLApplied", "False", "Failed")
    condition("Ready", "False", "Degraded")
    assert "hunter2" not in place.kubectl("get", "jobs,pods", "--output=yaml")
    failed = place.all("pods", "--selector=batch.kubernetes.io/job-name")
    assert failed, "the pod that failed can be looked at"
    assert not any(MEMBER in pod["metadata"]["labels"] for pod in failed), "it would be taken for a member"
    client = SqlClient(shop, "shop-app")
    client.start()
    assert tables(client) == words.left

    place.create(given("ConfigMap", "tables", data={"tables.sql": words.mended}))
    condition("PostInitSQLApplied", "True", "Applied")
    shop.wait_ready()
    assert client.sql("SELECT value FROM secrets") == "hunter2"
    assert client.sql(of.current_user) == client.by_uri(of.current_user) == "keeper"
    with pytest.raises(CommandFailed):
        client.sql("CREATE DATABASE more")

    client.sql("INSERT INTO visits VALUES (1)")
    place.kubectl("delete", "job", f"{shop.name}-init", "--ignore-not-found")
    forgotten = '--patch={"status":{"conditions":[]}}'
    place.kubectl("patch", shop.kind, shop.name, "--subresource=status", "--type=merge", forgotten)
    place.create(given("ConfigMap", "tables", data={"tables.sql": words.broken}))
    condition("PostInitSQLApplied", "True", "Applied")
    assert not place.names("jobs")
    assert client.sql("SELECT n FROM visits") == "1"


@pytest.mark.timeout(900)
def test_mysql_post_init_sql_interrupted_waits_for_user(place: NamespaceClient) -> None:
    place.create(given("Secret", "seed", stringData={"seed.sql": "DO 0;"}))
    slow = "CREATE TABLE visits (n int PRIMARY KEY);\nDO SLEEP(600);"
    place.create(given("ConfigMap", "tables", data={"tables.sql": slow}))
    shop = declared(MYSQL, place)
    shop.wait_reason("DatabaseReady", "BootstrapDatabaseReady", 240)
    client = SqlClient(shop, "shop-app")
    client.start()
    shop.until("it is in the middle", lambda: tables(client) == "visits")

    def told() -> str:
        return place.condition(shop.kind, shop.name, "PostInitSQLApplied").get("message", "")

    pods = place.names("pods", "--selector=batch.kubernetes.io/job-name")
    place.create(given("ConfigMap", "tables", data={"tables.sql": "CREATE TABLE visits (n int);"}))
    shop.until("nothing is cut off for that", lambda: "run only if it fails" in told())
    assert place.names("pods", "--selector=batch.kubernetes.io/job-name") == pods

    place.kubectl("delete", "pods", "--selector=batch.kubernetes.io/job-name", "--force", "--grace-period=0")
    shop.wait_reason("Failed", "PostInitSQLApplied")
    words = "an earlier run was interrupted in configmap/tables/tables.sql"
    shop.until("it is told", lambda: words in told() and "Statements before the error remain in effect" in told())
    client.sql("UPDATE steersman_post_init_progress SET ended = 1")
    place.kubectl("delete", "job", f"{shop.name}-init")
    shop.wait_reason("Applied", "PostInitSQLApplied")
    shop.wait_ready()
    assert tables(client) == "visits"
