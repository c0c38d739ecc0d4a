"""A database from apply to deletion and back."""

from __future__ import annotations

import pytest

from database_under_test import DatabaseUnderTest

RECOMMENDED = {"name", "instance", "managed-by", "component", "part-of"}
CLUSTERS = {"postgresql": "postgresqlcluster", "mysql": "mysqlcluster"}


def test_one_yaml_becomes_a_database(database: DatabaseUnderTest) -> None:
    database.apply()
    database.wait_ready()
    status = database.status
    scheme = database.engine
    port = {"postgresql": 5432, "mysql": 3306}[database.engine]
    host = f"orders-primary.{database.namespace}"
    assert status["connectionString"] == f"{scheme}://orders:<secret>@{host}:{port}/orders"
    assert status["secretName"] == "orders-app"
    entries = database.secret()
    assert (entries["host"], entries["port"], entries["dbname"], entries["user"]) == (
        host,
        str(port),
        "orders",
        "orders",
    )
    assert entries["uri"] == f"{scheme}://orders:{entries['password']}@{host}:{port}/orders"
    assert database.secret("admin")["password"] not in ("", entries["password"])
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (42)")
    assert database.client_sql("SELECT n FROM t") == "42"
    _check_objects(database)
    _check_pod(database)
    _check_what_the_user_reads(database, entries["password"])


def _check_objects(database: DatabaseUnderTest) -> None:
    made = database.one(CLUSTERS[database.engine], "orders")["metadata"]
    assert [o["uid"] for o in made["ownerReferences"]] == [(database.get() or {})["metadata"]["uid"]]
    owned = (("statefulset", database.statefulset), ("service", "orders-primary"), ("service", "orders-headless"))
    for kind, name in owned:
        metadata = database.one(kind, name)["metadata"]
        assert [o["uid"] for o in metadata["ownerReferences"]] == [made["uid"]], name
        assert {label.rpartition("/")[2] for label in metadata["labels"]} >= RECOMMENDED, name
    claim = database.one("pvc", "data-orders-0")["metadata"]
    # Nothing that dies with the Database may own the data; its keys die with the data and with nothing else.
    assert "ownerReferences" not in claim
    for name in ("orders-admin", "orders-app"):
        metadata = database.one("secret", name)["metadata"]
        assert [o["uid"] for o in metadata["ownerReferences"]] == [claim["uid"]], name
        assert {label.rpartition("/")[2] for label in metadata["labels"]} >= RECOMMENDED, name


def _check_pod(database: DatabaseUnderTest) -> None:
    pod = database.one("pod", database.pod)["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    sources = [variable.get("valueFrom", {}) for variable in container.get("env", [])]
    assert not any("secretKeyRef" in source for source in sources), "credentials are mounted"


def _check_what_the_user_reads(database: DatabaseUnderTest, password: str) -> None:
    cluster, scope = database.cluster, f"--namespace={database.namespace}"
    table = cluster.kubectl("get", "db", scope)
    assert "PHASE" in table and "Ready" in table and database.engine in table
    story = cluster.kubectl("describe", "db", "orders", scope)
    for reason in ("Created", "DatabaseReady"):
        assert reason in story, story
    admin = database.secret("admin")["password"]
    everything = story + cluster.kubectl("get", "db", scope, "--output=yaml")
    everything += cluster.kubectl("get", "events", scope, "--output=yaml")
    everything += cluster.kubectl("logs", database.pod, scope)
    everything += cluster.kubectl("logs", "deployment/steersman-databases", "--namespace=steersman-databases-system")
    assert password not in everything
    assert admin not in everything


def test_data_survives_the_pod(database: DatabaseUnderTest) -> None:
    database.apply()
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (7)")
    before = database.one("pod", database.pod)["metadata"]["uid"]
    database.cluster.kubectl("delete", "pod", database.pod, f"--namespace={database.namespace}", seconds=150)
    database.eventually("another pod serves", lambda: database.client_sql("SELECT n FROM t") == "7", seconds=90)
    assert database.one("pod", database.pod)["metadata"]["uid"] != before


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_retained_data_is_adopted_by_a_namesake(database: DatabaseUnderTest, cascade: str) -> None:
    database.apply()
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (1)")
    password = database.secret()["password"]
    database.delete(f"--cascade={cascade}")
    database.eventually(
        "only data and keys are left",
        lambda: database.objects() == database.retained,
        seconds=60,
    )
    database.apply()
    database.wait_ready()
    assert database.secret()["password"] == password
    assert database.client_sql("SELECT n FROM t") == "1"


def test_retained_data_is_not_given_to_another_engine(database: DatabaseUnderTest) -> None:
    database.apply()
    database.wait_ready()
    database.delete()
    other = {"postgresql": "mysql", "mysql": "postgresql"}[database.engine]
    stranger = DatabaseUnderTest(database.cluster, database.namespace, database.name, other)
    stranger.apply()
    condition = stranger.wait_reason("RetainedDataMismatch")
    assert database.engine in condition["message"]
    assert "data-orders-0" in condition["message"]
    stranger.delete()
    database.apply()
    database.wait_ready()


def test_delete_policy_removes_data_and_keys(database: DatabaseUnderTest) -> None:
    database.apply(deletionPolicy="Delete")
    database.wait_ready()
    database.delete()
    database.eventually("nothing is left", lambda: not database.objects(), seconds=60)


def test_policy_at_the_moment_of_deletion_counts(postgresql: DatabaseUnderTest) -> None:
    postgresql.apply(deletionPolicy="Delete")
    postgresql.wait_ready()
    postgresql.apply(deletionPolicy="Retain")
    postgresql.delete()
    assert "persistentvolumeclaim/data-orders-0" in postgresql.objects("pvc")


def test_deleting_what_never_became_ready(database: DatabaseUnderTest) -> None:
    database.forbid_pods()
    database.apply(deletionPolicy="Delete")
    condition = database.wait_reason("InstanceRefused")
    assert "exceeded quota: no-pods" in condition["message"]
    database.delete(seconds=30)
    assert not database.objects()
