"""Archiving and backups of a cluster in virtual time."""

from __future__ import annotations

import json

import pytest

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.cluster_harness import KEY, NAMES
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman.meta import ObjectKey, to_builtins
from steersman_testing import virtual_time

PATH_ANNOTATION = "databases.steersman.dev/archive-path"


async def archiving(world: BackupHarness) -> None:
    """Wait for the objects of the archive, and report that it works."""
    await world.until("catalog", lambda: world.server.read(ConfigMap, NAMES.backup_catalog), 60)
    await world.report()
    await world.until("archiving", lambda: world.condition("ContinuousArchiving") == "True/Archiving", 60)


async def completed(world: BackupHarness, name: str) -> None:
    """Let Jobs end until a backup is complete."""

    def is_complete() -> bool:
        found = world.backup(name)
        return found is not None and found.status.phase == "Completed"

    for _ in range(60):
        await world.run_jobs()
        if is_complete():
            return
        await world.wait(1)
    raise AssertionError(f"{name} is not complete: {world.backups()}")


@virtual_time
async def test_declaring_backups_changes_no_pod() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store()
        await world.create(instances=1)
        await world.ready(1)
        templates = [to_builtins(s.spec.template) for s in world.server.read_all(StatefulSet)]
        pods = world.uids()
        await world.change(backup={"storeRef": {"name": "store"}})
        await archiving(world)
        assert [to_builtins(s.spec.template) for s in world.server.read_all(StatefulSet)] == templates
        assert world.uids() == pods
        uid = world.cluster.metadata.uid
        path = f"default/postgresqlcluster.orders/{uid[:8]}"
        assert world.claims == [(path, uid)]
        document = json.loads(world.secret("orders-backup")["store.json"])
        assert (document["path"], document["passphrase"], document["interval_seconds"]) == (path, "p", 60)
        assert set(world.secret("orders-backup-client")) == {"tls.crt", "tls.key", "ca.crt"}
        pvcs = world.server.read_all(PersistentVolumeClaim)
        assert {p.metadata.annotations[PATH_ANNOTATION] for p in pvcs} == {path}
        assert world.status.backup.path == path
        assert world.condition("BackedUp") == "False/NoBackup"
        assert world.status.phase == "Ready", "the cluster serves without a backup"
        await world.change(backup=None)
        await world.until("removed", lambda: not world.secret("orders-backup"), 60)
        await world.until("no conditions", lambda: not world.condition("ContinuousArchiving"), 60)
        assert world.status.backup is None
        assert not world.secret("orders-backup-client")


@virtual_time
async def test_unusable_store_is_reported_and_archive_continues() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create(instances=1, backup=backup_settings())
        await world.until("no store", lambda: world.condition("ContinuousArchiving") == "False/StoreNotFound", 120)
        assert not world.claims
        await world.create_store()
        await archiving(world)
        before = world.secret("orders-backup")
        await world.client.delete(Secret, ObjectKey(KEY.namespace, "keys"))
        await world.until("reported", lambda: world.condition("ContinuousArchiving") == "False/SecretNotFound", 60)
        assert world.secret("orders-backup") == before
        assert {"ArchivingFailed"} <= set(world.events())


@pytest.mark.requirement("overview/level-3-backups", "pattern/scheduled-backups")
@virtual_time
async def test_first_backup_and_schedule_are_mirrored() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store()
        schedule = {"name": "hourly", "schedule": "0 * * * *", "type": "Incremental"}
        await world.create(instances=1, backup=backup_settings(schedules=[schedule]))
        await archiving(world)
        first = f"orders-initial-{world.cluster.metadata.uid[:8]}"
        await completed(world, first)
        await world.report()
        await world.until("up to date", lambda: world.condition("BackedUp") == "True/UpToDate", 60)
        assert (world.status.backup.last_full_backup.name, world.status.backup.stored_bytes) == (first, 10)
        await world.until("due", lambda: len(world.backups()) == 2, 3700)
        (scheduled,) = world.backups().keys() - {first}
        assert scheduled.startswith("orders-hourly-")
        await completed(world, scheduled)
        # Another operator's backup appears in the store, and retention expires the first one.
        entry = world.stored[0]
        world.stored = [*world.stored[1:], {**entry, "id": "20200101-000000F_20200102-000000I"}]
        await world.wait(2000)
        await world.report()
        discovered = "orders-20200101-000000f-20200102-000000i"
        await world.until("discovered", lambda: world.backups().get(discovered) == "Completed", 60)
        await world.until("expired", lambda: first not in world.backups(), 60)
        found = world.backup(discovered)
        assert found is not None and found.status.trigger == "Discovered"


@virtual_time
async def test_operator_away_for_a_day_makes_one_catch_up() -> None:
    world = BackupHarness()
    schedule = {"name": "hourly", "schedule": "0 * * * *"}
    async with world.operator():
        await world.create_store()
        await world.create(instances=1, backup=backup_settings(schedules=[schedule]))
        await archiving(world)
        await completed(world, f"orders-initial-{world.cluster.metadata.uid[:8]}")
        await world.report()
        await world.until("announced", lambda: world.status.backup.next_backup, 60)
    before = set(world.backups())
    await world.wait(24 * 3600)
    async with world.operator():
        await world.until("caught up", lambda: set(world.backups()) - before, 60)
        await world.wait(120)
        assert len(set(world.backups()) - before) == 1


@virtual_time
async def test_backups_of_deleted_cluster_stay() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store()
        await world.create(instances=1, backup=backup_settings())
        await archiving(world)
        await completed(world, f"orders-initial-{world.cluster.metadata.uid[:8]}")
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None, 300)
        await world.wait(60)
        assert list(world.backups().values()) == ["Completed"]


@virtual_time
async def test_gap_in_archive_begins_a_new_window() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store()
        await world.create(instances=1, backup=backup_settings())
        await archiving(world)
        first = f"orders-initial-{world.cluster.metadata.uid[:8]}"
        await completed(world, first)
        await world.report("SegmentsDropped", since=world.now_text())
        await world.until("reported", lambda: world.condition("ContinuousArchiving") == "False/SegmentsDropped", 60)
        await world.until("a new full backup", lambda: len(world.backups()) == 2, 60)
        (gap,) = world.backups().keys() - {first}
        await completed(world, gap)
