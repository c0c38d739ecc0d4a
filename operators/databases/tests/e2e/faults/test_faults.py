"""Faults: whatever is killed, whenever, all of it converges."""

from __future__ import annotations

import random
import time

import pytest

from database_support.e2e import operator as e2e_operator
from database_support.e2e.database import DatabaseUnderTest
from devcluster.operator import NAMESPACE as OPERATOR_NAMESPACE
from devcluster.target import Target, wait_until

KILLS = 20


@pytest.mark.disruptive
@pytest.mark.parametrize("number", range(KILLS))
def test_operator_killed_at_any_time_recovers(cluster: Target, namespace: str, number: int) -> None:
    dice = random.Random(number)
    policy = ("Delete", "Retain")[number // 2 % 2]
    database = DatabaseUnderTest(cluster, namespace, "orders", ("postgresql", "mysql")[number % 2])
    database.apply(deletionPolicy=policy)
    time.sleep(dice.uniform(0, 6))  # the moment of the fault, not a wait for something
    e2e_operator.kill(cluster)
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    cluster.kubectl("delete", "database", "orders", f"--namespace={namespace}", "--wait=false")
    time.sleep(dice.uniform(0, 3))
    e2e_operator.kill(cluster)
    expected = set[str]() if policy == "Delete" else database.retained
    database.eventually("it is gone", lambda: database.get() is None, seconds=150)
    database.eventually("just what should be left is left", lambda: database.objects() == expected, seconds=60)


def test_namespace_deleted_while_serving_is_removed(database: DatabaseUnderTest) -> None:
    cluster, inner = database.cluster, f"{database.namespace}-x"
    cluster.kubectl("create", "namespace", inner)
    try:
        doomed = DatabaseUnderTest(cluster, inner, "orders", database.engine)
        never_ready = DatabaseUnderTest(cluster, inner, "invoices", database.engine)
        doomed.apply()
        doomed.wait_ready()
        never_ready.forbid_pods()
        never_ready.apply()
        never_ready.wait_reason("PodRejected")
    finally:
        cluster.kubectl("delete", "namespace", inner, "--timeout=180s", seconds=190)
    assert cluster.get("namespace", inner) is None


def test_server_gone_before_deletion_is_removed(database: DatabaseUnderTest) -> None:
    database.apply(deletionPolicy="Delete")
    database.wait_ready()
    scope = f"--namespace={database.namespace}"
    database.cluster.kubectl("delete", "secret", "orders-admin", "orders-app", scope)
    database.cluster.kubectl("delete", "statefulset", database.statefulset, scope, "--wait=false")
    database.delete()
    database.eventually("nothing is left", lambda: not database.objects(), seconds=120)


@pytest.mark.requirement("overview/failures", "pattern/keep-working")
def test_database_pod_killed_recovers(database: DatabaseUnderTest) -> None:
    database.apply()
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (1)")
    scope = f"--namespace={database.namespace}"
    for _ in range(3):
        database.cluster.kubectl("delete", "pod", database.pod, scope, "--force", "--grace-period=0", seconds=60)
        database.eventually("the row is there", lambda: database.client_sql("SELECT n FROM t") == "1", seconds=120)
    database.wait_ready()


@pytest.mark.disruptive
def test_api_server_restarted_recovers(database: DatabaseUnderTest) -> None:
    if not database.cluster.is_devcluster:
        pytest.fail("this fault needs the devcluster: run it without CLUSTER=current")
    from devcluster.cluster import restart

    # On a slow machine the API server is away for longer than a lease lasts. Then the leader must end, and it comes
    # back the later the more often its pod's containers have ended before.
    fresh = e2e_operator.replace(database.cluster)
    database.apply()
    for _ in range(3):
        restart("kube-apiserver")
    database.wait_ready()
    before = e2e_operator.running(database.cluster)
    restart("kube-apiserver")
    database.cluster.kubectl("delete", "service", "orders-primary", f"--namespace={database.namespace}")
    database.eventually("its watches go on", lambda: database.client_sql("SELECT 1") == "1", seconds=240)
    after = wait_until("the operator runs", lambda: e2e_operator.running(database.cluster) or None, seconds=240)
    assert after["name"] == fresh["name"]
    if after != before:
        log = database.cluster.kubectl("logs", after["name"], f"--namespace={OPERATOR_NAMESPACE}", "--previous")
        assert "leadership lost" in log, "the operator rides it out without a restart"
