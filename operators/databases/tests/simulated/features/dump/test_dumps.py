"""Scheduled dumps of a Database on a server, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from database_support.unit.dump_harness import BACKUP, HOURLY, KEY, DumpHarness
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, Database
from steersman_testing import virtual_time

HOUR_SECONDS = 3600.0


async def declared(world: DumpHarness, backup: Mapping[str, Any] = HOURLY) -> str:
    """Create the store and a Database with dumps. Return the name of its first dump."""
    await world.create_store()
    await world.database(backup=backup)
    await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")
    return f"shop-initial-{world.found.metadata.uid[:8]}"


@virtual_time
async def test_first_dump_starts_once_database_is_ready() -> None:
    world = DumpHarness()
    async with world.operator():
        first = await declared(world)
        await world.until("running", lambda: world.backups().get(first) == "Running")
        (job,) = world.jobs()
        document, (container,) = world.document(job), job.spec.template.spec.containers
        assert list(container.command) == ["steersman-instance", "dump", "--spec", "/etc/steersman/job/job.json"]
        assert document["server"] == {
            "host": "db.example.com",
            "port": 5432,
            "database": "shop",
            "tls": "VerifyFull",
            "administrator": "",
        }
        assert document["retention"] == {"window_seconds": 1209600, "minimum_full_backups": 2}
        assert world.reason("BackedUp") == "False/NoBackup"
        done = await world.dumped(first)
        assert (done.status.engine, done.status.version, done.status.trigger) == ("postgresql", "17.5", "Schedule")
        await world.until("backed up", lambda: world.reason("BackedUp") == "True/UpToDate")
        status, uid = world.found.status.backup, world.found.metadata.uid
        assert status is not None
        assert (status.path, status.stored_bytes) == (f"default/database.shop/{uid[:8]}", 10)
        assert status.last_backup is not None
        assert status.last_backup.name == first
        assert world.claims == [(status.path, uid)]
        assert world.server.read(Secret, ObjectKey("default", "shop-dumps")) is not None


@virtual_time
async def test_schedule_creates_dumps_and_retention_removes_objects() -> None:
    world = DumpHarness()
    async with world.operator():
        first = await declared(world)
        await world.dumped(first)
        names = {first}
        for _ in range(3):
            await world.until("due", lambda: world.backups().keys() - names, 2 * HOUR_SECONDS)
            (name,) = world.backups().keys() - names
            await world.dumped(name)
            names.add(name)
        assert len(world.dumps) == 2
        await world.until("expired objects are gone", lambda: len(world.backups()) == 2)
        assert first not in world.backups()
        assert world.reason("BackedUp") == "True/UpToDate"


@virtual_time
async def test_operator_away_for_hours_creates_one_dump() -> None:
    world = DumpHarness()
    async with world.operator():
        first = await declared(world)
        await world.dumped(first)
        await world.until("announced", lambda: (s := world.found.status.backup) is not None and s.next_backup)
    await world.runtime.clock.sleep(6 * HOUR_SECONDS)
    async with world.operator():
        await world.until("due", lambda: world.backups().keys() - {first})
        await world.runtime.clock.sleep(300)
        assert len(world.backups()) == 2


@virtual_time
async def test_failed_dump_is_reported_and_next_one_retries() -> None:
    world = DumpHarness(refusal=("DumpFailed", "The database cannot be dumped: permission denied for table t."))
    async with world.operator():
        first = await declared(world)
        failed = await world.dumped(first, "Failed")
        assert failed.status.message == "The database cannot be dumped: permission denied for table t."
        await world.until("reported", lambda: "permission denied for table t" in world.text("BackedUp"))
        assert world.reason("Ready") == "True/DatabaseReady"
        world.refusal = None
        await world.until("due", lambda: world.backups().keys() - {first}, 2 * HOUR_SECONDS)
        (second,) = world.backups().keys() - {first}
        await world.dumped(second)
        await world.until("backed up", lambda: world.reason("BackedUp") == "True/UpToDate")


@virtual_time
async def test_backups_on_demand_run_one_after_another() -> None:
    world = DumpHarness()
    async with world.operator():
        await world.dumped(await declared(world, backup=BACKUP))
        for name in ("a", "b"):
            await world.request(name)
        await world.until("a runs", lambda: world.backups()["a"] == "Running")
        await world.runtime.clock.sleep(30)
        assert world.backups()["b"] == "Pending"
        await world.dumped("b")
        assert world.backups()["a"] == "Completed"


@virtual_time
async def test_removed_backup_removes_report_and_keeps_dumps() -> None:
    world = DumpHarness()
    async with world.operator():
        first = await declared(world)
        await world.dumped(first)
        await world.client.patch(Database, KEY, MergePatch({"spec": {"backup": None}}))
        await world.until("no report", lambda: world.of_database("BackedUp") is None)
        assert world.found.status.backup is None
        assert first in world.backups()
        await world.request("late")
        await world.until("waiting", lambda: world.backups()["late"] == "Pending")
        late = world.server.read(Backup, ObjectKey("default", "late"))
        assert late is not None
        await world.until("told", lambda: "has no spec.backup" in _message(world, "late"))


def _message(world: DumpHarness, name: str) -> str:
    found = world.server.read(Backup, ObjectKey("default", name))
    return "" if found is None else found.status.message or ""


@virtual_time
async def test_deleted_database_ends_running_dump_and_keeps_others() -> None:
    world = DumpHarness()
    async with world.operator():
        first = await declared(world)
        await world.dumped(first)
        await world.request("running")
        await world.until("runs", lambda: world.backups()["running"] == "Running")
        await world.client.delete(Database, KEY)
        await world.until("ended", lambda: world.backups()["running"] == "Failed")
        await world.until("gone", lambda: world.server.read(Database, KEY) is None)
        assert world.backups()[first] == "Completed"


@virtual_time
@pytest.mark.parametrize(
    ("administrator", "reason", "message"),
    [
        ({"name": "admin", "namespace": "shared"}, "False/ReferenceNotPermitted", "Create the Secret in namespace"),
        ({"name": "admin"}, "False/StoreNotFound", "BackupStore store does not exist"),
    ],
)
async def test_impossible_dump_is_reported(administrator: dict[str, str], reason: str, message: str) -> None:
    world = DumpHarness()
    async with world.operator():
        await world.namespace("shared")
        allowed = {"databases.steersman.dev/allowed-namespaces": "default"}
        await world.secret("admin", world.entries("admin"), "shared", allowed)
        if "namespace" in administrator:
            await world.create_store()
        server = {"host": "db.example.com", "administrator": administrator}
        await world.database(backup=HOURLY, serverRef=server)
        await world.until("reported", lambda: world.reason("BackedUp") == reason)
        assert message in world.text("BackedUp")
        await world.until("ready all the same", lambda: world.reason("Ready") == "True/DatabaseReady")
        assert not world.jobs()
