"""Volumes that are not a cluster's own, though they are called or labelled as if they were, outlive it."""

from __future__ import annotations

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectMeta
from steersman_databases.api import Database, DatabaseSpec
from steersman_testing import virtual_time


async def retain(world: ClusterHarness, version: str) -> None:
    """Makes a cluster and deletes it; its data stay."""
    await world.create_ready(1, instances=1, version=version)
    await world.client.delete(world.kind, KEY)
    await world.until("gone", lambda: world.cluster is None)
    await world.wait(30)


def copied(world: ClusterHarness, number: int) -> str:
    """Somebody makes a copy of a claim as it stands, by another name."""
    claim = world.server.read(PersistentVolumeClaim, NAMES.data_pvc(number))
    assert claim is not None
    name = f"{claim.metadata.name}-copy"
    metadata = {"name": name, "namespace": KEY.namespace, "labels": dict(claim.metadata.labels)}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.server.load({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return name


@virtual_time
async def test_unadoptable_pvc_is_not_deleted_by_cluster() -> None:
    world = ClusterHarness()
    async with world.operator():
        await retain(world, "15")
        await world.create(instances=1, version="17", deletion_policy="Delete")
        await world.until("refused", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None)
        assert world.pvc_names() == ["data-orders-0"]
        assert not world.messages("DataDeleted")
        await world.wait(30)
        await world.create(instances=1, version="15")
        await world.ready(1)


@virtual_time
async def test_unadoptable_pvc_is_not_deleted_by_database() -> None:
    world = ClusterHarness()
    async with world.operator():
        await retain(world, "15")
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        spec = DatabaseSpec(engine="postgresql", version="17", deletion_policy="Delete")
        await world.client.create(Database(metadata=metadata, spec=spec))
        await world.until("refused", lambda: world.cluster and world.condition("Ready").endswith("Mismatch"))
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.server.read(Database, KEY) is None, 300)
        assert world.pvc_names() == ["data-orders-0"]


@virtual_time
async def test_copied_pvc_with_labels_is_not_deleted() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, deletion_policy="Delete")
        copy = copied(world, 0)
        await world.wait(10)
        await world.client.delete(world.kind, KEY)
        await world.until("gone", lambda: world.cluster is None)
        assert world.pvc_names() == [copy]


@virtual_time
async def test_copied_pvc_does_not_block_scale_down() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        copied(world, 1)
        await world.wait(10)
        await world.change(instances=1)
        await world.ready(1)
        await world.wait(60)
        assert world.statefulsets() == ["orders-0"]
