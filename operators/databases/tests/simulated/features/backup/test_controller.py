"""Jobs and phases of ``Backup`` objects in virtual time."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.database_harness import CuttableTransport, CuttableWrites
from database_support.unit.shared_start import shared_start
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.client import HttpRequest, HttpResponse, MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, PostgreSQLCluster
from steersman_databases.features.backup.specs import job_state
from steersman_testing import run_virtual, virtual_time

WHOLE = os.environ.get("SIMULATE") == "whole"
FORCE = {"metadata": {"annotations": {"databases.steersman.dev/force-delete": "true"}}}


@shared_start
async def declare_backups(world: BackupHarness) -> None:
    """Create a cluster whose archive works and which has one full backup in the store."""
    await world.create_store()
    await world.create(instances=1, backup=backup_settings())
    await world.until("catalog", lambda: world.server.read(ConfigMap, NAMES.backup_catalog), 60)
    time = world.now_text()
    world.stored = [{"id": "20260101-000000F", "type": "Full", "start": time, "stop": time, "size": 9}]
    await world.report()
    await world.until("discovered", lambda: list(world.backups().values()) == ["Completed"], 60)


async def phase(world: BackupHarness, name: str, expected: str, seconds: float = 60) -> Backup:
    """Wait for the phase of a backup."""
    await world.until(f"{name} is {expected}", lambda: world.backups().get(name) == expected, seconds)
    found = world.backup(name)
    assert found is not None
    return found


@pytest.mark.requirement("pattern/backup-credentials")
@virtual_time
async def test_job_describes_members_and_retention() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare_backups(world)
        await world.request("b", type="Incremental")
        started = await phase(world, "b", "Running")
        assert (started.status.engine, started.status.path) == ("postgresql", world.status.backup.path)
        (job,) = world.jobs()
        document = world.document(job)
        host = "orders-0-0.orders-headless.default.svc.cluster.local"
        member = {"instance": "orders-0", "ordinal": 0, "address": host, "role": "Primary"}
        assert (document["members"], document["port"]) == ([member], 8432)
        assert document["retention"] == {"window_seconds": 1209600, "minimum_full_backups": 2}
        uid = started.metadata.uid
        assert document["type"] == "Incremental"
        assert document["backup"] == {"name": "b", "uid": uid, "trigger": "OnDemand"}
        (container,) = job.spec.template.spec.containers
        (primary,) = [p for p in world.server.read_all(Pod) if p.metadata.name == "orders-0-0"]
        assert container.image == primary.spec.containers[0].image
        assert not container.env and list(container.command)[:2] == ["steersman-instance", "backup"]
        await world.run_jobs()
        complete = await phase(world, "b", "Completed")
        assert (complete.status.backup_id, complete.status.size_bytes) == (world.stored[-1]["id"], 1000)
        await world.until("Job removed", lambda: not world.jobs(), 60)
        assert {"BackupStarted", "BackupCompleted"} <= set(world.events())


@virtual_time
async def test_one_job_runs_at_a_time() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare_backups(world)
        for name in ("c", "a", "b"):
            await world.request(name)
            await world.wait(1)
        for _ in range(3):
            await world.until("a Job", lambda: [j for j in world.jobs() if job_state(j) == "Running"], 60)
            await world.wait(30)
            assert await world.run_jobs() == 1
        await world.until("all", lambda: set(world.backups().values()) == {"Completed"}, 60)
        found = [world.backup(name) for name in ("c", "a", "b")]
        times = [b.status.start_time for b in found if b is not None and b.status.start_time is not None]
        assert times == sorted(times), "the oldest runs first"


@virtual_time
async def test_failure_has_the_reason_of_the_program() -> None:
    world = BackupHarness(succeeds=False)
    async with world.operator():
        await declare_backups(world)
        await world.request("b")
        await phase(world, "b", "Running")
        await world.run_jobs()
        failed = await phase(world, "b", "Failed")
        assert failed.status.message == "The object store cannot be reached"
        assert failed.status.conditions[0].reason == "StoreUnreachable"
        await world.until("reported", lambda: world.condition("BackedUp") == "False/LastBackupFailed", 60)
        assert world.status.phase == "Ready"
        assert world.warnings("BackupFailed")


@virtual_time
async def test_deleted_cluster_ends_its_backup() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare_backups(world)
        await world.request("runs")
        await phase(world, "runs", "Running")
        await world.client.delete(PostgreSQLCluster, KEY)
        failed = await phase(world, "runs", "Failed")
        assert failed.status.conditions[0].reason == "ClusterDeleted"
        await world.until("its Job is deleted", lambda: not world.jobs(), 60)


@virtual_time
async def test_job_of_failed_backup_expires() -> None:
    world = BackupHarness(succeeds=False)
    async with world.operator():
        await declare_backups(world)
        await world.request("b")
        await phase(world, "b", "Running")
        await world.run_jobs()
        await phase(world, "b", "Failed")
        (job,) = world.jobs()
        assert job.spec.ttl_seconds_after_finished == 3600


@virtual_time
async def test_backup_that_cannot_start_fails_after_an_hour() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.request("b")
        waiting = await phase(world, "b", "Pending")
        assert "has no spec.backup" in (waiting.status.message or "")
    # The operator only has to run at the deadline.
    await world.wait(3600)
    async with world.operator():
        failed = await phase(world, "b", "Failed")
        assert failed.status.conditions[0].reason == "NotStarted"


@virtual_time
async def test_deletion_policy_delete_expires_the_set() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare_backups(world)
        await world.request("b", deletion_policy="Delete")
        await phase(world, "b", "Running")
        await world.run_jobs()
        found = await phase(world, "b", "Completed")
        await world.report()
        await world.client.delete(Backup, ObjectKey(KEY.namespace, "b"))
        await world.until("a Job", lambda: [j for j in world.jobs() if job_state(j) == "Running"], 60)
        (job,) = [j for j in world.jobs() if job_state(j) == "Running"]
        assert world.document(job)["backup_id"] == found.status.backup_id
        refused = {"ok": False, "reason": "NeededByRetention", "message": "retention needs it"}
        await world.run_jobs(refused)
        await world.until("refused", lambda: "retention needs it" in _message(world, "b"), 60)
        await world.until("tried again", lambda: [j for j in world.jobs() if job_state(j) == "Running"], 4000)
        await world.run_jobs()
        await world.until("gone", lambda: world.backup("b") is None, 60)
        assert [b["id"] for b in world.stored] == ["20260101-000000F"]


class TerminatingNamespace(CuttableTransport):
    """Shows the namespace as being deleted."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        response = await super().request(request)
        if (request.method, request.path) != ("GET", f"/api/v1/namespaces/{KEY.namespace}"):
            return response
        shown = json.loads(response.body)
        shown["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        return msgspec.structs.replace(response, body=json.dumps(shown).encode())


@virtual_time
async def test_deleted_namespace_removes_nothing_from_the_store() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare_backups(world)
        await world.request("b", deletion_policy="Delete")
        await phase(world, "b", "Running")
        await world.run_jobs()
        await phase(world, "b", "Completed")
        await world.until("Job removed", lambda: not world.jobs(), 60)
    async with world.operator(TerminatingNamespace(world.server)):
        await world.client.delete(Backup, ObjectKey(KEY.namespace, "b"))
        await world.until("gone", lambda: world.backup("b") is None, 60)
        assert not world.jobs() and len(world.stored) == 2


@virtual_time
async def test_forced_deletion_leaves_the_set() -> None:
    world = BackupHarness()
    async with world.operator():
        await declare_backups(world)
        await world.request("b", deletion_policy="Delete")
        await phase(world, "b", "Running")
        await world.run_jobs()
        await phase(world, "b", "Completed")
        await world.client.patch(Backup, ObjectKey(KEY.namespace, "b"), MergePatch(FORCE))
        await world.client.delete(Backup, ObjectKey(KEY.namespace, "b"))
        await world.until("gone", lambda: world.backup("b") is None, 60)
        assert len(world.stored) == 2
        assert "BackupRetained" in world.events()


def _message(world: BackupHarness, name: str) -> str:
    found = world.backup(name)
    return "" if found is None else found.status.message or ""


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
def test_operator_killed_at_every_write_makes_one_job(lose_answer: bool) -> None:
    # By default, each cut point has one of the two moments.
    for writes in range(2 * lose_answer, 40, 4) if not WHOLE else range(40):
        if not run_virtual(_killed(writes, lose_answer)):
            assert writes > 3
            return
    raise AssertionError("the backup does not end")


async def _killed(writes: int, lose_answer: bool) -> bool:
    world = BackupHarness()
    async with world.operator():
        await declare_backups(world)
    await world.request("b", deletion_policy="Delete")
    transport = CuttableWrites(world.server, writes, "backup", "/jobs", lose_answer=lose_answer)
    finished = 0
    async with world.operator(transport):
        for _ in range(60):
            finished += await world.run_jobs()
            await world.wait(0.5)
            if transport.is_cut.is_set() or (world.backups()["b"] == "Completed" and not world.jobs()):
                break
    async with world.operator():
        for _ in range(60):
            finished += await world.run_jobs()
            await world.wait(0.5)
            if world.backups()["b"] == "Completed" and not world.jobs():
                break
    assert (world.backups()["b"], finished, len(world.stored)) == ("Completed", 1, 2)
    return transport.is_cut.is_set()
