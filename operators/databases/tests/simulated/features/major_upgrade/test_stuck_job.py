"""Upgrades that cannot go on: Jobs whose pods do not start, instances that do not stop, images that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman_databases.features.major_upgrade.model import UPGRADE_IMAGE_ANNOTATION
from steersman_databases.features.major_upgrade.specs import JOB_LABEL
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


def upgrading(world: ClusterHarness) -> list[Pod]:
    return [pod for pod in world.server.read_all(Pod) if pod.metadata.labels.get(JOB_LABEL) == UPGRADE]


async def on_15(world: ClusterHarness, instances: int = 1, **spec: Any) -> None:
    await world.create_ready(instances, instances=instances, version="15", **spec)


async def without_image(world: ClusterHarness) -> None:
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
        ("pods are forbidden: exceeded quota", "PodRejected", "was rejected: pods are forbidden"),
    ],
)
async def test_unstartable_job_rolls_back_after_timeout(
    status: dict[str, Any] | str, reason: str, words: str
) -> None:
    world = ClusterHarness()
    world.hosts.stuck_jobs[UPGRADE] = status
    async with world.operator():
        await on_15(world, 3)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("Ready") == f"False/{reason}", seconds=300)
        assert words in world.message("Ready") and "PostgreSQL 15 is started again" in world.message("Ready")
        assert world.condition("UpToDate") == "False/Upgrading" and world.pods() == {}
        await world.until("back", lambda: world.condition("UpToDate") == "False/RolledBack", seconds=600)
        assert words in world.message("UpToDate")
        await world.until("serves", lambda: world.status.ready_instances == 3)
        before = world.uids()
        await world.wait(300)
        assert world.uids() == before and world.status.version == "15.6"
        world.hosts.stuck_jobs.clear()
        await world.client.delete(Job, NAMES.upgrade_job)
        await world.ready(3)
        assert world.status.version == "17.6" and world.hosts.unreadable == []


@virtual_time
async def test_drained_job_pod_is_recreated() -> None:
    """Its controller takes a while, and nobody is told of an upgrade that would be given up for that."""
    world = ClusterHarness()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.until("it runs", lambda: upgrading(world))
        await world.wait(900)
        world.hosts.stuck_jobs[UPGRADE] = {}
        for pod in upgrading(world):
            await world.client.delete(Pod, pod.key)
            await world.client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))
        await world.wait(120)
        assert world.condition("UpToDate") == "False/Upgrading" and upgrading(world) == []
        world.hosts.stuck_jobs.clear()
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        assert world.status.version == "17.6" and "RolledBack" not in world.events()


@virtual_time
async def test_other_image_replaces_unstartable_job() -> None:
    world = ClusterHarness()
    async with world.operator():
        await without_image(world)
        world.hosts.stuck_jobs.clear()
        await world.change(upgradeImage="example.org/upgrade:17")
        await world.ready(1)
        assert world.status.version == "17.6" and "RolledBack" not in world.events()


@virtual_time
async def test_unstartable_job_is_recreated_with_new_pod_spec() -> None:
    world = ClusterHarness()
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
async def test_unstartable_job_stays_if_pod_spec_is_equal(*, former: bool) -> None:
    """``former``: a release made it that did not write down for what."""
    world = ClusterHarness()
    async with world.operator():
        await without_image(world)
        job = world.server.read(Job, NAMES.upgrade_job)
        assert job is not None
        if former:
            unknown = {name: None for name in job.metadata.annotations if name != UPGRADE_IMAGE_ANNOTATION}
            await world.client.patch(Job, job.key, MergePatch({"metadata": {"annotations": unknown}}))
            await world.change(imagePullSecrets=[{"name": "registry"}])
        await world.change(podMetadata={"labels": {"team": "shop"}})
        await world.annotate(restarted_at="2026-11-27")
        await world.wait()
        there = world.server.read(Job, NAMES.upgrade_job)
        assert there is not None and there.metadata.uid == job.metadata.uid


@virtual_time
async def test_unstartable_check_job_is_reported() -> None:
    world = ClusterHarness()
    world.hosts.stuck_jobs[CHECK] = NO_IMAGE
    async with world.operator():
        await on_15(world)
        before = world.uids()
        await world.change(version="17")
        await world.until("told", lambda: world.condition("Ready") == "False/ImageUnavailable")
        assert "Back-off pulling image typo" in world.message("UpToDate")
        await world.wait(660)
        assert world.uids() == before and world.condition("Available") == "True/PrimaryAvailable"
        world.hosts.stuck_jobs.clear()
        await world.change(upgradeImage="example.org/upgrade:17")
        await world.ready(1)
        assert world.status.version == "17.6"


@virtual_time
async def test_failed_check_names_job_to_delete() -> None:
    world = ClusterHarness()
    world.hosts.missing_programs = "OOMKilled"
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/PreCheckFailed")
        assert "OOMKilled" in world.message("UpToDate")
        assert f"Job {CHECK}" in world.message("UpToDate") and "delete this Job" in world.message("UpToDate")
        world.hosts.missing_programs = ""
        await world.client.delete(Job, NAMES.upgrade_check_job)
        await world.ready(1)
        assert world.status.version == "17.6"


@virtual_time
async def test_lowered_version_after_upgrade_keeps_data() -> None:
    world = ClusterHarness()
    async with world.operator():
        await on_15(world, 3)
        world.hosts.pod_rejection = "exceeded quota"
        await world.change(version="17")
        await world.until("committed", lambda: "Upgraded" in world.events())
        await world.change(version="15")
        await world.until("told", lambda: world.condition("Ready") == "False/UnsupportedVersion")
        assert "Declare version 17 again" in world.message("Ready") and "delete" not in world.message("Ready")
        world.hosts.pod_rejection = ""
        await world.change(version="17")
        await world.ready(3)
        assert world.status.version == "17.6" and world.hosts.unreadable == []


@virtual_time
async def test_replica_not_stopping_is_named() -> None:
    world = ClusterHarness()
    async with world.operator():
        await on_15(world, 3)
        world.hosts.hanging.add("orders-2-0")
        await world.change(version="17")
        await world.until("stops", lambda: "orders-1" not in world.pods())
        await world.wait(300)
        assert world.condition("Available") == "True/PrimaryAvailable"
        assert "orders-2" in world.message("Ready") and world.condition("Ready") == "False/Upgrading"
        world.hosts.hanging.clear()
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading")
        await world.ready(3)
        assert world.status.version == "17.6"


@virtual_time
async def test_unused_image_after_rollback_is_reported() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_fails = "boom"
    async with world.operator():
        await on_15(world, image="mine:15.20")
        await world.change(version="17", image="mine:17.1")
        await world.until("back", lambda: world.condition("UpToDate") == "False/RolledBack")
        assert "boom" in world.message("UpToDate")
        assert "spec.image takes effect after version 15 is declared" in world.message("UpToDate")


@virtual_time
async def test_rejected_job_keeps_upgrade_reported() -> None:
    world = ClusterHarness()
    async with world.operator():
        await on_15(world)
        world.server.fail_next(matching("POST", "/jobs"), 403, times=1000)
        await world.change(version="17")
        await world.wait(120)
        assert world.condition("UpToDate") == "False/Upgrading" and CHECK in world.message("UpToDate")
        assert world.condition("Available") == "True/PrimaryAvailable"
