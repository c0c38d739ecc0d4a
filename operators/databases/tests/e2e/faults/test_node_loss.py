"""A node is lost with a server on it: no two primaries take writes, and it follows when the node is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from benchmarks.databases.write_gaps import dual_primary_seconds, rows_of_first_server

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.field_watch import FOLLOWS, endpoints
from database_support.e2e.leader_watch import watching_leader
from database_support.nodes.lost_nodes import assert_power_loss_survived, isolated, number_of, primary_alone
from devcluster import cluster as devcluster
from devcluster.errors import CommandFailed
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("node-loss"), pytest.mark.disruptive]

Record = Callable[[str, object], None]
# Patroni's lease lasts for 15 s, and nobody hears of a node that is silent by anything else.
TAKES_OVER = 25.0
LOCALLY = "options=-csynchronous_commit=local"
"""Commits that wait for no standby: what takes these is a primary, whether anybody follows it or not."""


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    if not three.namespace_client.target.is_devcluster:
        pytest.skip("takes nodes of the devcluster away")
    three.wait_ready(seconds=400)


def takes_writes(three: ClusterUnderTest, instance: str, node: str) -> bool:
    """Whether a server that nobody else reaches is a primary, asked on its node."""
    command = ["psql", "-XAtq", "-d", "postgres", "-c", "SELECT pg_is_in_recovery()"]
    try:
        said = devcluster.execute(
            number_of(node), three.namespace_client.namespace, f"{instance}-0", "server", command
        )
    except CommandFailed:
        return False
    return said.strip() == "f"


def follow(three: ClusterUnderTest, *instances: str) -> bool:
    """Whether the leader says that these stream from it, all of them."""
    said = three.sql("SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'")
    return {f"{instance}-0" for instance in instances} <= set(said.split())


def test_isolated_primary_leaves_rw_without_operator(
    cluster: Target, three: ClusterUnderTest, record_property: Record
) -> None:
    node, other = primary_alone(three)
    former, others = three.primary, three.replicas
    with ExitStack() as stack:
        outside = stack.enter_context(writing(three, "shop-app", on=other, table="outside"))
        inside = stack.enter_context(writing(three, "shop-app", on=node, table="inside"))
        hasty = stack.enter_context(writing(three, "shop-app", on=node, table="hasty", settings=LOCALLY))
        stack.enter_context(e2e_operator.operator_stopped(cluster))
        lock = stack.enter_context(watching_leader(three, others[0]))
        rw = stack.enter_context(endpoints(three.namespace_client, f"{three.name}-rw"))
        with isolated(node) as since:
            locked = lock.wait_for("another leads", lambda pod: pod not in ("", f"{former}-0"))
            leader = f"{three.leader}-0"
            assert rw.wait_for("-rw leads to it", leader.__eq__) - locked <= FOLLOWS
            three.until("the former takes no writes", lambda: not takes_writes(three, former, node), 60)
            outside.wait_for_writes(time.time())
            assert not takes_writes(three, former, node)
        three.until("the former follows", lambda: follow(three, *{former, *others} - {three.leader}), 240)
        for seen in (outside, inside, hasty):
            seen.wait_for_writes(time.time())
        record_property("seconds without writes, seen by the others", round(outside.longest_gap, 1))
        assert outside.longest_gap < TAKES_OVER
        for seen in (inside, hasty):
            alone = rows_of_first_server(seen.acknowledged)
            # Who is cut off hears of it by silence alone, and until then has nobody's word but its own.
            record_property(f"{seen.table}: seconds that it was written to alone", round(alone[-1].moment - since, 1))
            assert dual_primary_seconds(alone, outside.acknowledged, since) == 0.0, "no two primaries at a time"
        assert outside.lost_rows() == 0
        assert inside.lost_rows() == 0
        record_property("rows that were to be committed without a standby, and are lost", hasty.lost_rows())
    three.wait_ready()


def test_primary_pod_deleted_on_lost_node_fails_over(
    cluster: Target, three: ClusterUnderTest, record_property: Record
) -> None:
    """As Kubernetes does after five minutes, and a person sooner. Its volume is on the node: it waits for it.

    The operator was on that node, too: another one, elsewhere, says so.
    """
    node, other = primary_alone(three, e2e_operator.running(cluster)["node"])
    former, before = three.primary, three.pods()
    with writing(three, "shop-app", on=other) as seen:
        with isolated(node):
            three.until("another leads", lambda: three.leader not in ("", former), 90)
            three.namespace_client.target.kubectl(
                "wait", f"node/{node}", "--for=condition=Ready=Unknown", "--timeout=120s", seconds=130
            )
            with three.namespace_client.expecting_events(three.name, ("Unschedulable", f"pod {former}-0")):
                three.namespace_client.kubectl(
                    "delete", "pod", f"{former}-0", "--force", "--grace-period=0", "--wait=false"
                )
                three.until(
                    "its place is kept",
                    lambda: three.pods().get(f"{former}-0", before[f"{former}-0"]) != before[f"{former}-0"],
                )
                three.wait_reason("Unschedulable", seconds=240)
            assert e2e_operator.running(cluster)["node"] != node
            seen.wait_for_writes(time.time())
        three.wait_ready(seconds=400)
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
        assert seen.longest_gap < TAKES_OVER
    assert former in {member["name"] for member in three.status["members"]}, "its volume was not given up"


@pytest.mark.requirement("design/operations", "overview/failover")
def test_primary_node_power_lost_fails_over(three: ClusterUnderTest, record_property: Record) -> None:
    seen = assert_power_loss_survived(three)
    record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
    assert seen.lost_rows() == 0
    assert seen.longest_gap < TAKES_OVER
