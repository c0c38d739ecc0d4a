"""A ``Database``'s deletion, of either engine: what it leaves, and for whom, and what goes with it."""

from __future__ import annotations

import pytest

from database_support import group_model, patroni_model
from database_support.database_world import KEY, VERSIONS, World
from database_support.users_world import FORCED
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.api.events_v1 import Event
from steersman.client import HttpRequest, MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database
from steersman_testing import matching, virtual_time

each_engine = pytest.mark.parametrize("engine", VERSIONS)


@each_engine
@virtual_time
async def test_retained_data_open_for_a_namesake(engine: str) -> None:
    world = World(engine)
    async with world.operator():
        await world.create()
        await world.ready()
        kept, claim = {name: world.secret(name) for name in ("orders-admin", "orders-app")}, world.claim()
        await world.deleted()
        after = world.claim()
        assert claim is not None and after is not None and after.metadata.uid == claim.metadata.uid
        assert {name: world.secret(name) for name in kept} == kept
        assert [e.reason for e in world.server.read_all(Event) if e.reason == "DataRetained"]
        await world.create()
        await world.ready()
        assert {name: world.secret(name) for name in kept} == kept
        assert len(world.machines.inside) == 1 and world.claim() is not None


@each_engine
@virtual_time
async def test_giving_up_the_claim_gives_up_what_opens_it(engine: str) -> None:
    world = World(engine)
    async with world.operator():
        await world.create()
        await world.ready()
        await world.deleted()
        await world.client.delete(PersistentVolumeClaim, ObjectKey(KEY.namespace, "data-orders-0"))
        world.server.collect_garbage()
        assert not world.secret("orders-app") and not world.secret("orders-admin")


@each_engine
@virtual_time
async def test_the_policy_of_the_moment_decides(engine: str) -> None:
    world = World(engine)
    async with world.operator():
        await world.create()
        await world.ready()
        await world.change(deletionPolicy="Delete")
        await world.deleted()
        assert world.claim() is None
        assert not world.secret("orders-admin") and not world.secret("orders-app")


@each_engine
@virtual_time
async def test_force_is_handed_on_to_its_cluster(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_members: object, _pod: Pod) -> bool:
        return False

    for members in (group_model.Agents, patroni_model.Patroni):
        monkeypatch.setattr(members, "ended", never)
    world = World(engine)
    async with world.operator():
        await world.create()
        await world.ready()
        await world.client.delete(Database, KEY)
        await world.until("it waits", lambda: world.reason == "Deleting")
        await world.runtime.clock.sleep(60)
        assert world.database is not None, "the pod is on a node that is gone"
        await world.client.patch(Database, KEY, MergePatch(FORCED))
        await world.until("by force", lambda: world.database is None, 10)
        assert world.cluster is None and world.claim() is not None


@each_engine
@virtual_time
async def test_data_whose_deletion_is_refused_keep_their_key_and_are_deleted_again(engine: str) -> None:
    world = World(engine)
    async with world.operator():
        await world.create(deletion_policy="Delete")
        await world.ready()
        refused = matching("DELETE", "/persistentvolumeclaims/data-orders-0")
        keys: list[bool] = []

        def look(request: HttpRequest) -> bool:
            keys.append(bool(world.secret("orders-admin") and world.secret("orders-app")))
            return True

        world.server.fail_next(lambda request: refused(request) and look(request), 409, times=2)
        await world.deleted()
        assert keys == [True, True], "the first refusal leaves the data, and so their key"
        assert world.claim() is None


@pytest.mark.parametrize(
    ("first", "second"), [("mysql", "postgresql"), ("postgresql", "mysql")], ids=["to-postgresql", "to-mysql"]
)
@virtual_time
async def test_the_data_of_another_engine_are_refused(first: str, second: str) -> None:
    world = World(first)
    async with world.operator():
        await world.create()
        await world.ready()
        await world.deleted()
        world.engine = second
        await world.create()
        await world.until("said", lambda: world.reason == "RetainedDataMismatch")
        assert f"holds retained data of {first}" in world.message
