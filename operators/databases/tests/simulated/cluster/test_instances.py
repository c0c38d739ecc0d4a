"""Instances of a cluster come, go and are renewed: as many as declared, one at a time, the primary last."""

from __future__ import annotations

import asyncio

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings
from steersman_databases.cluster.state import is_retired
from steersman_databases.engines import server_pod, versions
from steersman_testing import matching, virtual_time


@virtual_time
async def test_cluster_scales_up_and_down() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        before = world.uids()
        await world.change(instances=4)
        await world.ready(4)
        assert {name: world.uids()[name] for name in before} == before, "nobody restarts"
        await world.change(instances=2)
        await world.ready(2)
        assert world.statefulsets() == ["orders-0", "orders-1"]
        assert world.pvc_names() == [f"data-orders-{n}" for n in range(4)], "retained"
        await world.change(instances=3)
        await world.ready(3)
        assert "orders-4" in world.pods(), "retained claims are not used again"


@virtual_time
async def test_removed_instance_pvcs_deleted_with_delete_policy() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, instances=3, deletion_policy="Delete")
        await world.change(instances=1)
        await world.ready(1)
        await world.until("claims gone", lambda: world.pvc_names() == ["data-orders-0"])


def leader(world: ClusterHarness) -> str | None:
    store = world.server.read(ConfigMap, NAMES.dcs_leader)
    return None if store is None else store.metadata.annotations.get("leader")


def retired(world: ClusterHarness) -> set[str]:
    return {c.metadata.name for c in world.server.read_all(PersistentVolumeClaim) if is_retired(c)}


@virtual_time
@pytest.mark.parametrize("deleted", [False, True], ids=["", "deleted-meanwhile"])
async def test_removed_instance_becoming_primary_is_kept(deleted: bool) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        world.server.fail_next(matching("DELETE", "/statefulsets/orders-1"), 503, times=12)
        await world.change(instances=1)
        await world.until("marked", lambda: retired(world) == {"data-orders-1"})
    # The operator is away.
    tasks = asyncio.create_task(world.kubelet(world.client).run(world.runtime.clock))
    await world.client.delete(Pod, NAMES.pod(0))
    await world.until("taken over", lambda: leader(world) == "orders-1-0")
    tasks.cancel()
    if deleted:
        await world.client.delete(PostgreSQLCluster, KEY)
    async with world.operator():
        if not deleted:
            await world.ready(1)
            assert (world.status.primary, world.statefulsets()) == ("orders-1", ["orders-1"])
            assert retired(world) == {"data-orders-0"}
            await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.create(instances=1)
        await world.ready(1)
        assert world.status.primary == "orders-1", "it is adopted"
        assert world.hosts.systems == 1


@virtual_time
async def test_removed_instance_wanted_again_is_kept() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, instances=3)
        before = world.uids()
        world.server.fail_next(matching("DELETE", "/statefulsets/orders-2"), 503, times=12)
        await world.change(instances=2)
        await world.until("marked", lambda: retired(world) == {"data-orders-2"})
        await world.change(instances=3)
        await world.ready(3)
        assert (world.uids(), retired(world)) == (before, set())


@virtual_time
async def test_primary_switches_over_before_scale_down() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, instances=3)
        await world.annotate(switchover="orders-2")
        await world.until("switched", lambda: world.status.primary == "orders-2")
        await world.change(instances=1)
        await world.ready(1)
        assert world.status.primary == "orders-2", "the primary is the last to go, whatever its number"


@virtual_time
async def test_requested_replacement_happens_once() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, instances=3, replace_failed_instances="OnRequest")
        await world.annotate(replace_instance="orders-1")
        await world.until("replaced", lambda: world.statefulsets() == ["orders-0", "orders-2", "orders-3"])
        await world.ready(3)
        assert world.cluster is not None
        assert "databases.steersman.dev/replace-instance" not in world.cluster.metadata.annotations
        assert "InstanceReplaced" in world.events() and "ReplacementRejected" not in world.events()
        await world.annotate(replace_instance="orders-0")
        await world.until("refused", lambda: "ReplacementRejected" in world.events())
        await world.ready(3)
        assert world.statefulsets() == ["orders-0", "orders-2", "orders-3"]
        assert "databases.steersman.dev/replace-instance" not in world.cluster.metadata.annotations


@virtual_time
async def test_changed_pod_rolls_replicas_first_one_at_a_time() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        before, order = world.uids(), list[str]()

        def renewed() -> bool:
            now = world.uids()
            assert len(now) >= 2, "two at once"
            order.extend(n for n in now if n not in order and now[n] != before[n])
            return len(order) == 3

        await world.change(resources={"requests": {"cpu": "50m"}})
        await world.until("all renewed", renewed)
        await world.ready(3)
        assert order[-1] == "orders-0", "the former primary is the last"
        assert world.status.primary != "orders-0"
        assert "Failover" not in world.events(), "it was handed over"


@virtual_time
async def test_single_instance_restarts_in_place() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = world.uids()
        await world.change(shmSize="512Mi")
        await world.until("renewed", lambda: world.uids().get("orders-0", before["orders-0"]) != before["orders-0"])
        await world.ready(1)


@virtual_time
async def test_restart_annotation_restarts_all_once() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        before = world.uids()
        await world.annotate(restarted_at="2026-11-22T00:00:00Z")
        await world.until("all renewed", lambda: all(world.uids().get(n) not in (None, u) for n, u in before.items()))
        await world.ready(3)
        after = world.uids()
        await world.wait(120)
        assert world.uids() == after


@virtual_time
async def test_operator_template_change_restarts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create()
        await world.ready(3)
    before = world.uids()
    monkeypatch.setitem(server_pod._DOWNWARD_API_FIELDS, "ANOTHER", "metadata.name")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setitem(versions.SUPPORTED_VERSIONS["postgresql"], "17", "steersman.dev/postgresql:17-newer")  # type: ignore[arg-type]
    async with world.operator():
        await world.until("told", lambda: world.condition("UpToDate") == "False/MinorUpgradeAvailable")
        assert world.status.available_image == "steersman.dev/postgresql:17-newer"
        await world.wait(120)
        assert world.uids() == before
        await world.change(maintenance={"minorUpgrades": "Automatic"})
        await world.until("renewed", lambda: world.condition("UpToDate") == "True/Current")
        await world.ready(3)
        images = {p.spec.containers[0].image for p in world.pods().values()}
        assert images == {"steersman.dev/postgresql:17-newer"}


@virtual_time
async def test_image_rewritten_by_admission_restarts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world, image = ClusterHarness(), versions.image("postgresql", "17")
    world.hosts.registry_prefix = "mirror.example/"
    async with world.operator():
        await world.create(maintenance=MaintenanceSettings(minor_upgrades="Automatic"))
        await world.ready(3)
        before = world.uids()
        assert [p.spec.containers[0].image for p in world.pods().values()] == [f"mirror.example/{image}"] * 3
        await world.wait(120)
        assert world.uids() == before
        assert world.condition("UpToDate") == "True/Current"
        assert (world.status.image, world.status.available_image) == (image, None)
    monkeypatch.setitem(versions.SUPPORTED_VERSIONS["postgresql"], "17", "steersman.dev/postgresql:17-newer")  # type: ignore[arg-type]
    async with world.operator():
        await world.until("upgraded", lambda: world.status.image == "steersman.dev/postgresql:17-newer")
        await world.ready(3)
        upgraded = world.uids()
        assert not set(before.values()) & set(upgraded.values())
        await world.wait(120)
        assert world.uids() == upgraded
        assert world.condition("UpToDate") == "True/Current"
