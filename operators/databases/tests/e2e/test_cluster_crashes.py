"""Scenario 16: all of a cluster crashes at once. It comes back without a person, with all that was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from database_support.cluster_engines import EACH
from database_support.cluster_under_test import SMALL, ClusterUnderTest, Place, writing
from database_support.operator_under_test import EITHER_WAY, Presence
from devcluster import cluster as devcluster
from devcluster.target import Target

pytestmark = pytest.mark.xdist_group("cluster-crashes")

Record = Callable[[str, object], None]


def test_the_first_start_is_cut_off(place: Place) -> None:
    """Who said that it makes the data, and did not live to do so, does not keep the next from it."""
    one = ClusterUnderTest(place, spec={**SMALL, "instances": 1, "nodeSelector": {"kubernetes.io/hostname": "none"}})
    one.apply()
    one.wait_reason("Unschedulable")
    place.patch("configmap", f"{one.name}-config", {"metadata": {"annotations": {"initialize": ""}}})
    one.apply(nodeSelector=None)
    one.wait_ready()
    assert any("its first start was cut off" in said for said in place.events(one.name, "Started"))


@pytest.fixture
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


def all_pods(three: ClusterUnderTest) -> None:
    """Every pod is gone at once, as far as Kubernetes knows."""
    three.place.kubectl("delete", "pods", three.selector, "--force", "--grace-period=0", "--wait=false")


def all_servers(three: ClusterUnderTest) -> None:
    """Every server is killed, faster than anybody could take over."""
    for instance in three.nodes():
        three.signal(instance, "KILL")


@EACH
@pytest.mark.usefixtures("well")
@EITHER_WAY
@pytest.mark.parametrize("crash", [all_pods, all_servers])
def test_everything_crashes_at_once(
    cluster: Target,
    three: ClusterUnderTest,
    crash: Callable[[ClusterUnderTest], None],
    operator: Presence,
    record_property: Record,
) -> None:
    with operator(cluster), writing(three, "shop-app") as seen:
        crash(three)
        began = time.time()
        seen.goes_on(began)
        three.until("-rw leads to who leads", lambda: three.leads() == [f"{three.leader}-0"], 30)
        three.until("the others follow it", partial(follow, three, 2), 240)
        seen.goes_on(time.time())
        record_property("longest gap in writes, in seconds", round(seen.gap, 1))
        assert seen.lost() == 0
    three.wait_ready()


def follow(three: ClusterUnderTest, replicas: int) -> bool:
    """Whether so many take what the leader writes."""
    return three.sql(three.engine.following) == str(replicas)


@EACH
@pytest.mark.usefixtures("well")
@pytest.mark.disruptive
def test_a_power_cut_of_all_nodes(cluster: Target, three: ClusterUnderTest, record_property: Record) -> None:
    if not cluster.is_devcluster:
        pytest.skip("cuts off the power of the devcluster's nodes")
    numbers = [int(node["metadata"]["name"].rpartition("-")[2]) for node in three.place.all("nodes")]
    with writing(three, "shop-app") as seen:
        seen.goes_on(time.time())  # and what was acknowledged until here is known; the client crashes with the rest
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
        assert seen.lost() == 0
    with writing(three, "shop-app") as seen:
        seen.goes_on(time.time())
