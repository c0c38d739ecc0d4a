"""Final dump before the database of a server is dropped, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.dump_harness import BACKUP, KEY, DumpHarness
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, Database
from steersman_testing import virtual_time

SKIP = {"metadata": {"annotations": {"databases.steersman.dev/skip-final-backup": "true"}}}
FORCE = {"metadata": {"annotations": {"databases.steersman.dev/force-delete": "true"}}}
FAILURE = ("DumpFailed", "The database cannot be dumped: permission denied for table t.")


async def deleted(world: DumpHarness, **settings: Any) -> str:
    """Delete a Database that was dumped. Return the name of its final dump."""
    await world.create_store()
    await world.database(backup={**BACKUP, **settings}, deletionPolicy="Delete")
    await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")
    uid = world.found.metadata.uid[:8]
    await world.dumped(f"shop-initial-{uid}")
    await world.client.delete(Database, KEY)
    return f"shop-final-{uid}"


def is_gone(world: DumpHarness) -> bool:
    """Return True if the Database is gone."""
    return world.server.read(Database, KEY) is None


@virtual_time
async def test_database_is_dropped_after_its_final_dump() -> None:
    world = DumpHarness()
    async with world.operator():
        name = await deleted(world)
        await world.until("runs", lambda: world.backups().get(name) == "Running")
        await world.runtime.clock.sleep(120)
        assert "shop" in world.sql.databases
        assert world.reason("Ready") == "False/Deleting"
        done = await world.dumped(name)
        await world.until("gone", lambda: is_gone(world))
        assert "shop" not in world.sql.databases
        assert (done.status.trigger, done.status.path) == ("Final", world.claims[0][0])
        assert world.backups()[name] == "Completed"


@virtual_time
async def test_failed_final_dump_keeps_the_database_and_is_repeated() -> None:
    world = DumpHarness()
    async with world.operator():
        name = await deleted(world)
        world.refusal = FAILURE
        await world.dumped(name, "Failed")
        await world.until("reported", lambda: world.reason("Ready") == "False/FinalBackupFailed")
        assert "permission denied for table t" in world.text("Ready")
        assert "skip-final-backup" in world.text("Ready")
        await world.runtime.clock.sleep(240)
        assert "shop" in world.sql.databases
        world.refusal = None
        await world.until("repeated", lambda: world.backups().get(name) != "Failed", 400)
        await world.dumped(name)
        await world.until("gone", lambda: is_gone(world))
        assert "shop" not in world.sql.databases


@virtual_time
@pytest.mark.parametrize(("annotation", "dropped"), [(SKIP, False), (FORCE, False)])
async def test_annotations_end_the_wait_and_keep_the_database(annotation: dict[str, Any], dropped: bool) -> None:
    world = DumpHarness()
    async with world.operator():
        name = await deleted(world)
        world.refusal = FAILURE
        await world.dumped(name, "Failed")
        await world.client.patch(Database, KEY, MergePatch(annotation))
        await world.until("gone", lambda: is_gone(world))
        assert ("shop" not in world.sql.databases) is dropped
        assert world.server.read(Secret, ObjectKey("default", "shop-app")) is not None


@virtual_time
async def test_if_possible_keeps_the_database_after_10_minutes() -> None:
    world = DumpHarness()
    async with world.operator():
        name = await deleted(world, finalBackup="IfPossible")
        world.refusal = FAILURE
        await world.dumped(name, "Failed")
        await world.until("gone", lambda: is_gone(world), 700)
        assert "shop" in world.sql.databases


@virtual_time
async def test_disabled_final_backup_drops_at_once() -> None:
    world = DumpHarness()
    async with world.operator():
        name = await deleted(world, finalBackup="Disabled")
        await world.until("gone", lambda: is_gone(world))
        assert "shop" not in world.sql.databases
        assert world.server.read(Backup, ObjectKey("default", name)) is None
