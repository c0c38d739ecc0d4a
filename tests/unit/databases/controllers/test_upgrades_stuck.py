"""Upgrades that cannot go on: Jobs whose pods do not start, instances that do not stop, images that are wrong."""

from __future__ import annotations

from typing import Any

from cluster_world import ClusterWorld
from steersman.testing import virtual_time


async def on_15(world: ClusterWorld, instances: int = 1, **spec: Any) -> None:
    await world.create(instances=instances, version="15", **spec)
    await world.ready(instances)


@virtual_time
async def test_who_lowers_the_version_after_the_data_are_upgraded_is_not_told_to_delete_them() -> None:
    world = ClusterWorld()
    async with world.operator():
        await on_15(world, 3)
        world.hosts.refused = "exceeded quota"
        await world.change(version="17")
        await world.until("committed", lambda: "Upgraded" in world.events())
        await world.change(version="15")
        await world.until("told", lambda: world.condition("Ready") == "False/UnsupportedVersion")
        assert "declare version 17 again" in world.message("Ready") and "delete" not in world.message("Ready")
        world.hosts.refused = ""
        await world.change(version="17")
        await world.ready(3)
        assert world.status.version == "17.6" and world.hosts.unreadable == []
