"""CPU and memory of running servers change without a restart, and memory shrinks by a rolling update."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EACH_ENGINE, EngineCommands
from steersman.meta import Quantity

pytestmark = [pytest.mark.xdist_group("resize"), pytest.mark.timeout(900)]

Record = Callable[[str, object], None]
FOLLOWING = {"postgresqlcluster": "effective_cache_size", "mysqlcluster": "temptable_max_ram"}
"""A parameter by kind that follows the memory limit while the server runs."""
MEMORY_LIMIT = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"


def spec_with(of: EngineCommands, resources: dict[str, Any], instances: int) -> dict[str, Any]:
    """A spec whose parameters for memory follow from the resources."""
    spec = copy.deepcopy(dict(of.small))
    for name in ("shared_buffers", "innodb_buffer_pool_size", "temptable_max_ram"):
        spec[of.settings]["parameters"].pop(name, None)
    spec[of.settings]["sizing"] = "FromResources"
    return {**spec, "instances": instances, "resources": resources}


def resources(memory: int, cpu: str) -> dict[str, Any]:
    """Requests and limits, with memory in MiB."""
    requests = {"cpu": "50m" if cpu == "1" else "60m", "memory": f"{memory // 4}Mi"}
    return {"requests": requests, "limits": {"cpu": cpu, "memory": f"{memory}Mi"}}


@EACH_ENGINE
def test_resources_grow_without_restart(place: NamespaceClient, of: EngineCommands, record_property: Record) -> None:
    small = int(Quantity(of.small["resources"]["limits"]["memory"]).value) >> 20
    orders = ClusterUnderTest(place, spec=spec_with(of, resources(small, "1"), 2), engine=of)
    orders.apply()
    place.apply("Database", "shop", orders.reference(deletionPolicy="Delete"))
    orders.wait_ready()
    place.wait_reason("database", "shop", "DatabaseReady")
    parameter = FOLLOWING[orders.kind]
    pods, processes, values = orders.pods(), orders.processes(), orders.server_values(parameter)
    with writing(orders, "shop-app") as seen:
        orders.apply(resources=resources(small + 256, "2"))
        orders.until("resized", lambda: len(place.events("orders", "PodResized")) == 2, 120)
        orders.wait_ready()
        orders.until("followed", lambda: not orders.server_values(parameter) & values, 120)
        seen.wait_for_writes(seen.acknowledged[-1].moment)
        assert seen.lost_rows() == 0 and not seen.errors, "a connection was lost"
        record_property("longest gap", seen.longest_gap)
    assert (orders.pods(), orders.processes()) == (pods, processes), "a server was restarted"
    for instance in orders.nodes():
        assert int(orders.execute(instance, "sh", "-c", MEMORY_LIMIT)) == (small + 256) << 20
        assert orders.pod(instance)["status"]["containerStatuses"][-1]["resources"]["limits"]["cpu"] == "2"
    assert not place.events("orders", "Restarted")


def test_memory_shrinks_by_rolling_update(place: NamespaceClient, of: EngineCommands) -> None:
    orders = ClusterUnderTest(place, spec=spec_with(of, resources(768, "1"), 2), engine=of)
    orders.apply()
    orders.wait_ready()
    before = orders.pods()
    orders.apply(resources=resources(512, "1"))
    orders.until("recreated", lambda: not set(map(str, orders.pods().values())) & set(map(str, before.values())))
    orders.wait_ready()
    assert all("its memory limit becomes lower" in message for message in place.events("orders", "Restarted"))
    assert not place.events("orders", "PodResized")


def test_impossible_request_leaves_primary_running(place: NamespaceClient, of: EngineCommands) -> None:
    spec = spec_with(of, resources(512, "1"), 2)
    # Sized by the CPU limit, it would restart the servers.
    spec["postgresql"]["parameters"]["max_worker_processes"] = "8"
    orders = ClusterUnderTest(place, spec=spec, engine=of)
    orders.apply()
    orders.wait_ready()
    before, primary = orders.pods(), orders.primary
    orders.apply(resources={"requests": {"cpu": "64", "memory": "128Mi"}, "limits": {"memory": "512Mi", "cpu": "64"}})
    orders.wait_reason("Unschedulable")
    messages = place.events("orders", "Restarted")
    assert messages and all("allocatable" in message for message in messages)
    assert orders.primary == primary and orders.pods()[f"{primary}-0"] == before[f"{primary}-0"]
    orders.apply(resources=resources(512, "1"))
    orders.wait_ready()
    assert orders.primary == primary and orders.pods()[f"{primary}-0"] == before[f"{primary}-0"]


def test_deferred_request_is_reported(place: NamespaceClient, of: EngineCommands) -> None:
    """The only node of its volume has the CPUs, but not free ones."""
    orders = ClusterUnderTest(place, spec=spec_with(of, resources(512, "1"), 1), engine=of)
    orders.apply()
    orders.wait_ready()
    before = orders.pods()
    node = place.target.get("node", orders.pod("orders-0")["spec"]["nodeName"]) or {}
    cpus = Quantity(node["status"]["allocatable"]["cpu"]).value
    all_but_little = f"{int(cpus * 1000) - 20}m"
    orders.apply(
        resources={
            "requests": {"cpu": all_but_little, "memory": "128Mi"},
            "limits": {"memory": "512Mi", "cpu": str(int(cpus))},
        }
    )
    orders.until("deferred", lambda: "Deferred" in place.condition(orders.kind, "orders").get("message", ""), 60)
    orders.apply(resources=resources(512, "1"))
    orders.wait_ready()
    assert orders.pods() == before


def test_quota_refuses_resize_and_recreates_nothing(place: NamespaceClient, of: EngineCommands) -> None:
    orders = ClusterUnderTest(place, spec=spec_with(of, resources(512, "1"), 2), engine=of)
    orders.apply()
    orders.wait_ready()
    before = orders.pods()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "memory"}}
    place.create({**quota, "spec": {"hard": {"limits.memory": "2Gi"}}})
    orders.until("counted", lambda: place.get("resourcequota", "memory").get("status", {}).get("used"), 60)
    orders.apply(resources=resources(1024, "1"))
    orders.wait_reason("PodRejected")
    assert "exceeded quota" in place.condition(orders.kind, "orders")["message"]
    place.create({**quota, "spec": {"hard": {"limits.memory": "8Gi"}}})
    orders.wait_ready()
    assert orders.pods() == before
    assert len(place.events("orders", "PodResized")) == 2
