"""Replicas that the primary has left behind, in virtual time."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.fake_patroni import DIVERGED_POSITION, PRIMARY_POSITION
from steersman_testing import virtual_time

STRAYS = "instance orders-1 is Running on timeline 1"


@virtual_time
async def test_replica_missing_wal_is_rebuilt() -> None:
    world = ClusterHarness(oldest_wal=PRIMARY_POSITION)
    async with world.operator():
        await world.create_ready(3, instances=3)
        world.hosts.lagging.add("orders-1-0")
        await world.until("it strays", lambda: STRAYS in world.message("Ready"))
        await world.wait(240)
        assert world.wal_queries == 0, "it may take its time"
        await world.until("given up", lambda: world.statefulsets() == ["orders-0", "orders-2", "orders-3"])
        await world.ready(3)
        assert world.messages("InstanceReplaced") == {
            "replacing instance orders-1: the primary no longer has the WAL that it needs"
        }
        assert world.status.primary == "orders-0"


@virtual_time
@pytest.mark.parametrize(
    ("begins", "unreachable", "said"),
    [
        (DIVERGED_POSITION, False, "the primary has the WAL that it needs"),
        (PRIMARY_POSITION, True, "the primary could not be queried for the WAL that it needs"),
    ],
)
async def test_replica_able_to_catch_up_is_kept(begins: int, unreachable: bool, said: str) -> None:
    world = ClusterHarness(oldest_wal=begins)
    async with world.operator():
        await world.create_ready(2, instances=2)
        world.hosts.lagging.add("orders-1-0")
        world.unreachable = unreachable
        await world.until("told", lambda: f"{STRAYS}: {said}" in world.message("Ready"), 400)
        before = world.wal_queries
        await world.wait(120)
        assert 3 <= world.wal_queries - before <= 4, "not with each reconcile"
        assert world.statefulsets() == ["orders-0", "orders-1"]
        world.hosts.lagging.clear()
        await world.ready(2)


@virtual_time
async def test_manual_replacement_condition_gives_reason() -> None:
    world = ClusterHarness(oldest_wal=PRIMARY_POSITION)
    async with world.operator():
        await world.create_ready(2, instances=2, replace_failed_instances="OnRequest")
        world.hosts.lagging.add("orders-1-0")
        await world.until(
            "told",
            lambda: f"{STRAYS}: the primary no longer has the WAL that it needs" in world.message("Ready"),
            400,
        )
        await world.wait(60)
        assert world.statefulsets() == ["orders-0", "orders-1"]
