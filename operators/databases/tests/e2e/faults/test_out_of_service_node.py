"""A node does not come back: somebody says so, and the instance that was on it is made elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.engines import EACH_ENGINE
from database_support.nodes.lost_nodes import isolated, primary_alone

pytestmark = [pytest.mark.xdist_group("lost-node"), pytest.mark.disruptive, pytest.mark.timeout(1500), EACH_ENGINE]

Record = Callable[[str, object], None]
LOST = "node.kubernetes.io/out-of-service"


@pytest.mark.requirement("overview/level-5-recovery")
def test_out_of_service_node_instance_is_replaced(three: ClusterUnderTest, record_property: Record) -> None:
    target = three.namespace_client.target
    if not target.is_devcluster:
        pytest.skip("takes nodes of the devcluster away")
    node, other = primary_alone(three)
    lost = three.primary
    with writing(three, "shop-app", on=other) as seen:
        with isolated(node):
            with three.namespace_client.expecting_events(three.name, "InstanceNotReady"):
                three.until("another leads", lambda: three.leader not in ("", lost), 90)
                wait = ("wait", f"node/{node}", "--for=condition=Ready=Unknown", "--timeout=120s")
                target.kubectl(*wait, seconds=130)
                three.wait_reason("InstanceNotReady", seconds=400)
            assert three.namespace_client.get("statefulset", lost), "it might come back"

            with three.namespace_client.expecting_events(
                three.name, ("InstanceReplaced", f"replacing instance {lost}: its node is lost")
            ):
                target.kubectl("taint", "node", node, f"{LOST}=nodeshutdown:NoExecute")
                began = time.time()
                try:
                    three.until("it is given up", lambda: not three.namespace_client.get("statefulset", lost), 400)
                    three.wait_ready(seconds=500)
                    record_property("seconds until another is ready in its place", round(time.time() - began))
                    # A pod of a node that is out of service is collected by Kubernetes, which looks every 20 s.
                    three.until("its pod is gone", lambda: lost not in three.nodes(), 60)
                    assert node not in three.nodes().values()
                    seen.wait_for_writes(time.time())
                finally:
                    target.kubectl("taint", "node", node, f"{LOST}-")
        # What it had is nobody's any more.
        three.until("its claim is gone", lambda: not three.namespace_client.get("pvc", f"data-{lost}"), 120)
        three.wait_ready(seconds=300)
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
