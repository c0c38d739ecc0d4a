"""Faults: whatever is killed, whenever, all of it converges."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from database_under_test import DatabaseUnderTest
from devcluster.operator import DEPLOYMENT
from devcluster.operator import NAMESPACE as OPERATOR_NAMESPACE
from devcluster.process import Process
from devcluster.target import Target, wait_until

KILLS = 20


def _operator_pod(cluster: Target) -> dict[str, str]:
    selector = f"--selector=app.kubernetes.io/name={DEPLOYMENT}"
    pods = json.loads(cluster.kubectl("get", "pods", f"--namespace={OPERATOR_NAMESPACE}", selector, "--output=json"))
    for pod in pods["items"]:
        statuses: list[dict[str, Any]] = pod["status"].get("containerStatuses") or [{}]
        if "deletionTimestamp" not in pod["metadata"] and "running" in statuses[0].get("state", {}):
            return {"name": pod["metadata"]["name"], "container": statuses[0]["containerID"].rpartition("/")[2]}
    return {}


def _kill_operator(cluster: Target) -> None:
    """SIGKILL to the operator's process, then its pod out of the way: restarts in place back off for minutes."""
    pod = wait_until("the operator runs", lambda: _operator_pod(cluster) or None, seconds=90)
    if cluster.is_devcluster:
        for process in _processes_in(pod["container"]):
            process.kill()
    cluster.kubectl(
        "delete",
        "pod",
        pod["name"],
        f"--namespace={OPERATOR_NAMESPACE}",
        "--force",
        "--grace-period=0",
        "--wait=false",
    )


def _replace_operator(cluster: Target) -> dict[str, str]:
    """Another pod for the operator, whose containers have not ended yet."""
    selector = f"--selector=app.kubernetes.io/name={DEPLOYMENT}"
    cluster.kubectl("delete", "pod", selector, f"--namespace={OPERATOR_NAMESPACE}", seconds=120)
    return wait_until("the operator runs", lambda: _operator_pod(cluster) or None, seconds=90)


def _processes_in(container: str) -> list[Process]:
    found: list[Process] = []
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            inside = container in cgroup.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        process = Process.of(int(cgroup.parent.name)) if inside else None
        if process is not None:
            found.append(process)
    return found


@pytest.mark.disruptive
@pytest.mark.parametrize("number", range(KILLS))
def test_operator_killed_at_any_moment(cluster: Target, namespace: str, number: int) -> None:
    dice = random.Random(number)
    policy = ("Delete", "Retain")[number // 2 % 2]
    database = DatabaseUnderTest(cluster, namespace, "orders", ("postgresql", "mysql")[number % 2])
    database.apply(deletionPolicy=policy)
    time.sleep(dice.uniform(0, 6))  # the moment of the fault, not a wait for something
    _kill_operator(cluster)
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    cluster.kubectl("delete", "database", "orders", f"--namespace={namespace}", "--wait=false")
    time.sleep(dice.uniform(0, 3))
    _kill_operator(cluster)
    expected = set[str]() if policy == "Delete" else database.retained
    database.eventually("it is gone", lambda: database.get() is None, seconds=150)
    database.eventually("just what should be left is left", lambda: database.objects() == expected, seconds=60)


def test_namespace_deleted_as_a_whole(database: DatabaseUnderTest) -> None:
    cluster, inner = database.cluster, f"{database.namespace}-x"
    cluster.kubectl("create", "namespace", inner)
    try:
        doomed = DatabaseUnderTest(cluster, inner, "orders", database.engine)
        never_ready = DatabaseUnderTest(cluster, inner, "invoices", database.engine)
        doomed.apply()
        never_ready.apply(version="1")
        doomed.wait_ready()
        never_ready.wait_reason("UnsupportedVersion")
    finally:
        cluster.kubectl("delete", "namespace", inner, "--timeout=180s", seconds=190)
    assert cluster.get("namespace", inner) is None


def test_server_already_gone_at_deletion(database: DatabaseUnderTest) -> None:
    database.apply(deletionPolicy="Delete")
    database.wait_ready()
    scope = f"--namespace={database.namespace}"
    database.cluster.kubectl("delete", "secret", "orders-admin", "orders-app", scope)
    database.cluster.kubectl("delete", "statefulset", database.statefulset, scope, "--wait=false")
    database.delete()
    database.eventually("nothing is left", lambda: not database.objects(), seconds=120)


def test_database_pod_killed_without_mercy(database: DatabaseUnderTest) -> None:
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
def test_api_server_restarted(database: DatabaseUnderTest) -> None:
    if not database.cluster.is_devcluster:
        pytest.fail("this fault needs the devcluster: run it without CLUSTER=current")
    from devcluster.cluster import restart

    # On a slow machine the API server is away for longer than a lease lasts. Then the leader must end, and it comes
    # back the later the more often its pod's containers have ended before.
    fresh = _replace_operator(database.cluster)
    database.apply()
    for _ in range(3):
        restart("kube-apiserver")
    database.wait_ready()
    before = _operator_pod(database.cluster)
    restart("kube-apiserver")
    database.cluster.kubectl("delete", "service", "orders-primary", f"--namespace={database.namespace}")
    database.eventually("its watches go on", lambda: database.client_sql("SELECT 1") == "1", seconds=240)
    after = wait_until("the operator runs", lambda: _operator_pod(database.cluster) or None, seconds=240)
    assert after["name"] == fresh["name"]
    if after != before:
        log = database.cluster.kubectl("logs", after["name"], f"--namespace={OPERATOR_NAMESPACE}", "--previous")
        assert "leadership lost" in log, "the operator rides it out without a restart"
