"""Servers of one image that are not of one minor version: its tag was given to another image meanwhile."""

from __future__ import annotations

from database_support.cluster_world import NAMES, ClusterWorld
from database_support.group_world import GroupWorld
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman_testing import virtual_time

POSTGRESQL, MYSQL = "steersman.dev/postgresql:17", "steersman.dev/mysql:9.7"
TOLD = f"{POSTGRESQL} is 17.6 in orders-0, orders-1 and 17.10 in orders-3"
ADVICE = (
    "give each version of the image a tag of its own, and name that in spec.image or the operator's settings; "
    "with spec.imagePullPolicy Always, a restart or spec.minorUpgrades Automatic suffices"
)


async def on_another_node(world: ClusterWorld, number: int = 2) -> None:
    """An instance is made anew with another volume, on a node that never had the image."""
    await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(number))
    await world.until("gone", lambda: f"orders-{number}" not in world.pods())
    await world.ready(3)


async def rolled(world: ClusterWorld, before: dict[str, str], count: int) -> list[str]:
    """Who was renewed, in this order."""
    order: list[str] = []

    def all_are() -> bool:
        order.extend(n for n, uid in world.uids().items() if uid != before[n] and n not in order)
        return len(order) == count

    await world.until("renewed", all_are)
    await world.ready(3)
    return order


async def made_with(world: ClusterWorld, image: str, former: str, **spec: object) -> None:
    """Three instances whose image is of a version that the registry has no more."""
    world.hosts.images.pushed[image] = former
    await world.create(**spec)
    await world.ready(3)


@virtual_time
async def test_another_minor_under_the_same_tag_is_told_and_nobody_is_restarted_for_it() -> None:
    """A node keeps what it has of a tag: a pod made anew there would run what it ran before."""
    world = ClusterWorld()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", minor_upgrades="Automatic")
        assert world.condition("Upgraded") == "True/Current"
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        before = world.uids()
        await world.until("told", lambda: world.condition("Upgraded") == "False/MinorsDiffer")
        assert world.message("Upgraded") == f"{TOLD}: {ADVICE}"
        await world.rest(600)
        assert world.uids() == before and world.condition("Ready") == "True/ClusterReady"
        world.hosts.images.pushed["example.org/mine:17.10"] = "17.10"
        await world.change(image="example.org/mine:17.10")
        await world.until("renewed", lambda: not set(before.values()) & set(world.uids().values()))
        await world.ready(3)
        assert world.condition("Upgraded") == "" and world.status.version == "17.10"


@virtual_time
async def test_where_nodes_ask_again_the_older_ones_are_rolled_replicas_first() -> None:
    world = ClusterWorld()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", image_pull_policy="Always")
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        before = world.uids()
        await world.until("told", lambda: world.condition("Upgraded") == "False/MinorsDiffer")
        await world.rest(600)
        assert world.uids() == before, "nobody asked for it"
        await world.change(minorUpgrades="Automatic")
        await world.until("told", lambda: world.condition("Upgraded") == "False/Upgrading")
        assert await rolled(world, before, 2) == ["orders-1", "orders-0"]
        await world.until("told", lambda: world.condition("Upgraded") == "True/Current")
        assert world.status.primary != "orders-0" and world.status.version == "17.10"
        assert world.events().count("Switchover") == 1 and world.uids()["orders-3"] == before["orders-3"]


@virtual_time
async def test_a_restart_that_is_asked_for_has_all_run_what_the_tag_names() -> None:
    world = ClusterWorld()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", image_pull_policy="Always")
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        before = world.uids()
        await world.annotate(restart="now")
        await rolled(world, before, 3)
        await world.until("told", lambda: world.condition("Upgraded") == "True/Current")
        assert world.status.version == "17.10"


@virtual_time
async def test_who_is_no_newer_when_made_anew_is_left_alone_then() -> None:
    """The tag was given back to the former image."""
    world = ClusterWorld()
    async with world.operator():
        await made_with(world, POSTGRESQL, "17.6", image_pull_policy="Always")
        world.hosts.images.pushed[POSTGRESQL] = "17.10"
        await on_another_node(world)
        world.hosts.images.pushed[POSTGRESQL] = "17.6"
        before = world.uids()
        await world.change(minorUpgrades="Automatic")
        await rolled(world, before, 2)
        after = world.uids()
        await world.rest(600)
        assert world.uids() == after
        assert world.condition("Upgraded") == "False/MinorsDiffer"


@virtual_time
async def test_of_mysql_the_older_primary_leaves_in_order_and_is_not_asked() -> None:
    """Its group makes nobody primary who is newer than another."""
    world = GroupWorld()
    world.farm.images.pushed[MYSQL] = "9.7.4"
    async with world.operator():
        await world.create(image_pull_policy="Always", minor_upgrades="Automatic")
        await world.ready(3)
        world.farm.images.pushed[MYSQL] = "9.7.10"
        before = world.uids()
        await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(2))
        assert await rolled(world, before | {"orders-3": ""}, 3) == ["orders-3", "orders-1", "orders-0"]
        await world.until("told", lambda: world.condition("Upgraded") == "True/Current")
        assert world.status.version == "9.7.10" and world.status.primary != "orders-0"
        assert world.farm.asked == [] and len(world.farm.founded) == 1
