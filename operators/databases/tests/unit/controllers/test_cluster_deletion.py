"""Clusters that are deleted: their data go with them, or are kept for the next of the name."""

from __future__ import annotations

from database_support.cluster_world import KEY, ClusterWorld
from steersman.api.core_v1 import ConfigMap, Secret, Service
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb
from steersman_testing import virtual_time


@virtual_time
async def test_deleted_with_its_data() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(deletion_policy="Delete")
        await world.ready(3)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.rest(30)
        assert (world.claims(), world.pods()) == ([], {})
        assert not list(world.server.read_all(Secret))
        assert not list(world.server.read_all(ConfigMap))
        assert not list(world.server.read_all(Service))


@virtual_time
async def test_a_paused_cluster_is_deleted_all_the_same() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, deletion_policy="Delete")
        await world.ready(1)
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        assert "until it is deleted" in world.message("Paused")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.rest(30)
        assert (world.claims(), world.pods()) == ([], {})


@virtual_time
async def test_retained_data_are_adopted_by_the_next_of_the_name() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(bootstrap=Bootstrap(initdb=InitDb()))
        await world.ready(3)
        await world.annotate(switchover="orders-1")
        await world.until("switched", lambda: world.status.primary == "orders-1")
        await world.ready(3)
        password = world.secret("orders-app")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.rest(30)
        assert world.pods() == {}
        assert "DataRetained" in world.events()
        await world.create(bootstrap=Bootstrap(initdb=InitDb()))
        await world.ready(3)
        assert world.status.primary == "orders-1", "who led last has all that was committed"
        assert world.secret("orders-app") == password
        assert world.hosts.systems == 1, "nothing was made anew"


@virtual_time
async def test_data_of_another_version_are_refused() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, version="15")
        await world.ready(1)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.create(instances=1, version="17")
        await world.until("told", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        assert world.pods() == {}
