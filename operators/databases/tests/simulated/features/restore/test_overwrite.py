"""Restores over the present volumes of both engines, in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.database_harness import CuttableTransport
from database_support.unit.fake_patroni import FakeVolume
from database_support.unit.in_place import WHOLE, GroupInPlace, InPlace
from database_support.unit.restore_harness import NAME
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim
from steersman.client import MergePatch
from steersman.meta import ObjectKey, find_condition
from steersman_databases.api import Restore
from steersman_databases.cluster.state import OVERWRITING
from steersman_testing import run_virtual, virtual_time

RESTORE = ObjectKey(KEY.namespace, NAME)
ENGINES = pytest.mark.parametrize("kind", [InPlace, GroupInPlace], ids=["postgresql", "mysql"])


def job_key(world: InPlace, name: str = NAME) -> ObjectKey:
    found = world.found(name)
    assert found is not None
    return NAMES.restore_job(found.metadata.uid)


def overwritten(world: InPlace) -> list[str]:
    found = world.server.read_all(PersistentVolumeClaim)
    return [pvc.metadata.name for pvc in found if OVERWRITING in pvc.metadata.annotations]


def reason_of_available(world: InPlace) -> str:
    found = find_condition(world.status.conditions, "Available")
    return "" if found is None else found.reason


async def interrupted(world: InPlace, instances: int = 3) -> None:
    """Let a restore fail after the previous data were given up."""
    world.hosts.programs.recovery_failure = "ArchiveDamaged", "a segment is damaged"
    await world.planned(instances, mode="InPlace")
    await world.confirm()
    await world.until("failed", lambda: reason_of_available(world) == "RestoreFailed", 120)


@ENGINES
@virtual_time
async def test_volume_of_the_primary_is_overwritten(kind: type[InPlace]) -> None:
    world = kind()
    async with world.operator():
        await world.planned(3, mode="InPlace")
        primary = world.status.primary
        before = world.uids()
        await world.wait(60)
        assert world.uids() == before, "a plan stops nothing"
        assert "no undo exists" in world.text()
        await world.confirm()
        await world.completed(3)
        assert world.status.primary == primary
        assert world.hosts.programs.recovered == [f"data-{primary}"]
        assert sorted(world.pods()) == [primary, "orders-3", "orders-4"]
        assert world.restored() == [True] * 3
        await world.until("the other volumes are deleted", lambda: len(world.pvc_names()) == 3, 60)
        assert overwritten(world) == []
        assert world.server.read(Job, job_key(world)) is None


@virtual_time
async def test_id_of_another_mode_does_not_confirm() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(1)
        kept = world.found()
        await world.restore("over", only=None, mode="InPlace")
        await world.replanned("over")
        over = world.found("over")
        assert kept is not None and kept.status.plan is not None
        assert over is not None and over.status.plan is not None
        assert over.status.plan.id == f"no-undo-{over.status.plan.id.rpartition('-')[2]}"
        await world.confirm("over", kept.status.plan.id)
        await world.until("reported", lambda: world.outcome("over") == "Planned/ConfirmMismatch", 60)
        await world.confirm(NAME, over.status.plan.id)
        await world.until("reported", lambda: world.outcome() == "Planned/ConfirmMismatch", 60)
        await world.wait(60)
        assert world.status.phase == "Ready" and world.restored() == [False]


@virtual_time
async def test_image_without_overwrite_is_refused() -> None:
    world = InPlace()
    async with world.operator():
        await world.declare()
        await world.restore(only=None, mode="InPlace")
        await world.until("a plan Job", lambda: world.restores(), 60)
        await world.run_plans({"ok": True, "plan": {**world.plan_report(), "overwrites": False}})
        await world.until("failed", lambda: world.outcome() == "Failed/NotSupported", 60)


@virtual_time
async def test_old_plan_is_repeated_before_the_data_are_given_up() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(1, mode="InPlace")
        await world.wait(900)
        await world.confirm()
        await world.until("planned again", lambda: world.outcome() == "Pending/Waiting" and world.restores(), 60)
        await world.run_plans({"ok": False, "reason": "NoUsableBackup", "message": "the backup has expired."})
        await world.until("failed", lambda: world.outcome() == "Failed/NoUsableBackup", 60)
        assert world.restored() == [False] and overwritten(world) == []


@virtual_time
async def test_slow_plan_job_does_not_delay_the_start() -> None:
    world = InPlace()
    async with world.operator():
        await world.declare()
        await world.ready(1)
        await world.restore(only=None, mode="InPlace")
        await world.until("a plan Job", lambda: world.restores(), 60)
        await world.wait(1800)
        await world.replanned()
        await world.confirm()
        await world.completed(1)


@ENGINES
@virtual_time
async def test_overwrite_that_cannot_stop_is_planned_again(kind: type[InPlace]) -> None:
    world = kind()
    async with world.operator():
        await world.planned(2, mode="InPlace")
        primary = world.status.primary
        world.hang(*(f"{name}-0" for name in world.pods() if name != primary))
        await world.confirm()
        await world.until("started", lambda: world.outcome() == "Running/Running", 60)
        await world.wait(620)
        world.hang()
        await world.until("planned again", lambda: world.outcome() == "Pending/Waiting" and world.restores(), 120)
        await world.run_plans({"ok": False, "reason": "NoUsableBackup", "message": "the backup has expired."})
        await world.until("failed", lambda: world.outcome() == "Failed/NoUsableBackup", 60)
        await world.ready(2)
        assert world.status.primary == primary and overwritten(world) == []


@virtual_time
async def test_overwriting_job_has_the_reserved_timeline() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(1, mode="InPlace")
        key = job_key(world)
        world.hosts.stuck_jobs = {key.name: ""}
        await world.confirm()
        await world.until("a Job", lambda: world.server.read(Job, key), 60)
        assert not world.pods()
        config = world.server.read(ConfigMap, key)
        assert config is not None
        document: dict[str, Any] = json.loads(config.data["job.json"])
        found = world.found()
        assert found is not None
        assert (document["new_timeline"], document["overwrite"]) == (5, found.metadata.uid)


@ENGINES
@virtual_time
async def test_failed_overwrite_is_reported_and_repeated(kind: type[InPlace]) -> None:
    world = kind()
    async with world.operator():
        await interrupted(world)
        await world.until("reported", lambda: world.outcome() == "Running/ArchiveDamaged", 60)
        assert "a segment is damaged" in world.text()
        first = world.server.read(Job, job_key(world))
        config = world.server.read(ConfigMap, job_key(world))
        await world.wait(120)
        assert not world.pods(), "no server starts on incomplete data"
        assert len(world.pvc_names()) == 3
        world.hosts.programs.recovery_failure = None
        again = world.server.read(ConfigMap, job_key(world))
        assert first is not None and config is not None and again is not None and config.data == again.data
        await world.completed(3)
        assert world.restored() == [True] * 3


@pytest.mark.parametrize("fields", [{"mode": "InPlace"}, {}], ids=["over", "new"])
@ENGINES
@virtual_time
async def test_other_restore_replaces_a_failed_overwrite(kind: type[InPlace], fields: dict[str, str]) -> None:
    world = kind()
    async with world.operator():
        await interrupted(world)
        world.hosts.programs.recovery_failure = None
        await world.client.delete(Restore, RESTORE)
        await world.restore("other", only=None, **fields)
        await world.replanned("other")
        await world.confirm("other")
        await world.completed(3, "other")
        assert world.restored() == [True] * 3


@virtual_time
async def test_replaced_overwrite_keeps_final_backup() -> None:
    world = InPlace()
    async with world.operator():
        await interrupted(world, 1)
        world.hosts.programs.recovery_failure = None
        await world.client.delete(Restore, RESTORE)
        await world.restore("other", only=None)
        await world.replanned("other")
        await world.confirm("other")
        await world.completed(1, "other")
        assert overwritten(world) == ["data-orders-0"], "the retired PVC keeps its annotation"
        await world.change(deletionPolicy="Delete")
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None, 600)
        assert len(world.hosts.programs.final_backups) == 1


@virtual_time
async def test_overwrite_without_complete_data_stops_nothing() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(1, mode="InPlace")
        await world.change(instances=2)
        await world.until("the PVC exists", lambda: "data-orders-1" in world.pvc_names())
        replica = await world.client.get(PersistentVolumeClaim, NAMES.data_pvc(1))
        world.hosts.volumes[replica.metadata.uid] = FakeVolume(broken=True)
        key = NAMES.data_pvc(0)
        protected = MergePatch({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}})
        await world.client.patch(PersistentVolumeClaim, key, protected)
        await world.client.delete(PersistentVolumeClaim, key)
        await world.confirm()
        await world.until("started", lambda: world.outcome() == "Running/Running", 60)
        await world.wait(120)
        assert overwritten(world) == []
        assert world.restored() == [False], "the last instance with complete data serves"


@virtual_time
async def test_deleted_restore_is_reported_before_its_job() -> None:
    world = InPlace()
    async with world.operator():
        await interrupted(world, 1)
        await world.client.delete(Restore, RESTORE)
        await world.wait(400)
        found = find_condition(world.status.conditions, "Ready")
        assert found is not None and found.reason == "RestoreFailed"
        assert "was deleted before it was complete. Create another Restore" in found.message
        assert not world.pods() and world.pvc_names() == ["data-orders-0"]


@ENGINES
@virtual_time
async def test_withdrawn_overwrite_keeps_the_data(kind: type[InPlace]) -> None:
    world = kind()
    async with world.operator():
        await world.planned(3, mode="InPlace")
        primary = world.status.primary
        world.hang(f"{primary}-0")
        await world.confirm()
        await world.until("stopping", lambda: len(world.pods()) == 1, 120)
        await world.confirm(value="")
        await world.wait(20)
        world.hang()
        await world.ready(3)
        assert world.outcome() == "Failed/Withdrawn"
        assert world.restored() == [False] * 3 and world.status.primary == primary


@virtual_time
async def test_overwrite_cannot_be_undone() -> None:
    world = InPlace()
    async with world.operator():
        await world.planned(2, mode="InPlace")
        await world.confirm()
        await world.completed(2)
        await world.restore("undo", only=None, target=None, undo={"name": NAME})
        await world.until("refused", lambda: world.outcome("undo") == "Failed/PreviousVolumesMissing", 60)


@virtual_time
async def test_cluster_deleted_during_overwrite_leaves_no_incomplete_data() -> None:
    world = InPlace()
    async with world.operator():
        await interrupted(world, 1)
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None, 600)
        assert world.pvc_names() == []


@pytest.mark.timeout(1800 if WHOLE else 240)
@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
@ENGINES
def test_operator_killed_during_overwrite(kind: type[InPlace], lose_answer: bool) -> None:
    # By default, each cut point has one of the two moments.
    for calls in range(23 * lose_answer, 500, 46) if not WHOLE else range(500):
        if not run_virtual(_killed(kind, calls, lose_answer)):
            assert calls > 20
            return
    raise AssertionError("the restore does not end")


async def _killed(kind: type[InPlace], calls: int, lose_answer: bool) -> bool:
    world = kind()
    async with world.operator():
        await world.planned(2, mode="InPlace")
    await world.confirm()
    before = len(world.served())
    transport = CuttableTransport(world.server, calls, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.serve_one_lineage(transport)
    async with world.operator():
        await world.completed(2)
        world.assert_one_lineage()
    assert world.restored() == [True] * 2, f"{calls} calls"
    served = world.served()[before:]
    assert served == sorted(served), "the previous data never serve after the restored ones"
    return transport.is_cut.is_set()
