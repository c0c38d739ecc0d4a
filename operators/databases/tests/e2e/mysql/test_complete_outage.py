"""Most or all of a MySQL cluster is away: nobody writes without a majority, and nothing is given up silently."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.engines import ON_MYSQL

pytestmark = [pytest.mark.xdist_group("mysql-cluster-outages"), pytest.mark.timeout(900), ON_MYSQL]

Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


def test_quorum_lost_blocks_writes_and_is_reported(three: ClusterUnderTest, record_property: Record) -> None:
    replicas = three.replicas
    with writing(three, "shop-app") as seen:
        began = time.time()
        for replica in replicas:
            three.signal(replica, "STOP")
        try:
            said = three.wait_reason("QuorumLost", "Available", 60)
            record_property("seconds until it is said", round(time.time() - began, 1))
            assert three.primary == "" and said["status"] == "False"
            assert "the group has lost quorum" in said["message"]
            seen.read_log()
            # Who lost the others cannot have had a row acknowledged by them.
            assert seen.acknowledged[-1].moment < time.time() - 2
        finally:
            for replica in replicas:
                three.signal(replica, "CONT")
        three.wait_reason("PrimaryAvailable", "Available", 180)
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
    three.wait_ready()


def all_pods(three: ClusterUnderTest, *but: str) -> None:
    """Every pod is gone at once, as far as Kubernetes knows."""
    pods = [f"{name}-0" for name in three.nodes() if name not in but]
    three.namespace_client.kubectl("delete", "pod", *pods, "--force", "--grace-period=0", "--wait=false")


def choices(three: ClusterUnderTest) -> dict[str, dict[str, Any]]:
    """What would be lost with each instance that could be the first of a new group."""
    return {one["instance"]: one["loss"] for one in three.status.get("outage", {}).get("choices", ())}


def test_data_loss_requires_force_recovery(three: ClusterUnderTest) -> None:
    """One instance is out of reach while the others crash: it might have had more."""
    fenced = three.primary
    with writing(three, "shop-app") as seen:
        three.annotate("fenced-instances", fenced)
        three.until("another leads", lambda: three.primary not in ("", fenced), 120)
        three.wait_reason("Fenced")
        seen.wait_for_writes(time.time())

    three.until("nobody is asked for more", lambda: len(three.nodes()) == 2, 60)
    all_pods(three)
    three.wait_reason("ConsentRequired", "OutageRecoverable", 300)
    # While they have not seen each other, each names the other, too.
    only = {"instances": [fenced], "transactions": ""}
    three.until("both have seen all but it", lambda: [*choices(three).values()] == [only, only], 60)
    outage, losses = three.status["outage"], choices(three)
    assert fenced not in losses
    assert three.endpoints() == []

    chosen = min(losses)
    three.apply(forceRecovery={"epoch": outage["epoch"], "instance": chosen})
    three.wait_reason("ConsentMismatch", "OutageRecoverable", 60)
    assert three.endpoints() == []

    three.apply(forceRecovery={"epoch": outage["epoch"], "instance": chosen, "loss": losses[chosen]})
    three.until("it leads", lambda: three.primary == chosen, 120)
    assert seen.lost_rows() == 0, "it had everything"
    with writing(three, "shop-app", table="since") as since:
        three.annotate("fenced-instances", None)
        three.apply(forceRecovery=None)
        three.wait_ready()
        since.wait_for_writes(time.time())
        assert since.lost_rows() == 0
    assert "outage" not in three.status
    assert not three.namespace_client.condition(three.kind, three.name, "OutageRecoverable")


def test_hibernate_and_wake_keep_data(three: ClusterUnderTest) -> None:
    """The volumes stay, and who led last leads again."""
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
    primary = three.primary
    three.apply(hibernated=True)
    three.wait_reason("Hibernated", seconds=180)
    assert not three.namespace_client.all("pods", three.selector)
    assert three.endpoints() == []
    three.apply(hibernated=None)
    three.wait_ready(seconds=400)
    assert three.primary == primary
    assert seen.lost_rows() == 0
