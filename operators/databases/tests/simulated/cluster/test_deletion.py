"""Clusters that are deleted: their data go with them, or are kept for the next of the name."""

from __future__ import annotations

from database_support.unit.cluster_harness import KEY, ClusterHarness
from steersman.api.core_v1 import ConfigMap, Secret, Service
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb
from steersman_testing import virtual_time


@virtual_time
async def test_deletion_policy_delete_removes_data() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, deletion_policy="Delete")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.wait(30)
        assert (world.pvc_names(), world.pods()) == ([], {})
        assert not list(world.server.read_all(Secret))
        assert not list(world.server.read_all(ConfigMap))
        assert not list(world.server.read_all(Service))


@virtual_time
async def test_paused_cluster_can_be_deleted() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, deletion_policy="Delete")
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        assert "until the annotation is removed" in world.message("Paused")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.wait(30)
        assert (world.pvc_names(), world.pods()) == ([], {})


@virtual_time
async def test_retained_data_is_adopted_by_same_name() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, bootstrap=Bootstrap(initdb=InitDb()))
        await world.annotate(switchover="orders-1")
        await world.until("switched", lambda: world.status.primary == "orders-1")
        await world.ready(3)
        password = world.secret("orders-app")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.wait(30)
        assert world.pods() == {}
        assert "DataRetained" in world.events()
        await world.create(bootstrap=Bootstrap(initdb=InitDb()))
        await world.ready(3)
        assert world.status.primary == "orders-1", "who led last has all that was committed"
        assert world.secret("orders-app") == password
        assert world.hosts.systems == 1, "nothing was made anew"


@virtual_time
async def test_data_of_other_version_is_rejected() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, version="15")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.create(instances=1, version="17")
        await world.until("told", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        assert world.pods() == {}
