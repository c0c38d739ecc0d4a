"""The primary of a MySQL cluster is lost: another takes over, nothing is lost, and no two ever take writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pytest
from benchmarks.databases import faults

from database_support import operator_under_test
from database_support.cluster_engines import ON_MYSQL
from database_support.cluster_under_test import ClusterUnderTest
from database_support.failovers import Failover, failing_over
from database_support.operator_under_test import EITHER_WAY, Presence
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
    three.place.kubectl("delete", "pod", f"{primary}-0", "--force", "--grace-period=0", "--wait=false")


def pod_deleted(three: ClusterUnderTest, primary: str) -> None:
    """It is told to go, as by a drain."""
    three.place.kubectl("delete", "pod", f"{primary}-0", "--wait=false")


def judge(three: ClusterUnderTest, seen: Failover, began: float, record: Record) -> None:
    """Another leads, everything is there, and the former one follows."""
    seen.another_leads()
    record("longest gap in writes, in seconds", round(seen.through.gap, 1))
    seen.all_follow()
    record("seconds until all follow", round(time.time() - began))
    assert seen.judge(began) <= GAP


@EITHER_WAY
@pytest.mark.parametrize("fault", [server_killed, pod_deleted_by_force, pod_deleted])
def test_it_is_killed_or_deleted(
    cluster: Target,
    three: ClusterUnderTest,
    fault: Callable[[ClusterUnderTest, str], None],
    operator: Presence,
    record_property: Record,
) -> None:
    """Scenario 2: the primary is deleted with the operator at 0 replicas; and with it, and otherwise."""
    unasked = operator is operator_under_test.present and fault is not pod_deleted
    told = [("Failover", f" took over from {three.primary}")] if unasked else []
    with three.place.telling(three.name, *told):
        with failing_over(three) as seen, operator(cluster):
            began = time.time()
            fault(three, seen.former)
            judge(three, seen, began, record_property)
        three.wait_ready()


@pytest.mark.disruptive
def test_the_operator_and_it_are_deleted_together(
    cluster: Target, three: ClusterUnderTest, record_property: Record
) -> None:
    """Scenario 3."""
    with failing_over(three) as seen:
        began = time.time()
        pod_deleted_by_force(three, seen.former)
        operator_under_test.kill(cluster)
        judge(three, seen, began, record_property)
    three.wait_ready()


@EITHER_WAY
@pytest.mark.parametrize("lost", SIDES)
def test_its_network_is_lost(
    cluster: Target, three: ClusterUnderTest, lost: str, operator: Presence, record_property: Record
) -> None:
    """Nobody is told: to both sides it looks like silence, or to one alone."""
    if not cluster.is_devcluster:
        pytest.skip("drops packets of the devcluster's pods")
    with failing_over(three) as seen, operator(cluster):
        began = time.time()
        with faults.dropped_packets(three.place, f"{seen.former}-0", *SIDES[lost]):
            seen.another_leads()
            record_property("longest gap in writes, in seconds", round(seen.through.gap, 1))
        seen.all_follow()
        assert seen.judge(began) <= GAP
    three.wait_ready()


@EITHER_WAY
def test_it_is_killed_with_another(
    cluster: Target, three: ClusterUnderTest, operator: Presence, record_property: Record
) -> None:
    """Two of three are no accident that a group survives; it comes back by itself, with everything."""
    with failing_over(three) as seen, operator(cluster):
        began = time.time()
        for instance in (three.replicas[0], seen.former):
            server_killed(three, instance)
        seen.somebody_leads()
        seen.all_follow()
        record_property("longest gap in writes, in seconds", round(seen.judge(began), 1))
    three.wait_ready()


def test_it_hangs(three: ClusterUnderTest, record_property: Record) -> None:
    """Its process is there and does nothing: the others put it out, and it takes no writes when it goes on."""
    with failing_over(three) as seen:
        began = time.time()
        three.signal(seen.former, "STOP")
        try:
            seen.another_leads()
            record_property("longest gap in writes, in seconds", round(seen.through.gap, 1))
        finally:
            three.signal(seen.former, "CONT")
        seen.all_follow()
        seen.judge(began)
    three.wait_ready()


def test_a_replica_is_killed(three: ClusterUnderTest, record_property: Record) -> None:
    """Nobody who writes has to connect again."""
    with failing_over(three) as seen:
        began = time.time()
        server_killed(three, three.replicas[0])
        three.until("it is missed", lambda: three.sql(three.engine.following) == "1", 60)
        seen.all_follow()
        record_property("longest gap in writes, in seconds", round(seen.judge(began), 2))
        assert seen.through.errors == []
    assert three.primary == seen.former
    three.wait_ready()
