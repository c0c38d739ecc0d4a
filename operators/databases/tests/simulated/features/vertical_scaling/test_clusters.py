"""Vertical scaling of whole clusters, in memory and virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, Pod, ResourceRequirements
from steersman.client import MergePatch
from steersman.manager import Manager
from steersman.meta import Duration, FrozenDict, Quantity
from steersman_databases.api.autopilot.automation import (
    AutomationMode,
    AutomationStatus,
    ComputeAmounts,
    VerticalScalingSettings,
)
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, MaintenanceWindow
from steersman_databases.features.vertical_scaling.record import UsageRecord, parse_record
from steersman_databases.features.vertical_scaling.reports import RESOURCE_USAGE, HourlyUse
from steersman_databases.features.vertical_scaling.stage import FILE_NAME
from steersman_databases.setup import setup
from steersman_testing import virtual_time

GIB = 1 << 30
BOTH_ENGINES = pytest.mark.parametrize("world_type", [ClusterHarness, GroupHarness])
DECLARED = ResourceRequirements(
    requests=FrozenDict({"cpu": "500m", "memory": "1Gi"}), limits=FrozenDict({"memory": "2Gi"})
)


def settings(mode: AutomationMode = "Automatic") -> VerticalScalingSettings:
    return VerticalScalingSettings(
        mode=mode,
        min_allowed=ComputeAmounts(cpu=Quantity("100m"), memory=Quantity("512Mi")),
        max_allowed=ComputeAmounts(cpu=Quantity("2"), memory=Quantity("8Gi")),
    )


def stored(world: ClusterHarness) -> UsageRecord:
    """The record in the ConfigMap."""
    found = world.server.read(ConfigMap, NAMES.usage)
    return UsageRecord() if found is None else parse_record(found.data[FILE_NAME])


def limits(world: ClusterHarness) -> set[str]:
    """Memory limits of the pods."""
    return {str(pod.spec.containers[0].resources.limits["memory"]) for pod in world.pods().values()}


def entry(world: ClusterHarness) -> AutomationStatus | None:
    """Entry of the status."""
    return next((one for one in world.status.automation if one.name == "Resources"), None)


async def record(
    world: ClusterHarness, *, cores: float = 0.5, memory: float = 3 * GIB, primary_hours: float = 48
) -> None:
    """Store use of eight days, and a primary since this time."""
    await world.until("record", lambda: stored(world).primary)
    now = world.runtime.clock.now()
    present = int(now.timestamp() // 3600)
    hours = [HourlyUse(hour=hour, cpu={cores: 60}, memory=memory) for hour in range(present - 200, present)]
    previous, since = stored(world), now - timedelta(hours=primary_hours)
    found = UsageRecord(primary=previous.primary, primary_since=since, applied=previous.applied)
    found = found.with_hours(hours, present)
    await world.client.patch(ConfigMap, NAMES.usage, MergePatch({"data": {FILE_NAME: found.to_json()}}))


@asynccontextmanager
async def cluster_of(
    world: ClusterHarness, mode: AutomationMode = "Automatic", **spec: Any
) -> AsyncGenerator[dict[str, str]]:
    """A ready cluster of two instances. Yields the UIDs of its pods."""
    async with world.operator():
        await world.create_ready(2, instances=2, resources=DECLARED, vertical_scaling=settings(mode), **spec)
        yield world.uids()


@BOTH_ENGINES
@virtual_time
async def test_recommendation_is_applied_in_place(world_type: type[ClusterHarness]) -> None:
    world = world_type()
    async with cluster_of(world) as before:
        await record(world)
        await world.until("resized", lambda: limits(world) == {"4Gi"}, 60)
        await world.ready(2)
        assert world.uids() == before and not world.hosts.switchover_requests
        assert world.cluster.spec.resources == DECLARED
        template = world.server.read_all(StatefulSet)[0].spec.template.spec
        assert dict(template.containers[0].resources.requests) == {"cpu": "630m", "memory": "2Gi"}
        await world.until("settled", lambda: (found := entry(world)) and found.decision == "Suitable", 60)
        shown = entry(world)
        assert shown is not None and shown.last_action is not None and shown.last_action_time is not None
        assert shown.last_action.startswith(
            "CPU request from 500m to 630m, memory request from 1024Mi to 2048Mi in 8 days"
        )
        assert world.messages("ResourcesScaled") == {shown.last_action}
        assert world.condition("VerticalScalingReady") == "True/Suitable"


@virtual_time
async def test_applied_recommendation_survives_restart_and_lost_status() -> None:
    world = ClusterHarness()
    async with cluster_of(world):
        await record(world)
        await world.until("resized", lambda: limits(world) == {"4Gi"}, 60)
    async with world.operator():
        await world.client.patch(world.kind, NAMES.key, MergePatch({"status": None}), subresource="status")
        await world.ready(2)
        await world.wait(120)
        assert limits(world) == {"4Gi"}
        assert (shown := entry(world)) is not None and shown.last_action is not None
        assert len(world.messages("ResourcesScaled")) == 1


@virtual_time
async def test_recommend_changes_nothing() -> None:
    world = ClusterHarness()
    async with cluster_of(world, "Recommend") as before:
        await record(world)
        await world.until("shown", lambda: world.condition("VerticalScalingReady") == "False/Recommended", 60)
        await world.wait(120)
        assert limits(world) == {"2Gi"} and world.uids() == before
        assert (shown := entry(world)) is not None
        assert shown.message == "recommended: CPU request from 500m to 630m, memory request from 1024Mi to 2048Mi"
        assert shown.evidence is not None and shown.evidence.startswith("in 8 days: at most 0.5")
        assert world.status.phase == "Ready"


@virtual_time
async def test_failover_delays_change_by_a_day() -> None:
    world = ClusterHarness()
    async with cluster_of(world):
        await record(world, primary_hours=23.5)
        await world.until("waiting", lambda: world.condition("VerticalScalingReady") == "True/Waiting", 60)
        await world.wait(1200)
        assert limits(world) == {"2Gi"}
        await world.until("resized", lambda: limits(world) == {"4Gi"}, 900)


@virtual_time
async def test_another_primary_starts_the_delay_again() -> None:
    world = ClusterHarness()
    async with cluster_of(world, "Recommend"):
        await record(world)
        await world.annotate(switchover="orders-1")
        await world.until("recorded", lambda: stored(world).primary == "orders-1")
        await world.change(verticalScaling={"mode": "Automatic"})
        await world.until("waiting", lambda: world.condition("VerticalScalingReady") == "True/Waiting", 60)
        assert (shown := entry(world)) is not None
        assert "the primary changed in the last 24 hours" in shown.message
        assert shown.next_action_time == stored(world).primary_since + timedelta(hours=24)  # type: ignore[operator]
        assert limits(world) == {"2Gi"}


@virtual_time
async def test_lowered_memory_rolls_one_pod_at_a_time() -> None:
    world = ClusterHarness()
    async with cluster_of(world) as before:
        await record(world, memory=0.4 * GIB)
        await world.until("one", lambda: len(set(world.uids().values()) - set(before.values())) == 1, 300)
        assert world.uids()["orders-0"] == before["orders-0"], "the primary is the last"
        await world.until("rolled", lambda: not set(world.uids().values()) & set(before.values()), 600)
        await world.ready(2)
        assert limits(world) == {"1Gi"}
        await world.wait(120)
        assert (shown := entry(world)) is not None and shown.decision == "Suitable"


@virtual_time
async def test_change_waits_for_maintenance_window() -> None:
    world = ClusterHarness()
    soon = world.runtime.clock.now() + timedelta(hours=1)
    window = MaintenanceWindow(start=f"{soon:%H:%M}", duration=Duration("2h"))
    async with cluster_of(world, maintenance=MaintenanceSettings(windows=(window,))):
        await record(world)
        await world.until("waiting", lambda: world.condition("VerticalScalingReady") == "True/Waiting", 60)
        assert "no maintenance window is open" in world.message("VerticalScalingReady")
        await world.wait(1200)
        assert limits(world) == {"2Gi"}
        await world.until("resized", lambda: limits(world) == {"4Gi"}, 3000)


@pytest.mark.parametrize("change", [{"mode": "Recommend"}, None])
@virtual_time
async def test_without_automatic_mode_declared_resources_return(change: dict[str, str] | None) -> None:
    world = ClusterHarness()
    async with cluster_of(world):
        await record(world)
        await world.until("resized", lambda: limits(world) == {"4Gi"}, 60)
        await world.change(verticalScaling=change)
        await world.until("returned", lambda: limits(world) == {"2Gi"}, 600)
        await world.ready(2)
        assert stored(world).applied is None


@virtual_time
async def test_changed_declaration_supersedes_recommendation() -> None:
    world = ClusterHarness()
    async with cluster_of(world):
        await record(world)
        await world.until("resized", lambda: limits(world) == {"4Gi"}, 60)
        await world.change(resources={"requests": {"memory": "3Gi"}, "limits": {"memory": "6Gi"}})
        await world.until("changed", lambda: limits(world) == {"6Gi"}, 600)
        await world.ready(2)
        await world.wait(300)
        assert limits(world) == {"6Gi"}
        assert "the resources changed in the last 24 hours" in world.message("VerticalScalingReady")


@virtual_time
async def test_flag_stops_changes_and_keeps_resources() -> None:
    class Limited(ClusterHarness):
        limit: AutomationMode = "Automatic"

        def setup(self, manager: Manager) -> None:
            setup(
                manager, sql_engine_for=self.sql_engine, postgresql_factory=self.engine_parts, automation=self.limit
            )

    world = Limited()
    async with cluster_of(world):
        await record(world)
        await world.until("resized", lambda: limits(world) == {"4Gi"}, 60)
    world.limit = "Recommend"
    async with world.operator():
        await record(world, memory=5 * GIB)
        await world.until("shown", lambda: world.condition("VerticalScalingReady") == "False/Recommended", 60)
        await world.wait(120)
        assert limits(world) == {"4Gi"}
        assert (shown := entry(world)) is not None and shown.mode == "Recommend"


@BOTH_ENGINES
@virtual_time
async def test_reported_hours_are_recorded(world_type: type[ClusterHarness]) -> None:
    world = world_type()
    async with world.operator():
        await world.create_ready(2, instances=2)
        assert world.server.read(ConfigMap, NAMES.usage) is None
        present = int(world.runtime.clock.now().timestamp() // 3600)
        for number, pod in enumerate(sorted(world.pods().values(), key=lambda pod: pod.metadata.name)):
            report = {"hours": [{"hour": present, "cpu": {str(number + 1): 60}, "memory": GIB, "disk": GIB}]}
            body = {"metadata": {"annotations": {RESOURCE_USAGE: json.dumps(report)}}}
            await world.client.patch(Pod, pod.key, MergePatch(body))
        await world.until("recorded", lambda: stored(world).hour == present, 4300)
        assert world.runtime.clock.now().timestamp() >= (present + 1) * 3600 + 600
        found = stored(world)
        assert found.hours == 1
        assert found.cpu.percentile(1.0) == pytest.approx(2.0, rel=0.1)
        assert not world.status.automation
        version = world.server.read(ConfigMap, NAMES.usage)
        await world.wait(600)
        assert world.server.read(ConfigMap, NAMES.usage) == version, "it is written hourly"
