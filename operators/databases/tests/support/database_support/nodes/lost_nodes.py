"""Nodes of the devcluster that nobody reaches any more, and who was on them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import ClusterUnderTest, WriteLog, writing
from devcluster import cluster as devcluster


def number_of(node: str) -> int:
    return int(node.rpartition("-")[2])


def primary_alone(three: ClusterUnderTest, on: str = "") -> tuple[str, str]:
    """The node that has the primary and no other instance, and one that has another: it is moved there if need be.

    With a node that has two of three, who is left cannot know that it has all that was acknowledged.

    Args:
        on: the node that it is to be, which has one.
    """
    nodes = three.nodes()
    held = Counter(nodes.values())
    alone = on or next(node for node, count in held.items() if count == 1)
    assert held[alone] == 1, f"it needs a node for each instance (make cluster NODES=3): {nodes}, not two on {alone}"
    to = next(instance for instance, node in nodes.items() if node == alone)
    if three.primary != to:
        three.annotate("switchover", to)
        three.until(f"{to} leads", lambda: three.primary == to, 90)
        three.wait_ready()
    return alone, next(node for node in held if node != alone)


@contextmanager
def isolated(node: str) -> Generator[float]:
    """Nothing that it sends arrives, and nothing reaches it; since when."""
    try:
        devcluster.set_packet_loss(number_of(node), ingress=100, egress=100)
        yield time.time()
    finally:
        devcluster.restore_node(number_of(node))


def assert_power_loss_survived(three: ClusterUnderTest) -> WriteLog:
    """What a client saw of it when the primary's node lost its power, until all was well again."""
    node, other = primary_alone(three)
    former = three.primary
    # Where the operator was on that node, too, the node may be back before anybody could say that it is missed.
    told = [] if e2e_operator.running(three.namespace_client.target).get("node") == node else ["InstanceNotReady"]
    with writing(three, "shop-app", on=other) as seen:
        try:
            with three.namespace_client.expecting_events(three.name, *told):
                devcluster.crash_node(number_of(node))
                three.until("another leads", lambda: three.leader not in ("", former), 90)
                seen.wait_for_writes(time.time())
                for reason in told:
                    three.wait_reason(reason, seconds=240)
        finally:
            devcluster.restore_node(number_of(node))
        # It may have been the operator's node, too.
        three.until("the operator is back", lambda: three.primary == three.leader, 400)
        three.wait_ready(seconds=400)
        seen.wait_for_writes(time.time())
    return seen
