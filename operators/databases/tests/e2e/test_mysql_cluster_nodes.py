"""Nodes are lost with MySQL's servers on them: who is cut off takes no writes, and all follow when they are back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from benchmarks.databases.gaps import dual_primary_seconds, rows_of_first_server

from database_support import operator_under_test
from database_support.cluster_engines import ON_MYSQL
from database_support.cluster_under_test import ClusterUnderTest, writing
from database_support.lost_nodes import cut_off, number_of, power_lost, primary_alone
from database_support.operator_under_test import EITHER_WAY, Presence
from devcluster import cluster as devcluster
from devcluster.errors import CommandFailed
from devcluster.target import Target

pytestmark = [
    pytest.mark.xdist_group("mysql-cluster-nodes"),
    pytest.mark.timeout(1200),
    pytest.mark.disruptive,
    ON_MYSQL,
]

Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    if not three.place.target.is_devcluster:
        pytest.skip("takes nodes of the devcluster away")
    three.wait_ready(seconds=400)


def takes_writes(three: ClusterUnderTest, instance: str, node: str) -> bool:
    """Whether a server that nobody else reaches does, asked on its node."""
    # One without a majority lets a write wait until it is given up.
    statement = "INSERT INTO shop.asked VALUES (UUID())"
    command = ["timeout", "3", *three.engine.inside(statement, "mysql")]
    try:
        devcluster.execute(number_of(node), three.place.namespace, f"{instance}-0", "server", command)
    except CommandFailed:
        return False
    return True


@EITHER_WAY
def test_a_primary_that_is_cut_off_stops_taking_writes(
    cluster: Target, three: ClusterUnderTest, operator: Presence, record_property: Record
) -> None:
    """Scenario 4, with clients on both sides."""
    node, other = primary_alone(three)
    former = three.primary
    three.sql("CREATE TABLE IF NOT EXISTS asked (who varchar(36) PRIMARY KEY)", "shop")
    with ExitStack() as stack:
        outside = stack.enter_context(writing(three, "shop-app", on=other, table="outside"))
        inside = stack.enter_context(writing(three, "shop-app", on=node, table="inside"))
        stack.enter_context(operator(cluster))
        with cut_off(node) as since:
            three.until("another leads", lambda: three.leader not in ("", former), 90)
            three.until("-rw leads to it", lambda: three.leads() == [f"{three.leader}-0"], 30)
            outside.goes_on(time.time())
            assert not takes_writes(three, former, node)
        three.until("all follow", lambda: three.sql(three.engine.following) == "2", 300)
        for seen in (outside, inside):
            seen.goes_on(time.time())
        record_property("seconds without writes, seen by the others", round(outside.gap, 1))
        alone = rows_of_first_server(inside.acknowledged)
        record_property("seconds that it was written to alone", round(alone[-1].moment - since, 1))
        assert dual_primary_seconds(alone, outside.acknowledged, since) == 0.0, "no two primaries at a time"
        assert outside.lost() == 0
        assert inside.lost() == 0
    three.wait_ready(seconds=400)


def test_a_primarys_node_loses_its_power(three: ClusterUnderTest, record_property: Record) -> None:
    seen = power_lost(three)
    record_property("longest gap in writes, in seconds", round(seen.gap, 1))
    assert seen.lost() == 0


def test_two_of_three_nodes_are_lost(cluster: Target, three: ClusterUnderTest, record_property: Record) -> None:
    """The third is no majority: it takes no writes, and its status says why, until they are back."""
    nodes = sorted({*three.nodes().values()})
    assert len(nodes) == 3, f"it needs three nodes (make cluster NODES=3): {nodes}"
    # Who writes the status is on a node that is left.
    node, _ = primary_alone(three, operator_under_test.running(cluster)["node"])
    with writing(three, "shop-app", on=node) as seen, ExitStack() as stack:
        began = time.time()
        for lost in (name for name in nodes if name != node):
            stack.enter_context(cut_off(lost))
        three.wait_reason("NoMajority", "Available", 60)
        record_property("seconds until it is said", round(time.time() - began))
        seen.look()
        assert seen.acknowledged[-1].moment < time.time() - 2
        assert three.primary == ""
        stack.close()
        three.wait_ready(seconds=400)
        seen.goes_on(time.time())
        assert seen.lost() == 0
