"""Clusters with maintenance windows in virtual time, which starts on Tuesday, 2030-01-01 00:00 UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.meta import Duration
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, MaintenanceWindow
from steersman_databases.engines import versions
from steersman_testing import virtual_time

BOTH = pytest.mark.parametrize("harness", [ClusterHarness, GroupHarness])
ONE_O_CLOCK = datetime(2030, 1, 1, 1, tzinfo=UTC)
NEWER = {"postgresql": ("17", "steersman.dev/postgresql:17-newer"), "mysql": ("9.7", "steersman.dev/mysql:9.7-newer")}


def maintenance(start: str = "01:00", zone: str = "UTC") -> MaintenanceSettings:
    window = MaintenanceWindow(days=("Tue",), start=start, duration=Duration("10m"))
    return MaintenanceSettings(windows=(window,), time_zone=zone, minor_upgrades="Automatic")


def engine_of(world: ClusterHarness) -> str:
    return "mysql" if isinstance(world, GroupHarness) else "postgresql"


def newer_operator(world: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next operator have a newer image."""
    engine = engine_of(world)
    version, image = NEWER[engine]
    monkeypatch.setitem(versions.SUPPORTED_VERSIONS[engine], version, image)  # type: ignore[arg-type]


def images(world: ClusterHarness) -> set[str]:
    return {pod.spec.containers[0].image or "" for pod in world.pods().values()}


def is_upgraded(world: ClusterHarness) -> bool:
    return images(world) == {NEWER[engine_of(world)][1]}


def now(world: ClusterHarness) -> datetime:
    return world.runtime.clock.now()


async def until_time(world: ClusterHarness, time: datetime) -> None:
    await world.wait((time - now(world)).total_seconds())


async def create_and_upgrade_operator(
    world: ClusterHarness, monkeypatch: pytest.MonkeyPatch, settings: MaintenanceSettings
) -> dict[str, str]:
    """Create three instances, and return their pods before the operator's upgrade."""
    async with world.operator():
        await world.create(maintenance=settings)
        await world.ready(3)
    newer_operator(world, monkeypatch)
    return world.uids()


@BOTH
@virtual_time
async def test_operator_upgrade_waits_for_the_window(
    harness: type[ClusterHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = harness()
    before = await create_and_upgrade_operator(world, monkeypatch, maintenance())
    async with world.operator():
        await world.until("waiting", lambda: world.condition("UpToDate") == "False/WaitingForWindow")
        assert "waiting for the maintenance window at 2030-01-01 01:00 UTC" in world.message("UpToDate")
        assert world.status.next_window == ONE_O_CLOCK
        assert [one.instance for one in world.status.pending_disruptions] == sorted(before)
        await world.ready(3)
        await until_time(world, ONE_O_CLOCK)
        assert world.uids() == before, "nothing begins before the window"
        await world.until("upgraded", lambda: is_upgraded(world))
        await world.ready(3)
        assert now(world) < ONE_O_CLOCK.replace(minute=10)
        await world.until("current", lambda: world.condition("UpToDate") == "True/Current")
        assert world.status.pending_disruptions == ()
        assert world.status.next_window == datetime(2030, 1, 8, 1, tzinfo=UTC)
    assert world.events().count("WaitingForWindow") == 1
    assert not set(before.values()) & set(world.uids().values())


@BOTH
@virtual_time
async def test_upgrade_is_completed_after_its_window(
    harness: type[ClusterHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator stops after the first pod, and starts again after the window."""
    world = harness()
    before = await create_and_upgrade_operator(world, monkeypatch, maintenance())
    async with world.operator():
        await until_time(world, ONE_O_CLOCK)
        await world.until("begun", lambda: len(images(world)) == 2)
    await until_time(world, ONE_O_CLOCK.replace(hour=2))
    assert len(images(world)) == 2
    async with world.operator():
        await world.until("upgraded", lambda: is_upgraded(world))
        await world.ready(3)
    assert not set(before.values()) & set(world.uids().values())


@BOTH
@virtual_time
async def test_upgrade_waits_again_after_a_missed_window(
    harness: type[ClusterHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = harness()
    before = await create_and_upgrade_operator(world, monkeypatch, maintenance())
    await until_time(world, ONE_O_CLOCK.replace(minute=10))
    async with world.operator():
        await world.until("waiting", lambda: world.condition("UpToDate") == "False/WaitingForWindow")
        await world.wait(3600)
        assert world.uids() == before and world.status.next_window == datetime(2030, 1, 8, 1, tzinfo=UTC)


@BOTH
@virtual_time
async def test_failed_replica_is_replaced_with_the_old_image(
    harness: type[ClusterHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emergency neither waits nor starts the upgrade."""
    world = harness()
    before = await create_and_upgrade_operator(world, monkeypatch, maintenance())
    old = images(world)
    async with world.operator():
        await world.until("waiting", lambda: world.condition("UpToDate") == "False/WaitingForWindow")
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(2))
        await world.until("replaced", lambda: "orders-3" in world.pods())
        await world.ready(3)
        assert now(world) < ONE_O_CLOCK and images(world) == old
        assert {name: uid for name, uid in world.uids().items() if name != "orders-3"}.items() <= before.items()


@BOTH
@virtual_time
async def test_evicted_pod_keeps_its_image_outside_the_window(
    harness: type[ClusterHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = harness()
    before = await create_and_upgrade_operator(world, monkeypatch, maintenance())
    old = images(world)
    async with world.operator():
        await world.until("waiting", lambda: world.condition("UpToDate") == "False/WaitingForWindow")
        await world.client.delete(Pod, NAMES.pod(2))
        await world.until("recreated", lambda: world.uids().get("orders-2", before["orders-2"]) != before["orders-2"])
        await world.ready(3)
        await world.wait(120)
        assert images(world) == old and now(world) < ONE_O_CLOCK


@virtual_time
async def test_requested_restart_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterHarness()
    before = await create_and_upgrade_operator(world, monkeypatch, maintenance())
    old = images(world)
    async with world.operator():
        await world.annotate(restarted_at="2030-01-01T00:20:00Z")
        await world.until("restarted", lambda: not set(before.values()) & set(world.uids().values()))
        await world.ready(3)
        assert now(world) < ONE_O_CLOCK and images(world) == old


@virtual_time
async def test_annotation_starts_the_upgrade_now(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterHarness()
    await create_and_upgrade_operator(world, monkeypatch, maintenance())
    async with world.operator():
        await world.until("waiting", lambda: world.condition("UpToDate") == "False/WaitingForWindow")
        await world.annotate(maintenance_until="soon")
        await world.until("warned", lambda: world.warnings("AnnotationInvalid"))
        assert '"soon" is not a time' in world.warnings("AnnotationInvalid")[0]
        await world.annotate(maintenance_until="2030-01-01T00:45:00Z")
        await world.until("upgraded", lambda: is_upgraded(world))
        await world.ready(3)
        assert now(world) < ONE_O_CLOCK


@virtual_time
async def test_unknown_time_zone_is_reported_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterHarness()
    before = await create_and_upgrade_operator(world, monkeypatch, maintenance(zone="Mars/Base"))
    async with world.operator():
        await world.until("waiting", lambda: world.condition("UpToDate") == "False/WaitingForWindow")
        assert "spec.maintenance.timeZone: Mars/Base is not a time zone" in world.message("UpToDate")
        await until_time(world, ONE_O_CLOCK.replace(hour=2))
        assert world.uids() == before and world.status.next_window is None


@virtual_time
async def test_sized_restart_waits_for_the_window() -> None:
    """Removed sizes restart the servers in the window only."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, maintenance=maintenance())
        await world.change(postgresql={"sizing": "Defaults"})
        await world.until("waiting", lambda: world.condition("ParametersApplied") == "False/WaitingForWindow")
        assert {one.type for one in world.status.pending_disruptions} == {"Restart"}
        history = list(world.hosts.history)
        await world.ready(3)
        await until_time(world, ONE_O_CLOCK)
        assert world.hosts.history == history and world.condition("ParametersApplied") == "False/WaitingForWindow"
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        assert world.status.pending_disruptions == () and now(world) < ONE_O_CLOCK.replace(minute=10)
