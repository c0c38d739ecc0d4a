"""Scenario 10: a namespace is deleted with finalizers pending. It goes, in whatever order its parts do."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

import operator_under_test
from cluster_under_test import SMALL, ClusterUnderTest, Place
from devcluster.target import Target

Record = Callable[[str, object], None]

# Of ours; what is of Kubernetes' own goes by itself.
KINDS = "postgresqlclusters,databases,databaseusers"


def furnish(inner: Place, guests: Place, policy: str) -> None:
    """Everything of ours in a namespace, what is not well too, and a user in another namespace that is on it."""
    cluster = ClusterUnderTest(inner)
    cluster.apply(instances=2, deletionPolicy=policy, pooler={"replicas": 1}, allowedNamespaces=[guests.namespace])
    reference = {"name": cluster.name}
    for name in ("shop", "stock"):
        inner.declare("Database", name, {"clusterRef": reference, "deletionPolicy": policy})
    inner.declare(
        "Database",
        "alone",
        {"engine": "postgresql", "version": "17", "storageSize": "256Mi", "deletionPolicy": policy},
    )
    clerk = {"clusterRef": reference, "user": "clerk", "deletionPolicy": policy}
    inner.declare("DatabaseUser", "clerk", {**clerk, "grants": [{"database": "shop", "privileges": ["CONNECT"]}]})
    inner.declare("DatabaseUser", "lost", {**clerk, "clusterRef": {"name": "nowhere"}})
    far = {"name": cluster.name, "namespace": inner.namespace}
    guests.declare("DatabaseUser", "guest", {"clusterRef": far, "user": "guest"})
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
    cluster.sql("SET ROLE shop; CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)", "shop")


@pytest.fixture(params=["Retain", "Delete"])
def inner(place: Place, request: pytest.FixtureRequest) -> Generator[Place]:
    """A namespace with everything in it, whose guest is in the test's own."""
    made = Place(place.target, f"{place.namespace}-x"[-60:].lstrip("-"))
    removal = ("delete", "namespace", made.namespace, "--ignore-not-found", "--timeout=180s")
    place.target.kubectl(*removal, seconds=200)
    place.target.kubectl("create", "namespace", made.namespace)
    furnish(made, place, request.param)
    yield made
    place.target.kubectl(*removal, seconds=200)


def gone(inner: Place, seconds: float) -> None:
    """Waits until a namespace is no more; says what holds it."""
    try:
        inner.until("the namespace is gone", lambda: inner.target.get("namespace", inner.namespace) is None, seconds)
    except Exception as error:
        error.add_note(inner.kubectl("get", f"{KINDS},pods,pvc", "--output=wide"))
        error.add_note(str((inner.target.get("namespace", inner.namespace) or {}).get("status")))
        raise


def guest_goes(place: Place) -> None:
    """Who was on a server that is no more can be deleted as well."""
    place.kubectl("delete", "databaseuser", "guest", "--timeout=90s", seconds=100)


def volumes(inner: Place) -> list[str]:
    """Those that claims of the namespace have or had."""
    found = inner.all("persistentvolumes")
    return [v["metadata"]["name"] for v in found if v["spec"]["claimRef"]["namespace"] == inner.namespace]


def test_it_goes(inner: Place, place: Place, record_property: Record) -> None:
    began = time.monotonic()
    inner.target.kubectl("delete", "namespace", inner.namespace, "--wait=false")
    gone(inner, 180)
    record_property("seconds until it was gone", round(time.monotonic() - began, 1))
    inner.until("its volumes are gone", lambda: not volumes(inner), 60)
    guest_goes(place)


@pytest.mark.disruptive
def test_it_goes_when_the_operator_comes_back(
    cluster: Target, inner: Place, place: Place, record_property: Record
) -> None:
    with operator_under_test.away(cluster):
        inner.target.kubectl("delete", "namespace", inner.namespace, "--wait=false")
        # All that Kubernetes can do without us is done: no Secret is left that would open a server.
        inner.until("the rest is gone", lambda: not inner.names("pods,secrets,services,configmaps,pvc"), 180)
        assert {name.partition(".")[0] for name in inner.names(KINDS)} == {
            "postgresqlcluster",
            "database",
            "databaseuser",
        }
    began = time.monotonic()
    gone(inner, 120)
    record_property("seconds until it was gone, from when the operator was back", round(time.monotonic() - began, 1))
    inner.until("its volumes are gone", lambda: not volumes(inner), 60)
    guest_goes(place)


def test_it_goes_where_the_cluster_was_never_ready(place: Place) -> None:
    inner = Place(place.target, f"{place.namespace}-x"[-60:].lstrip("-"))
    inner.target.kubectl("create", "namespace", inner.namespace)
    cluster = ClusterUnderTest(inner, spec={**SMALL, "nodeSelector": {"kubernetes.io/hostname": "none"}})
    cluster.apply()
    inner.declare("Database", "shop", {"clusterRef": {"name": cluster.name}})
    inner.declare("DatabaseUser", "clerk", {"clusterRef": {"name": cluster.name}, "user": "clerk"})
    cluster.wait_reason("Unschedulable")
    inner.target.kubectl("delete", "namespace", inner.namespace, "--wait=false")
    gone(inner, 180)
