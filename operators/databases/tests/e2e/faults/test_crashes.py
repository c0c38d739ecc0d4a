"""Scenario 16: all of a cluster crashes at once. It comes back without a person, with all that was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EACH_ENGINE
from database_support.e2e.operator import WITH_AND_WITHOUT_OPERATOR, OperatorPresence
from devcluster import cluster as devcluster
from devcluster.target import Target

pytestmark = pytest.mark.xdist_group("cluster-crashes")

Record = Callable[[str, object], None]


def test_first_start_interrupted_bootstrap_is_retried(place: NamespaceClient) -> None:
    """Who said that it makes the data, and did not live to do so, does not keep the next from it."""
    one = ClusterUnderTest(
        place, spec={**SMALL_SPEC, "instances": 1, "nodeSelector": {"kubernetes.io/hostname": "none"}}
    )
    one.apply()
    one.wait_reason("Unschedulable")
    place.patch("configmap", f"{one.name}-config", {"metadata": {"annotations": {"initialize": ""}}})
    one.apply(nodeSelector=None)
    one.wait_ready()
    assert any("it was interrupted" in said for said in place.events(one.name, "Started"))


@pytest.fixture
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


def all_pods(three: ClusterUnderTest) -> None:
    """Every pod is gone at once, as far as Kubernetes knows."""
    three.namespace_client.kubectl("delete", "pods", three.selector, "--force", "--grace-period=0", "--wait=false")


def all_servers(three: ClusterUnderTest) -> None:
    """Every server is killed, faster than anybody could take over."""
    for instance in three.nodes():
        three.signal(instance, "KILL")


@EACH_ENGINE
@pytest.mark.usefixtures("well")
@WITH_AND_WITHOUT_OPERATOR
@pytest.mark.parametrize("crash", [all_pods, all_servers])
def test_all_pods_crash_cluster_recovers(
    cluster: Target,
    three: ClusterUnderTest,
    crash: Callable[[ClusterUnderTest], None],
    operator: OperatorPresence,
    record_property: Record,
) -> None:
    with operator(cluster), writing(three, "shop-app") as seen:
        crash(three)
        began = time.time()
        seen.wait_for_writes(began)
        three.until("-rw leads to who leads", lambda: three.endpoints() == [f"{three.leader}-0"], 30)
        three.until("the others follow it", partial(follow, three, 2), 240)
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
    three.wait_ready()


def follow(three: ClusterUnderTest, replicas: int) -> bool:
    """Whether so many take what the leader writes."""
    return three.sql(three.engine.is_following) == str(replicas)


@EACH_ENGINE
@pytest.mark.usefixtures("well")
@pytest.mark.disruptive
def test_all_nodes_lose_power_cluster_recovers(
    cluster: Target, three: ClusterUnderTest, record_property: Record
) -> None:
    if not cluster.is_devcluster:
        pytest.skip("cuts off the power of the devcluster's nodes")
    numbers = [int(node["metadata"]["name"].rpartition("-")[2]) for node in three.namespace_client.all("nodes")]
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(
            time.time()
        )  # and what was acknowledged until here is known; the client crashes with the rest
        began = time.monotonic()
        try:
            for number in numbers:
                devcluster.crash_node(number)
        finally:
            for number in numbers:
                devcluster.restore_node(number)
        three.until("somebody leads and writes", lambda: three.sql(three.engine.writable) == "1", 240)
        record_property("seconds until it can be written", round(time.monotonic() - began, 1))
        three.wait_ready(seconds=400)
        assert seen.lost_rows() == 0
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
