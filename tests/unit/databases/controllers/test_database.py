"""Databases with a MySQL server of their own, on the in-memory API server, with models of SQL servers."""

from __future__ import annotations

import os

import pytest

from database_world import KEY, CuttableTransport, World
from steersman.api.core_v1 import Pod, Secret, Service
from steersman.api.events_v1 import Event
from steersman.client import HttpRequest, MergePatch
from steersman.meta import ObjectKey, Quantity
from steersman.testing import matching, run_virtual, virtual_time
from steersman_databases.api import Database
from steersman_databases.engines import Credentials


def _key(name: str) -> ObjectKey:
    return ObjectKey(KEY.namespace, name)


@virtual_time
async def test_becomes_ready_and_then_writes_nothing() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        database = world.database
        assert database is not None and database.status is not None
        assert database.status.connection_string == "mysql://orders:<secret>@orders-primary.default:3306/orders"
        assert database.status.observed_generation == database.metadata.generation
        assert set(world.sql.databases) == {"orders"}
        version, sql_writes = world.server.resource_version, world.sql.writes
        await world.runtime.clock.sleep(600)
        assert world.server.resource_version == version, "ten quiet minutes change no object"
        assert world.sql.writes == sql_writes


@virtual_time
async def test_events_tell_the_story_without_passwords() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        await world.until("told", lambda: any(e.reason == "DatabaseReady" for e in world.server.read_all(Event)))
        notes = [e.note or "" for e in world.server.read_all(Event)]
        assert {"created Service orders-primary", "created user orders", "created database orders"} <= set(notes)
        for name in ("orders-admin", "orders-app"):
            assert world.secret(name)["password"] not in " ".join(notes)


@virtual_time
async def test_drift_is_healed_within_thirty_seconds() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        password = world.secret("orders-app")["password"]
        world.sql.drop_user("orders")
        await world.until("user is back", lambda: "orders" in world.sql.users, 30)
        world.sql.set_password("orders", "elsewhere")
        await world.until("password is back", lambda: world.sql.opens(Credentials("orders", password)), 30)
        world.sql.revoke_on_database("orders")
        await world.until("grant is back", lambda: world.sql.databases["orders"].privileges, 30)
        await world.client.delete(Service, _key("orders-primary"))
        await world.until("Service is back", lambda: world.server.read(Service, _key("orders-primary")), 30)
        await world.client.delete(Secret, _key("orders-app"))
        await world.until("Secret is back", lambda: world.secret("orders-app"), 30)
        renewed = world.secret("orders-app")["password"]
        assert renewed != password
        await world.until("it is in force", lambda: world.sql.opens(Credentials("orders", renewed)), 30)


@virtual_time
async def test_a_port_changed_by_hand_is_replaced_and_not_joined() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        body = {"spec": {"ports": [{"name": "mysql", "port": 1, "protocol": "TCP", "targetPort": 3306}]}}
        await world.client.patch(Service, _key("orders-primary"), MergePatch(body))

        def ports() -> list[int]:
            service = world.server.read(Service, _key("orders-primary"))
            return [port.port for port in service.spec.ports] if service else []

        await world.until("the port is back", lambda: ports() == [3306], 30)


@virtual_time
async def test_a_password_set_by_hand_is_taken_over() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        body = {"data": {"password": "Ynk6IGhhbmQ="}}
        await world.client.patch(Secret, _key("orders-app"), MergePatch(body))
        await world.until("in force", lambda: world.sql.opens(Credentials("orders", "by: hand")), 30)
        await world.until("in the URI", lambda: "by%3A%20hand" in world.secret("orders-app")["uri"], 30)


@virtual_time
async def test_the_administrators_password_is_changed_on_the_server_and_then_in_the_secret() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        administrator = world.secret("orders-admin")["username"]
        world.sql.set_password(administrator, "by hand")

        def reason() -> str:
            status = world.database.status if world.database else None
            return next((c.reason for c in status.conditions if c.type == "Ready"), "") if status else ""

        await world.until("told", lambda: reason() == "AdministratorRejected", 30)
        await world.client.patch(Secret, _key("orders-admin"), MergePatch({"stringData": {"password": "by hand"}}))
        await world.until("ready again", lambda: reason() == "DatabaseReady", 5)


@pytest.mark.parametrize(
    ("fields", "reason", "says"),
    [
        ({"version": "9"}, "UnsupportedVersion", 'version "9" of mysql is not supported: use "9.7"'),
        ({"database_name": "performance_schema"}, "InvalidName", "databaseName"),
        ({"username": "mysql.sys"}, "InvalidName", "username"),
    ],
)
def test_what_cannot_be_satisfied_is_said_once(fields: dict[str, str], reason: str, says: str) -> None:
    async def story() -> None:
        world = World()
        async with world.operator():
            await world.create(**fields)
            await world.until(reason, lambda: world.reason == reason)
            database = world.database
            assert database is not None and database.status is not None
            assert database.status.phase == "Failed"
            assert says in database.status.conditions[0].message
            version = world.server.resource_version
            await world.runtime.clock.sleep(600)
            events = [e for e in world.server.read_all(Event) if e.reason == reason]
            assert [e.type for e in events] == ["Warning"]
            assert world.server.resource_version - version <= 1, "no endless retry"
            assert world.claim() is None, "nothing is made for what cannot be"

    run_virtual(story())


@virtual_time
async def test_retained_data_opens_for_a_namesake() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        before, claim = world.secret("orders-admin"), world.claim()
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.database is None)
        world.server.collect_garbage()
        assert world.claim() == claim
        assert world.secret("orders-admin") == before
        await world.create()
        await world.ready()
        assert world.secret("orders-admin") == before


@virtual_time
async def test_delete_policy_takes_data_and_keys_along() -> None:
    world = World()
    async with world.operator():
        await world.create(deletion_policy="Delete")
        await world.ready()
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.database is None)
        world.server.collect_garbage()
        assert world.claim() is None
        assert not world.secret("orders-admin")
        assert not world.secret("orders-app")


@virtual_time
async def test_data_whose_deletion_is_refused_keep_their_key_and_are_deleted_again() -> None:
    world = World()
    async with world.operator():
        await world.create(deletion_policy="Delete")
        await world.ready()
        refused = matching("DELETE", "/persistentvolumeclaims/data-orders-0")
        keys: list[bool] = []

        def look(request: HttpRequest) -> bool:
            keys.append(bool(world.secret("orders-admin") and world.secret("orders-app")))
            return True

        world.server.fail_next(lambda request: refused(request) and look(request), 409, times=2)
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.database is None)
        assert keys == [True, True], "the first refusal leaves the data, and so their key"
        assert world.claim() is None


@virtual_time
async def test_a_lost_key_is_never_replaced_by_one_that_opens_nothing() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        kept = world.server.manifest(Secret, _key("orders-admin"))
        assert kept is not None
        await world.client.delete(Secret, _key("orders-admin"))
        await world.until("said", lambda: world.reason == "AdministratorSecretMissing", 30)
        assert not world.secret("orders-admin")
        kept["metadata"] = {k: kept["metadata"][k] for k in ("name", "namespace", "labels", "ownerReferences")}
        world.server.load(kept)
        await world.ready()


@virtual_time
async def test_a_server_that_hangs_is_left_alone_for_a_while_and_then_looked_at_again() -> None:
    world, asked = World(), 0

    async def pause() -> None:
        nonlocal asked
        asked += 1

    async with world.operator():
        await world.create()
        await world.ready()
        world.sql.pause, world.sql.hangs = pause, True
        await world.until("noticed", lambda: world.reason == "ServerUnreachable", 60)
        asked = 0
        await world.runtime.clock.sleep(140)
        assert 3 <= asked <= 5, "each holds a worker for 15 s"
        world.sql.hangs = False
        await world.until("looked at again", lambda: world.reason == "DatabaseReady", 40)


@virtual_time
async def test_a_bigger_volume_is_asked_for() -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        await world.client.patch(Database, KEY, MergePatch({"spec": {"storageSize": "2Gi"}}))

        def requested() -> bool:
            claim = world.claim()
            assert claim is not None
            return Quantity(claim.spec.resources.requests["storage"]) == Quantity("2Gi")

        await world.until("2Gi are requested", requested)


MOST_REQUESTS = 100
STRIDE = 1 if os.environ.get("SIMULATE") == "whole" else 5


def _key_opens_data(world: World) -> bool:
    claim, admin = world.claim(), world.secret("orders-admin")
    return claim is not None and world.machines.passwords_on_volumes[claim.metadata.uid].password == admin["password"]


async def _killed_while_creating(requests: int, lose_answer: bool) -> bool:
    """A life whose operator is killed after so many requests; False when it was through before."""
    world = World()
    await world.create()
    transport = CuttableTransport(world.server, requests, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.until("cut or through", lambda: transport.is_cut.is_set() or world.reason == "DatabaseReady")
    async with world.operator():
        await world.ready()
        assert _key_opens_data(world)
        assert len(world.machines.passwords_on_volumes) == 1, "data were made twice"
    return transport.is_cut.is_set()


async def _killed_while_deleting(requests: int, lose_answer: bool, policy: str) -> bool:
    world = World()
    async with world.operator():
        await world.create(deletion_policy=policy)
        await world.ready()
    await world.client.delete(Database, KEY)
    transport = CuttableTransport(world.server, requests, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.until("cut or through", lambda: transport.is_cut.is_set() or world.database is None)
    async with world.operator():
        await world.until("gone", lambda: world.database is None)
        world.server.collect_garbage()
        if policy == "Retain":
            assert _key_opens_data(world)
        else:
            assert world.claim() is None
            assert not world.secret("orders-admin")
    return transport.is_cut.is_set()


@pytest.mark.parametrize("lose_answer", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("act", ["create", "Retain", "Delete"])
def test_killed_at_every_request(act: str, lose_answer: bool) -> None:
    for requests in range(0, MOST_REQUESTS, STRIDE):
        if act == "create":
            story = _killed_while_creating(requests, lose_answer)
        else:
            story = _killed_while_deleting(requests, lose_answer, act)
        if not run_virtual(story):
            assert requests > 5, "the sweep has found nothing to cut"
            return
    raise AssertionError(f"not through after {MOST_REQUESTS} requests")


@virtual_time
async def test_a_pod_that_cannot_start_is_made_anew_with_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    world, pod = World(), ObjectKey(KEY.namespace, "orders-0")

    def uid() -> str:
        found = world.server.read(Pod, pod)
        return found.metadata.uid if found else ""

    async with world.operator():
        await world.create()
        await world.ready()
        former = uid()
        stuck = {"name": "server", "image": "gone", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        status = {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [stuck]}
        await world.client.patch(Pod, pod, MergePatch({"status": status}), subresource="status")
        await world.until("told", lambda: world.reason == "ImageUnavailable")
        assert uid() == former
        monkeypatch.setenv("STEERSMAN_IMAGE_MYSQL_9_7", "registry.test/mysql:9.7")
        await world.until("another", lambda: uid() not in ("", former))
        await world.ready()
