"""Replicas that the primary has left behind, in virtual time."""

from __future__ import annotations

import pytest

from database_support.cluster_world import ClusterWorld
from database_support.patroni_model import STRAYED, WRITTEN
from steersman_testing import virtual_time

STRAYS = "instance orders-1 is Running on timeline 1"


@virtual_time
async def test_a_replica_that_can_never_catch_up_is_built_anew() -> None:
    world = ClusterWorld(log_begins=WRITTEN)
    async with world.operator():
        await world.create(instances=3)
        await world.ready(3)
        world.hosts.lagging.add("orders-1-0")
        await world.until("it strays", lambda: STRAYS in world.message("Ready"))
        await world.rest(240)
        assert world.asked_for_log == 0, "it may take its time"
        await world.until("given up", lambda: world.statefulsets() == ["orders-0", "orders-2", "orders-3"])
        await world.ready(3)
        assert world.messages("InstanceReplaced") == {"orders-1 is replaced: the log that it needs is gone"}
        assert world.status.primary == "orders-0"


@virtual_time
@pytest.mark.parametrize(
    ("begins", "unreachable", "said"),
    [
        (STRAYED, False, "the primary has the log that it needs"),
        (WRITTEN, True, "nobody can tell whether the primary has the log that it needs"),
    ],
)
async def test_one_that_may_catch_up_is_left_alone(begins: int, unreachable: bool, said: str) -> None:
    world = ClusterWorld(log_begins=begins)
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        world.hosts.lagging.add("orders-1-0")
        world.unreachable = unreachable
        await world.until("told", lambda: f"{STRAYS}: {said}" in world.message("Ready"), 400)
        before = world.asked_for_log
        await world.rest(120)
        assert 3 <= world.asked_for_log - before <= 4, "not with each reconcile"
        assert world.statefulsets() == ["orders-0", "orders-1"]
        world.hosts.lagging.clear()
        await world.ready(2)


@virtual_time
async def test_where_a_person_is_to_ask_the_condition_says_what_for() -> None:
    world = ClusterWorld(log_begins=WRITTEN)
    async with world.operator():
        await world.create(instances=2, replace_failed_instances="OnRequest")
        await world.ready(2)
        world.hosts.lagging.add("orders-1-0")
        await world.until("told", lambda: f"{STRAYS}: the log that it needs is gone" in world.message("Ready"), 400)
        await world.rest(60)
        assert world.statefulsets() == ["orders-0", "orders-1"]
