"""Scenario 15: a node is drained for its maintenance, with a budget, which says how many may go at once, and without.

Who leads hands over.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from database_support.e2e.field_watch import lock_was_released
from database_support.e2e.leader_watch import watching_leader
from devcluster.errors import CommandFailed

# What others want on the node waits until the drain is over.
pytestmark = [pytest.mark.xdist_group("drain"), pytest.mark.disruptive, EACH_ENGINE]

Record = Callable[[str, object], None]
LABELS = {"drained": "with-its-node"}
# What is aimed at where a pod goes by force. Who is asked to go hands over within 3 s on an idle machine.
TAKES_OVER = 8.0


def on_two(place: NamespaceClient) -> dict[str, Any]:
    """An affinity by which two of three instances are on a node, however many there are."""
    usable = [node for node in place.all("nodes") if not node["spec"].get("taints")]
    names = sorted(node["metadata"]["name"] for node in usable)[:2]
    if len(names) < 2:
        pytest.skip("needs two nodes")
    host = "kubernetes.io/hostname"
    term = {"matchExpressions": [{"key": host, "operator": "In", "values": names}]}
    apart = {"topologyKey": host, "labelSelector": {"matchLabels": LABELS}}
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
        },
    }


@pytest.fixture(scope="module")
def three(shared: NamespaceClient, of: EngineCommands) -> ClusterUnderTest:
    """Its pods can be told from all others on a node; PostgreSQL's has a pooler."""
    pooler = {"pooler": {"replicas": 1, "readOnly": False}} if of is POSTGRESQL else {}
    spec = {**of.small, **pooler, "podMetadata": {"labels": LABELS}, "affinity": on_two(shared)}
    made = ClusterUnderTest(shared, spec=spec, engine=of)
    made.apply()
    shared.apply("Database", "shop", made.reference(deletionPolicy="Delete"))
    made.wait_ready(seconds=400)
    shared.wait_reason("database", "shop", "DatabaseReady")
    return made


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


@contextmanager
def drained(three: ClusterUnderTest, node: str, seconds: int) -> Generator[str]:
    """``kubectl drain``, but for what is not this cluster's; gives its words where it did not come to its end.

    Volumes are on their nodes, so what was drained starts again when the node is back.
    """
    target, said = three.namespace_client.target, ""
    command = ("drain", node, "--delete-emptydir-data", "--pod-selector=drained", f"--timeout={seconds}s")
    try:
        try:
            target.kubectl(*command, seconds=seconds + 30)
        except CommandFailed as error:
            said = str(error)
        yield said
    finally:
        target.kubectl("uncordon", node)


def on(three: ClusterUnderTest, count: int) -> str:
    """A node with so many of the three instances, the primary among them: it is moved there if need be."""
    held = Counter(three.nodes().values())
    node = next(node for node, instances in held.items() if instances == count)
    if three.nodes()[three.primary] != node:
        to = next(instance for instance, place in three.nodes().items() if place == node)
        three.annotate("switchover", to)
        three.until(f"{to} leads", lambda: three.primary == to, 90)
        three.wait_ready()
    return node


def test_drain_of_primary_node_switches_over(three: ClusterUnderTest, record_property: Record) -> None:
    """Behind a pooler too, which nobody tells beforehand. How MySQL's hands over, test_mysql_group.py has."""
    node, former = on(three, 1), three.primary
    pooler = f"{three.name}-pooler-rw.{three.namespace_client.namespace}.svc"
    with ExitStack() as stack:
        seen = stack.enter_context(writing(three, "shop-app"))
        writers = [seen]
        if three.engine is POSTGRESQL:
            writers.append(stack.enter_context(writing(three, "shop-app", pooler, table="pooled")))
        leader = stack.enter_context(watching_leader(three, three.replicas[0]))
        with drained(three, node, 120) as said:
            assert said == ""
            leader.wait_for("another leads", lambda pod: pod not in ("", f"{former}-0"))
            assert three.engine is not POSTGRESQL or lock_was_released(leader, f"{former}-0"), (
                "it is asked to go, and hands over"
            )
            seen.wait_for_writes(time.time())
            three.wait_reason("Unschedulable")
        three.wait_ready()
        for each in writers:
            each.wait_for_writes(time.time())
            record_property(f"{each.table}: longest gap in writes, in seconds", round(each.longest_gap, 1))
            assert each.lost_rows() == 0
            assert each.longest_gap < TAKES_OVER


def test_disruption_budget_blocks_second_drain(three: ClusterUnderTest, record_property: Record) -> None:
    node, before = on(three, 2), three.pods()
    here = [instance for instance, place in three.nodes().items() if place == node]
    with writing(three, "shop-app") as seen:
        with drained(three, node, 45) as said:
            assert "disruption budget" in said
            kept = [i for i in here if three.pods().get(f"{i}-0") == before[f"{i}-0"]]
            assert len(kept) == 1, "one may go at a time"
            seen.wait_for_writes(time.time())
        three.wait_ready()
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
        assert seen.longest_gap < TAKES_OVER


def test_drain_without_budget_loses_no_row(three: ClusterUnderTest, record_property: Record) -> None:
    """Who is left takes over if it knows that it has everything; else writes wait for one of the others."""
    three.apply(podDisruptionBudget={"enabled": False})
    three.until("there is no budget", lambda: not three.namespace_client.names("poddisruptionbudgets"), 60)
    three.wait_ready()
    node, before = on(three, 2), three.pods()
    here = [instance for instance, place in three.nodes().items() if place == node]
    try:
        with writing(three, "shop-app") as seen:
            with drained(three, node, 180) as said:
                assert said == ""
                assert all(three.pods().get(f"{i}-0") != before[f"{i}-0"] for i in here)
            three.wait_ready()
            seen.wait_for_writes(time.time())
            record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
            assert seen.lost_rows() == 0
    finally:
        three.apply(podDisruptionBudget=None)
    three.until("the budget is back", lambda: three.namespace_client.names("poddisruptionbudgets"), 60)
