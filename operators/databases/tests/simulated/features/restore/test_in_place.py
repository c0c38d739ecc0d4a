"""Restores of whole clusters in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.database_harness import CuttableTransport
from database_support.unit.in_place import WHOLE, InPlace
from database_support.unit.restore_harness import NAME
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim
from steersman.client import MergePatch
from steersman.meta import ObjectKey, Quantity
from steersman_databases.api import PostgreSQLCluster, Restore
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.cluster.state import RETIRED
from steersman_databases.features.storage.usage import GROWN
from steersman_testing import run_virtual, virtual_time

RESTORE = ObjectKey(KEY.namespace, NAME)


def pvcs(world: InPlace) -> list[PersistentVolumeClaim]:
    return sorted(world.server.read_all(PersistentVolumeClaim), key=lambda pvc: pvc.metadata.name)


@virtual_time
async def test_confirmed_restore_replaces_the_data() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(keepPrevious="20m")
        before = world.uids()
        await world.wait(60)
        assert world.uids() == before, "a plan stops nothing"
        assert len(pvcs(world)) == 3
        found = world.found()
        assert found is not None and found.status.plan is not None
        assert found.status.plan.id in world.text() and "2025-12-31 23:59:58" in world.text()
        assert "at least 12 of them in the archive" in world.text()
        await world.confirm()
        await world.until("completed", lambda: world.outcome() == "Completed/Completed", 300)
        await world.ready(3)
        assert world.restored() == [True, True, True]
        assert sorted(world.pods()) == ["orders-3", "orders-4", "orders-5"]
        assert world.hosts.programs.recovered == ["data-orders-3"]
        kept = [pvc for pvc in pvcs(world) if RETIRED in pvc.metadata.labels]
        uid = found.metadata.uid
        assert [p.metadata.labels["databases.steersman.dev/replaced-by"] for p in kept] == [uid] * 3
        await world.wait(900)
        assert len(pvcs(world)) == 6
        await world.wait(600)
        assert world.pvc_names() == ["data-orders-3", "data-orders-4", "data-orders-5"]
        assert world.server.read(Job, NAMES.restore_job(uid)) is None
        assert world.server.read(Job, NAMES.restore_plan_job(uid)) is None
        assert {"RestorePlanned", "RestoreStarted", "Restored", "RestoreCompleted"} <= set(world.events())


@virtual_time
async def test_job_does_what_the_plan_says_on_a_reserved_timeline() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(1)
        found = world.found()
        assert found is not None
        key = NAMES.restore_job(found.metadata.uid)
        world.hosts.stuck_jobs = {key.name: ""}
        await world.confirm()
        await world.until("a Job", lambda: world.server.read(Job, key), 60)
        config = world.server.read(ConfigMap, key)
        assert config is not None
        document: dict[str, Any] = json.loads(config.data["job.json"])
        timelines = world.server.read(ConfigMap, NAMES.dcs_timelines)
        assert timelines is not None
        assert list(timelines.data.values()) == [str(document["new_timeline"])] == ["5"]
        assert (document["backup_id"], document["timeline"]) == ("20260101-000000F", 1)
        assert document["target"] == {"time": "2026-01-01T00:00:00Z"}


@virtual_time
async def test_wal_volumes_belong_to_their_lineage() -> None:
    world = InPlace()
    async with world.operator():
        await world.declare(2, {"wal_storage": VolumeSettings()})
        await world.ready(2)
        await world.restore(only=None, keepPrevious="0s")
        await world.replanned()
        await world.confirm()
        await world.until("completed", lambda: world.outcome() == "Completed/Completed", 300)
        await world.ready(2)
        names = [f"{volume}-orders-{ordinal}" for volume in ("data", "wal") for ordinal in (2, 3)]
        await world.until("the previous volumes are deleted", lambda: world.pvc_names() == names, 60)


@virtual_time
async def test_wrong_confirm_does_nothing() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(1)
        await world.confirm(value="0123456789ab")
        await world.until("reported", lambda: world.outcome() == "Planned/ConfirmMismatch", 60)
        await world.wait(60)
        assert len(pvcs(world)) == 1 and world.status.phase == "Ready"


@virtual_time
async def test_impossible_plan_fails_with_its_reason() -> None:
    world = InPlace()
    async with world.operator():
        await world.declare()
        await world.restore(only=None)
        await world.until("a plan Job", lambda: world.restores(), 60)
        await world.run_plans({"ok": False, "reason": "TargetNotReached", "message": "the archive ends at 10:30."})
        await world.until("failed", lambda: world.outcome() == "Failed/TargetNotReached", 60)


@virtual_time
async def test_plan_larger_than_the_volume_is_refused() -> None:
    world = InPlace()
    async with world.operator():
        await world.declare()
        await world.restore(only=None)
        await world.until("a plan Job", lambda: world.restores(), 60)
        plan = {"backup": "20260101-000000F", "timeline": 1, "newestTimeline": 1, "sizeBytes": 1 << 40}
        await world.run_plans({"ok": True, "plan": plan})
        await world.until("failed", lambda: world.outcome() == "Failed/NotEnoughSpace", 60)
        assert "1024.0 GiB, and a new volume has" in world.text()


@virtual_time
async def test_plan_fits_into_volumes_that_grew() -> None:
    world = InPlace()
    async with world.operator():
        await world.declare(1)
        await world.ready(1)
        body = {"metadata": {"annotations": {GROWN: "{}"}}, "spec": {"resources": {"requests": {"storage": "2Ti"}}}}
        await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), MergePatch(body))
        await world.restore(only=None)
        await world.until("a plan Job", lambda: world.restores(), 60)
        plan = {"backup": "20260101-000000F", "timeline": 1, "newestTimeline": 1, "sizeBytes": 1 << 40}
        await world.run_plans({"ok": True, "plan": plan})
        await world.until("planned", lambda: world.outcome() == "Planned/Planned", 60)
        found = world.found()
        assert found is not None and found.status.plan is not None
        assert found.status.plan.volume_bytes == 2 << 40


@virtual_time
async def test_plan_shows_volumes_and_measured_duration() -> None:
    world = InPlace()
    async with world.operator():
        await world.declare(1)
        await world.ready(1)
        last = {"name": "nightly", "time": "2026-01-01T00:00:00Z", "verified": True, "recoverySeconds": 42}
        body = MergePatch({"status": {"backup": {"lastVerification": last}}})
        await world.client.patch(PostgreSQLCluster, KEY, body, subresource="status")
        await world.restore(only=None)
        await world.replanned()
        found = world.found()
        assert found is not None and found.status.plan is not None
        [size] = {str(pvc.spec.resources.requests["storage"]) for pvc in pvcs(world)}
        assert found.status.plan.volume_bytes == int(Quantity(size).value)
        assert found.status.plan.estimated_seconds == 42
        assert "It takes about 42 s" in world.text()


@virtual_time
async def test_failed_restore_stops_nothing() -> None:
    world = InPlace()
    world.hosts.programs.recovery_failure = "ArchiveDamaged", "a segment is damaged"
    async with world.operator():
        await world.planned()
        before = world.uids()
        await world.confirm()
        await world.until("failed", lambda: world.outcome() == "Failed/ArchiveDamaged", 60)
        await world.until("its volume is deleted", lambda: len(pvcs(world)) == 3, 60)
        assert world.uids() == before
        await world.ready(3)


@pytest.mark.parametrize("how", ["deleted", "unconfirmed"])
@virtual_time
async def test_withdrawn_restore_lets_the_previous_data_serve(how: str) -> None:
    world = InPlace()
    async with world.operator():
        await world.planned()
        primary = world.status.primary
        # The primary does not stop, so that the cut is under way.
        world.hang(f"{primary}-0")
        await world.confirm()
        await world.until("stopping", lambda: len(world.pods()) == 1, 120)
        if how == "deleted":
            await world.client.delete(Restore, RESTORE)
        else:
            await world.client.patch(Restore, RESTORE, MergePatch({"spec": {"confirm": None}}))
        await world.wait(20)
        world.hang()
        await world.ready(3)
        assert world.restored() == [False] * 3
        assert len(pvcs(world)) == 3
        assert world.status.primary == primary


@virtual_time
async def test_second_restore_replaces_the_first() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned()
        await world.restore("later", only=None)
        await world.replanned("later")
        first = world.found("later")
        await world.confirm()
        await world.until("completed", lambda: world.outcome() == "Completed/Completed", 300)
        await world.ready(3)
        await world.replanned("later")
        second = world.found("later")
        assert first is not None and first.status.plan is not None
        assert second is not None and second.status.plan is not None
        assert first.status.plan.id != second.status.plan.id, "the data that it would replace have changed"
        body = MergePatch({"spec": {"confirm": second.status.plan.id}})
        await world.client.patch(Restore, ObjectKey(KEY.namespace, "later"), body)
        await world.until("completed", lambda: world.outcome("later") == "Completed/Completed", 300)
        await world.ready(3)
        assert sorted(world.pods()) == ["orders-6", "orders-7", "orders-8"]


@virtual_time
async def test_deleted_cluster_leaves_no_half_restored_volume() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(1)
        found = world.found()
        assert found is not None
        world.hosts.stuck_jobs = {NAMES.restore_job(found.metadata.uid).name: ""}
        await world.confirm()
        await world.until("a volume", lambda: len(pvcs(world)) == 2, 60)
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None, 600)
        assert world.pvc_names() == ["data-orders-0"]


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
def test_operator_killed_at_every_call_serves_one_lineage(lose_answer: bool) -> None:
    # By default, each cut point has one of the two moments.
    for calls in range(23 * lose_answer, 400, 46) if not WHOLE else range(400):
        if not run_virtual(_killed(calls, lose_answer)):
            assert calls > 20
            return
    raise AssertionError("the restore does not end")


async def _killed(calls: int, lose_answer: bool) -> bool:
    world = InPlace()
    async with world.operator():
        await world.planned(2)
    await world.confirm()
    transport = CuttableTransport(world.server, calls, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.serve_one_lineage(transport)
    async with world.operator():
        await world.until("completed", lambda: world.outcome() == "Completed/Completed", 600)
        await world.ready(2)
        world.assert_one_lineage()
    assert world.restored() == [True] * 2, f"{calls} calls"
    served = world.served()
    assert served == sorted(served), "the previous data never serve after the restored ones"
    return transport.is_cut.is_set()
