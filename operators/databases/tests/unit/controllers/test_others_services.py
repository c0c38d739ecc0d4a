"""No Service but a cluster's own leads to its primary, whatever the cluster declares."""

from __future__ import annotations

import pytest

from database_support.cluster_world import KEY, ClusterWorld
from database_support.group_world import GroupWorld
from steersman.api.core_v1 import ConfigMap, Service, ServicePort, ServiceSpec
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.rbac_v1 import Role
from steersman.meta import ObjectKey, ObjectMeta, to_builtins
from steersman_databases.api.cluster_parts import AdditionalService, Services
from steersman_pod.leading import Owner
from steersman_testing import virtual_time

OTHER = ObjectKey(KEY.namespace, "other")
WORLDS = {
    "postgresql": (ClusterWorld, Owner("PostgreSQLCluster", "postgresql", KEY.name)),
    "mysql": (GroupWorld, Owner("MySQLCluster", "mysql", KEY.name)),
}


def led_by(world: ClusterWorld, service: str) -> list[str]:
    """The slices that lead clients of a Service."""
    label = "kubernetes.io/service-name"
    return sorted(
        s.metadata.name for s in world.server.read_all(EndpointSlice) if s.metadata.labels[label] == service
    )


@virtual_time
async def test_members_may_not_write_where_another_clusters_service_leads() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        services = Services(additional=(AdditionalService(name="orders-rw", role="rw"),))
        metadata = ObjectMeta(name=OTHER.name, namespace=OTHER.namespace)
        await world.client.create(world.kind(metadata=metadata, spec=world.spec(instances=1, services=services)))
        await world.rest(120)
        role = world.server.read(Role, OTHER)
        store = world.server.read(ConfigMap, ObjectKey(OTHER.namespace, "other-patroni"))
        assert role is not None and store is not None
        may = {name for rule in role.rules if "endpointslices" in rule.resources for name in rule.resource_names}
        assert {"other-rw-ipv4", "other-rw-ipv6"} < may == set(store.data["slices"].split())
        assert led_by(world, "orders-rw") == ["orders-rw-ipv4", "orders-rw-ipv6"]
        assert not may & {"orders-rw-ipv4", "orders-rw-ipv6"}


@virtual_time
async def test_a_service_that_becomes_a_strangers_leads_to_the_primary_no_more() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, services=Services(additional=(AdditionalService(name="entry", role="rw"),)))
        await world.ready(1)
        assert led_by(world, "entry") == ["orders.entry-ipv4", "orders.entry-ipv6"]
        entry = ObjectKey(KEY.namespace, "entry")
        await world.client.delete(Service, entry)
        metadata = ObjectMeta(name=entry.name, namespace=entry.namespace)
        theirs = Service(metadata=metadata, spec=ServiceSpec(ports=(ServicePort(port=80),)))
        await world.client.create(theirs)
        await world.until("theirs", lambda: led_by(world, "entry") == [], 60)
        assert led_by(world, "orders-rw") == ["orders-rw-ipv4", "orders-rw-ipv6"]


@pytest.mark.parametrize("engine", sorted(WORLDS))
@virtual_time
async def test_members_know_the_slices_that_the_operator_makes(engine: str) -> None:
    kind, owner = WORLDS[engine]
    world = kind()
    async with world.operator():
        await world.create(instances=1, services=Services(additional=(AdditionalService(name="entry", role="rw"),)))
        await world.ready(1)
        slices = [to_builtins(s.metadata) for s in world.server.read_all(EndpointSlice)]
        assert len(slices) == 4
        for metadata in slices:
            assert owner.has(metadata)
            assert owner.has({**metadata, "ownerReferences": []})
            assert owner.has({**metadata, "labels": {}})
