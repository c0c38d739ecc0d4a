"""No two promotions begin a timeline with the same number, and after an outage of all instances all follow."""

from __future__ import annotations

import json
import time

import pytest

from database_support.cluster_under_test import ClusterUnderTest, writing

pytestmark = [pytest.mark.xdist_group("cluster-timelines"), pytest.mark.timeout(900)]

SYSTEM = "SELECT system_identifier FROM pg_control_system()"
LOG = "/var/lib/steersman/data/pgdata/pg_wal"


def reserved(cluster: ClusterUnderTest) -> str:
    return cluster.place.get("configmap", "orders-timelines").get("data", {}).get(cluster.sql(SYSTEM), "")


def all_follow(cluster: ClusterUnderTest) -> bool:
    return bool(cluster.primary) and cluster.sql(cluster.engine.following) == "2"


def led_last(cluster: ClusterUnderTest) -> str:
    config = cluster.place.get("configmap", "orders-config")
    history = json.loads(config["metadata"]["annotations"].get("history", "[]"))
    return history[-1][-1] if history else ""


def test_a_promotion_leaves_out_what_was_begun_elsewhere(three: ClusterUnderTest) -> None:
    """As if somebody had been promoted and was gone before the others heard of it."""
    three.wait_ready()
    former, timeline = three.primary, three.status["timeline"]
    three.place.patch("configmap", "orders-timelines", {"data": {three.sql(SYSTEM): str(timeline + 2)}})
    with writing(three, "shop-app") as seen:
        three.place.kubectl("delete", "pod", f"{former}-0", "--wait=false")
        three.until("another leads", lambda: three.primary not in ("", former), 60)
        three.wait_ready()
        assert three.status["timeline"] == timeline + 3
        assert reserved(three) == str(timeline + 3)
        three.until("all follow, who led too", lambda: all_follow(three), 60)
        # By it the operator knows who led, where nobody does any more.
        three.until("it is written down who was promoted", lambda: led_last(three) == f"{three.primary}-0", 30)
        seen.goes_on(time.time())
        assert seen.lost() == 0


def test_a_replica_comes_back_after_a_promotion_that_was_cut_off(three: ClusterUnderTest) -> None:
    three.wait_ready()
    replica, timeline = three.replicas[0], three.status["timeline"]
    for number in (timeline + 1, timeline + 2):
        three.execute(replica, "sh", "-c", f"echo '# reserved' > {LOG}/{number:08X}.history")
    three.place.kubectl("delete", "pod", f"{replica}-0", "--timeout=120s", seconds=130)
    three.wait_ready()
    three.until("all follow", lambda: all_follow(three), 60)
    assert three.status["timeline"] == timeline
    assert f"{timeline + 1:08X}.history" not in three.execute(replica, "ls", LOG)


def test_all_come_back_from_an_outage_of_all_with_nobody_to_look_after_them(three: ClusterUnderTest) -> None:
    """Each of them ends and starts at another time, so that some are promoted which others do not hear of."""
    three.wait_ready()
    three.annotate("paused", "true")
    three.wait_reason("ByAnnotation", "Paused")
    for _ in range(5):
        three.place.kubectl("delete", "pods", three.selector, "--timeout=120s", seconds=130)
        three.until("all are back", lambda: all_follow(three), 120)
    three.annotate("paused", None)
    three.wait_ready()
    assert int(reserved(three)) >= three.status["timeline"], "a promotion may have been cut since"
