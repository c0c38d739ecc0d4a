"""A size that no volume has reached is lowered, and nothing is derived from it."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.client import MergePatch
from steersman.errors import Invalid
from steersman.meta import Quantity
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_testing import virtual_time


def requested(world: ClusterHarness) -> str:
    pvc = world.server.read(PersistentVolumeClaim, NAMES.data_pvc(0))
    assert pvc is not None
    return str(pvc.spec.resources.requests["storage"])


async def provide(world: ClusterHarness, size: str) -> None:
    """Give the volume a capacity, as its driver does."""
    status = MergePatch({"status": {"capacity": {"storage": size}}})
    await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), status, subresource="status")
    await world.until("observed", lambda: world.status.storage and str(world.status.storage.data_capacity) == size)


async def too_large(world: ClusterHarness) -> None:
    """A cluster whose size was mistyped, which its volume does not reach."""
    await world.create(instances=1, storage=VolumeSettings(size=Quantity("1Gi")))
    await world.ready(1)
    await provide(world, "1Gi")
    await world.change(storage={"size": "10Ti"})
    await world.until("requested", lambda: requested(world) == "10Ti")
    await world.until("reported", lambda: world.condition("VolumesResized") == "False/Resizing")


@virtual_time
async def test_size_no_volume_reached_can_be_lowered() -> None:
    world = ClusterHarness()
    async with world.operator():
        await too_large(world)
        await world.change(storage={"size": "10Gi"})
        await world.until("lowered", lambda: requested(world) == "10Gi")
        await provide(world, "10Gi")
        await world.ready(1)
        with pytest.raises(Invalid, match=r"below status\.storage\.dataCapacity"):
            await world.change(storage={"size": "5Gi"})


@virtual_time
async def test_wal_retention_uses_size_of_volume_not_declared() -> None:
    world = ClusterHarness()
    async with world.operator():
        await too_large(world)
        assert world.stored_parameters()["max_slot_wal_keep_size"] == "256MB"
        await provide(world, "10Ti")
        await world.until("derived", lambda: world.stored_parameters()["max_slot_wal_keep_size"] == "2621440MB")


@virtual_time
async def test_size_lowered_to_present_size_says_what_to_do() -> None:
    world = ClusterHarness()
    async with world.operator():
        await too_large(world)
        await world.change(storage={"size": "1Gi"})
        await world.until("reported", lambda: "Declare a size above 1Gi" in world.message("VolumesResized"))
        assert requested(world) == "10Ti"
        await world.change(storage={"size": "2Gi"})
        await world.until("lowered", lambda: requested(world) == "2Gi")
