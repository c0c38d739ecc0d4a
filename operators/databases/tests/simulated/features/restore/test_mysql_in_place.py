"""Restores of whole MySQL clusters, and their undo, in virtual time."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import NAMES
from database_support.unit.database_harness import CuttableTransport
from database_support.unit.in_place import WHOLE, GroupInPlace
from database_support.unit.shared_start import shared_start
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim
from steersman_databases.cluster.state import RETIRED
from steersman_testing import run_virtual, virtual_time

UNDO = "undo"


@shared_start
async def restored(world: GroupInPlace, instances: int = 3) -> None:
    await world.planned(instances, keepPrevious="1h")
    await world.confirm()
    await world.completed(instances)


async def undo_planned(world: GroupInPlace) -> None:
    await world.restore(UNDO, only=None, target=None, undo={"name": "before-drop"})
    await world.until("planned", lambda: world.outcome(UNDO) == "Planned/Planned", 60)


def kept(world: GroupInPlace) -> list[str]:
    found = world.server.read_all(PersistentVolumeClaim)
    return sorted(pvc.metadata.name for pvc in found if RETIRED in pvc.metadata.labels)


@virtual_time
async def test_restored_instance_founds_a_group_of_another_name() -> None:
    world = GroupInPlace()
    async with world.operator():
        await world.planned(3)
        previous, before = world.fake_group.name, world.uids()
        await world.wait(60)
        assert world.uids() == before, "a plan stops nothing"
        found = world.found()
        assert found is not None and found.status.plan is not None
        assert found.status.plan.lost_transactions == 7 and "7 of them in the archive" in world.text()
        await world.confirm()
        await world.completed(3)
        assert world.restored() == [True] * 3
        assert sorted(world.pods()) == ["orders-3", "orders-4", "orders-5"]
        assert world.fake_group.founded == ["orders-0", "orders-3"]
        world.fake_group.write()
        (gtids,) = {str(server.gtids) for server in world.fake_group.online()}
        assert gtids.split(",") != [f"{previous}:1-2"], "no number of a lost transaction is used again"
        assert f"{previous}:1" in gtids.split(",")
        assert kept(world) == ["data-orders-0", "data-orders-1", "data-orders-2"]


@virtual_time
async def test_mysql_job_has_no_timeline() -> None:
    world = GroupInPlace()
    async with world.operator():
        await world.planned(1)
        found = world.found()
        assert found is not None
        key = NAMES.restore_job(found.metadata.uid)
        world.hosts.stuck_jobs = {key.name: ""}
        await world.confirm()
        await world.until("a Job", lambda: world.server.read(ConfigMap, key), 60)
        config = world.server.read(ConfigMap, key)
        assert config is not None
        assert "timeline" not in config.data["job.json"]


@virtual_time
async def test_failed_mysql_restore_stops_nothing() -> None:
    world = GroupInPlace()
    world.hosts.programs.recovery_failure = "ArchiveDamaged", "a chunk is damaged"
    async with world.operator():
        await world.planned(3)
        before = world.uids()
        await world.confirm()
        await world.until("failed", lambda: world.outcome() == "Failed/ArchiveDamaged", 60)
        await world.until("its volume is deleted", lambda: len(world.pvc_names()) == 3, 60)
        assert world.uids() == before


@virtual_time
async def test_withdrawn_mysql_restore_lets_the_group_serve() -> None:
    world = GroupInPlace()
    async with world.operator():
        await world.planned(3)
        primary = world.status.primary
        world.hang(f"{primary}-0")
        await world.confirm()
        await world.until("stopping", lambda: len(world.pods()) == 1, 120)
        await world.confirm(value="")
        await world.wait(20)
        world.hang()
        await world.ready(3)
        assert world.restored() == [False] * 3
        assert world.pvc_names() == ["data-orders-0", "data-orders-1", "data-orders-2"]


@virtual_time
async def test_group_lost_after_a_restore_waits_for_all_instances() -> None:
    world = GroupInPlace()
    async with world.operator():
        await restored(world)
        await world.change(hibernated=True)
        await world.until("stopped", lambda: not world.pods(), 300)
        await world.client.delete(ConfigMap, NAMES.group_config)
        await world.change(hibernated=False)
        await world.ready(3)
        assert world.restored() == [True] * 3
        assert len(world.fake_group.founded) == 3


@virtual_time
async def test_undo_of_mysql_serves_the_previous_data_again() -> None:
    world = GroupInPlace()
    async with world.operator():
        await world.planned(3, keepPrevious="1h")
        primary = world.status.primary
        await world.confirm()
        await world.completed(3)
        await undo_planned(world)
        await world.confirm(UNDO)
        await world.completed(3, UNDO)
        assert world.restored() == [False] * 3
        assert primary in world.pods()
        assert world.fake_group.founded == ["orders-0", "orders-3", primary]


@pytest.mark.timeout(1800 if WHOLE else 120)
@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["before-drop", UNDO])
def test_operator_killed_serves_one_group(name: str, lose_answer: bool) -> None:
    # By default, each cut point has one of the two moments.
    for calls in range(37 * lose_answer, 500, 74) if not WHOLE else range(500):
        if not run_virtual(_killed(name, calls, lose_answer)):
            assert calls > 20
            return
    raise AssertionError("the restore does not end")


async def _killed(name: str, calls: int, lose_answer: bool) -> bool:
    world = GroupInPlace()
    async with world.operator():
        if name == UNDO:
            await restored(world, 2)
            await undo_planned(world)
        else:
            await world.planned(2)
    await world.confirm(name)
    before = len(world.served())
    transport = CuttableTransport(world.server, calls, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.serve_one_lineage(transport, name)
    async with world.operator():
        await world.completed(2, name)
        world.assert_one_lineage()
    assert world.restored() == [name != UNDO] * 2, f"{calls} calls"
    served = world.served()[before:]
    assert served == sorted(served, reverse=name == UNDO), "replaced data never serve again"
    return transport.is_cut.is_set()
