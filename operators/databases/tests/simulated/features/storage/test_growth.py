"""Volumes of clusters grow by themselves: in time, within limits, whatever else is broken. In virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from database_support.unit.filling_volumes import FillingVolumes, FixedRetention
from database_support.unit.group_harness import GroupHarness
from steersman.api.apply import meta, storage
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.client import MergePatch
from steersman.errors import ApiStatus, error_from_status
from steersman.manager import Manager
from steersman.meta import Duration, Quantity
from steersman_databases.api.autopilot.automation import AutogrowSettings, AutomationMode
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.features.storage.usage import GROWN
from steersman_databases.setup import setup
from steersman_instance.volumes.wal_retention import Retainer
from steersman_testing import matching, run_virtual, virtual_time

GIB = 1 << 30
WORLDS = pytest.mark.parametrize("make", [ClusterHarness, GroupHarness])
PATCHES_PVCS = matching("PATCH", "/persistentvolumeclaims/")


def growing(size: str = "10Gi", maximum: str = "100Gi", **settings: Any) -> VolumeSettings:
    """Volumes that grow automatically."""
    return VolumeSettings(size=Quantity(size), autogrow=AutogrowSettings(max_size=Quantity(maximum), **settings))


@asynccontextmanager
async def cluster_of(
    world: ClusterHarness, instances: int = 2, volumes: FillingVolumes | None = None, **spec: Any
) -> AsyncGenerator[FillingVolumes]:
    """A ready cluster and its volumes."""
    found = volumes or FillingVolumes(world)
    async with world.operator():
        filling = asyncio.create_task(found.run())
        try:
            await world.create_ready(instances, instances=instances, **{"storage": growing(), **spec})
            await world.until("reported", lambda: world.condition("AutogrowReady") == "True/Idle")
            yield found
        finally:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)
            if filling.done() and not filling.cancelled():
                filling.result()


@WORLDS
@pytest.mark.parametrize("percent_per_second", [0.05, 0.2, 2.0])
def test_filling_volume_refuses_no_write(make: type[ClusterHarness], percent_per_second: float) -> None:
    async def story() -> None:
        world = make()
        async with cluster_of(world) as volumes:
            uids = world.uids()
            for name in world.pvc_names():
                volumes.fill(name, 70)
                volumes.rates[name] = percent_per_second / 100 * 10 * GIB
            await world.until("grown", lambda: min(map(Quantity, volumes.sizes())) > Quantity("14Gi"), 2000)
            volumes.rates.clear()
            assert not volumes.refused
            assert len(set(volumes.sizes())) == 1, "all volumes grow alike"
            await world.ready(2)
            await world.until("complete", lambda: world.condition("VolumesResized") == "True/SizeMatches")
            assert world.uids() == uids, "no pod was restarted"
            messages = world.messages("VolumeGrown")
            assert any(" % used" in message and "grew from 10Gi to" in message for message in messages)
            assert world.cluster.spec.storage.size == Quantity("10Gi")

    run_virtual(story())


@virtual_time
async def test_growth_is_shown_and_survives_lost_status() -> None:
    world = ClusterHarness()
    async with cluster_of(world) as volumes:
        volumes.fill("data-orders-1", 85.5)
        await world.until("grown", lambda: volumes.sizes() == ["12Gi", "12Gi"])
        await world.until("shown", lambda: world.status.automation and world.status.automation[0].last_action)
        (shown,) = world.status.automation
        assert (shown.name, shown.mode) == ("Storage", "Automatic")
        assert shown.last_action == "PVC data-orders-1 grew from 10Gi to 12Gi: 85 % used"
        assert shown.last_action_time is not None
        await world.client.patch(world.kind, NAMES.key, MergePatch({"status": None}), subresource="status")
        await world.until("shown", lambda: world.status and world.status.automation)
        assert world.status.automation[0].last_action_time == shown.last_action_time


@virtual_time
async def test_second_growth_waits_for_cooldown() -> None:
    world = ClusterHarness()
    async with cluster_of(world, storage=growing(cooldown=Duration("10m"))) as volumes:
        volumes.fill("data-orders-0", 85)
        await world.until("grown", lambda: volumes.sizes() == ["12Gi", "12Gi"])
        await world.until("complete", lambda: world.condition("AutogrowReady") == "True/Idle")
        volumes.fill("data-orders-0", 85)
        await world.until("waiting", lambda: world.condition("AutogrowReady") == "True/CoolingDown")
        assert "The cooldown ends at" in world.message("AutogrowReady")
        assert world.status.automation[0].next_action_time is not None
        await world.wait(300)
        assert volumes.sizes() == ["12Gi", "12Gi"]
        await world.until("grown again", lambda: volumes.sizes() == ["15Gi", "15Gi"], 400)
        await world.until("complete", lambda: world.condition("AutogrowReady") == "True/Idle")
        volumes.fill("data-orders-0", 96)
        await world.until("emergency", lambda: volumes.sizes() == ["18Gi", "18Gi"], 60)


@virtual_time
async def test_growth_ends_at_max_size() -> None:
    world = ClusterHarness()
    async with cluster_of(world, storage=growing(maximum="11Gi")) as volumes:
        volumes.fill("data-orders-0", 99)
        await world.until("grown", lambda: volumes.sizes() == ["11Gi", "11Gi"])
        volumes.fill("data-orders-0", 90)
        await world.until("reported", lambda: world.condition("AutogrowReady") == "False/AtMaxSize")
        assert "maxSize is 11Gi. Raise autogrow.maxSize, or delete data" in world.message("AutogrowReady")
        assert world.warnings("AtMaxSize")
        await world.wait(120)
        assert volumes.sizes() == ["11Gi", "11Gi"]
        await world.ready(2)


@virtual_time
async def test_class_without_expansion_is_reported_before_it_matters() -> None:
    world = ClusterHarness()
    config = storage.StorageClass(metadata=meta.ObjectMeta(name="rigid"), provisioner="example.com/disk")
    await world.client.apply(config)
    settings = growing().autogrow
    spec = VolumeSettings(size=Quantity("10Gi"), storage_class="rigid", autogrow=settings)
    volumes = FillingVolumes(world)
    async with world.operator():
        filling = asyncio.create_task(volumes.run())
        await world.create(instances=1, storage=spec)
        await world.until("reported", lambda: world.condition("AutogrowReady") == "False/NotExpandable")
        assert "StorageClass rigid of PVC data-orders-0 does not allow" in world.message("AutogrowReady")
        await world.ready(1)
        body = MergePatch({"allowVolumeExpansion": True})
        kind = storage.StorageClass.read_type
        await world.client.patch(kind, config.key, body)
        await world.until("corrected", lambda: world.condition("AutogrowReady") == "True/Idle", 120)
        filling.cancel()


@virtual_time
async def test_refusal_by_quota_is_reported() -> None:
    world = ClusterHarness()
    words = 'persistentvolumeclaims "data-orders-0" is forbidden: exceeded quota: disks, requested: '
    words += "requests.storage=2Gi, used: requests.storage=20Gi, limited: requests.storage=20Gi"
    refused = error_from_status(ApiStatus(message=words, reason="Forbidden", code=403))
    permitted = False
    async with cluster_of(world) as volumes:
        world.server.fail_next(lambda r: not permitted and PATCHES_PVCS(r), refused, times=10**6)
        volumes.fill("data-orders-0", 85)
        await world.until("reported", lambda: world.condition("AutogrowReady") == "False/QuotaExceeded")
        assert "exceeded quota: disks" in world.message("AutogrowReady")
        assert world.message("AutogrowReady").endswith("Raise the ResourceQuota of the namespace")
        assert world.warnings("QuotaExceeded")
        await world.ready(2)
        permitted = True
        await world.until("grown", lambda: volumes.sizes() == ["12Gi", "12Gi"], 60)


@virtual_time
async def test_failed_resize_is_reported_and_not_repeated() -> None:
    world = ClusterHarness()
    async with cluster_of(world) as volumes:
        volumes.resize_seconds, volumes.resize_error = None, "the backend has no space"
        volumes.fill("data-orders-0", 97)
        await world.until("reported", lambda: world.condition("AutogrowReady") == "False/ResizeIncomplete")
        assert "the backend has no space" in world.message("AutogrowReady")
        await world.wait(900)
        assert set(volumes.sizes()) == {"13Gi"}
        volumes.resize_seconds = 4
        await world.until("corrected", lambda: world.condition("AutogrowReady") == "True/Idle", 60)


@virtual_time
async def test_file_system_that_does_not_grow_is_reported() -> None:
    """Change the capacity only, like a driver that uses a directory of the node."""
    world = ClusterHarness()
    async with cluster_of(world, instances=1) as volumes:
        volumes.rates.clear()
        report = json.dumps({"data": {"size": 10 * GIB, "available": GIB}})

        async def tell() -> None:
            body = MergePatch({"metadata": {"annotations": {"databases.steersman.dev/volumes": report}}})
            await world.client.patch(Pod, NAMES.pod(0), body)

        for _ in range(20):
            await tell()
            await world.wait(30)
        await tell()
        await world.until("reported", lambda: world.condition("AutogrowReady") == "False/ResizeIncomplete", 20)
        assert volumes.sizes() == ["12Gi"], "it grew once"


@virtual_time
async def test_cluster_that_is_down_grows() -> None:
    """No server runs, and the reconcile is blocked."""
    world = ClusterHarness()
    async with cluster_of(world, instances=1) as volumes:
        await world.change(services={"additional": [{"name": "orders-rw", "role": "rw"}]})
        world.hosts.is_silent = True
        crashed = json.dumps({"role": "replica", "state": "crashed"})
        body = MergePatch({"metadata": {"annotations": {"status": crashed}}})
        await world.client.patch(Pod, NAMES.pod(0), body)
        await world.until("down", lambda: world.condition("Available") == "False/FailingOver")
        assert world.condition("Ready") == "False/NameConflict"
        volumes.fill("data-orders-0", 100)
        await world.until("grown", lambda: volumes.sizes() == ["13Gi"], 30)
        assert world.condition("Ready") == "False/NameConflict"


@virtual_time
async def test_paused_cluster_does_not_grow() -> None:
    world = ClusterHarness()
    async with cluster_of(world, instances=1) as volumes:
        await world.annotate(paused="true")
        volumes.fill("data-orders-0", 100)
        await world.wait(120)
        assert volumes.sizes() == ["10Gi"]
        await world.annotate(paused=None)
        await world.until("grown", lambda: volumes.sizes() == ["13Gi"], 30)


@virtual_time
async def test_recommended_growth_is_not_made() -> None:
    world = ClusterHarness()
    async with cluster_of(world, instances=1, storage=growing(mode="Recommend")) as volumes:
        volumes.fill("data-orders-0", 90.5)
        await world.until("reported", lambda: world.condition("AutogrowReady") == "False/Recommended")
        assert "90 % used. Recommended size: 12Gi" in world.message("AutogrowReady")
        await world.wait(120)
        assert volumes.sizes() == ["10Gi"]


@pytest.mark.parametrize("mode", ["Disabled", "Recommend"])
def test_flag_limits_all_clusters(mode: AutomationMode) -> None:
    class Limited(ClusterHarness):
        def setup(self, manager: Manager) -> None:
            factory = self.engine_parts
            setup(manager, sql_engine_for=self.sql_engine, postgresql_factory=factory, automation=mode)

    async def story() -> None:
        world = Limited()
        volumes = FillingVolumes(world)
        async with world.operator():
            filling = asyncio.create_task(volumes.run())
            await world.create_ready(1, instances=1, storage=growing())
            volumes.fill("data-orders-0", 100)
            await world.wait(120)
            assert volumes.sizes() == ["10Gi"]
            (shown,) = world.status.automation
            assert shown.mode == mode
            if mode == "Disabled":
                assert shown.message == "disabled by the flag --automation of the operator"
                assert world.condition("AutogrowReady") == ""
            filling.cancel()

    run_virtual(story())


@virtual_time
async def test_wal_volume_names_cause_before_it_grows() -> None:
    world = ClusterHarness()
    volumes = FillingVolumes(world, retention=FixedRetention(Retainer("replication slot audit", 3 * GIB)))
    async with cluster_of(world, volumes=volumes, instances=1, wal_storage=growing("5Gi", cooldown=Duration("1m"))):
        conditions = list[str]()

        def has_grown() -> bool:
            conditions.append(world.message("AutogrowReady"))
            return volumes.sizes("wal") != ["5Gi"]

        volumes.fill("wal-orders-0", 85)
        await world.until("grown", has_grown, 60)
        assert "replication slot audit retains 3.0 GiB WAL" in conditions[-2], "it was named before"
        assert volumes.sizes() == ["10Gi"], "the data volume does not grow"
        await world.until("idle", lambda: world.condition("AutogrowReady") == "True/Idle", 60)
        await world.wait(60)
        volumes.fill("wal-orders-0", 85)
        await world.until("reported", lambda: world.condition("AutogrowReady") == "False/WALRetained", 60)
        await world.wait(120)
        assert volumes.sizes("wal") == ["6Gi"], "it grew once for this cause"
        volumes.fill("wal-orders-0", 97)
        await world.until("emergency", lambda: volumes.sizes("wal") != ["6Gi"], 60)


@virtual_time
async def test_new_instance_has_size_of_others_without_autogrow() -> None:
    world = ClusterHarness()
    async with cluster_of(world, instances=1) as volumes:
        volumes.fill("data-orders-0", 90)
        await world.until("grown", lambda: volumes.sizes() == ["12Gi"])
        await world.change(storage={"autogrow": None})
        await world.change(instances=2)
        await world.ready(2)
        assert volumes.sizes() == ["12Gi", "12Gi"]
        pvc = world.server.read(PersistentVolumeClaim, NAMES.data_pvc(1))
        assert pvc is not None and GROWN in pvc.metadata.annotations
        assert world.condition("AutogrowReady") == "" and world.status.automation == ()


@virtual_time
async def test_hostile_report_changes_nothing() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, storage=growing())
        huge = 10**400
        for report in (
            "{",
            "[]",
            '{"data": 7}',
            '{"data": {"size": -5, "available": 0}}',
            '{"data": {"size": 0, "available": 0}}',
            '{"data": {"size": true, "available": false}}',
            f'{{"data": {{"size": {huge}, "available": 0}}}}',
            '{"data": {"size": NaN, "available": Infinity}}',
            '{"data": {"size": 5, "available": 50}}',
            "[" * 5000,
            '{"data": {"size": 5, "available": 0}}' + " " * 5000,
        ):
            body = MergePatch({"metadata": {"annotations": {"databases.steersman.dev/volumes": report}}})
            await world.client.patch(Pod, NAMES.pod(0), body)
            await world.wait(15)
            assert world.condition("AutogrowReady") == "Unknown/UsageUnknown"
        await world.ready(1)
