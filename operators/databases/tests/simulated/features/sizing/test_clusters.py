"""Sizing of whole clusters, in memory: which are sized, and how often their servers restart for it."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import KEY, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import ResourceRequirements
from steersman.client import MergePatch
from steersman.meta import FrozenDict
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_testing import virtual_time


def buffers(world: ClusterHarness) -> str | None:
    return world.stored_parameters().get("shared_buffers")


@virtual_time
async def test_new_cluster_is_sized_from_its_limits() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        assert buffers(world) == "192MB" and world.status.sizing.mode == "FromResources"
        shown = {one.name: (one.value, one.rule) for one in world.status.sizing.parameters}
        assert shown["shared_buffers"] == ("192MB", "25 % of the memory limit")
        before = world.uids()
        await world.wait(600)
        assert world.uids() == before and world.condition("ParametersApplied") == "True/Applied"
        await world.set_parameters(shared_buffers="100MB")
        await world.until("declared", lambda: buffers(world) == "100MB")
        await world.until("hidden", lambda: "shared_buffers" not in {p.name for p in world.status.sizing.parameters})


@virtual_time
async def test_new_group_is_sized_from_its_limits() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        shown = {one.name: one.value for one in world.status.sizing.parameters}
        assert shown["innodb_buffer_pool_size"] == "64M"
        assert shown.items() <= world.data("orders-0").started_with.items()


@virtual_time
async def test_cluster_without_record_keeps_its_parameters() -> None:
    """It was created by an operator that did not size."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2, postgresql=PostgreSQLSettings(sizing="Defaults"))
    without = MergePatch({"status": {"sizing": None}})
    await world.client.patch(world.kind, KEY, without, subresource="status")
    await world.change(postgresql={"sizing": None})
    before = world.uids()
    async with world.operator():
        await world.until("recorded", lambda: world.status.sizing is not None)
        await world.wait(120)
        assert world.status.sizing.mode == "Defaults" and buffers(world) is None
        assert world.uids() == before and world.hosts.history == ["orders-0-0"]
        await world.change(postgresql={"sizing": "FromResources"})
        await world.until("sized", lambda: buffers(world) == "192MB")
        await world.ready(2)
        await world.change(postgresql={"sizing": None})
        await world.wait(60)
        assert world.status.sizing.mode == "FromResources" and buffers(world) == "192MB"


@pytest.mark.requirement("overview/level-4-tuning")
@virtual_time
async def test_changed_limit_recreates_each_pod_once() -> None:
    world = ClusterHarness()
    limits = {"memory": "1Gi"}
    world.hosts.resizes.supported = False
    async with world.operator():
        await world.create_ready(3, instances=3, resources=ResourceRequirements(limits=FrozenDict(limits)))
        seen: dict[str, set[str]] = {name: {uid} for name, uid in world.uids().items()}
        await world.change(resources={"limits": {"memory": "1536Mi"}})

        def is_done() -> bool:
            for name, uid in world.uids().items():
                seen[name].add(uid)
            return all(p.spec.containers[0].resources.limits["memory"] == "1536Mi" for p in world.pods().values())

        await world.until("recreated", is_done, 600)
        await world.ready(3)
        await world.wait(120)
        assert is_done() and {len(uids) for uids in seen.values()} == {2}
        assert buffers(world) == "384MB" and world.condition("ParametersApplied") == "True/Applied"
        assert world.stored_parameters()["maintenance_work_mem"] == "96MB"


@virtual_time
async def test_server_that_does_not_start_keeps_its_size() -> None:
    world = ClusterHarness()
    world.hosts.failing_start.add(("shared_buffers", "384MB"))
    world.hosts.resizes.supported = False
    async with world.operator():
        await world.create_ready(2, instances=2, resources=ResourceRequirements(limits=FrozenDict({"memory": "1Gi"})))
        await world.change(resources={"limits": {"memory": "1536Mi"}})
        await world.until("reverted", lambda: "keeping 256MB" in world.message("ParametersApplied"), 600)
        assert buffers(world) == "256MB"
        await world.until("both serve", lambda: world.status.ready_instances == 2, 600)
