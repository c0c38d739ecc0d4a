"""A ``Database``'s deletion, of either engine: what it leaves, and for whom, and what goes with it."""

from __future__ import annotations

import pytest

from database_support.unit import fake_group, fake_patroni
from database_support.unit.database_harness import KEY, VERSIONS, DatabaseHarness
from database_support.unit.users_harness import FORCED
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.api.events_v1 import Event
from steersman.client import HttpRequest, MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database
from steersman_testing import matching, virtual_time

each_engine = pytest.mark.parametrize("engine", VERSIONS)


@each_engine
@virtual_time
async def test_retained_data_is_reused_by_same_name(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        kept, claim = {name: world.secret(name) for name in ("orders-admin", "orders-app")}, world.pvc()
        await world.deleted()
        after = world.pvc()
        assert claim is not None and after is not None and after.metadata.uid == claim.metadata.uid
        assert {name: world.secret(name) for name in kept} == kept
        assert [e.reason for e in world.server.read_all(Event) if e.reason == "DataRetained"]
        await world.create()
        await world.ready()
        assert {name: world.secret(name) for name in kept} == kept
        assert len(world.machines.contents_by_cluster) == 1 and world.pvc() is not None


@each_engine
@virtual_time
async def test_deleting_pvc_deletes_its_secrets(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        await world.deleted()
        await world.client.delete(PersistentVolumeClaim, ObjectKey(KEY.namespace, "data-orders-0"))
        world.server.collect_garbage()
        assert not world.secret("orders-app") and not world.secret("orders-admin")


@each_engine
@virtual_time
async def test_deletion_policy_at_deletion_time_applies(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        await world.change(deletionPolicy="Delete")
        await world.deleted()
        assert world.pvc() is None
        assert not world.secret("orders-admin") and not world.secret("orders-app")


@each_engine
@virtual_time
async def test_force_delete_is_passed_to_the_cluster(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_members: object, _pod: Pod) -> bool:
        return False

    for members in (fake_group.FakeAgents, fake_patroni.FakePatroni):
        monkeypatch.setattr(members, "is_stopped", never)
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create()
        await world.ready()
        await world.client.delete(Database, KEY)
        await world.until("it waits", lambda: world.reason == "Deleting")
        await world.runtime.clock.sleep(60)
        assert world.database is not None, "the pod is on a node that is gone"
        await world.client.patch(Database, KEY, MergePatch(FORCED))
        await world.until("by force", lambda: world.database is None, 10)
        assert world.cluster is None and world.pvc() is not None


@each_engine
@virtual_time
async def test_rejected_data_deletion_keeps_secrets_and_retries(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready(deletion_policy="Delete")
        refused = matching("DELETE", "/persistentvolumeclaims/data-orders-0")
        keys: list[bool] = []

        def look(request: HttpRequest) -> bool:
            keys.append(bool(world.secret("orders-admin") and world.secret("orders-app")))
            return True

        world.server.fail_next(lambda request: refused(request) and look(request), 409, times=2)
        await world.deleted()
        assert keys == [True, True], "the first refusal leaves the data, and so their key"
        assert world.pvc() is None


@pytest.mark.parametrize(
    ("first", "second"), [("mysql", "postgresql"), ("postgresql", "mysql")], ids=["to-postgresql", "to-mysql"]
)
@virtual_time
async def test_data_of_other_engine_is_rejected(first: str, second: str) -> None:
    world = DatabaseHarness(first)
    async with world.operator():
        await world.create_ready()
        await world.deleted()
        world.engine = second
        await world.create()
        await world.until("said", lambda: world.reason == "RetainedDataMismatch")
        assert f"has retained data of {first}" in world.message
