"""No two promotions begin a timeline with the same number, and after an outage of all instances all follow."""

from __future__ import annotations

import json
import time

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing

pytestmark = [pytest.mark.xdist_group("cluster-timelines"), pytest.mark.timeout(900)]

SYSTEM = "SELECT system_identifier FROM pg_control_system()"
LOG = "/var/lib/steersman/data/pgdata/pg_wal"


def reserved(cluster: ClusterUnderTest) -> str:
    return cluster.namespace_client.get("configmap", "orders-timelines").get("data", {}).get(cluster.sql(SYSTEM), "")


def all_follow(cluster: ClusterUnderTest) -> bool:
    return bool(cluster.primary) and cluster.sql(cluster.engine.is_following) == "2"


def led_last(cluster: ClusterUnderTest) -> str:
    config = cluster.namespace_client.get("configmap", "orders-config")
    history = json.loads(config["metadata"]["annotations"].get("history", "[]"))
    return history[-1][-1] if history else ""


def test_promotion_skips_timelines_begun_elsewhere(three: ClusterUnderTest) -> None:
    """As if somebody had been promoted and was gone before the others heard of it."""
    three.wait_ready()
    former, timeline = three.primary, three.status["timeline"]
    three.namespace_client.patch("configmap", "orders-timelines", {"data": {three.sql(SYSTEM): str(timeline + 2)}})
    with writing(three, "shop-app") as seen:
        three.namespace_client.kubectl("delete", "pod", f"{former}-0", "--wait=false")
        three.until("another leads", lambda: three.primary not in ("", former), 60)
        three.wait_ready()
        assert three.status["timeline"] == timeline + 3
        assert reserved(three) == str(timeline + 3)
        three.until("all follow, who led too", lambda: all_follow(three), 60)
        # By it the operator knows who led, where nobody does any more.
        three.until("it is written down who was promoted", lambda: led_last(three) == f"{three.primary}-0", 30)
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0


def test_replica_rejoins_after_interrupted_promotion(three: ClusterUnderTest) -> None:
    three.wait_ready()
    replica, timeline = three.replicas[0], three.status["timeline"]
    for number in (timeline + 1, timeline + 2):
        three.execute(replica, "sh", "-c", f"echo '# reserved' > {LOG}/{number:08X}.history")
    three.namespace_client.kubectl("delete", "pod", f"{replica}-0", "--timeout=120s", seconds=130)
    three.wait_ready()
    three.until("all follow", lambda: all_follow(three), 60)
    assert three.status["timeline"] == timeline
    assert f"{timeline + 1:08X}.history" not in three.execute(replica, "ls", LOG)


def test_complete_outage_without_operator_recovers(three: ClusterUnderTest) -> None:
    """Each of them ends and starts at another time, so that some are promoted which others do not hear of."""
    three.wait_ready()
    three.annotate("paused", "true")
    three.wait_reason("ByAnnotation", "Paused")
    for _ in range(5):
        three.namespace_client.kubectl("delete", "pods", three.selector, "--timeout=120s", seconds=130)
        three.until("all are back", lambda: all_follow(three), 120)
    three.annotate("paused", None)
    three.wait_ready()
    assert int(reserved(three)) >= three.status["timeline"], "a promotion may have been cut since"
