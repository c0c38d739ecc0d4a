"""Nodes are lost with MySQL's servers on them: who is cut off takes no writes, and all follow when they are back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from benchmarks.databases.write_gaps import dual_primary_seconds, rows_of_first_server

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.engines import ON_MYSQL
from database_support.e2e.operator import WITH_AND_WITHOUT_OPERATOR, OperatorPresence
from database_support.nodes.lost_nodes import assert_power_loss_survived, isolated, number_of, primary_alone
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
    if not three.namespace_client.target.is_devcluster:
        pytest.skip("takes nodes of the devcluster away")
    three.wait_ready(seconds=400)


def takes_writes(three: ClusterUnderTest, instance: str, node: str) -> bool:
    """Whether a server that nobody else reaches does, asked on its node."""
    # One without a majority lets a write wait until it is given up.
    statement = "INSERT INTO shop.asked VALUES (UUID())"
    command = ["timeout", "3", *three.engine.admin_command(statement, "mysql")]
    try:
        devcluster.execute(number_of(node), three.namespace_client.namespace, f"{instance}-0", "server", command)
    except CommandFailed:
        return False
    return True


@WITH_AND_WITHOUT_OPERATOR
def test_primary_isolated_stops_accepting_writes(
    cluster: Target, three: ClusterUnderTest, operator: OperatorPresence, record_property: Record
) -> None:
    """Scenario 4, with clients on both sides."""
    node, other = primary_alone(three)
    former = three.primary
    three.sql("CREATE TABLE IF NOT EXISTS asked (who varchar(36) PRIMARY KEY)", "shop")
    with ExitStack() as stack:
        outside = stack.enter_context(writing(three, "shop-app", on=other, table="outside"))
        inside = stack.enter_context(writing(three, "shop-app", on=node, table="inside"))
        stack.enter_context(operator(cluster))
        with isolated(node) as since:
            three.until("another leads", lambda: three.leader not in ("", former), 90)
            three.until("-rw leads to it", lambda: three.endpoints() == [f"{three.leader}-0"], 30)
            outside.wait_for_writes(time.time())
            assert not takes_writes(three, former, node)
        three.until("all follow", lambda: three.sql(three.engine.is_following) == "2", 300)
        for seen in (outside, inside):
            seen.wait_for_writes(time.time())
        record_property("seconds without writes, seen by the others", round(outside.longest_gap, 1))
        alone = rows_of_first_server(inside.acknowledged)
        record_property("seconds that it was written to alone", round(alone[-1].moment - since, 1))
        assert dual_primary_seconds(alone, outside.acknowledged, since) == 0.0, "no two primaries at a time"
        assert outside.lost_rows() == 0
        assert inside.lost_rows() == 0
    three.wait_ready(seconds=400)


def test_primary_node_power_lost_fails_over(three: ClusterUnderTest, record_property: Record) -> None:
    seen = assert_power_loss_survived(three)
    record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
    assert seen.lost_rows() == 0


def test_two_of_three_nodes_lost_blocks_writes(
    cluster: Target, three: ClusterUnderTest, record_property: Record
) -> None:
    """The third is no majority: it takes no writes, and its status says why, until they are back."""
    nodes = sorted({*three.nodes().values()})
    assert len(nodes) == 3, f"it needs three nodes (make cluster NODES=3): {nodes}"
    # Who writes the status is on a node that is left.
    node, _ = primary_alone(three, e2e_operator.running(cluster)["node"])
    with writing(three, "shop-app", on=node) as seen, ExitStack() as stack:
        began = time.time()
        for lost in (name for name in nodes if name != node):
            stack.enter_context(isolated(lost))
        three.wait_reason("QuorumLost", "Available", 60)
        record_property("seconds until it is said", round(time.time() - began))
        seen.read_log()
        assert seen.acknowledged[-1].moment < time.time() - 2
        assert three.primary == ""
        stack.close()
        three.wait_ready(seconds=400)
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
