"""Undo of restores in place in virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY
from database_support.unit.database_harness import CuttableTransport
from database_support.unit.in_place import WHOLE, InPlace
from database_support.unit.shared_start import shared_start
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.client import MergePatch
from steersman.errors import Conflict
from steersman.meta import ObjectKey
from steersman_databases.api import Restore
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.cluster.declared import declare
from steersman_databases.cluster.state import RETIRED, ClusterState
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.members import Members
from steersman_databases.features.storage.specs import SERVED_UNTIL
from steersman_databases.features.storage.stage import VolumeReconciler
from steersman_testing import run_virtual, virtual_time

UNDO = "undo"


@shared_start
async def restored(world: InPlace, instances: int = 2, **cluster: Any) -> None:
    """Restore a cluster in place."""
    await world.planned(instances, cluster, keepPrevious="20m")
    await world.confirm()
    await world.completed(instances)


async def undo_planned(world: InPlace, name: str = UNDO, of: str = "before-drop") -> None:
    await world.restore(name, only=None, target=None, undo={"name": of}, keepPrevious="20m")
    await world.until("planned", lambda: world.outcome(name) == "Planned/Planned", 60)


def kept(world: InPlace) -> list[str]:
    found = world.server.read_all(PersistentVolumeClaim)
    return sorted(pvc.metadata.name for pvc in found if RETIRED in pvc.metadata.labels)


@virtual_time
async def test_undo_serves_the_previous_data_again() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world)
        previous = kept(world)
        await undo_planned(world)
        await world.wait(60)
        assert world.restored() == [True, True], "a plan stops nothing"
        await world.confirm(UNDO)
        await world.completed(2, UNDO)
        assert world.restored() == [False, False]
        assert world.status.primary == "orders-0", "the last primary has all transactions"
        assert previous == ["data-orders-0", "data-orders-1"]
        assert kept(world) == ["data-orders-1", "data-orders-2", "data-orders-3"]


@virtual_time
async def test_undo_of_an_undo_serves_the_restored_data() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world)
        await undo_planned(world)
        await world.confirm(UNDO)
        await world.completed(2, UNDO)
        await undo_planned(world, "again", of=UNDO)
        await world.confirm("again")
        await world.completed(2, "again")
        assert world.restored() == [True, True]


@virtual_time
async def test_undo_returns_the_wal_volume() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world, 1, wal_storage=VolumeSettings())
        dated = [p for p in world.server.read_all(PersistentVolumeClaim) if SERVED_UNTIL in p.metadata.annotations]
        assert [pvc.metadata.name for pvc in dated] == ["data-orders-0"]
        await undo_planned(world)
        await world.confirm(UNDO)
        await world.completed(1, UNDO)
        assert kept(world) == ["data-orders-1", "wal-orders-1"]
        await world.wait(1500)
        assert world.pvc_names() == ["data-orders-0", "wal-orders-0"], "the others end at their time"


@virtual_time
async def test_undo_without_previous_volumes_fails() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world)
        await world.wait(1500)
        await world.restore(UNDO, only=None, target=None, undo={"name": "before-drop"})
        await world.until("failed", lambda: world.outcome(UNDO) == "Failed/PreviousVolumesMissing", 60)


@virtual_time
async def test_expired_volumes_end_a_planned_undo() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world)
        await undo_planned(world)
        await world.wait(1500)
        assert world.outcome(UNDO) == "Failed/PreviousVolumesMissing"


@virtual_time
async def test_undo_of_another_version_fails() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world)
        body = MergePatch({"metadata": {"labels": {"databases.steersman.dev/major-version": "16"}}})
        await world.client.patch(PersistentVolumeClaim, ObjectKey(KEY.namespace, "data-orders-0"), body)
        await world.restore(UNDO, only=None, target=None, undo={"name": "before-drop"})
        await world.until("failed", lambda: world.outcome(UNDO) == "Failed/WrongEngineVersion", 60)


@pytest.mark.parametrize("how", ["deleted", "unconfirmed"])
@virtual_time
async def test_withdrawn_undo_keeps_the_volumes(how: str) -> None:
    world = InPlace()
    async with world.operator():
        await restored(world, 2, wal_storage=VolumeSettings())
        previous, primary = kept(world), world.status.primary
        await undo_planned(world)
        world.hang(f"{primary}-0")
        await world.confirm(UNDO)
        await world.until("stopping", lambda: len(world.pods()) == 1, 120)
        assert kept(world) == ["data-orders-1", "wal-orders-1"]
        if how == "deleted":
            await world.client.delete(Restore, ObjectKey(KEY.namespace, UNDO))
        else:
            await world.confirm(UNDO, "")
        await world.wait(20)
        world.hang()
        await world.ready(2)
        assert world.restored() == [True, True]
        assert kept(world) == previous
        await world.wait(1500)
        assert kept(world) == []


@virtual_time
async def test_deleted_cluster_retains_the_volume_of_an_undo() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world, 1)
        await undo_planned(world)
        world.hang(f"{world.status.primary}-0")
        await world.confirm(UNDO)
        await world.until("marked", lambda: kept(world) == [], 60)
        await world.client.delete(world.kind, KEY)
        await world.wait(20)
        world.hang()
        await world.until("gone", lambda: world.cluster is None, 600)
        assert world.pvc_names() == ["data-orders-0", "data-orders-1"]


@virtual_time
async def test_outdated_view_deletes_no_reused_volume() -> None:
    world = InPlace()
    async with world.operator():
        await restored(world)
        outdated = world.server.read_all(PersistentVolumeClaim)
        await undo_planned(world)
        await world.confirm(UNDO)
        await world.completed(2, UNDO)
        client: Any = world.client
        declared = declare(world.cluster, "", cluster_domain="cluster.local")
        clock = world.runtime.clock
        context = ClusterContext(cluster=world.cluster, declared=declared, client=client, events=client, clock=clock)
        later = clock.now() + timedelta(hours=2)
        state = ClusterState(instances=(), members=Members(cluster=KEY), used_ordinals=frozenset(), now=later)
        with pytest.raises(Conflict):
            await VolumeReconciler(context).delete_retired(outdated, state)
        assert "data-orders-0" in world.pvc_names()


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
def test_operator_killed_during_undo_serves_one_lineage(lose_answer: bool) -> None:
    # By default, each cut point has one of the two moments.
    for calls in range(23 * lose_answer, 400, 46) if not WHOLE else range(400):
        if not run_virtual(_killed(calls, lose_answer)):
            assert calls > 20
            return
    raise AssertionError("the undo does not end")


async def _killed(calls: int, lose_answer: bool) -> bool:
    world = InPlace()
    async with world.operator():
        await restored(world)
        await undo_planned(world)
    await world.confirm(UNDO)
    before = len(world.served())
    transport = CuttableTransport(world.server, calls, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.serve_one_lineage(transport, UNDO)
    async with world.operator():
        await world.completed(2, UNDO)
        world.assert_one_lineage()
    assert world.restored() == [False] * 2, f"{calls} calls"
    served = world.served()[before:]
    assert served == sorted(served, reverse=True), "the restored data never serve after the previous ones"
    return transport.is_cut.is_set()
