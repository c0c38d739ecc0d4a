"""Scenario 10: a namespace is deleted with finalizers pending. It goes, in whatever order its parts do."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from devcluster.target import Target

Record = Callable[[str, object], None]

# Of ours; what is of Kubernetes' own goes by itself.
KINDS = "postgresqlclusters,mysqlclusters,databases,databaseusers"


def furnish(inner: NamespaceClient, guests: NamespaceClient, policy: str, engine: EngineCommands) -> None:
    """Everything of ours in a namespace, what is not well too, and a user in another namespace that is on it."""
    cluster = ClusterUnderTest(inner, spec=dict(engine.small), engine=engine)
    own = {"pooler": {"replicas": 1}} if engine is POSTGRESQL else {}
    cluster.apply(instances=2, deletionPolicy=policy, allowedNamespaces=[guests.namespace], **own)
    for name in ("shop", "stock"):
        inner.apply("Database", name, cluster.reference(deletionPolicy=policy))
    alone = {"version": "17", "storageSize": "256Mi"} if engine is POSTGRESQL else {"version": "9.7"}
    inner.apply("Database", "alone", {"engine": engine.settings, "deletionPolicy": policy, **alone})
    clerk = cluster.reference(user="clerk", deletionPolicy=policy)
    right = "CONNECT" if engine is POSTGRESQL else "SELECT"
    inner.apply("DatabaseUser", "clerk", {**clerk, "grants": [{"database": "shop", "privileges": [right]}]})
    inner.apply("DatabaseUser", "lost", {**clerk, "clusterRef": {"kind": engine.kind, "name": "nowhere"}})
    far = {"kind": engine.kind, "name": cluster.name, "namespace": inner.namespace}
    guests.apply("DatabaseUser", "guest", {"clusterRef": far, "user": "guest"})
    cluster.wait_ready()
    for kind, name, reason, where in (
        ("database", "shop", "DatabaseReady", inner),
        ("database", "stock", "DatabaseReady", inner),
        ("database", "alone", "DatabaseReady", inner),
        ("databaseuser", "clerk", "ProvisionSucceeded", inner),
        ("databaseuser", "lost", "ProvisionFailed", inner),
        ("databaseuser", "guest", "ProvisionSucceeded", guests),
    ):
        where.wait_reason(kind, name, reason, seconds=120)
    cluster.sql(f"{engine.create_table('kept', 'shop')}; INSERT INTO kept (number) VALUES (1)", "shop")


@pytest.fixture(params=["Retain", "Delete"])
def inner(place: NamespaceClient, of: EngineCommands, request: pytest.FixtureRequest) -> Generator[NamespaceClient]:
    """A namespace with everything in it, whose guest is in the test's own."""
    made = NamespaceClient(place.target, f"{place.namespace}-x"[-60:].lstrip("-"))
    removal = ("delete", "namespace", made.namespace, "--ignore-not-found", "--timeout=180s")
    place.target.kubectl(*removal, seconds=200)
    place.target.kubectl("create", "namespace", made.namespace)
    furnish(made, place, request.param, of)
    yield made
    place.target.kubectl(*removal, seconds=200)


def gone(inner: NamespaceClient, seconds: float) -> None:
    """Waits until a namespace is no more; says what holds it."""
    try:
        inner.until("the namespace is gone", lambda: inner.target.get("namespace", inner.namespace) is None, seconds)
    except Exception as error:
        error.add_note(inner.kubectl("get", f"{KINDS},pods,pvc", "--output=wide"))
        error.add_note(str((inner.target.get("namespace", inner.namespace) or {}).get("status")))
        raise


def guest_goes(place: NamespaceClient) -> None:
    """Who was on a server that is no more can be deleted as well."""
    place.kubectl("delete", "databaseuser", "guest", "--timeout=90s", seconds=100)


def volumes(inner: NamespaceClient) -> list[str]:
    """Those that claims of the namespace have or had."""
    found = inner.all("persistentvolumes")
    return [v["metadata"]["name"] for v in found if v["spec"]["claimRef"]["namespace"] == inner.namespace]


@EACH_ENGINE
def test_namespace_with_cluster_is_deleted(
    inner: NamespaceClient, place: NamespaceClient, record_property: Record
) -> None:
    began = time.monotonic()
    inner.target.kubectl("delete", "namespace", inner.namespace, "--wait=false")
    gone(inner, 180)
    record_property("seconds until it was gone", round(time.monotonic() - began, 1))
    inner.until("its volumes are gone", lambda: not volumes(inner), 60)
    guest_goes(place)


@EACH_ENGINE
@pytest.mark.disruptive
def test_namespace_is_deleted_after_operator_returns(
    cluster: Target, inner: NamespaceClient, place: NamespaceClient, of: EngineCommands, record_property: Record
) -> None:
    with e2e_operator.operator_stopped(cluster):
        inner.target.kubectl("delete", "namespace", inner.namespace, "--wait=false")
        # All that Kubernetes can do without us is done: no Secret is left that would open a server.
        inner.until("the rest is gone", lambda: not inner.names("pods,secrets,services,configmaps,pvc"), 180)
        assert {name.partition(".")[0] for name in inner.names(KINDS)} == {
            of.kind.lower(),
            "database",
            "databaseuser",
        }
    began = time.monotonic()
    gone(inner, 120)
    record_property("seconds until it was gone, from when the operator was back", round(time.monotonic() - began, 1))
    inner.until("its volumes are gone", lambda: not volumes(inner), 60)
    guest_goes(place)


@EACH_ENGINE
def test_namespace_with_never_ready_cluster_is_deleted(place: NamespaceClient, of: EngineCommands) -> None:
    inner = NamespaceClient(place.target, f"{place.namespace}-x"[-60:].lstrip("-"))
    inner.target.kubectl("create", "namespace", inner.namespace)
    spec = {**of.small, "nodeSelector": {"kubernetes.io/hostname": "none"}}
    cluster = ClusterUnderTest(inner, spec=spec, engine=of)
    cluster.apply()
    inner.apply("Database", "shop", cluster.reference())
    inner.apply("DatabaseUser", "clerk", cluster.reference(user="clerk"))
    cluster.wait_reason("Unschedulable")
    inner.target.kubectl("delete", "namespace", inner.namespace, "--wait=false")
    gone(inner, 180)
