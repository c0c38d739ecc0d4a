"""The PodMonitor of a cluster, its NetworkPolicy, and the operator's metrics about it."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from database_support.unit.cluster_harness import KEY, ClusterHarness
from steersman.api.networking_v1 import NetworkPolicy
from steersman.meta import FrozenDict
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.cluster_common import MonitoringSettings, PodMonitorSettings
from steersman_databases.features.monitoring.cluster_metrics import FAMILIES, cluster_metrics
from steersman_databases.features.monitoring.specs import PodMonitor
from steersman_testing import virtual_time

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {
            "kind": "PodMonitor",
            "listKind": "PodMonitorList",
            "plural": "podmonitors",
            "singular": "podmonitor",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}
ENABLED = MonitoringSettings(pod_monitor=PodMonitorSettings(enabled=True, labels=FrozenDict({"team": "one"})))


def pod_monitor(world: ClusterHarness) -> dict[str, Any] | None:
    found = world.server.read(PodMonitor, KEY)
    return None if found is None else dict(found.content)


@virtual_time
async def test_pod_monitor_follows_declaration_and_crd() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, monitoring=ENABLED)
        assert world.server.read(PodMonitor, KEY) is None, "the kind is not served"
        world.server.load(CRD)
        await world.until("created", lambda: pod_monitor(world) is not None)
        found = pod_monitor(world)
        assert found is not None
        [endpoint] = found["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["scheme"], endpoint["interval"]) == ("metrics", "https", "30s")
        assert endpoint["tlsConfig"]["serverName"] == "orders-rw.default.svc"
        assert found["metadata"]["labels"]["team"] == "one"
        await world.change(monitoring={"podMonitor": {"interval": "5s"}})
        await world.until("changed", lambda: interval(world) == "5s")
        await world.change(monitoring={"podMonitor": {"enabled": False}})
        await world.until("deleted", lambda: pod_monitor(world) is None)


def interval(world: ClusterHarness) -> str:
    found = pod_monitor(world)
    assert found is not None
    return found["spec"]["podMetricsEndpoints"][0]["interval"]


@virtual_time
async def test_pod_monitor_of_others_is_left_alone() -> None:
    world = ClusterHarness()
    world.server.load(CRD)
    own: dict[str, Any] = {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": {"selector": {}}}
    await world.client.apply(PodMonitor.of(own))
    async with world.operator():
        await world.create(instances=1, monitoring=ENABLED)
        await world.until("reported", lambda: "PodMonitor orders exists" in world.message("Ready"))
        found = pod_monitor(world)
        assert found is not None and found["spec"] == {"selector": {}}


@virtual_time
async def test_network_policy_admits_metrics_port() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        policy = world.server.read(NetworkPolicy, KEY)
        assert policy is not None
        first = policy.spec.ingress[0]
        assert [port.port for port in first.ports] == [5432, 9187]
        assert not first.from_


@virtual_time
async def test_operator_metrics_show_cluster_until_deleted() -> None:
    world = ClusterHarness()
    labels = 'dbcluster="orders",kind="PostgreSQLCluster",namespace="default"'
    member = labels.replace("namespace", 'member="orders-0",namespace')
    phase = f'steersman_cluster_phase{{{labels},phase="Ready"}} 1.0'
    async with world.operator() as manager:
        registry = CollectorRegistry()
        registry.register(cluster_metrics(manager.metrics_registry))

        def page() -> str:
            return generate_latest(registry).decode()

        await world.create_ready(1, instances=1, monitoring=MonitoringSettings(disabled_alerts=("VolumeFull",)))
        found = page()
        for line in (
            f"steersman_cluster_instances{{{labels}}} 1.0",
            f"steersman_cluster_ready_instances{{{labels}}} 1.0",
            f"steersman_cluster_member_ready{{{member}}} 1.0",
            f"steersman_cluster_member_primary{{{member}}} 1.0",
            phase,
        ):
            assert line in found
        assert 'type="Ready"} 1.0' in found
        assert 'steersman_alert_disabled{alert="VolumeFull"' in found
        assert all(f"# TYPE {name} gauge" in found for name in FAMILIES)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("forgotten", lambda: labels not in page())
