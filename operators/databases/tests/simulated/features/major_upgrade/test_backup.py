"""Backups before and after a major upgrade."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.shared_start import shared_start
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Backup
from steersman_databases.features.backup.declared_backups import backup_before_upgrade
from steersman_databases.features.major_upgrade.backup import find_blocker
from steersman_testing import matching, virtual_time

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@shared_start
async def archiving(world: BackupHarness) -> None:
    """Create a cluster of version 15 whose first backup is complete."""
    await world.create_store()
    await world.create(instances=1, version="15", backup=backup_settings())
    await world.ready(1)
    await world.until("catalog", lambda: world.server.read(ConfigMap, NAMES.backup_catalog), 60)
    await world.report()
    await completed(world, "Schedule")


async def completed(world: BackupHarness, trigger: str) -> Backup:
    """Run Jobs until a backup of a trigger is complete, and report it in the catalog."""
    for _ in range(120):
        await world.run_jobs()
        if (found := of_trigger(world, trigger)) is not None and found.status.phase == "Completed":
            await world.report()
            return found
        await world.wait(1)
    raise AssertionError(f"no backup of trigger {trigger}: {world.backups()}")


def of_trigger(world: BackupHarness, trigger: str) -> Backup | None:
    return next((b for b in world.server.read_all(Backup) if b.status.trigger == trigger), None)


@virtual_time
async def test_upgrade_is_enclosed_by_backups() -> None:
    world = BackupHarness()
    async with world.operator():
        await archiving(world)
        before = world.uids()
        await world.change(version="17")
        await world.until("waiting", lambda: world.condition("UpToDate") == "False/WaitingForBackup")
        await world.wait(120)
        assert world.uids() == before, "the cluster serves meanwhile"
        assert world.condition("Available") == "True/PrimaryAvailable"
        backup = await completed(world, "BeforeUpgrade")
        assert backup.metadata.name.startswith("orders-before-17-") and backup.spec.type == "Incremental"
        assert world.stored[-1]["version"] == "15"
        await world.until("upgraded", lambda: world.status.version == "17.6")
        after = await completed(world, "AfterUpgrade")
        assert after.metadata.name == f"orders-after-17-{world.cluster.metadata.uid[:8]}"
        assert after.spec.type == "Full" and world.stored[-1]["version"] == "17"
        await world.ready(1)
        await world.wait(300)
        assert len(world.backups()) == 3


@virtual_time
async def test_failed_backup_blocks_upgrade_until_deleted() -> None:
    world = BackupHarness()
    async with world.operator():
        await archiving(world)
        before = world.uids()
        world.succeeds = False
        await world.change(version="17")
        for _ in range(60):
            await world.run_jobs()
            await world.wait(1)
        assert world.condition("UpToDate") == "False/BackupFailed"
        assert "cannot be reached" in world.message("UpToDate") and "delete the Backup" in world.message("UpToDate")
        assert world.uids() == before and world.server.read(Job, NAMES.upgrade_job) is None
        failed = of_trigger(world, "BeforeUpgrade")
        assert failed is not None
        world.succeeds = True
        await world.client.delete(Backup, ObjectKey(KEY.namespace, failed.metadata.name))
        await completed(world, "BeforeUpgrade")
        await world.until("upgraded", lambda: world.status.version == "17.6")


@virtual_time
async def test_foreign_backup_blocks_upgrade_and_is_named() -> None:
    world = BackupHarness()
    async with world.operator():
        await archiving(world)
        expected = backup_before_upgrade(world.cluster, "17", world.runtime.clock.now())
        await world.request(expected.metadata.name)
        await world.change(version="17")
        await world.until("blocked", lambda: world.condition("UpToDate") == "False/BackupFailed")
        assert expected.metadata.name in world.message("UpToDate")
        await world.wait(60)
        assert world.server.read(Job, NAMES.upgrade_job) is None
        await world.client.delete(Backup, expected.key)
        await completed(world, "BeforeUpgrade")
        await world.until("upgraded", lambda: world.status.version == "17.6")


@virtual_time
async def test_upgrade_waits_for_archiving() -> None:
    world = BackupHarness()
    async with world.operator():
        await archiving(world)
        await world.change(version="17")
        await world.until("started", lambda: "Running" in world.backups().values())
        await world.report("StoreUnreachable")
        await world.run_jobs()
        await world.until("completed", lambda: set(world.backups().values()) == {"Completed"})
        await world.wait(60)
        assert world.condition("UpToDate") == "False/WaitingForBackup"
        assert "ContinuousArchiving" in world.message("UpToDate")
        assert "state StoreUnreachable" in world.message("UpToDate")
        assert world.server.read(Job, NAMES.upgrade_job) is None
        await world.report()
        await world.until("upgraded", lambda: world.status.version == "17.6")


@virtual_time
async def test_rejected_backup_keeps_conditions() -> None:
    world = BackupHarness()
    async with world.operator():
        await archiving(world)
        world.server.fail_next(matching("POST", "/backups"), 403, times=1000)
        await world.change(version="17")
        await world.until("reported", lambda: world.condition("Ready") == "False/Forbidden")
        assert world.condition("UpToDate") == "False/WaitingForBackup"
        assert world.condition("Available") == "True/PrimaryAvailable"


@virtual_time
async def test_backup_name_has_cluster_and_store() -> None:
    world = BackupHarness()
    await world.create_store()
    await world.create(backup=backup_settings())
    found = world.cluster
    stores = [backup_settings(), backup_settings(storeRef={"name": "other"})]
    clusters = [structs.replace(found, spec=structs.replace(found.spec, backup=each)) for each in stores]
    recreated = structs.replace(found, metadata=structs.replace(found.metadata, uid="fedcba98-0000"))
    names = {backup_before_upgrade(each, "17", NOW).metadata.name for each in (*clusters, recreated)}
    assert len(names) == 3 and all(each.startswith("orders-before-17-20261129-") for each in names)


def _backup(phase: str, age: timedelta, *, to: str = "17", uid: str = "uid") -> Backup:
    at = NOW - age
    status: dict[str, Any] = {"phase": phase, "message": "no room.", "stopTime": at.isoformat()}
    labels = {
        "databases.steersman.dev/backup-trigger": "BeforeUpgrade",
        "databases.steersman.dev/cluster-uid": uid,
        "databases.steersman.dev/upgrade-to": to,
    }
    metadata = {"name": f"b-{phase}", "namespace": "default", "labels": labels, "creationTimestamp": at.isoformat()}
    spec = {"clusterRef": {"name": "orders"}}
    return decode_builtins({"metadata": metadata, "spec": spec, "status": status}, Backup)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("backups", "expected"),
    [
        ([], ("WaitingForBackup", "")),
        ([_backup("Completed", HOUR)], None),
        ([_backup("Completed", HOUR, to="16")], ("WaitingForBackup", "")),
        ([_backup("Completed", HOUR, uid="deleted")], ("WaitingForBackup", "")),
        ([_backup("Completed", 25 * HOUR)], ("WaitingForBackup", "")),
        ([_backup("Failed", 25 * HOUR)], ("BackupFailed", "b-Failed")),
        ([_backup("Failed", 2 * HOUR), _backup("Completed", HOUR)], None),
        ([_backup("Completed", 2 * HOUR), _backup("Failed", HOUR)], ("BackupFailed", "b-Failed")),
        ([_backup("Completed", 2 * HOUR), _backup("Running", HOUR)], ("WaitingForBackup", "b-Running")),
    ],
    ids=["none", "complete", "version", "cluster", "outdated", "failed", "repeated", "failed later", "running"],
)
def test_blocker_depends_on_newest_backup(backups: list[Backup], expected: tuple[str, str] | None) -> None:
    blocker = find_blocker(backups, "uid", "17", NOW)
    assert expected == (None if blocker is None else (blocker.reason, blocker.backup))
