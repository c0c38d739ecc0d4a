"""The Secrets of a cluster: made, kept, lost, given, and with the operator killed at each of its requests."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database_support.unit.database_harness import CuttableTransport
from database_support.unit.declared_clusters import cluster, declared_cluster
from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.api.events_v1 import Event
from steersman.cache import InformerOptions
from steersman.client import Client, MergePatch
from steersman.controller import ReconcilerContext, Request, RequestReconciler, Result
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, Quantity
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.cluster_common import SecretReference
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb
from steersman_databases.cluster.declared import declare
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.database_naming import MANAGED_BY, database_of
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQL
from steersman_databases.features.certificates.model import CertificateRequest
from steersman_databases.features.certificates.stage import ClusterCredentials, ClusterData, SecretsReconciler, permit
from steersman_databases.features.certificates.x509 import create_ca, sign_server
from steersman_databases.features.storage.specs import data_pvc
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

NAMESPACE = "shop"
OPERATOR = "system:serviceaccount:system:operator"
EVERY = ("orders-ca", "orders-tls", "orders-peer", "orders-operator", "orders-admin", "orders-app")


class World:
    """What outlives the operator's process: an API server with the cluster orders; its operator keeps keys only."""

    def __init__(self, **spec: Any) -> None:
        self.runtime = virtual_runtime()
        self.server = InMemoryApiServer(self.runtime)
        self.server.register(PostgreSQLCluster)
        self.client = Client(self.server, field_manager="test")
        self.server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.server.load(cluster(namespace=NAMESPACE, **spec))
        self.wish = CertificateRequest()
        self.initialized = False
        self.keys: ClusterCredentials | None = None
        self.blocked: ReconcileBlocked | None = None

    @asynccontextmanager
    async def operator(self, transport: CuttableTransport | None = None) -> AsyncGenerator[Manager]:
        """Runs it during the block, with its own rights and nothing else."""
        manager = Manager(
            transport or self.server.as_user(OPERATOR), ManagerOptions(graceful_shutdown_timeout=0), self.runtime
        )
        selector = f"app.kubernetes.io/managed-by={MANAGED_BY}"
        for kind in (Secret, PersistentVolumeClaim):
            manager.cache.configure(kind, InformerOptions(label_selector=selector))
        builder = manager.controller(PostgreSQLCluster).watches(Secret, database_of)
        builder = builder.watches(PersistentVolumeClaim, database_of).needs(PersistentVolumeClaim, "create")
        permit(builder).max_retry_delay(1).complete(lambda context: KeysReconciler(context, self))
        self.server.grant(OPERATOR, cluster_role("operator", manager.permissions))
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            await asyncio.gather(running, return_exceptions=True)
        assert self.server.rbac_denials == []

    def secret(self, name: str) -> dict[str, bytes]:
        found = self.server.read(Secret, ObjectKey(NAMESPACE, name))
        return dict(found.data) if found else {}

    def events(self) -> list[tuple[str, str]]:
        return [(e.reason or "", e.note or "") for e in self.server.read_all(Event)]

    async def until(self, what: str, probe: Callable[[], object]) -> None:
        clock = self.runtime.clock
        deadline = clock.monotonic() + 60
        while not probe():
            assert clock.monotonic() < deadline, f"not within a minute: {what}"
            await clock.sleep(0.05)

    async def settled(self) -> dict[str, dict[str, bytes]]:
        """The Secrets, once nothing is written to them any more."""
        while True:
            before = {name: self.secret(name) for name in EVERY}
            await self.runtime.clock.sleep(5)
            if before == {name: self.secret(name) for name in EVERY}:
                return before

    async def give(self, name: str, data: dict[str, bytes]) -> None:
        """Somebody's Secret."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {k: base64.b64encode(v).decode() for k, v in data.items()},
        }
        self.server.load(body)


class KeysReconciler(RequestReconciler[PostgreSQLCluster]):
    """As the cluster's controller does: first the keys, then the claim that owns them."""

    def __init__(self, context: ReconcilerContext, world: World) -> None:
        super().__init__(context)
        self._world = world

    async def reconcile(self, request: Request) -> Result:
        found = await self.client.get(PostgreSQLCluster, request)
        seen = declare(found, "image")
        charge = ClusterContext(
            cluster=found, declared=seen, client=self.client, events=self.events, clock=self.runtime.clock
        )
        claims = await self.client.list(PersistentVolumeClaim, namespace=request.namespace)
        data = ClusterData(pvcs=claims, pvcs_present=claims, is_initialized=self._world.initialized)
        try:
            keys = await SecretsReconciler(charge, PostgreSQL()).ensure(self._world.wish, data)
        except ReconcileBlocked as blocked:
            self._world.blocked = blocked
            return Result(requeue_after=1)
        self._world.blocked = None
        self._world.keys = keys
        if not claims:
            await self.client.create(data_pvc(seen, 0, Quantity("1Gi")))
        return Result(requeue_after=20)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def owners(world: World) -> list[list[str]]:
    found = [world.server.read(Secret, ObjectKey(NAMESPACE, name)) for name in EVERY]
    kind = "PersistentVolumeClaim"
    return [[o.name for o in s.metadata.owner_references if o.kind == kind] for s in found if s is not None]


@virtual_time
async def test_secrets_are_created_and_owned_by_pvcs() -> None:
    world = World()
    async with world.operator():
        found = await world.settled()
    assert all(found.values())
    assert owners(world) == [["data-orders-0"]] * 6
    app = found["orders-app"]
    assert app["uri"].startswith(b"postgresql://orders:") and app["uri"].endswith(b"/orders?sslmode=verify-full")
    assert b"@orders-rw.shop.svc:5432/" in app["uri"]
    assert app["ca.crt"] == found["orders-tls"]["ca.crt"]
    assert ("Created", "created Secret orders-ca") in world.events()
    # Nobody who reads Events, or what is logged of values, learns a secret.
    told = repr((world.events(), world.keys))
    assert all(found[f"orders-{n}"]["password"].decode() not in told for n in ("admin", "app"))
    assert "PRIVATE" not in told


@virtual_time
async def test_operator_killed_at_any_request_continues() -> None:
    cut, done = 0, False
    while not done:
        world = World()
        transport = CuttableTransport(world.server, cut, lose_answer=cut % 2 == 0)
        async with world.operator(transport):
            await world.runtime.clock.sleep(3)
        done = not transport.is_cut.is_set()
        before = {name: world.secret(name) for name in EVERY}
        async with world.operator():
            after = await world.settled()
        assert all(after.values()), cut
        assert all(after[name] == data for name, data in before.items() if data), f"{cut}: what was made is kept"
        assert owners(world) == [["data-orders-0"]] * 6, cut
        cut += 1
    assert cut > 12


@pytest.mark.parametrize("name", EVERY)
@virtual_time
async def test_lost_secret_is_recreated(name: str) -> None:
    world = World()
    async with world.operator():
        before = await world.settled()
        world.initialized = True
        await world.client.delete(Secret, ObjectKey(NAMESPACE, name))
        after = await world.settled()
        assert after[name] and after[name] != before[name]
        assert [reason for reason, note in world.events() if name in note and "recreated" in note] == [
            "SecretRestored"
        ]
        kept = {n for n in EVERY if after[n] == before[n]}
        # New authorities are trusted everywhere at once; and what they did not sign stays as it is.
        assert kept == set(EVERY) - ({name} if name != "orders-ca" else set(EVERY) - {"orders-admin"})
        for shown in ("orders-tls", "orders-peer", "orders-operator"):
            assert name == shown or after[shown]["tls.crt"] == before[shown]["tls.crt"]


@virtual_time
async def test_lost_password_of_existing_data_is_requested() -> None:
    world = World()
    async with world.operator():
        before = await world.settled()
        await world.client.delete(Secret, ObjectKey(NAMESPACE, "orders-admin"))
        await world.until("said", lambda: world.blocked)
        assert world.blocked is not None and world.blocked.outcome.reason == "AdministratorSecretMissing"
        assert "data-orders-0" in world.blocked.outcome.message
        assert world.secret("orders-admin") == {}
        labels = {"app.kubernetes.io/name": "postgresql", "app.kubernetes.io/instance": "orders"}
        await world.give("orders-admin", before["orders-admin"])
        body = {"metadata": {"labels": {**labels, "app.kubernetes.io/managed-by": "steersman-databases"}}}
        await world.client.patch(Secret, ObjectKey(NAMESPACE, "orders-admin"), MergePatch(body))
        await world.until("goes on", lambda: world.blocked is None)
        assert (await world.settled())["orders-admin"] == before["orders-admin"]


@virtual_time
async def test_foreign_secret_is_not_changed() -> None:
    world = World()
    await world.give("orders-peer", {"mine": b"1"})
    async with world.operator():
        await world.until("said", lambda: world.blocked)
        assert world.blocked is not None and world.blocked.outcome.reason == "NameConflict"
    assert world.secret("orders-peer") == {"mine": b"1"}


@virtual_time
async def test_certificates_are_renewed_automatically() -> None:
    world = World()
    async with world.operator():
        before = await world.settled()
    await world.runtime.clock.sleep(60 * 86400 - 1800)
    async with world.operator():
        assert await world.settled() == before
        await world.runtime.clock.sleep(2 * 3600)
        after = await world.settled()
        changed = {n for n in EVERY if before[n] != after[n]}
        assert changed == {"orders-tls", "orders-peer", "orders-operator"}
        assert ("CertificateRenewed", "Secret orders-tls has a new certificate") in world.events()
        assert before["orders-tls"]["ca.crt"] == after["orders-tls"]["ca.crt"]


@virtual_time
async def test_custom_certificate_is_served_and_invalid_reported() -> None:
    world = World()
    authority = create_ca("company", datetime(2020, 1, 1, tzinfo=UTC), timedelta(days=36500))
    pair = sign_server(authority, ["*.shop.svc"], datetime(2020, 1, 1, tzinfo=UTC), timedelta(days=36000))
    data = {
        "tls.crt": pair.certificate.encode(),
        "tls.key": pair.key.encode(),
        "ca.crt": authority.certificate.encode(),
    }
    world.wish = CertificateRequest(custom_secret="company")
    async with world.operator():
        await world.settled()
        assert world.keys is not None and world.keys.certificates.condition.reason == "SecretInvalid"
        await world.give("company", data)
        await world.until("taken", lambda: world.secret("orders-tls").get("tls.crt") == data["tls.crt"])
        assert world.keys.certificates.condition.valid
        app = (await world.settled())["orders-app"]
        assert authority.certificate.encode() in app["ca.crt"]
        await world.client.patch(
            Secret,
            ObjectKey(NAMESPACE, "company"),
            MergePatch({"data": {"tls.key": base64.b64encode(b"x").decode()}}),
        )
        await world.until("said", lambda: world.keys and not world.keys.certificates.condition.valid)
        assert world.secret("orders-tls")["tls.crt"] == data["tls.crt"]


@virtual_time
async def test_owner_password_from_user_secret_is_used() -> None:
    world = World(bootstrap=Bootstrap(initdb=InitDb(owner="anna", secret=SecretReference(name="given"))))
    async with world.operator():
        await world.until("asked for", lambda: world.blocked)
        assert world.blocked is not None and world.blocked.outcome.reason == "OwnerSecretInvalid"
        await world.give("given", {"username": b"anna", "password": b"from elsewhere"})
        found = await world.settled()
        assert found["orders-app"]["password"] == b"from elsewhere"
        # It fits no more: what is there goes on, and that is told.
        key = ObjectKey(NAMESPACE, "given")
        for wrong in ({"username": "someone", "password": "another"}, {"username": "anna", "password": ""}):
            encoded = {name: b64(text) for name, text in wrong.items()}
            await world.client.patch(Secret, key, MergePatch({"data": encoded}))
            await world.runtime.clock.sleep(30)
            assert await world.settled() == found and world.blocked is None
            assert world.keys is not None and "Secret given needs username: anna" in world.keys.owner_secret_error
        # It is gone, as it may be.
        await world.client.delete(Secret, key)
        await world.runtime.clock.sleep(30)
        assert await world.settled() == found and world.blocked is None
        assert world.keys is not None and not world.keys.owner_secret_error


@virtual_time
async def test_foreign_keys_stay_and_own_keys_are_restored() -> None:
    world = World()
    async with world.operator():
        before = await world.settled()
        encoded = b64("elsewhere")
        await world.client.patch(
            Secret, ObjectKey(NAMESPACE, "orders-app"), MergePatch({"data": {"host": encoded, "theirs": encoded}})
        )
        after = await world.settled()
        assert after["orders-app"] == {**before["orders-app"], "theirs": b"elsewhere"}


@virtual_time
async def test_later_pvc_becomes_owner_too() -> None:
    world = World()
    async with world.operator():
        await world.settled()
        await world.client.create(data_pvc(declared_cluster(namespace=NAMESPACE), 1, Quantity("1Gi")))
        await world.settled()
    assert owners(world) == [["data-orders-0", "data-orders-1"]] * 6
