"""A database from apply to deletion and back."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import yaml

from database_support.e2e.database import DatabaseUnderTest
from devcluster.errors import CommandFailed
from devcluster.images import MYSQL, POSTGRESQL_15, UPGRADE_TO_17, ensure, load
from devcluster.progress import Progress
from devcluster.target import wait_until

RECOMMENDED = {"name", "instance", "managed-by", "component", "part-of"}
CLUSTERS = {"postgresql": "postgresqlcluster", "mysql": "mysqlcluster"}


@pytest.mark.requirement(
    "design/database-kind", "overview/deploy", "overview/level-1-install", "pattern/deploy", "pattern/new-database"
)
def test_database_manifest_becomes_ready(database: DatabaseUnderTest) -> None:
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
    made = database.get_object(CLUSTERS[database.engine], "orders")["metadata"]
    assert [o["uid"] for o in made["ownerReferences"]] == [(database.get() or {})["metadata"]["uid"]]
    owned = (("statefulset", database.statefulset), ("service", "orders-primary"), ("service", "orders-headless"))
    for kind, name in owned:
        metadata = database.get_object(kind, name)["metadata"]
        assert [o["uid"] for o in metadata["ownerReferences"]] == [made["uid"]], name
        assert {label.rpartition("/")[2] for label in metadata["labels"]} >= RECOMMENDED, name
    claim = database.get_object("pvc", "data-orders-0")["metadata"]
    # Nothing that dies with the Database may own the data; its keys die with the data and with nothing else.
    assert "ownerReferences" not in claim
    for name in ("orders-admin", "orders-app"):
        metadata = database.get_object("secret", name)["metadata"]
        assert [o["uid"] for o in metadata["ownerReferences"]] == [claim["uid"]], name
        assert {label.rpartition("/")[2] for label in metadata["labels"]} >= RECOMMENDED, name


def _check_pod(database: DatabaseUnderTest) -> None:
    pod = database.get_object("pod", database.pod)["spec"]
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


def test_pod_deleted_keeps_data(database: DatabaseUnderTest) -> None:
    database.apply()
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (7)")
    before = database.get_object("pod", database.pod)["metadata"]["uid"]
    database.cluster.kubectl("delete", "pod", database.pod, f"--namespace={database.namespace}", seconds=150)
    database.eventually("another pod serves", lambda: database.client_sql("SELECT n FROM t") == "7", seconds=90)
    assert database.get_object("pod", database.pod)["metadata"]["uid"] != before


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_retained_data_is_adopted_by_same_name(database: DatabaseUnderTest, cascade: str) -> None:
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


def test_retained_data_of_other_engine_is_rejected(database: DatabaseUnderTest) -> None:
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


def test_deletion_policy_delete_removes_data_and_secrets(database: DatabaseUnderTest) -> None:
    database.apply(deletionPolicy="Delete")
    database.wait_ready()
    database.delete()
    database.eventually("nothing is left", lambda: not database.objects(), seconds=60)


def test_deletion_policy_at_deletion_time_applies(postgresql: DatabaseUnderTest) -> None:
    postgresql.apply(deletionPolicy="Delete")
    postgresql.wait_ready()
    postgresql.apply(deletionPolicy="Retain")
    postgresql.delete()
    assert "persistentvolumeclaim/data-orders-0" in postgresql.objects("pvc")


def test_never_ready_database_can_be_deleted(database: DatabaseUnderTest) -> None:
    database.forbid_pods()
    database.apply(deletionPolicy="Delete")
    condition = database.wait_reason("PodRejected")
    assert "exceeded quota: no-pods" in condition["message"]
    database.delete(seconds=30)
    # Kubernetes collects what an owner leaves in its own time.
    wait_until("everything is gone", lambda: not database.objects(), seconds=60)


def cluster_of(postgresql: DatabaseUnderTest) -> dict[str, Any]:
    """The status of the cluster that was made for it."""
    return postgresql.get_object("postgresqlcluster", postgresql.name).get("status", {})


def says(postgresql: DatabaseUnderTest, condition: str) -> dict[str, Any]:
    """What its cluster says."""
    conditions: list[dict[str, Any]] = cluster_of(postgresql).get("conditions", [])
    return next((c for c in conditions if c["type"] == condition), dict[str, Any]())


CLAIMS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["persistentvolumeclaims"]}
LIMITED = {
    "failurePolicy": "Fail",
    "reinvocationPolicy": "Never",
    "mutations": [
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": 'Object{spec: Object.spec{storageClassName: "limited"}}'},
        }
    ],
}


@pytest.fixture
def growing(postgresql: DatabaseUnderTest) -> Generator[DatabaseUnderTest]:
    """On the devcluster, whose default class cannot grow, claims of its namespace are of the one that can."""
    cluster, namespace = postgresql.cluster, postgresql.namespace
    if not cluster.is_devcluster:
        yield postgresql
        return
    for recipe in (POSTGRESQL_15, UPGRADE_TO_17):
        load(ensure(recipe, Progress()))
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policy = {**LIMITED, "matchConstraints": {"namespaceSelector": here, "resourceRules": [CLAIMS]}}
    made = {"MutatingAdmissionPolicy": policy, "MutatingAdmissionPolicyBinding": {"policyName": namespace}}
    for kind, spec in made.items():
        of = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}
        cluster.apply(yaml.safe_dump({**of, "metadata": {"name": namespace}, "spec": spec}))
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    tried = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "tried"}, "spec": storage}
    command = ("create", "--dry-run=server", "--filename=-", f"--namespace={namespace}", "--output=yaml")
    try:
        wait_until(
            "the API server knows the policy",
            lambda: "storageClassName: limited" in cluster.kubectl(*command, stdin=yaml.safe_dump(tried)),
            seconds=60,
        )
        yield postgresql
    finally:
        for kind in reversed(made):
            cluster.kubectl("delete", kind, namespace)


@pytest.mark.timeout(1200)
def test_dedicated_cluster_upgrades_and_resizes(growing: DatabaseUnderTest) -> None:
    """As the how-to has it: by the fields of the Database, and nothing else."""
    growing.apply(version="15", storageSize="512Mi", deletionPolicy="Delete")
    growing.wait_ready()
    assert cluster_of(growing)["version"].startswith("15.")
    growing.client_sql("CREATE TABLE kept AS SELECT generate_series(1, 20000) AS n")
    login, pod = growing.secret(), growing.get_object("pod", growing.pod)["metadata"]["uid"]

    growing.apply(version="15", storageSize="1Gi", deletionPolicy="Delete")
    claim = f"data-{growing.statefulset}"
    growing.eventually(
        "it has grown",
        lambda: growing.get_object("pvc", claim)["status"]["capacity"]["storage"] == "1Gi",
        seconds=120,
    )
    growing.eventually("it is told", lambda: says(growing, "VolumesResized")["reason"] == "SizeMatches")
    growing.wait_ready()
    assert growing.get_object("pod", growing.pod)["metadata"]["uid"] == pod, "it served meanwhile"
    assert growing.client_sql("SELECT count(*) FROM kept") == "20000"

    growing.apply(version="17", storageSize="1Gi", deletionPolicy="Delete")
    growing.wait_reason("ServerStarting", seconds=180)
    growing.eventually("17 serves", lambda: cluster_of(growing)["version"].startswith("17."), seconds=480)
    growing.wait_ready()
    growing.eventually("it is told", lambda: says(growing, "UpToDate")["reason"] == "Current")
    assert growing.client_sql("SELECT count(*) FROM kept") == "20000", "by what the Secret said before"
    assert growing.secret() == login
    assert growing.client_sql("SHOW server_version").startswith("17.")
    assert growing.get_object("pvc", claim)["status"]["capacity"]["storage"] == "1Gi"
    line = growing.cluster.kubectl("get", "db", growing.name, f"--namespace={growing.namespace}", "--no-headers")
    assert line.split()[:5] == ["orders", "postgresql", "17", "1Gi", "Ready"]
    growing.delete()
    growing.eventually("nothing is left", lambda: not growing.objects(), seconds=60)


def test_dedicated_cluster_crash_is_reported_and_recovers(postgresql: DatabaseUnderTest) -> None:
    """Somebody takes the image of another engine, which starts nothing that is asked of it."""
    postgresql.apply()
    postgresql.wait_ready()
    postgresql.client_sql("CREATE TABLE kept AS SELECT 7 AS n")
    scope = f"--namespace={postgresql.namespace}"

    def run(image: str) -> None:
        change = f'{{"spec": {{"image": "{image}"}}}}'
        postgresql.cluster.kubectl("patch", "pg", "orders", scope, "--type=merge", f"--patch={change}")

    former = cluster_of(postgresql)["image"]
    run(MYSQL.reference)
    condition = postgresql.wait_reason("ServerCrashing", seconds=120)
    assert f"pod {postgresql.pod}" in condition["message"]
    postgresql.eventually("its cluster says so", lambda: says(postgresql, "Ready")["reason"] == "InstanceCrashing")
    with pytest.raises(CommandFailed):
        postgresql.client_sql("SELECT 1")

    def restarts() -> int:
        return postgresql.get_object("pod", postgresql.pod)["status"]["containerStatuses"][0]["restartCount"]

    postgresql.eventually("it was tried again and again", lambda: restarts() > 3, seconds=180)
    assert postgresql.ready_condition["reason"] == "ServerCrashing"
    chosen = "--field-selector=involvedObject.kind=PostgreSQLCluster,reason=InstanceCrashing"
    told = postgresql.cluster.kubectl("get", "events", scope, chosen, "--output=name").split()
    assert len(told) == 1, "told when it is news, not with each try"
    run(former)
    postgresql.wait_ready()
    assert postgresql.client_sql("SELECT n FROM kept") == "7"
