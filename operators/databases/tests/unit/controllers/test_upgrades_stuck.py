"""Upgrades that cannot go on: Jobs whose pods do not start, instances that do not stop, images that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.cluster_world import NAMES, ClusterWorld
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman_databases.clusters.upgrade import DECLARED
from steersman_databases.resources.upgrade_job import JOB_LABEL
from steersman_testing import matching, virtual_time

NO_IMAGE: dict[str, Any] = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "upgrade",
            "image": "typo",
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image typo"}},
        }
    ],
}
NOWHERE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient memory"}],
}
UPGRADE, CHECK = NAMES.upgrade_job.name, NAMES.upgrade_check_job.name


def upgrading(world: ClusterWorld) -> list[Pod]:
    return [pod for pod in world.server.read_all(Pod) if pod.metadata.labels.get(JOB_LABEL) == UPGRADE]


async def on_15(world: ClusterWorld, instances: int = 1, **spec: Any) -> None:
    await world.create(instances=instances, version="15", **spec)
    await world.ready(instances)


async def without_image(world: ClusterWorld) -> None:
    """A cluster of 15 whose upgrade waits for an image."""
    world.hosts.stuck_jobs[UPGRADE] = NO_IMAGE
    await on_15(world)
    await world.change(version="17")
    await world.until("told", lambda: world.condition("Ready") == "False/ImageUnavailable")


@virtual_time
@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (NO_IMAGE, "ImageUnavailable", "Back-off pulling image typo"),
        (NOWHERE, "Unschedulable", "Insufficient memory"),
        ("pods are forbidden: exceeded quota", "InstanceRefused", f"takes no pod of {UPGRADE}: pods are forbidden"),
    ],
)
async def test_a_job_that_does_not_start_is_told_and_after_some_minutes_the_former_version_runs_again(
    status: dict[str, Any] | str, reason: str, words: str
) -> None:
    world = ClusterWorld()
    world.hosts.stuck_jobs[UPGRADE] = status
    async with world.operator():
        await on_15(world, 3)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("Ready") == f"False/{reason}", seconds=300)
        assert words in world.message("Ready") and "PostgreSQL 15 is started again" in world.message("Ready")
        assert world.condition("Upgraded") == "False/Upgrading" and world.pods() == {}
        await world.until("back", lambda: world.condition("Upgraded") == "False/RolledBack", seconds=600)
        assert words in world.message("Upgraded")
        await world.until("serves", lambda: world.status.ready_instances == 3)
        before = world.uids()
        await world.rest(900)
        assert world.uids() == before and world.status.version == "15.6"
        world.hosts.stuck_jobs.clear()
        await world.client.delete(Job, NAMES.upgrade_job)
        await world.ready(3)
        assert world.status.version == "17.6" and world.hosts.unreadable == []


@virtual_time
async def test_a_job_whose_pod_was_drained_gets_the_next_one() -> None:
    """Its controller takes a while, and nobody is told of an upgrade that would be given up for that."""
    world = ClusterWorld()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.until("it runs", lambda: upgrading(world))
        await world.rest(3600)
        world.hosts.stuck_jobs[UPGRADE] = {}
        for pod in upgrading(world):
            await world.client.delete(Pod, pod.key)
            await world.client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))
        await world.rest(120)
        assert world.condition("Upgraded") == "False/Upgrading" and upgrading(world) == []
        world.hosts.stuck_jobs.clear()
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        assert world.status.version == "17.6" and "RolledBack" not in world.events()


@virtual_time
async def test_another_image_takes_the_place_of_one_that_does_not_start() -> None:
    world = ClusterWorld()
    async with world.operator():
        await without_image(world)
        world.hosts.stuck_jobs.clear()
        await world.change(upgradeImage="example.org/upgrade:15-17")
        await world.ready(1)
        assert world.status.version == "17.6" and "RolledBack" not in world.events()


@virtual_time
async def test_a_job_that_does_not_start_gets_the_pod_that_is_declared_since() -> None:
    world = ClusterWorld()
    async with world.operator():
        await without_image(world)
        world.hosts.stuck_jobs.clear()
        await world.change(imagePullSecrets=[{"name": "registry"}])
        await world.until("the former is gone", lambda: not upgrading(world), 120)
        world.hosts.upgrade_hangs = True
        await world.until("made anew", lambda: upgrading(world), 120)
        (pod,) = upgrading(world)
        assert [s.name for s in pod.spec.image_pull_secrets] == ["registry"]
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        assert world.status.version == "17.6" and "RolledBack" not in world.events()


@pytest.mark.parametrize("former", [False, True])
@virtual_time
async def test_a_job_that_does_not_start_stays_where_its_pod_would_be_the_same(*, former: bool) -> None:
    """``former``: a release made it that did not write down for what."""
    world = ClusterWorld()
    async with world.operator():
        await without_image(world)
        job = world.server.read(Job, NAMES.upgrade_job)
        assert job is not None
        if former:
            unknown = {name: None for name in job.metadata.annotations if name != DECLARED}
            await world.client.patch(Job, job.key, MergePatch({"metadata": {"annotations": unknown}}))
            await world.change(imagePullSecrets=[{"name": "registry"}])
        await world.change(podMetadata={"labels": {"team": "shop"}})
        await world.annotate(restart="2026-11-27")
        await world.rest()
        there = world.server.read(Job, NAMES.upgrade_job)
        assert there is not None and there.metadata.uid == job.metadata.uid


@virtual_time
async def test_what_keeps_the_job_that_looks_from_its_start_is_told_and_nothing_stops() -> None:
    world = ClusterWorld()
    world.hosts.stuck_jobs[CHECK] = NO_IMAGE
    async with world.operator():
        await on_15(world)
        before = world.uids()
        await world.change(version="17")
        await world.until("told", lambda: world.condition("Ready") == "False/ImageUnavailable")
        assert "Back-off pulling image typo" in world.message("Upgraded")
        await world.rest(900)
        assert world.uids() == before and world.condition("Available") == "True/PrimaryAccepts"
        world.hosts.stuck_jobs.clear()
        await world.change(upgradeImage="example.org/upgrade:15-17")
        await world.ready(1)
        assert world.status.version == "17.6"


@virtual_time
async def test_a_look_that_failed_names_the_job_to_delete_once_the_image_is_mended() -> None:
    world = ClusterWorld()
    world.hosts.lacks = "OOMKilled"
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("Upgraded") == "False/PreCheckFailed")
        assert "OOMKilled" in world.message("Upgraded")
        assert f"Job {CHECK}" in world.message("Upgraded") and "delete this Job" in world.message("Upgraded")
        world.hosts.lacks = ""
        await world.client.delete(Job, NAMES.upgrade_check_job)
        await world.ready(1)
        assert world.status.version == "17.6"


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


@virtual_time
async def test_a_replica_that_does_not_stop_is_named_and_the_primary_serves_meanwhile() -> None:
    world = ClusterWorld()
    async with world.operator():
        await on_15(world, 3)
        world.hosts.hung.add("orders-2-0")
        await world.change(version="17")
        await world.until("stops", lambda: "orders-1" not in world.pods())
        await world.rest(300)
        assert world.condition("Available") == "True/PrimaryAccepts"
        assert "orders-2" in world.message("Ready") and world.condition("Ready") == "False/Upgrading"
        world.hosts.hung.clear()
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading")
        await world.ready(3)
        assert world.status.version == "17.6"


@virtual_time
async def test_an_image_that_is_not_used_after_the_way_back_is_told() -> None:
    world = ClusterWorld()
    world.hosts.upgrade_fails = "boom"
    async with world.operator():
        await on_15(world, image="mine:15.20")
        await world.change(version="17", image="mine:17.1")
        await world.until("back", lambda: world.condition("Upgraded") == "False/RolledBack")
        assert "boom" in world.message("Upgraded")
        assert "spec.image is not used before version 15 is declared" in world.message("Upgraded")


@virtual_time
async def test_a_job_that_is_refused_leaves_the_upgrade_told() -> None:
    world = ClusterWorld()
    async with world.operator():
        await on_15(world)
        world.server.fail_next(matching("POST", "/jobs"), 403, times=1000)
        await world.change(version="17")
        await world.rest(120)
        assert world.condition("Upgraded") == "False/Upgrading" and CHECK in world.message("Upgraded")
        assert world.condition("Available") == "True/PrimaryAccepts"
