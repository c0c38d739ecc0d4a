"""Servers of one image that are not of one minor version: its tag was given to another image meanwhile."""

from __future__ import annotations

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings
from steersman_testing import virtual_time

POSTGRESQL, MYSQL = "steersman.dev/postgresql:17", "steersman.dev/mysql:9.7"
TOLD = f"image {POSTGRESQL} is 17.6 in orders-0, orders-1 and 17.10 in orders-3"
ADVICE = (
    "Use an immutable tag or a digest in spec.image or in the settings of the operator. "
    "With spec.imagePullPolicy Always, restart the instances or set spec.maintenance.minorUpgrades to Automatic"
)


async def on_another_node(world: ClusterHarness, number: int = 2) -> None:
    """An instance is made anew with another volume, on a node that never had the image."""
    await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(number))
    await world.until("gone", lambda: f"orders-{number}" not in world.pods())
    await world.ready(3)


async def rolled(world: ClusterHarness, before: dict[str, str], count: int) -> list[str]:
    """Who was renewed, in this order."""
    order: list[str] = []

    def all_are() -> bool:
        order.extend(n for n, uid in world.uids().items() if uid != before[n] and n not in order)
        return len(order) == count

    await world.until("renewed", all_are)
    await world.ready(3)
    return order


async def made_with(world: ClusterHarness, image: str, former: str, **spec: object) -> None:
    """Three instances whose image is of a version that the registry has no more."""
    world.hosts.images.pushed[image] = former
    await world.create_ready(3, **spec)


@virtual_time
async def test_minor_version_under_same_tag_is_reported_only() -> None:
    """A node keeps what it has of a tag: a pod made anew there would run what it ran before."""
    world = ClusterHarness()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", maintenance=MaintenanceSettings(minor_upgrades="Automatic"))
        assert world.condition("UpToDate") == "True/Current"
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        before = world.uids()
        await world.until("told", lambda: world.condition("UpToDate") == "False/MinorVersionSkew")
        assert world.message("UpToDate") == f"{TOLD}. {ADVICE}"
        await world.wait(600)
        assert world.uids() == before and world.condition("Ready") == "True/AllInstancesReady"
        world.hosts.images.pushed["example.org/mine:17.10"] = "17.10"
        await world.change(image="example.org/mine:17.10")
        await world.until("renewed", lambda: not set(before.values()) & set(world.uids().values()))
        await world.ready(3)
        assert world.condition("UpToDate") == "" and world.status.version == "17.10"


@virtual_time
async def test_pull_policy_always_rolls_older_instances() -> None:
    world = ClusterHarness()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", image_pull_policy="Always")
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        before = world.uids()
        await world.until("told", lambda: world.condition("UpToDate") == "False/MinorVersionSkew")
        await world.wait(600)
        assert world.uids() == before, "nobody asked for it"
        await world.change(maintenance={"minorUpgrades": "Automatic"})
        await world.until("told", lambda: world.condition("UpToDate") == "False/Upgrading")
        assert await rolled(world, before, 2) == ["orders-1", "orders-0"]
        await world.until("told", lambda: world.condition("UpToDate") == "True/Current")
        assert world.status.primary != "orders-0" and world.status.version == "17.10"
        assert world.events().count("Switchover") == 1 and world.uids()["orders-3"] == before["orders-3"]


@virtual_time
async def test_requested_restart_runs_tagged_image() -> None:
    world = ClusterHarness()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", image_pull_policy="Always")
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        before = world.uids()
        await world.annotate(restarted_at="now")
        await rolled(world, before, 3)
        await world.until("told", lambda: world.condition("UpToDate") == "True/Current")
        assert world.status.version == "17.10"


@virtual_time
async def test_recreated_instance_not_newer_is_left_alone() -> None:
    """The tag was given back to the former image."""
    world = ClusterHarness()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", image_pull_policy="Always")
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        world.hosts.images.pushed[POSTGRESQL] = "17.6"
        before = world.uids()
        await world.change(maintenance={"minorUpgrades": "Automatic"})
        await rolled(world, before, 2)
        after = world.uids()
        await world.wait(600)
        assert world.uids() == after
        assert world.condition("UpToDate") == "False/MinorVersionSkew"


@virtual_time
async def test_older_mysql_primary_stops_in_order() -> None:
    """Its group makes nobody primary who is newer than another."""
    world = GroupHarness()
    world.fake_group.images.pushed[MYSQL] = "9.7.4"
    async with world.operator():
        await world.create_ready(
            3, image_pull_policy="Always", maintenance=MaintenanceSettings(minor_upgrades="Automatic")
        )
        world.fake_group.images.pushed[MYSQL] = "9.7.10"
        before = world.uids()
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(2))
        assert await rolled(world, before | {"orders-3": ""}, 3) == ["orders-3", "orders-1", "orders-0"]
        await world.until("told", lambda: world.condition("UpToDate") == "True/Current")
        assert world.status.version == "9.7.10" and world.status.primary != "orders-0"
        assert world.fake_group.switchover_requests == [] and len(world.fake_group.founded) == 1
