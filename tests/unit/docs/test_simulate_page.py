"""The page on simulated faults does what it says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from framework_support.documented_code import DOCS, Pages
from steersman.api.apply import apps, core, meta
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Reconciler, where
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing import SimulationFailed, World, simulate

PAGE = "how-to/simulate-faults.md"


def test_simulate_page_test_passes(pages: Pages) -> None:
    pages(PAGE)("test_disks").test_a_disk_comes_through()


def test_simulation_report_matches_page(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    load = pages(PAGE)
    disks, scenario = load("disks"), load("test_disks")
    finalize = disks.add_finalizer

    async def too_late(client: Any, disk: Any, finalizer: str) -> Any:
        await cloud[-1].ensure(disk.metadata.name, disk.spec.size_gib)
        return await finalize(client, disk, finalizer)

    cloud: list[Any] = []
    monkeypatch.setattr(disks, "add_finalizer", too_late)
    with pytest.raises(SimulationFailed) as failed:
        simulate(
            disks.setup,
            scenario.life,
            kinds=[disks.Disk],
            outside=lambda: cloud.append(disks.Cloud()) or cloud[-1],
            observe=lambda made: made.disks,
        )
    expected = re.search(r'```text title="story"\n(.*?)```', (DOCS / PAGE).read_text(), re.DOTALL)
    assert expected is not None
    assert str(failed.value) == expected[1].rstrip("\n")


class WebReconciler(Reconciler[ConfigMap]):
    """Applies a Deployment, and publishes its replicas when it is ready."""

    async def reconcile(self, obj: ConfigMap) -> None:
        metadata, labels = meta.ObjectMeta(name="web", namespace="default"), {"app": "web"}
        pod = core.PodSpec(containers=[core.Container(name="web", image="web:1")])
        spec = apps.DeploymentSpec(
            selector=meta.LabelSelector(match_labels=labels),
            template=core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=labels), spec=pod),
        )
        state = await self.dependents.apply(obj, [apps.Deployment(metadata=metadata, spec=spec)])
        if state.ready:
            ready = core.ConfigMap(metadata=meta.ObjectMeta(name="ready", namespace="default"))
            await self.client.apply(ready)


def setup_web(manager: Manager) -> None:
    builder = manager.controller(ConfigMap).with_predicate(where(lambda obj: obj.metadata.name == "web"))
    builder.owns(Deployment).needs(ConfigMap, "create", "patch").complete(WebReconciler)


async def web_becomes_ready(world: World[None]) -> None:
    await world.client.create(ConfigMap(metadata=ObjectMeta(name="web", namespace="default")))
    await world.wait_until("ready", lambda: world.read(ConfigMap, ObjectKey("default", "ready")))


def test_simulate_page_actor_makes_deployments_ready(pages: Pages) -> None:
    kubelet = pages(PAGE)("kubelet").kubelet
    report = simulate(setup_web, web_becomes_ready, actors=[kubelet], random_runs=2, max_places=10)
    assert sum(report.tried.values()) == 10
