"""Scheduled and requested verifications in virtual time."""

from __future__ import annotations

import os

import pytest

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.database_harness import CuttableWrites
from database_support.unit.shared_start import shared_start
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, PostgreSQLCluster
from steersman_databases.features.backup.specs import job_state
from steersman_testing import run_virtual, virtual_time

WHOLE = os.environ.get("SIMULATE") == "whole"
FIRST = "orders-20260101-000000f"
DAMAGED: dict[str, object] = {
    "ok": False,
    "reason": "WALMissing",
    "message": "WAL segment 3 is missing in the archive.",
}
NO_STORE: dict[str, object] = {
    "ok": False,
    "reason": "StoreUnreachable",
    "message": "The object store cannot be reached.",
}


@shared_start
async def declare(world: BackupHarness, **verification: object) -> None:
    """Create a cluster with one backup in the store.

    Args:
        verification: ``spec.backup.verification``, if any.
    """
    await world.create_store()
    settings = {"verification": verification} if verification else {}
    await world.create(instances=1, backup=backup_settings(**settings))
    await world.until("catalog", lambda: world.server.read(ConfigMap, NAMES.backup_catalog), 60)
    time = world.now_text()
    world.stored = [{"id": "20260101-000000F", "type": "Full", "start": time, "stop": time, "size": 9}]
    await world.report(lastArchived="000000010000000000000003")
    await world.until("discovered", lambda: world.backups() == {FIRST: "Completed"}, 60)


async def request(world: BackupHarness, value: str = "now", name: str = FIRST) -> None:
    """Annotate a backup."""
    patch = MergePatch({"metadata": {"annotations": {"databases.steersman.dev/verify": value}}})
    await world.client.patch(Backup, ObjectKey(KEY.namespace, name), patch)


@pytest.mark.requirement("pattern/backups")
@virtual_time
async def test_schedule_verifies_the_last_backup() -> None:
    world = BackupHarness()
    async with world.operator() as manager:
        await declare(world, schedule="0 * * * *")
        await world.until("never verified", lambda: world.verdict(FIRST) == "Unknown/NeverVerified", 60)
        assert world.condition("BackupsVerified") == "Unknown/NeverVerified"
        await world.until("announced", lambda: world.status.backup.next_verification, 60)
        await world.until("a Job", world.verifications, 3700)
        (job,) = world.verifications()
        document = world.document(job)
        assert (document["backup_id"], document["target"]) == ("20260101-000000F", {"latest": {}})
        assert document["archived"] == "000000010000000000000003"
        await world.until("verifying", lambda: world.verdict(FIRST) == "Unknown/Verifying", 60)
        await world.run_verifications()
        await world.until("verified", lambda: world.verdict(FIRST) == "True/Verified", 60)
        await world.until("reported", lambda: world.condition("BackupsVerified") == "True/Verified", 60)
        last = world.status.backup.last_verification
        assert (last.name, last.verified, last.recovery_seconds, last.data_loss_seconds) == (FIRST, True, 36, 4)
        await world.until("removed", lambda: not world.jobs("verification"), 60)
        assert world.server.read(ConfigMap, job.key) is None
        assert "BackupVerified" in world.events()
        labels = {"namespace": KEY.namespace, "cluster": KEY.name}
        sample = manager.metrics_registry.get_sample_value
        assert sample("steersman_backup_verification_seconds", {**labels, "phase": "Replay"}) == 6
        assert sample("steersman_backup_verification_data_loss_seconds", labels) == 4
        assert world.status.phase == "Ready"


@virtual_time
async def test_damage_is_false_and_reported() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world, schedule="0 * * * *")
        await world.until("a Job", world.verifications, 3700)
        await world.run_verifications(DAMAGED)
        await world.until("damaged", lambda: world.verdict(FIRST) == "False/WALMissing", 60)
        await world.until("reported", lambda: world.condition("BackupsVerified") == "False/VerificationFailed", 60)
        assert world.status.backup.last_verification.message == "WAL segment 3 is missing in the archive"
        assert world.warnings("BackupDamaged")
        assert world.status.phase == "Ready", "the cluster serves"
        (job,) = world.jobs("verification")
        assert job.spec.ttl_seconds_after_finished == 3600, "its logs stay for an hour"


@pytest.mark.parametrize("outcome", [NO_STORE, {}], ids=["unreachable", "no result"])
@virtual_time
async def test_attempt_without_result_shows_nothing(outcome: dict[str, object]) -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world)
        await request(world)
        await world.until("a Job", world.verifications, 60)
        await world.run_verifications(outcome, 1)
        await world.until("ended", lambda: world.verdict(FIRST) != "Unknown/Verifying", 60)
        assert world.verdict(FIRST).startswith("Unknown/")
        assert world.warnings("VerificationIncomplete")
        # Only a new value requests another one.
        await world.wait(600)
        assert not world.verifications()
        await request(world, "again")
        await world.until("a Job", world.verifications, 60)
        await world.run_verifications()
        await world.until("verified", lambda: world.verdict(FIRST) == "True/Verified", 60)


@virtual_time
async def test_operator_away_makes_one_catch_up() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world, schedule="0 * * * *")
        await world.until("announced", lambda: world.status.backup.next_verification, 60)
    await world.wait(24 * 3600)
    async with world.operator():
        await world.until("a Job", world.verifications, 60)
        await world.run_verifications()
        await world.until("verified", lambda: world.verdict(FIRST) == "True/Verified", 60)
        await world.wait(120)
        assert not world.verifications()


@virtual_time
async def test_verification_waits_for_a_backup() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world)
        await world.request("b")
        await world.until("runs", lambda: world.backups().get("b") == "Running", 60)
        await request(world)
        await world.wait(60)
        assert world.verdict(FIRST) == "Unknown/Verifying" and not world.verifications()
        await world.run_jobs()
        await world.until("a Job", world.verifications, 60)


@virtual_time
async def test_backup_during_a_verification_removes_nothing() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world)
        await request(world)
        await world.until("a Job", world.verifications, 60)
        await world.request("b")
        await world.until("runs", lambda: world.backups().get("b") == "Running", 60)
        (job,) = world.jobs()
        assert "retention" not in world.document(job)
        await world.run_jobs()
        await world.until("completed", lambda: world.backups()["b"] == "Completed", 60)
        # Deletion of a set waits for the verification.
        await world.client.patch(
            Backup, ObjectKey(KEY.namespace, "b"), MergePatch({"spec": {"deletionPolicy": "Delete"}})
        )
        await world.until("finalizer", lambda: (found := world.backup("b")) and found.metadata.finalizers, 60)
        await world.report()
        await world.client.delete(Backup, ObjectKey(KEY.namespace, "b"))
        await world.wait(60)
        assert not [j for j in world.jobs() if job_state(j) == "Running"]
        await world.run_verifications()
        await world.until("an expiry", lambda: [j for j in world.jobs() if job_state(j) == "Running"], 60)


@virtual_time
async def test_one_verification_runs_at_a_time() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world)
        await world.request("b")
        await world.until("runs", lambda: world.backups().get("b") == "Running", 60)
        await world.run_jobs()
        await world.until("completed", lambda: world.backups()["b"] == "Completed", 60)
        for name in (FIRST, "b"):
            await request(world, name=name)
        for _ in range(2):
            await world.until("a Job", world.verifications, 60)
            await world.wait(30)
            assert await world.run_verifications() == 1
        await world.until("both", lambda: {world.verdict(n) for n in (FIRST, "b")} == {"True/Verified"}, 60)


@virtual_time
async def test_deleted_cluster_ends_its_verification() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world)
        await request(world)
        await world.until("a Job", world.verifications, 60)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("ended", lambda: world.verdict(FIRST) == "Unknown/ClusterDeleted", 60)
        assert not world.jobs("verification")


@virtual_time
async def test_deleted_job_is_created_again() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world)
        await request(world)
        await world.until("a Job", world.verifications, 60)
        (job,) = world.verifications()
        await world.client.delete(Job, job.key, propagation="Background")
        await world.until("another Job", lambda: [j for j in world.verifications() if j != job], 60)
        await world.run_verifications()
        await world.until("verified", lambda: world.verdict(FIRST) == "True/Verified", 60)


@virtual_time
async def test_backup_of_another_archive_is_not_verified() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare(world)
        await world.change(backup=None)
        await world.until("removed", lambda: world.status.backup is None, 60)
        await request(world)
        await world.until("ended", lambda: world.verdict(FIRST) == "Unknown/ArchiveNotInUse", 60)


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("outcome", [None, DAMAGED], ids=["verified", "damaged"])
def test_operator_killed_at_every_write_has_one_verdict(lose_answer: bool, outcome: dict[str, object] | None) -> None:
    # By default, each cut point has one of the two moments.
    for writes in range(3 * lose_answer, 40, 6) if not WHOLE else range(40):
        if not run_virtual(_killed(writes, lose_answer, outcome)):
            assert writes > 3
            return
    raise AssertionError("the verification does not end")


async def _killed(writes: int, lose_answer: bool, outcome: dict[str, object] | None) -> bool:
    world = BackupHarness()
    expected = "False/WALMissing" if outcome else "True/Verified"
    async with world.operator():
        await declare(world, schedule="0 * * * *")
        await world.until("announced", lambda: world.status.backup.next_verification, 60)
    await world.wait(3600)
    transport = CuttableWrites(world.server, writes, "backup", "verify", "/jobs", lose_answer=lose_answer)
    finished = 0
    async with world.operator(transport):
        for _ in range(60):
            finished += await world.run_verifications(outcome)
            await world.wait(1)
            if transport.is_cut.is_set() or world.verdict(FIRST) == expected:
                break
        await world.wait(5)
    async with world.operator():
        for _ in range(60):
            finished += await world.run_verifications(outcome)
            await world.wait(1)
        assert (world.verdict(FIRST), finished) == (expected, 1), f"{writes} writes"
        left = [j for j in world.jobs("verification") if job_state(j) == "Complete"]
        assert not left
        assert world.condition("BackupsVerified") == ("False/VerificationFailed" if outcome else "True/Verified")
    return transport.is_cut.is_set()
