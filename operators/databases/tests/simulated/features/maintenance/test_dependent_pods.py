"""Read replicas and poolers: a template of another version of the operator waits for a window."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.pooler_harness import PoolerHarness
from database_support.unit.read_replica_harness import ReadReplicaHarness
from steersman.meta import Duration
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, MaintenanceWindow
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_databases.api.read_replicas import ReadReplicaSettings
from steersman_databases.engines import server_pod
from steersman_databases.features.pooler import pgbouncer
from steersman_testing import virtual_time

ONE_O_CLOCK = datetime(2030, 1, 1, 1, tzinfo=UTC)
MAINTENANCE = MaintenanceSettings(windows=(MaintenanceWindow(start="01:00", duration=Duration("10m")),))


def other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next operator have other templates of both."""
    monkeypatch.setitem(server_pod._DOWNWARD_API_FIELDS, "ANOTHER", "metadata.name")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(pgbouncer, "PROGRAM", "/usr/bin/pgbouncer")


def pending(world: ClusterHarness) -> list[str]:
    return [one.instance for one in world.status.pending_disruptions]


async def until_window(world: ClusterHarness) -> None:
    await world.wait((ONE_O_CLOCK - world.runtime.clock.now()).total_seconds())


def replica_uids(world: ReadReplicaHarness) -> dict[int, str]:
    return {number: pod.metadata.uid for number, pod in world.read_replica_pods().items()}


@virtual_time
async def test_read_replicas_wait_for_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=ReadReplicaSettings(min=2), maintenance=MAINTENANCE)
        await world.until("added", lambda: world.read_replicas.ready == 2)
        before = replica_uids(world)
    other_version(monkeypatch)
    async with world.operator():
        await world.until("waiting", lambda: pending(world) == ["orders-read0", "orders-read1"])
        assert world.condition("UpToDate") == "False/WaitingForWindow"
        await until_window(world)
        assert replica_uids(world) == before
        await world.until("recreated", lambda: not set(before.values()) & set(replica_uids(world).values()))
        await world.until("done", lambda: pending(world) == [] and world.read_replicas.ready == 2)
        assert world.runtime.clock.now() < ONE_O_CLOCK.replace(minute=10)


@virtual_time
async def test_declared_change_of_read_replicas_does_not_wait() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=ReadReplicaSettings(min=1), maintenance=MAINTENANCE)
        await world.until("added", lambda: world.read_replicas.ready == 1)
        before = replica_uids(world)
        await world.change(resources={"requests": {"cpu": "200m"}})
        await world.until("recreated", lambda: not set(before.values()) & set(replica_uids(world).values()))
        assert world.runtime.clock.now() < ONE_O_CLOCK


@virtual_time
async def test_read_replicas_wait_after_an_earlier_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A requested restart recreates no read replica, and asks for no later template either."""
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=ReadReplicaSettings(min=1), maintenance=MAINTENANCE)
        await world.until("added", lambda: world.read_replicas.ready == 1)
        before, instances = replica_uids(world), world.uids()
        await world.annotate(restarted_at="2030-01-01T00:05:00Z")
        await world.until("restarted", lambda: not set(instances.values()) & set(world.uids().values()))
        await world.ready(1)
    other_version(monkeypatch)
    async with world.operator():
        await world.until("waiting", lambda: pending(world) == ["orders-read0"])
        assert replica_uids(world) == before


@virtual_time
async def test_hibernation_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=ReadReplicaSettings(min=1), maintenance=MAINTENANCE)
        await world.until("added", lambda: world.read_replicas.ready == 1)
    other_version(monkeypatch)
    async with world.operator():
        await world.until("waiting", lambda: pending(world))
        await world.change(hibernated=True)
        await world.until("stopped", lambda: not world.read_replica_pods() and not world.pods())
        assert world.runtime.clock.now() < ONE_O_CLOCK


@virtual_time
async def test_poolers_wait_for_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PoolerHarness()
    async with world.operator():
        await world.create(instances=1, pooler=PoolerSettings(), maintenance=MAINTENANCE)
        await world.ready()
        before = world.deployment().spec.template
    other_version(monkeypatch)
    async with world.operator():
        await world.until("waiting", lambda: pending(world) == ["orders-pooler-rw", "orders-pooler-ro"])
        await world.ready()
        await until_window(world)
        assert world.deployment().spec.template == before
        await world.until("replaced", lambda: world.deployment().spec.template != before)
        await world.until("done", lambda: pending(world) == [] and world.condition("UpToDate") == "True/Current")


@virtual_time
async def test_declared_change_of_poolers_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It brings the template of the operator with it."""
    world = PoolerHarness()
    async with world.operator():
        await world.create(instances=1, pooler=PoolerSettings(), maintenance=MAINTENANCE)
        await world.ready()
        before = world.deployment().spec.template
    other_version(monkeypatch)
    async with world.operator():
        await world.until("waiting", lambda: pending(world))
        await world.change(pooler={"parameters": {"default_pool_size": "5"}})
        await world.until("replaced", lambda: world.deployment().spec.template != before and not pending(world))
        assert world.runtime.clock.now() < ONE_O_CLOCK
