"""The primary of a MySQL cluster is lost: another takes over, nothing is lost, and no two ever take writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pytest
from benchmarks.databases import faults

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import ON_MYSQL
from database_support.e2e.failovers import Failover, failover_under_load
from database_support.e2e.operator import WITH_AND_WITHOUT_OPERATOR, OperatorPresence
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("mysql-cluster-failover"), pytest.mark.timeout(900), ON_MYSQL]

GAP = 15.0  # seconds without a write, at most
SIDES: Mapping[str, Sequence[faults.Direction]] = {
    "both ways": ("--source", "--destination"),
    "what it sends": ("--source",),
    "what it is sent": ("--destination",),
}
Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


def server_killed(three: ClusterUnderTest, primary: str) -> None:
    """mysqld dies; its agent lives."""
    three.signal(primary, "KILL")


def pod_deleted_by_force(three: ClusterUnderTest, primary: str) -> None:
    """As far as Kubernetes knows, it is gone at once."""
    three.namespace_client.kubectl("delete", "pod", f"{primary}-0", "--force", "--grace-period=0", "--wait=false")


def pod_deleted(three: ClusterUnderTest, primary: str) -> None:
    """It is told to go, as by a drain."""
    three.namespace_client.kubectl("delete", "pod", f"{primary}-0", "--wait=false")


def judge(three: ClusterUnderTest, seen: Failover, began: float, record: Record) -> None:
    """Another leads, everything is there, and the former one follows."""
    seen.wait_for_other_leader()
    record("longest gap in writes, in seconds", round(seen.through.longest_gap, 1))
    seen.wait_for_followers()
    record("seconds until all follow", round(time.time() - began))
    assert seen.assert_safe(began) <= GAP


@pytest.mark.requirement("overview/failures", "overview/level-5-recovery")
@WITH_AND_WITHOUT_OPERATOR
@pytest.mark.parametrize("fault", [server_killed, pod_deleted_by_force, pod_deleted])
def test_primary_killed_or_deleted_fails_over(
    cluster: Target,
    three: ClusterUnderTest,
    fault: Callable[[ClusterUnderTest, str], None],
    operator: OperatorPresence,
    record_property: Record,
) -> None:
    """Scenario 2: the primary is deleted with the operator at 0 replicas; and with it, and otherwise."""
    unasked = operator is e2e_operator.operator_running and fault is not pod_deleted
    told = [("Failover", f"failover from {three.primary}")] if unasked else []
    with three.namespace_client.expecting_events(three.name, *told):
        with failover_under_load(three) as seen, operator(cluster):
            began = time.time()
            fault(three, seen.previous_primary)
            judge(three, seen, began, record_property)
        three.wait_ready()


@pytest.mark.disruptive
def test_primary_and_operator_deleted_fails_over(
    cluster: Target, three: ClusterUnderTest, record_property: Record
) -> None:
    """Scenario 3."""
    with failover_under_load(three) as seen:
        began = time.time()
        pod_deleted_by_force(three, seen.previous_primary)
        e2e_operator.kill(cluster)
        judge(three, seen, began, record_property)
    three.wait_ready()


@WITH_AND_WITHOUT_OPERATOR
@pytest.mark.parametrize("lost", SIDES)
def test_primary_network_lost_fails_over(
    cluster: Target, three: ClusterUnderTest, lost: str, operator: OperatorPresence, record_property: Record
) -> None:
    """Nobody is told: to both sides it looks like silence, or to one alone."""
    if not cluster.is_devcluster:
        pytest.skip("drops packets of the devcluster's pods")
    with failover_under_load(three) as seen, operator(cluster):
        began = time.time()
        with faults.dropped_packets(three.namespace_client, f"{seen.previous_primary}-0", *SIDES[lost]):
            seen.wait_for_other_leader()
            record_property("longest gap in writes, in seconds", round(seen.through.longest_gap, 1))
        seen.wait_for_followers()
        assert seen.assert_safe(began) <= GAP
    three.wait_ready()


@WITH_AND_WITHOUT_OPERATOR
def test_primary_and_replica_killed_recover(
    cluster: Target, three: ClusterUnderTest, operator: OperatorPresence, record_property: Record
) -> None:
    """Two of three are no accident that a group survives; it comes back by itself, with everything."""
    with failover_under_load(three) as seen, operator(cluster):
        began = time.time()
        for instance in (three.replicas[0], seen.previous_primary):
            server_killed(three, instance)
        seen.wait_for_leader()
        seen.wait_for_followers()
        record_property("longest gap in writes, in seconds", round(seen.assert_safe(began), 1))
    three.wait_ready()


def test_primary_hangs_fails_over(three: ClusterUnderTest, record_property: Record) -> None:
    """Its process is there and does nothing: the others put it out, and it takes no writes when it goes on."""
    with failover_under_load(three) as seen:
        began = time.time()
        three.signal(seen.previous_primary, "STOP")
        try:
            seen.wait_for_other_leader()
            record_property("longest gap in writes, in seconds", round(seen.through.longest_gap, 1))
        finally:
            three.signal(seen.previous_primary, "CONT")
        seen.wait_for_followers()
        seen.assert_safe(began)
    three.wait_ready()


def test_replica_killed_rejoins(three: ClusterUnderTest, record_property: Record) -> None:
    """Nobody who writes has to connect again."""
    with failover_under_load(three) as seen:
        began = time.time()
        server_killed(three, three.replicas[0])
        three.until("it is missed", lambda: three.sql(three.engine.is_following) == "1", 60)
        seen.wait_for_followers()
        record_property("longest gap in writes, in seconds", round(seen.assert_safe(began), 2))
        assert seen.through.errors == []
    assert three.primary == seen.previous_primary
    three.wait_ready()
