"""No Service but a cluster's own leads to its primary, whatever the cluster declares."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import KEY, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import ConfigMap, Service, ServicePort, ServiceSpec
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.rbac_v1 import Role
from steersman.meta import ObjectKey, ObjectMeta, to_builtins
from steersman_databases.api.cluster_common import AdditionalService, ServicesSettings
from steersman_pod.rw_endpoints import ClusterIdentity
from steersman_testing import virtual_time

OTHER = ObjectKey(KEY.namespace, "other")
WORLDS = {
    "postgresql": (ClusterHarness, ClusterIdentity("PostgreSQLCluster", "postgresql", KEY.name)),
    "mysql": (GroupHarness, ClusterIdentity("MySQLCluster", "mysql", KEY.name)),
}


def led_by(world: ClusterHarness, service: str) -> list[str]:
    """The slices that lead clients of a Service."""
    label = "kubernetes.io/service-name"
    return sorted(
        s.metadata.name for s in world.server.read_all(EndpointSlice) if s.metadata.labels[label] == service
    )


@virtual_time
async def test_member_role_excludes_foreign_slices() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        services = ServicesSettings(additional=(AdditionalService(name="orders-rw", role="rw"),))
        metadata = ObjectMeta(name=OTHER.name, namespace=OTHER.namespace)
        await world.client.create(world.kind(metadata=metadata, spec=world.spec(instances=1, services=services)))
        await world.wait(120)
        role = world.server.read(Role, OTHER)
        store = world.server.read(ConfigMap, ObjectKey(OTHER.namespace, "other-patroni"))
        assert role is not None and store is not None
        may = {name for rule in role.rules if "endpointslices" in rule.resources for name in rule.resource_names}
        assert {"other-rw-ipv4", "other-rw-ipv6"} < may == set(store.data["endpoint-slices"].split())
        assert led_by(world, "orders-rw") == ["orders-rw-ipv4", "orders-rw-ipv6"]
        assert not may & {"orders-rw-ipv4", "orders-rw-ipv6"}


@virtual_time
async def test_foreign_service_loses_primary_endpoints() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(
            instances=1, services=ServicesSettings(additional=(AdditionalService(name="entry", role="rw"),))
        )
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
async def test_member_configuration_lists_own_slices(engine: str) -> None:
    kind, owner = WORLDS[engine]
    world = kind()
    async with world.operator():
        await world.create(
            instances=1, services=ServicesSettings(additional=(AdditionalService(name="entry", role="rw"),))
        )
        await world.ready(1)
        slices = [to_builtins(s.metadata) for s in world.server.read_all(EndpointSlice)]
        assert len(slices) == 4
        for metadata in slices:
            assert owner.owns(metadata)
            assert owner.owns({**metadata, "ownerReferences": []})
            assert owner.owns({**metadata, "labels": {}})
