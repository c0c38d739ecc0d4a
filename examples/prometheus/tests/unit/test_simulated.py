"""Prometheus under crashes, lost responses and delayed watches."""

from __future__ import annotations

from typing import Any

from steersman import ManagerOptions, MergePatch, ObjectKey, ObjectMeta, find_condition
from steersman.api.core_v1 import ServiceAccount
from steersman_testing import World, simulate

from monitoring_harness import KEY
from monitoring_objects import prometheus, rule, service_monitor
from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.controllers.prometheus import PrometheusReconciler
from server_kubelet import FakeKubelet
from server_model import ModelServers

MonitoringSimulation = World[ModelServers]


async def fake_kubelet(world: MonitoringSimulation) -> None:
    """Run the pods and their servers."""

    async def read(kind: type[Any]) -> Any:
        return world.read_all(kind)

    kubelet = FakeKubelet(world.client, read, world.outside)
    while True:
        await kubelet.reconcile_pods()
        await world.sleep(1)


def reconciled_revision(world: MonitoringSimulation) -> str:
    """Return the revision that Reconciled claims to run, or an empty string."""
    found = world.read(Prometheus, KEY)
    condition = find_condition(found.status.conditions, "Reconciled") if found else None
    if found is None or condition is None or condition.status != "True":
        return ""
    if condition.observed_generation != found.metadata.generation:
        return ""
    return (condition.message or "").partition("revision ")[2][:16]


def are_all_loaded(world: MonitoringSimulation, *names: str) -> bool:
    texts = world.outside.texts.values()
    return bool(texts) and all(f"/default/{name}/0" in text for text in texts for name in names)


async def scenario(world: MonitoringSimulation) -> None:
    """Create, extend, break, repair and delete."""
    account = ServiceAccount(metadata=ObjectMeta(name="default", namespace="default"))
    await world.client.create(account)
    await world.client.create(service_monitor("one"))
    await world.client.create(prometheus(replicas=2))
    await world.wait_until("one is loaded", lambda: are_all_loaded(world, "one") and reconciled_revision(world))
    await world.client.create(service_monitor("two", {"interval": "5s", "scrapeTimeout": "9s"}))
    await world.client.create(rule())
    await world.settle_after_faults()
    assert not are_all_loaded(world, "two")
    fixed = {"spec": {"endpoints": [{"port": "web"}]}}
    await world.client.patch(ServiceMonitor, ObjectKey("default", "two"), MergePatch(fixed))
    await world.wait_until("two is loaded", lambda: are_all_loaded(world, "one", "two"))
    await world.settle_after_faults()
    await world.client.delete(PrometheusRule, ObjectKey("default", "alerts"))
    await world.client.delete(ServiceMonitor, ObjectKey("default", "one"))
    await world.wait_until("one is removed", lambda: not are_all_loaded(world, "one") and reconciled_revision(world))
    await world.settle_after_faults()


def observe_servers(servers: ModelServers) -> dict[str, Any]:
    """Return the state that does not depend on the order of events."""
    return {"revisions": sorted(servers.revisions), "texts": sorted(set(servers.texts.values()))}


def reconciled_is_true_only_for_loaded_revision(world: MonitoringSimulation) -> None:
    """Check that Reconciled never claims a revision that no server has loaded."""
    claimed = reconciled_revision(world)
    loaded = world.outside.loaded
    assert not claimed or claimed in loaded, f"claimed {claimed}, loaded {sorted(loaded)}"


def normalize(obj: dict[str, Any]) -> dict[str, Any]:
    """Remove addresses and times, which differ between runs."""
    if obj["kind"] == "Pod":
        return obj | {"status": {}, "metadata": {"name": obj["metadata"]["name"]}}
    return obj


def test_simulated_faults_are_recovered() -> None:
    report = simulate(
        PrometheusReconciler.setup_with_manager,
        scenario,
        outside=ModelServers,
        observe=observe_servers,
        kinds=[Prometheus, ServiceMonitor, PodMonitor, PrometheusRule],
        actors=[fake_kubelet],
        invariants=[reconciled_is_true_only_for_loaded_revision],
        options=ManagerOptions(name="monitoring-operator"),
        adjust=normalize,
        random_runs=1,
        max_places=4,
    )
    assert sum(report.tried.values()) >= 4
