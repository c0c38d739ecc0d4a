"""Restores of tables and databases in virtual time."""

from __future__ import annotations

import os

import pytest

from database_support.unit.cluster_harness import KEY
from database_support.unit.database_harness import CuttableWrites
from database_support.unit.restore_harness import ITEM, NAME, RestoreHarness
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import PostgreSQLCluster, Restore
from steersman_testing import run_virtual, virtual_time

WHOLE = os.environ.get("SIMULATE") == "whole"
MISSING: dict[str, object] = {
    "ok": False,
    "reason": "TableNotFound",
    "message": "Table public.orders did not exist at that time. Tables: public.parts.",
}
RESTORE = ObjectKey(KEY.namespace, NAME)


@virtual_time
async def test_restore_copies_a_table_and_leaves_nothing() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.restore()
        await world.until("a Job", world.restores, 60)
        (job,) = world.restores()
        document = world.document(job)
        assert document["target"] == {"time": "2026-01-01T00:00:00Z"}
        tables = [{"schema": "public", "table": "orders"}]
        assert document["restore"] == {"database": "shop", "into": "restored_before_drop", "tables": tables}
        assert document["server"]["host"] == "orders-rw.default.svc"
        (password,) = world.copies.passwords
        assert password not in str(document) and password not in str(job)
        assert list(world.copies.accounts.values()) == ["restored_before_drop"]
        await world.until("running", lambda: world.outcome() == "Running/Running", 60)
        await world.run_restores()
        await world.until("completed", lambda: world.outcome() == "Completed/Completed", 60)
        found = world.found()
        assert found is not None
        status = found.status
        assert (status.database, status.schema, status.owner) == ("shop", "restored_before_drop", "clerk")
        (table,) = status.tables
        assert (table.name, table.copy, table.exists) == ("public.orders", "restored_before_drop.orders", False)
        assert world.copies.accounts == {}
        await world.until("removed", lambda: not world.leftovers(), 60)
        await world.until("no finalizer", lambda: (r := world.found()) and not r.metadata.finalizers, 60)
        assert {"RestoreStarted", "RestoreCompleted"} <= set(world.events())
        await world.wait(600)
        assert not world.jobs("restore"), "it never runs again"
        await world.client.delete(Restore, RESTORE)
        await world.until("gone", lambda: world.found() is None, 60)
        assert world.copies.owners == {"restored_before_drop": "clerk"}, "the copy stays"


@virtual_time
async def test_failed_restore_removes_its_account() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.restore()
        await world.until("a Job", world.restores, 60)
        await world.run_restores(MISSING)
        await world.until("failed", lambda: world.outcome() == "Failed/TableNotFound", 60)
        assert "public.parts. Create another Restore" in world.text()
        assert world.copies.accounts == {}
        await world.until("removed", lambda: not world.leftovers(), 60)
        (job,) = world.jobs("restore")
        assert job.spec.ttl_seconds_after_finished == 600, "its logs stay for a while"
        assert world.warnings("RestoreFailed")
        assert world.status.phase == "Ready", "the cluster serves"


@pytest.mark.parametrize(
    ("only", "fields", "reason", "text"),
    [
        ([ITEM], {"into": "taken"}, "NameConflict", "schema taken exists already"),
        ([{"database": "gone", "table": "t"}], {}, "DatabaseNotFound", "database gone does not exist"),
        ([ITEM], {"into": "ä" * 40}, "NameConflict", "63 bytes"),
    ],
)
@virtual_time
async def test_impossible_restore_fails_without_a_job(
    only: list[dict[str, str]], fields: dict[str, str], reason: str, text: str
) -> None:
    world = RestoreHarness()
    world.copies.owners["taken"] = "clerk"
    async with world.operator():
        await world.declare()
        await world.restore(only=only, **fields)
        await world.until("failed", lambda: world.outcome() == f"Failed/{reason}", 60)
        assert text in world.text()
        await world.until("removed", lambda: not world.leftovers(), 60)
        assert not world.jobs("restore")


@virtual_time
async def test_restore_that_cannot_start_says_why_and_gives_up() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.restore()
        await world.until("waits", lambda: "does not exist" in world.text(), 60)
        await world.create(instances=1)
        await world.ready()
        await world.until("waits", lambda: "has no archive" in world.text(), 60)
    # The operator only has to run at the deadline.
    await world.wait(3600)
    async with world.operator():
        await world.until("gave up", lambda: world.outcome() == "Failed/NotStarted", 60)


@virtual_time
async def test_unreachable_server_delays_each_step() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        world.copies.unreachable = True
        await world.restore()
        await world.until("waits", lambda: "no response" in world.text(), 60)
        world.copies.unreachable = False
        await world.until("a Job", world.restores, 60)
        world.copies.unreachable = True
        await world.run_restores()
        await world.until("waits", lambda: "giving the copy to its owner" in world.text(), 60)
        world.copies.unreachable = False
        await world.until("completed", lambda: world.outcome() == "Completed/Completed", 60)


@virtual_time
async def test_one_restore_of_a_cluster_runs_at_a_time() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        for name in ("a", "b"):
            await world.restore(name)
        for number in range(2):
            await world.until("a Job", world.restores, 60)
            # The queue has no deadline.
            await world.wait(30 if number else 4000)
            assert await world.run_restores() == 1
        await world.until("both", lambda: {world.outcome(n) for n in ("a", "b")} == {"Completed/Completed"}, 60)
        assert len(world.copies.owners) == 2


@virtual_time
async def test_backup_during_a_restore_removes_nothing() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.restore()
        await world.until("a Job", world.restores, 60)
        await world.request("b")
        await world.until("runs", lambda: world.backups().get("b") == "Running", 60)
        (job,) = world.jobs()
        assert "retention" not in world.document(job)


@pytest.mark.parametrize("moment", ["queued", "running", "ended"])
@virtual_time
async def test_deletion_at_any_moment_leaves_nothing(moment: str) -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        if moment == "queued":
            await world.restore("first")
            await world.until("another one runs", world.restores, 60)
        await world.restore()
        expected = "Pending/Waiting" if moment == "queued" else "Running/Running"
        await world.until(expected, lambda: world.outcome() == expected, 60)
        if moment == "ended":
            world.copies.unreachable = True
            await world.run_restores()
            await world.wait(30)
            await world.client.delete(Restore, RESTORE)
            await world.wait(30)
            assert world.found() is not None, "it waits for the server"
            world.copies.unreachable = False
        else:
            await world.client.delete(Restore, RESTORE)
        await world.until("gone", lambda: world.found() is None, 60)
        await world.wait(5)
        assert len(world.copies.accounts) == (1 if moment == "queued" else 0)
        assert len(world.leftovers()) == (3 if moment == "queued" else 0)


@virtual_time
async def test_deletion_ends_although_the_server_is_gone() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.restore()
        await world.until("a Job", world.restores, 60)
        world.copies.unreachable = True
        await world.client.delete(Restore, RESTORE)
        await world.until("gone", lambda: world.found() is None, 700)
        assert world.warnings("RestoreNotRemoved")
        assert not world.restores()


@virtual_time
async def test_deleted_cluster_ends_its_restore() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.restore()
        await world.until("a Job", world.restores, 60)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("failed", lambda: world.outcome() == "Failed/ClusterDeleted", 60)
        await world.until("gone", lambda: world.cluster is None, 300)
        await world.until("removed", lambda: not world.leftovers(), 60)
        await world.client.delete(Restore, RESTORE)
        await world.until("gone", lambda: world.found() is None, 60)


@virtual_time
async def test_deleted_job_fails_the_restore() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.restore()
        await world.until("runs", lambda: world.outcome() == "Running/Running", 60)
        (job,) = world.restores()
        await world.client.delete(Job, job.key, propagation="Background")
        await world.until("failed", lambda: world.outcome() == "Failed/JobDeleted", 60)
        assert world.copies.accounts == {}


@virtual_time
async def test_paused_restore_does_not_start() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.annotate(paused="true")
        await world.restore()
        await world.until("waits", lambda: "is paused" in world.text(), 60)
        await world.annotate(paused=None)
        await world.until("a Job", world.restores, 60)


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("outcome", [None, MISSING], ids=["completed", "failed"])
def test_operator_killed_at_every_write_runs_one_job(lose_answer: bool, outcome: dict[str, object] | None) -> None:
    # By default, each cut point has one of the two moments.
    for writes in range(2 * lose_answer, 40, 4) if not WHOLE else range(40):
        if not run_virtual(_killed(writes, lose_answer, outcome)):
            assert writes > 3
            return
    raise AssertionError("the restore does not end")


async def _killed(writes: int, lose_answer: bool, outcome: dict[str, object] | None) -> bool:
    world = RestoreHarness()
    expected = "Failed/TableNotFound" if outcome else "Completed/Completed"
    async with world.operator():
        await world.declare()
    await world.restore()
    transport = CuttableWrites(world.server, writes, "restore", "/jobs", lose_answer=lose_answer)
    finished = 0
    async with world.operator(transport):
        for _ in range(60):
            finished += await world.run_restores(outcome)
            await world.wait(1)
            if transport.is_cut.is_set() or (world.outcome() == expected and not world.leftovers()):
                break
        await world.wait(5)
    async with world.operator():
        for _ in range(60):
            finished += await world.run_restores(outcome)
            await world.wait(1)
        assert (world.outcome(), finished) == (expected, 1), f"{writes} writes"
        assert world.leftovers() == [] and world.copies.accounts == {}
        assert len(world.copies.passwords) == 1
        assert world.copies.owners == ({} if outcome else {"restored_before_drop": "clerk"})
        secrets = [s for s in world.server.read_all(Secret) if "restore" in s.metadata.name]
        assert secrets == []
        found = world.found()
        assert found is not None and found.metadata.finalizers == ()
    return transport.is_cut.is_set()


@virtual_time
async def test_forced_deletion_does_not_wait_for_the_server() -> None:
    world = RestoreHarness()
    async with world.operator():
        await world.declare()
        await world.restore()
        await world.until("a Job", world.restores, 60)
        world.copies.unreachable = True
        notes = {"databases.steersman.dev/force-delete": "true"}
        await world.client.patch(Restore, RESTORE, MergePatch({"metadata": {"annotations": notes}}))
        await world.client.delete(Restore, RESTORE)
        await world.until("gone", lambda: world.found() is None, 60)
