"""A store that fails for a quarter: what is there stays, and what is reported stays bounded."""

from __future__ import annotations

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.cluster_harness import NAMES
from database_support.unit.shared_start import shared_start
from steersman.api.core_v1 import ConfigMap
from steersman.api.events_v1 import Event
from steersman_databases.features.backup.model import FAILED_BACKUPS_KEPT
from steersman_testing import virtual_time

DAYS = 90
STEP_DAYS = 6
STEP_SECONDS = STEP_DAYS * 24 * 3600.0
EVENTS_PER_BACKUP = 8


@shared_start
async def protected(world: BackupHarness) -> str:
    """Create a cluster with a daily schedule whose first backup is complete. Return its name."""
    schedule = {"name": "daily", "schedule": "0 2 * * *"}
    await world.create_store()
    await world.create(instances=1, backup=backup_settings(schedules=[schedule]))
    await world.until("catalog", lambda: world.server.read(ConfigMap, NAMES.backup_catalog), 60)
    await world.report()
    first = f"orders-initial-{world.cluster.metadata.uid[:8]}"
    await finished(world, first, "Completed")
    await world.report()
    await world.until("announced", lambda: world.status.backup.next_backup, 60)
    return first


async def finished(world: BackupHarness, name: str, phase: str) -> None:
    """Run Jobs until a backup has ended."""
    for _ in range(30):
        await world.run_jobs()
        if world.backups().get(name) == phase:
            return
        await world.wait(1)
    raise AssertionError(f"{name} is not {phase}: {world.backups()}")


async def fail_once(world: BackupHarness, known: set[str]) -> None:
    """Let the next backup fail."""
    await world.until("due", lambda: world.backups().keys() - known, 60)
    (name,) = world.backups().keys() - known
    await finished(world, name, "Failed")
    await world.until("reported", lambda: world.condition("BackedUp") == "False/LastBackupFailed", 60)
    assert name in world.message("BackedUp")


def check_bounds(world: BackupHarness, first: str, conditions: set[str]) -> None:
    """Nothing is lost, and nothing grows with the days."""
    assert [each["id"] for each in world.stored] == [world.stored[0]["id"]]
    assert world.backups()[first] == "Completed"
    failed = [name for name, phase in world.backups().items() if phase == "Failed"]
    assert 0 < len(failed) <= FAILED_BACKUPS_KEPT + 1
    assert {c.type for c in world.status.conditions} == conditions
    assert all(len(c.message) <= 1024 for c in world.status.conditions)
    documents = [world.document(job) for job in world.jobs()]
    assert len(documents) <= FAILED_BACKUPS_KEPT + 1
    retention = {"window_seconds": 14 * 86400, "minimum_full_backups": 2}
    assert all(each["retention"] == retention and "backup_id" not in each for each in documents)


@virtual_time
async def test_failing_backups_for_90_days_stay_bounded() -> None:
    world = BackupHarness()
    async with world.operator():
        first = await protected(world)
        conditions = {c.type for c in world.status.conditions}
    world.succeeds = False
    for _ in range(0, DAYS, STEP_DAYS):
        # The operator only has to run when a backup is due.
        await world.wait(STEP_SECONDS)
        known, events = set(world.backups()), len(world.server.read_all(Event))
        async with world.operator():
            await fail_once(world, known)
            check_bounds(world, first, conditions)
        assert len(world.server.read_all(Event)) - events <= EVENTS_PER_BACKUP
    assert list(world.backups().values()).count("Failed") >= FAILED_BACKUPS_KEPT
    world.succeeds = True
    await world.wait(STEP_SECONDS)
    known = set(world.backups())
    async with world.operator():
        await world.until("due", lambda: world.backups().keys() - known, 60)
        (name,) = world.backups().keys() - known
        await finished(world, name, "Completed")
        await world.report()
        await world.until("up to date", lambda: world.condition("BackedUp") == "True/UpToDate", 60)
