"""A PostgreSQL Database without a reference: its cluster, and what it promised before there were clusters."""

from __future__ import annotations

from typing import Any

import pytest

from database_world import KEY, CuttableTransport, World
from steersman.api.core_v1 import PersistentVolumeClaim, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.events_v1 import Event
from steersman.client import MergePatch
from steersman.meta import ObjectKey, ObjectMeta, Quantity
from steersman.testing import run_virtual, virtual_time
from steersman_databases.api import Database, PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.database import Extension, Schema
from steersman_databases.engines import Credentials
from steersman_databases.engines.model import ModelServer

POSTGRESQL: dict[str, Any] = {"engine": "postgresql", "version": "17"}


class OwnClusterWorld(World):
    """A world with a PostgreSQL ``Database``."""

    async def create(self, **spec: Any) -> Database:
        return await super().create(**POSTGRESQL, **spec) if "engine" not in spec else await super().create(**spec)

    @property
    def cluster(self) -> PostgreSQLCluster | None:
        """Its cluster."""
        return self.server.read(PostgreSQLCluster, KEY)

    @property
    def inside(self) -> ModelServer:
        """What is inside the server that was made last."""
        return list(self.machines.in_clusters.values())[-1]

    @property
    def message(self) -> str:
        """The message of its condition Ready."""
        found = self.database
        return found.status.conditions[0].message if found and found.status and found.status.conditions else ""

    async def patch(self, **spec: Any) -> None:
        """Changes the spec of the ``Database``, by the wire's names."""
        await self.client.patch(Database, KEY, MergePatch({"spec": spec}))

    async def deleted(self) -> None:
        """Deletes the ``Database`` and waits until it and its cluster are gone."""
        await self.client.delete(Database, KEY)
        await self.until("gone", lambda: self.database is None)
        self.server.collect_garbage()
        assert self.cluster is None


def _key(name: str) -> ObjectKey:
    return ObjectKey(KEY.namespace, name)


@virtual_time
async def test_becomes_ready_as_ever_and_then_writes_nothing() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready()
        database, cluster = world.database, world.cluster
        assert database is not None and database.status is not None and cluster is not None
        assert database.status.connection_string == "postgresql://orders:<secret>@orders-primary.default:5432/orders"
        assert (cluster.spec.instances, cluster.spec.version) == (1, "17")
        assert world.server.read(Service, _key("orders-primary")) is not None
        slices = [s for s in world.server.read_all(EndpointSlice) if s.key.name.startswith("orders-primary")]
        assert len(slices) == 2
        entries = world.secret("orders-app")
        assert {"host", "port", "dbname", "database", "user", "username", "password", "uri", "type"} < set(entries)
        password = entries["password"]
        assert entries["uri"] == f"postgresql://orders:{password}@orders-primary.default:5432/orders"
        assert world.inside.opens(Credentials("orders", password), "orders")
        version, sql_writes = world.server.resource_version, world.inside.writes
        await world.runtime.clock.sleep(600)
        assert world.server.resource_version == version, "ten quiet minutes change no object"
        assert world.inside.writes == sql_writes


@virtual_time
async def test_declares_what_only_clusters_have() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        await world.create(encoding="UTF8", schemas=(Schema(name="sales"),), extensions=(Extension(name="pgcrypto"),))
        await world.ready()
        inside = world.inside.inside["orders"]
        assert "sales" in inside.schemas and "pgcrypto" in inside.extensions


@virtual_time
async def test_drift_is_healed_within_thirty_seconds() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready()
        password = world.secret("orders-app")["password"]
        world.inside.drop_user("orders")
        await world.until("user is back", lambda: "orders" in world.inside.users, 30)
        world.inside.set_password("orders", "elsewhere")
        await world.until("password is back", lambda: world.inside.opens(Credentials("orders", password)), 30)
        await world.client.delete(Service, _key("orders-primary"))
        await world.until("Service is back", lambda: world.server.read(Service, _key("orders-primary")), 30)
        await world.client.delete(Secret, _key("orders-app"))
        await world.until("Secret is back", lambda: world.secret("orders-app"), 30)
        renewed = world.secret("orders-app")["password"]
        await world.until("it is in force", lambda: world.inside.opens(Credentials("orders", renewed)), 30)
        body = MergePatch({"spec": {"instances": 2}})
        await world.client.patch(PostgreSQLCluster, KEY, body)
        await world.until("one instance", lambda: world.cluster and world.cluster.spec.instances == 1, 30)


@virtual_time
async def test_a_strangers_cluster_is_never_taken_over() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        spec = PostgreSQLClusterSpec(instances=1, storage=PostgreSQLClusterSpec().storage)
        made = PostgreSQLCluster(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec)
        await world.client.create(made)
        await world.create(storage_size=Quantity("2Gi"), deletion_policy="Delete")
        await world.until("said", lambda: world.reason == "NameTaken")
        assert "PostgreSQLCluster orders exists and was not made for this Database" in world.message
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.database is None)
        cluster = world.cluster
        assert cluster is not None and cluster.metadata.deletion_timestamp is None
        assert (cluster.metadata.owner_references, cluster.spec.deletion_policy) == ((), "Retain")


@virtual_time
async def test_retained_data_open_for_a_namesake() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready()
        kept = {name: world.secret(name) for name in ("orders-admin", "orders-app")}
        await world.deleted()
        claim = world.claim()
        assert claim is not None and {name: world.secret(name) for name in kept} == kept
        assert [e.reason for e in world.server.read_all(Event) if e.reason == "DataRetained"]
        await world.create()
        await world.ready()
        assert {name: world.secret(name) for name in kept} == kept
        assert len(world.machines.in_clusters) == 1 and world.claim() is not None


@virtual_time
async def test_giving_up_the_claim_gives_up_what_opens_it() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready()
        await world.deleted()
        await world.client.delete(PersistentVolumeClaim, _key("data-orders-0"))
        world.server.collect_garbage()
        assert not world.secret("orders-app") and not world.secret("orders-admin")


@virtual_time
async def test_the_policy_of_the_moment_decides() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready()
        await world.patch(deletionPolicy="Delete")
        await world.deleted()
        assert world.claim() is None
        assert not world.secret("orders-admin") and not world.secret("orders-app")


@virtual_time
async def test_a_bigger_volume_is_asked_for_and_never_a_smaller_one() -> None:
    world = OwnClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready()
        await world.patch(storageSize="2Gi")

        def requested() -> Quantity:
            claim = world.claim()
            assert claim is not None
            return Quantity(claim.spec.resources.requests["storage"])

        await world.until("2Gi are requested", lambda: requested() == Quantity("2Gi"))
        await world.client.patch(PostgreSQLCluster, KEY, MergePatch({"spec": {"storage": {"size": "3Gi"}}}))
        await world.until("3Gi are requested", lambda: requested() == Quantity("3Gi"))
        await world.ready()


@pytest.mark.parametrize(
    ("fields", "reason", "says"),
    [
        ({"version": "9"}, "UnsupportedVersion", 'version "9" of postgresql is not supported'),
        ({"database_name": "template1"}, "InvalidName", "spec.databaseName"),
        ({"username": "pg_read_all_data"}, "InvalidName", "spec.username"),
    ],
)
def test_nothing_is_made_for_what_cannot_be(fields: dict[str, str], reason: str, says: str) -> None:
    async def story() -> None:
        world = OwnClusterWorld()
        async with world.operator():
            await world.create(**{**POSTGRESQL, **fields})
            await world.until(reason, lambda: world.reason == reason)
            assert says in world.message
            assert world.cluster is None

    run_virtual(story())


@pytest.mark.parametrize(
    ("first", "second"), [("mysql", "postgresql"), ("postgresql", "mysql")], ids=["to-postgresql", "to-mysql"]
)
def test_the_data_of_another_engine_are_refused(first: str, second: str) -> None:
    versions = {"mysql": "9.7", "postgresql": "17"}

    async def story() -> None:
        world = OwnClusterWorld()
        async with world.operator():
            await world.create(engine=first, version=versions[first])
            await world.ready()
            await world.deleted()
            await world.create(engine=second, version=versions[second])
            await world.until("said", lambda: world.reason == "RetainedDataMismatch")
            assert f"holds retained data of {first}" in world.message

    run_virtual(story())


@virtual_time
async def test_a_clusters_trouble_is_the_databases() -> None:
    world = OwnClusterWorld()
    metadata = {"name": "orders-admin", "namespace": KEY.namespace}
    world.server.load({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    async with world.operator():
        await world.create()
        await world.until("said", lambda: world.reason == "NameTaken")
        assert "Secret orders-admin" in world.message
        found = world.database
        assert found is not None and found.status is not None and found.status.phase == "Failed"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
@pytest.mark.parametrize("requests", [3, 6])
def test_killed_while_deleting(requests: int, policy: str) -> None:
    async def story() -> None:
        world = OwnClusterWorld()
        async with world.operator():
            await world.create(deletion_policy=policy)
            await world.ready()
        await world.client.delete(Database, KEY)
        transport = CuttableTransport(world.server, requests)
        async with world.operator(transport):
            await world.until("cut", transport.is_cut.is_set)
        async with world.operator():
            await world.until("gone", lambda: world.database is None)
            world.server.collect_garbage()
            assert (world.claim() is None) == (policy == "Delete")
            assert bool(world.secret("orders-app")) == (policy == "Retain")

    run_virtual(story())
