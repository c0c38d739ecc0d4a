"""Volumes that are not a cluster's own, though they are called or labelled as if they were, outlive it."""

from __future__ import annotations

from database_support.cluster_world import KEY, NAMES, ClusterWorld
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectMeta
from steersman_databases.api import Database, DatabaseSpec
from steersman_testing import virtual_time


async def retain(world: ClusterWorld, version: str) -> None:
    """Makes a cluster and deletes it; its data stay."""
    await world.create(instances=1, version=version)
    await world.ready(1)
    await world.client.delete(world.kind, KEY)
    await world.until("gone", lambda: world.cluster is None)
    await world.rest(30)


def copied(world: ClusterWorld, number: int) -> str:
    """Somebody makes a copy of a claim as it stands, by another name."""
    claim = world.server.read(PersistentVolumeClaim, NAMES.data_claim(number))
    assert claim is not None
    name = f"{claim.metadata.name}-copy"
    metadata = {"name": name, "namespace": KEY.namespace, "labels": dict(claim.metadata.labels)}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.server.load({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return name


@virtual_time
async def test_what_a_cluster_could_not_adopt_it_does_not_delete() -> None:
    world = ClusterWorld()
    async with world.operator():
        await retain(world, "15")
        await world.create(instances=1, version="17", deletion_policy="Delete")
        await world.until("refused", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None)
        assert world.claims() == ["data-orders-0"]
        assert not world.messages("DataDeleted")
        await world.rest(30)
        await world.create(instances=1, version="15")
        await world.ready(1)


@virtual_time
async def test_nor_does_a_database_that_makes_its_cluster() -> None:
    world = ClusterWorld()
    async with world.operator():
        await retain(world, "15")
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        spec = DatabaseSpec(engine="postgresql", version="17", deletion_policy="Delete")
        await world.client.create(Database(metadata=metadata, spec=spec))
        await world.until("refused", lambda: world.cluster and world.condition("Ready").endswith("Mismatch"))
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.server.read(Database, KEY) is None, 300)
        assert world.claims() == ["data-orders-0"]


@virtual_time
async def test_a_copy_with_the_labels_of_a_claim_is_not_deleted() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, deletion_policy="Delete")
        await world.ready(1)
        copy = copied(world, 0)
        await world.rest(10)
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None)
        assert world.claims() == [copy]


@virtual_time
async def test_a_copy_keeps_no_cluster_from_scaling_in() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        copied(world, 1)
        await world.rest(10)
        await world.change(instances=1)
        await world.ready(1)
        await world.rest(60)
        assert world.statefulsets() == ["orders-0"]
