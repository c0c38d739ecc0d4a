"""Restores of dumps into databases of servers and clusters, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.dump_harness import KEY, DumpHarness
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Secret
from steersman.meta import ObjectKey
from steersman_databases.features.backup.specs import job_state
from steersman_testing import virtual_time

JOB = ObjectKey("default", "shop-restore")
FROM_BACKUP: dict[str, Any] = {"recovery": {"backup": {"name": "before"}}}
PATH = "default/database.old/0123abcd"


async def declared(world: DumpHarness, **bootstrap: Any) -> None:
    """Create a store, a completed dump and a Database that restores it."""
    await world.create_store()
    await world.create_dump()
    await world.database(bootstrap=bootstrap or FROM_BACKUP)


@virtual_time
async def test_restore_completes_before_database_is_ready() -> None:
    world = DumpHarness()
    async with world.operator():
        await declared(world)
        await world.until("started", lambda: world.server.read(Job, JOB) is not None)
        (job,) = world.jobs()
        document, (container,) = world.document(job), job.spec.template.spec.containers
        assert list(container.command)[:2] == ["steersman-instance", "load"]
        assert document["backup_id"] == "20260101T000000Z"
        mounts = {each.name: each.mount_path for each in container.volume_mounts}
        assert mounts["owner"] == "/etc/steersman/owner"
        await world.until("reported", lambda: world.reason("Ready") == "False/Recovering")
        assert world.reason("Recovered") == "Unknown/Recovering"
        assert world.found.status.phase == "Provisioning"
        assert "shop" in world.sql.databases
        await world.run_jobs()
        await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")
        assert world.text("Recovered") == "dump 20260101T000000Z was restored"
        for kind in (Job, Secret):
            await world.until("cleaned up", lambda kind=kind: world.server.read(kind, JOB) is None)


@virtual_time
async def test_restore_runs_once() -> None:
    world = DumpHarness()
    async with world.operator():
        await declared(world)
        await world.until("started", world.jobs)
        await world.run_jobs()
        await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")
        await world.until("cleaned up", lambda: not world.jobs())
    async with world.operator():
        await world.runtime.clock.sleep(600)
        assert not world.jobs()
        assert world.reason("Recovered") == "True/RecoveryCompleted"


@virtual_time
async def test_restore_from_path_takes_last_dump() -> None:
    world = DumpHarness()
    async with world.operator():
        await declared(world, recovery={"store": {"storeRef": {"name": "store"}, "path": PATH}})
        await world.until("started", world.jobs)
        (job,) = world.jobs()
        assert "backup_id" not in world.document(job)


@virtual_time
async def test_refused_restore_says_why_and_runs_again_without_its_job() -> None:
    world = DumpHarness(refusal=("DatabaseNotEmpty", "Database shop has objects already, such as public.t."))
    async with world.operator():
        await declared(world)
        await world.until("started", world.jobs)
        await world.run_jobs()
        await world.until("failed", lambda: world.reason("Ready") == "False/RecoveryFailed")
        assert world.found.status.phase == "Failed"
        assert "public.t. To try again, delete Job shop-restore" in world.text("Recovered")
        await world.runtime.clock.sleep(300)
        (job,) = world.jobs()
        assert job_state(job) == "Failed"
        world.refusal = None
        await world.client.delete(Job, JOB, propagation="Background")
        await world.until("started again", lambda: any(job_state(j) == "Running" for j in world.jobs()))
        await world.run_jobs()
        await world.until("ready", lambda: world.reason("Ready") == "True/DatabaseReady")


@virtual_time
@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ({"engine": "mysql"}, "False/SourceMismatch", "has engine mysql"),
        ({"phase": "Failed"}, "False/SourceNotFound", "Backup before is not completed"),
        ({"path": "other/database.old/0123abcd"}, "", ""),
    ],
)
async def test_unsuitable_source_starts_no_job(status: dict[str, Any], reason: str, message: str) -> None:
    world = DumpHarness()
    async with world.operator():
        await world.create_store()
        await world.create_dump(**status)
        await world.database(bootstrap=FROM_BACKUP)
        if not reason:
            # The owner of the store owns all of its content.
            await world.until("started", world.jobs)
            return
        await world.until("refused", lambda: world.reason("Recovered") == reason)
        assert message in world.text("Recovered")
        assert not world.jobs()


@virtual_time
async def test_missing_backup_is_reported_and_awaited() -> None:
    world = DumpHarness()
    async with world.operator():
        await world.create_store()
        await world.database(bootstrap=FROM_BACKUP)
        await world.until("reported", lambda: world.reason("Recovered") == "False/SourceNotFound")
        await world.create_dump()
        await world.until("started", world.jobs)


@virtual_time
async def test_foreign_objects_of_its_name_stay() -> None:
    world = DumpHarness()
    async with world.operator():
        await world.secret(JOB.name, {"mine": "x"})
        await declared(world)
        await world.until("reported", lambda: world.reason("Recovered") == "False/NameConflict")
        assert world.entries(JOB.name) == {"mine": "x"}
        assert world.found.metadata.name == KEY.name
