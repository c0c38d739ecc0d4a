"""Audit of deletions and of writes without effect."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from framework_support.dns_operator import DnsZone, WidgetReconciler, new_widget, scenario, setup_for
from framework_support.widget import Widget
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap, Container, Pod, PodSpec
from steersman.client import MergePatch
from steersman.controller import Request, Result
from steersman.errors import AlreadyExists, Conflict, NotFound, SteersmanError
from steersman.meta import ObjectKey, ObjectMeta, OwnerReference
from steersman_testing.simulation import SimulationFailed, World, simulate


def sweep_failure(
    reconciler: type[WidgetReconciler], play: object = scenario, **settings: object
) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as failed:
        simulate(setup_for(reconciler), play, outside=DnsZone, kinds=[Widget], random_runs=0, **settings)  # type: ignore[arg-type]
    return failed.value


class DeletesCollection(WidgetReconciler):
    async def apply_config_map(self, widget: Widget) -> None:
        try:
            await super().apply_config_map(widget)
        except Conflict:
            await self.client.live.delete_collection(ConfigMap, namespace="default")
            raise


def test_a_collection_that_should_live() -> None:
    found = sweep_failure(DeletesCollection)
    text = "DELETECOLLECTION configmaps default deletes configmaps default/a: it survives without faults"
    assert found.problems == (text,)


POD_KEY = ObjectKey("default", "mate")


class EvictsPod(WidgetReconciler):
    async def apply_config_map(self, widget: Widget) -> None:
        try:
            await super().apply_config_map(widget)
        except Conflict:
            with suppress(NotFound):
                await self.client.live.evict(POD_KEY)
            raise


async def scenario_with_pod(world: World[DnsZone]) -> None:
    container = Container(name="orders", image="orders:1", image_pull_policy="Always")
    metadata = ObjectMeta(name=POD_KEY.name, namespace=POD_KEY.namespace)
    await world.client.create(Pod(metadata=metadata, spec=PodSpec(containers=(container,))))
    await scenario(world)


def test_an_eviction() -> None:
    found = sweep_failure(EvictsPod, scenario_with_pod)
    assert "CREATE pods default/mate eviction deletes pods default/mate: it survives without faults" in found.problems


class GeneratesNames(WidgetReconciler):
    """Creates objects with generated names and deletes duplicates."""

    async def apply_config_map(self, widget: Widget) -> None:
        config_maps = [
            c for c in (await self.client.live.list(ConfigMap, namespace="default")).items if is_generated(c)
        ]
        if not config_maps:
            mine = (owner_reference_to(widget),)
            metadata = ObjectMeta(generate_name="map-", namespace="default", owner_references=mine)
            await self.client.create(ConfigMap(metadata=metadata))
        for chart in config_maps[1:]:
            await self.client.delete(ConfigMap, chart.key, uid=chart.metadata.uid)


class RecreatesOnConflict(GeneratesNames):
    """Recreates the object after a conflict."""

    async def reconcile(self, request: Request) -> Result:
        try:
            return await super().reconcile(request)
        except SteersmanError:
            for chart in (await self.client.live.list(ConfigMap, namespace="default")).items:
                if is_generated(chart):
                    await self.client.delete(ConfigMap, chart.key)
            raise


def is_generated(found: ConfigMap) -> bool:
    return found.metadata.generate_name == "map-"


def owner_reference_to(widget: Widget) -> OwnerReference:
    names = Widget.api_resource
    return OwnerReference(
        api_version=names.api_version, kind=names.kind, name=widget.key.name, uid=widget.metadata.uid, controller=True
    )


def test_names_that_chance_gave_raise_no_alarm() -> None:
    simulate(setup_for(GeneratesNames), scenario, outside=DnsZone, kinds=[Widget], random_runs=5, max_places=30)


def test_the_only_one_of_a_generated_name_lives() -> None:
    found = sweep_failure(RecreatesOnConflict)
    assert any(line.startswith("DELETE configmaps default/map-") for line in found.problems)


class WritesLeaseDuringApply(WidgetReconciler):
    """Applies an unchanged object and writes a Lease at the same time."""

    async def apply_config_map(self, widget: Widget) -> None:
        await super().apply_config_map(widget)
        same = MergePatch({"data": {"depth": str(widget.spec.depth)}})
        await asyncio.gather(
            self.client.live.patch(ConfigMap, widget.key, same),
            self.client.live.patch(
                Lease, LEASE_KEY, MergePatch({"spec": {"holderIdentity": str(self.runtime.clock.now())}})
            ),
        )


LEASE_KEY = ObjectKey("default", "log")


async def scenario_with_lease(world: World[DnsZone]) -> None:
    await world.client.create(new_widget())


def test_foreign_change_is_not_a_needless_write() -> None:
    log = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "log"}}
    simulate(
        setup_for(WritesLeaseDuringApply),
        scenario_with_lease,
        outside=DnsZone,
        kinds=[Widget],
        manifests=[log],
        random_runs=0,
        max_places=0,
    )


class UsesHelperObject(WidgetReconciler):
    """Creates a temporary WebApp for each measurement."""

    async def apply_config_map(self, widget: Widget) -> None:
        if await self.client.get_or_none(ConfigMap, widget.key) is not None:
            return
        helper = ObjectKey("default", "webapp")
        with suppress(AlreadyExists):
            await self.client.create(ConfigMap(metadata=ObjectMeta(name=helper.name, namespace=helper.namespace)))
        await self.client.delete(ConfigMap, helper)
        await super().apply_config_map(widget)


def test_deletion_not_repeated_after_crash_is_accepted() -> None:
    # The restarted process does not know the WebApp.
    simulate(
        setup_for(UsesHelperObject), scenario_with_lease, outside=DnsZone, kinds=[Widget], replay="crash-after:4"
    )


class DeletesAllDuplicates(GeneratesNames):
    """Deletes all duplicates. A finalizer delays the deletions."""

    async def apply_config_map(self, widget: Widget) -> None:
        config_maps = [
            c for c in (await self.client.live.list(ConfigMap, namespace="default")).items if is_generated(c)
        ]
        if len(config_maps) == 1:
            return
        for chart in config_maps:
            await self.client.delete(ConfigMap, chart.key)
        for chart in config_maps:
            await self.client.patch(ConfigMap, chart.key, MergePatch({"metadata": {"finalizers": None}}))
        metadata = ObjectMeta(
            generate_name="map-",
            namespace="default",
            owner_references=(owner_reference_to(widget),),
            finalizers=("shop.example.com/dry",),
        )
        await self.client.create(ConfigMap(metadata=metadata))


def test_extra_deletion_does_not_excuse_other_change() -> None:
    found = sweep_failure(DeletesAllDuplicates, scenario_with_lease)
    assert found.plan.faults[0].kind == "delayed-write"
    assert len(found.problems) == 1
    assert found.problems[0].startswith("DELETE configmaps default/map-")
