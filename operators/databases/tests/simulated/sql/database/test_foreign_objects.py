"""What other people and other software do with the names, labels and answers that the operator relies on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from database_support.unit.database_harness import KEY, CuttableTransport, DatabaseHarness
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret, Service
from steersman.api.events_v1 import Event
from steersman.client import HttpRequest, HttpResponse, MergePatch
from steersman.errors import ConnectionFailed
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing import InMemoryApiServer, run_virtual, virtual_time


def _key(name: str) -> ObjectKey:
    return ObjectKey(KEY.namespace, name)


CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("kind", "name", "fields"),
    [
        ("Secret", "orders-admin", {}),
        ("Secret", "orders-app", {}),
        ("Secret", "orders-tls", {}),
        ("PersistentVolumeClaim", "data-orders-0", {"spec": CLAIM_SPEC}),
    ],
)
def test_foreign_object_is_named_and_kept(kind: str, name: str, fields: dict[str, Any]) -> None:
    async def story() -> None:
        world = DatabaseHarness()
        metadata = {"name": name, "namespace": KEY.namespace}
        world.server.load({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})
        async with world.operator():
            await world.create()
            await world.until("said", lambda: world.reason == "NameConflict")
            database = world.database
            assert database is not None
            assert f"{kind} {name}" in database.status.conditions[0].message
        read = {"Secret": Secret, "PersistentVolumeClaim": PersistentVolumeClaim}[kind]
        found = world.server.read(read, _key(name))
        assert found is not None and not found.metadata.labels and not found.metadata.owner_references

    run_virtual(story())


@virtual_time
async def test_secret_with_other_owner_is_not_deleted() -> None:
    world = DatabaseHarness()
    async with world.operator():
        await world.create_ready()
        template = await world.client.create(ConfigMap(metadata=ObjectMeta(name="sealed", namespace=KEY.namespace)))
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "sealed", "uid": template.metadata.uid}
        body = {"metadata": {"ownerReferences": [owner]}}
        before = world.secret("orders-admin")
        await world.client.patch(Secret, _key("orders-admin"), MergePatch(body))
        await world.runtime.clock.sleep(30)
        assert world.secret("orders-admin") == before
        assert world.reason == "DatabaseReady"


class RefusingTransport(CuttableTransport):
    """Answers each creation of one kind as an admission webhook may: any reason, any length."""

    def __init__(self, server: InMemoryApiServer, plural: str, status: dict[str, Any]) -> None:
        super().__init__(server)
        self._plural = plural
        self._status = status

    async def request(self, request: HttpRequest) -> HttpResponse:
        if request.method == "POST" and request.path.endswith(self._plural):
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", **self._status}
            return HttpResponse(status=self._status["code"], body=json.dumps(body).encode())
        return await super().request(request)


@virtual_time
async def test_rejection_message_reaches_user() -> None:
    world = DatabaseHarness()
    refusal = {"code": 403, "reason": "no volumes here, please", "message": "ask the storage team. " * 5000}
    async with world.operator(RefusingTransport(world.server, "persistentvolumeclaims", refusal)):
        await world.create()
        await world.until("said", lambda: world.reason == "Forbidden")
        database = world.database
        assert database is not None
        message = database.status.conditions[0].message
        assert message.startswith("MySQLCluster orders: ask the storage team.")
        assert database.status.phase == "Failed"
        assert len(message) < 2000


@virtual_time
async def test_redirected_service_is_restored() -> None:
    world = DatabaseHarness()
    async with world.operator():
        await world.create_ready()
        body = {"spec": {"type": "ExternalName", "externalName": "elsewhere.example"}}
        await world.client.patch(Service, _key("orders-primary"), MergePatch(body))

        def leads_home() -> bool:
            service = world.server.read(Service, _key("orders-primary"))
            return service is not None and service.spec.type == "ClusterIP"

        await world.until("it leads to the pod again", leads_home, 30)


@virtual_time
async def test_removed_excess_rights_are_noticed() -> None:
    world = DatabaseHarness()
    async with world.operator():
        await world.create_ready()
        world.sql.spoil_user("orders", superuser=True)
        await world.until("said", lambda: world.reason == "InvalidName", 30)
        world.sql.spoil_user("orders", superuser=False)
        await world.until("Ready again", lambda: world.reason == "DatabaseReady", 35)


@virtual_time
async def test_password_rejected_by_server_is_reported() -> None:
    world = DatabaseHarness()
    async with world.operator():
        await world.create_ready()
        await world.client.patch(Secret, _key("orders-app"), MergePatch({"data": {"password": "AAA="}}))
        await world.until("said", lambda: world.reason == "InvalidName", 30)
        database = world.database
        assert database is not None
        assert database.status.conditions[0].message.startswith("Secret orders-app: the password")


class OutageTransport(CuttableTransport):
    """An API server that answers nothing while ``is_down``."""

    is_down = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        if self.is_down:
            raise ConnectionFailed("the API server is down")
        return await super().request(request)


@virtual_time
async def test_drift_is_reverted_after_api_server_outage() -> None:
    world = DatabaseHarness()
    transport = OutageTransport(world.server)
    async with world.operator(transport):
        await world.create()
        await world.ready()
        transport.is_down = True
        await world.runtime.clock.sleep(1500)
        world.sql.drop_user("orders")
        transport.is_down = False
        await world.until("user is back", lambda: "orders" in world.sql.users, 30)


@virtual_time
async def test_leftovers_of_same_name_are_waited_for() -> None:
    world = DatabaseHarness()
    kind = {"apiVersion": "databases.steersman.dev/v1alpha1", "kind": "MySQLCluster"}
    owner = {**kind, "name": KEY.name, "uid": "former", "controller": True}
    metadata = {"name": "orders-primary", "namespace": KEY.namespace, "ownerReferences": [owner]}
    left = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}
    async with world.operator():
        await world.runtime.clock.sleep(0.1)
        world.server.load(left)
        await world.create()
        await world.ready()
        assert "NameConflict" not in [e.reason for e in world.server.read_all(Event)]
