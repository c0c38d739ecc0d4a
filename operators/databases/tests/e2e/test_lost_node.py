"""A node does not come back: somebody says so, and the instance that was on it is made elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from database_support.cluster_engines import EACH
from database_support.cluster_under_test import ClusterUnderTest, writing
from database_support.lost_nodes import cut_off, primary_alone

pytestmark = [pytest.mark.xdist_group("lost-node"), pytest.mark.disruptive, pytest.mark.timeout(1500), EACH]

Record = Callable[[str, object], None]
LOST = "node.kubernetes.io/out-of-service"


def test_it_is_given_up_when_somebody_says_so(three: ClusterUnderTest, record_property: Record) -> None:
    target = three.place.target
    if not target.is_devcluster:
        pytest.skip("takes nodes of the devcluster away")
    node, other = primary_alone(three)
    lost = three.primary
    with writing(three, "shop-app", on=other) as seen:
        with cut_off(node):
            with three.place.telling(three.name, "InstanceNotReady"):
                three.until("another leads", lambda: three.leader not in ("", lost), 90)
                wait = ("wait", f"node/{node}", "--for=condition=Ready=Unknown", "--timeout=120s")
                target.kubectl(*wait, seconds=130)
                three.wait_reason("InstanceNotReady", seconds=400)
            assert three.place.get("statefulset", lost), "it might come back"

            with three.place.telling(three.name, ("InstanceReplaced", f"{lost} is replaced: its node is gone")):
                target.kubectl("taint", "node", node, f"{LOST}=nodeshutdown:NoExecute")
                began = time.time()
                try:
                    three.until("it is given up", lambda: not three.place.get("statefulset", lost), 400)
                    three.wait_ready(seconds=500)
                    record_property("seconds until another is ready in its place", round(time.time() - began))
                    # A pod of a node that is out of service is collected by Kubernetes, which looks every 20 s.
                    three.until("its pod is gone", lambda: lost not in three.nodes(), 60)
                    assert node not in three.nodes().values()
                    seen.goes_on(time.time())
                finally:
                    target.kubectl("taint", "node", node, f"{LOST}-")
        # What it had is nobody's any more.
        three.until("its claim is gone", lambda: not three.place.get("pvc", f"data-{lost}"), 120)
        three.wait_ready(seconds=300)
        seen.goes_on(time.time())
        assert seen.lost() == 0
