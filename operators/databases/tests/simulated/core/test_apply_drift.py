"""What somebody changes by hand in an object of a cluster is healed, also where an apply does not put it back."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.client import MergePatch
from steersman.meta import Object, ObjectKey, to_builtins
from steersman_databases.api.cluster_common import AdditionalService, PoolerSettings, ServicesSettings
from steersman_testing import virtual_time

MANAGED = "app.kubernetes.io/managed-by"
LEADS = NAMES.endpoint_slices("orders-rw")[0]
POOLER = ObjectKey(KEY.namespace, "orders-pooler-rw")


def spec_of(world: ClusterHarness, kind: type[Object], key: ObjectKey) -> Any:
    found = world.server.read(kind, key)
    return None if found is None else to_builtins(found)["spec"]


def data_of(world: ClusterHarness, key: ObjectKey) -> dict[str, str]:
    found = world.server.read(ConfigMap, key)
    return dict(found.data) if found else {}


async def heals(world: ClusterHarness, kind: type[Object], key: ObjectKey, patch: dict[str, Any]) -> None:
    """That the spec is again as it was, with an Event, and the cluster Ready."""
    before = spec_of(world, kind, key)
    await world.client.patch(kind, key, MergePatch({"spec": patch}))
    assert spec_of(world, kind, key) != before
    await world.until("healed", lambda: spec_of(world, kind, key) == before, 30)
    await world.until("told", lambda: f"updated {kind.__name__} {key.name}" in world.messages("Updated"), 30)
    await world.until("ready", lambda: world.condition("Ready") == "True/AllInstancesReady", 30)


ON_SERVICES: dict[str, dict[str, Any]] = {
    "protocol": {"ports": [{"name": "postgresql", "port": 5432, "protocol": "UDP", "targetPort": 5432}]},
    "externalIPs": {"externalIPs": ["192.0.2.1"]},
    "internalTrafficPolicy": {"internalTrafficPolicy": "Local"},
    # With another type, it is refused.
    "loadBalancerSourceRanges": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]},
    "sessionAffinity": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 9}}},
}


@pytest.mark.parametrize(("service", "patch"), [*(("orders-rw", p) for p in ON_SERVICES.values())], ids=ON_SERVICES)
@virtual_time
async def test_service_is_restored(service: str, patch: dict[str, Any]) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await heals(world, Service, ObjectKey(KEY.namespace, service), patch)


@virtual_time
async def test_load_balancer_is_restored() -> None:
    world = ClusterHarness()
    declared = AdditionalService(
        name="public", role="rw", type="LoadBalancer", load_balancer_source_ranges=("192.0.2.0/24",)
    )
    async with world.operator():
        await world.create_ready(1, instances=1, services=ServicesSettings(additional=(declared,)))
        public = ObjectKey(KEY.namespace, "public")
        await heals(world, Service, public, {"externalTrafficPolicy": "Local"})
        await heals(world, Service, public, {"loadBalancerSourceRanges": ["0.0.0.0/0"]})
        await heals(world, Service, public, {"loadBalancerSourceRanges": None})


@virtual_time
async def test_declared_load_balancer_fields_are_kept() -> None:
    world, public = ClusterHarness(), ObjectKey(KEY.namespace, "public")
    declared = AdditionalService(
        name="public",
        role="rw",
        type="LoadBalancer",
        external_traffic_policy="Local",
        load_balancer_source_ranges=("192.0.2.0/24",),
    )
    async with world.operator():
        await world.create_ready(1, instances=1, services=ServicesSettings(additional=(declared,)))
        await world.wait(120)
        spec = spec_of(world, Service, public)
        assert (spec["externalTrafficPolicy"], spec["loadBalancerSourceRanges"]) == ("Local", ["192.0.2.0/24"])
        assert "updated Service public" not in world.messages("Updated")


@virtual_time
async def test_budget_with_other_limit_is_restored() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await heals(world, PodDisruptionBudget, KEY, {"minAvailable": 2, "maxUnavailable": None})


@pytest.mark.parametrize(
    "patch",
    [{"paused": True}, {"strategy": {"type": "Recreate", "rollingUpdate": None}}],
    ids=["paused", "all at once"],
)
@virtual_time
async def test_pooler_is_restored(patch: dict[str, Any]) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(instances=1, pooler=PoolerSettings())
        await world.until("made", lambda: world.server.read(Deployment, POOLER), 60)
        await world.wait(30)
        before = spec_of(world, Deployment, POOLER)
        await world.client.patch(Deployment, POOLER, MergePatch({"spec": patch}))
        await world.until("healed", lambda: spec_of(world, Deployment, POOLER) == before, 30)


@pytest.mark.parametrize(
    "patch",
    [
        {"ordinals": {"start": 5}},
        {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
    ],
    ids=["another pod", "by themselves"],
)
@virtual_time
async def test_statefulset_is_restored(patch: dict[str, Any]) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await heals(world, StatefulSet, NAMES.statefulset(0), patch)


@pytest.mark.parametrize(
    ("of", "key"), [(ClusterHarness, NAMES.local_configuration), (GroupHarness, NAMES.mysql_configuration)]
)
@virtual_time
async def test_undeclared_config_map_keys_are_removed(of: type[ClusterHarness], key: ObjectKey) -> None:
    world = of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = data_of(world, key)
        await world.client.patch(ConfigMap, key, MergePatch({"data": {"more.cnf": "x"}, "binaryData": {"b": "AA=="}}))
        await world.until("healed", lambda: data_of(world, key) == before, 30)
        found = world.server.read(ConfigMap, key)
        assert found is not None and not found.binary_data


SLICE_CHANGES: dict[str, dict[str, Any]] = {
    "ports": {"ports": [{"name": "postgresql", "port": 1, "protocol": "TCP"}]},
    "no ports": {"ports": None},
    "protocol": {"ports": [{"name": "postgresql", "port": 5432, "protocol": "UDP"}]},
    "labels": {"metadata": {"labels": {MANAGED: None}}},
    "of another": {"metadata": {"labels": {"kubernetes.io/service-name": "orders-ro"}}},
}


def slice_of(world: ClusterHarness, key: ObjectKey = LEADS) -> Any:
    found = world.server.read(EndpointSlice, key)
    if found is None:
        return None
    wire = to_builtins(found)
    return wire["metadata"]["labels"], wire.get("ports"), [e["addresses"] for e in wire.get("endpoints") or ()]


@pytest.mark.parametrize("patch", SLICE_CHANGES.values(), ids=SLICE_CHANGES)
@virtual_time
async def test_rw_endpoints_are_restored(patch: dict[str, Any]) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = slice_of(world)
        await world.client.patch(EndpointSlice, LEADS, MergePatch(patch))
        assert slice_of(world) != before
        await world.until("healed", lambda: slice_of(world) == before, 30)
        await world.ready(1)


@virtual_time
async def test_unready_endpoint_is_restored() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        found = world.server.read(EndpointSlice, LEADS)
        assert found is not None
        [endpoint] = to_builtins(found)["endpoints"]
        endpoint["conditions"]["ready"] = False
        await world.client.patch(EndpointSlice, LEADS, MergePatch({"endpoints": [endpoint]}))

        def leads() -> bool:
            present = world.server.read(EndpointSlice, LEADS)
            return present is not None and [e.conditions.ready for e in present.endpoints or ()] == [True]

        await world.until("healed", leads, 30)
        assert "Service orders-rw routes to orders-0-0" in world.messages("DriftReverted")


def load_strangers_slice(world: ClusterHarness, key: ObjectKey) -> None:
    """One that leads clients of somebody's own Service."""
    theirs: dict[str, Any] = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {"kubernetes.io/service-name": "theirs"},
        },
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [],
    }
    world.server.load(theirs)


@virtual_time
async def test_foreign_slice_is_not_adopted() -> None:
    """It would lead his clients to our primary, and ours nowhere."""
    world = ClusterHarness()
    load_strangers_slice(world, LEADS)
    before = slice_of(world)
    async with world.operator():
        await world.create(instances=1)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict", 60)
        assert f"EndpointSlice {LEADS.name} exists and does not belong to this cluster" in world.message("Ready")
        await world.wait(60)
        assert slice_of(world) == before
        await world.client.delete(EndpointSlice, LEADS)
        await world.ready(1)


@virtual_time
async def test_foreign_slice_in_place_of_deleted_one_is_kept() -> None:
    """Made before the operator could: its clients are not led to our primary, and ours are when it is gone."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        led = slice_of(world)
        await world.client.delete(EndpointSlice, LEADS)
        load_strangers_slice(world, LEADS)
        before = slice_of(world)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict", 60)
        await world.wait(60)
        assert slice_of(world) == before
        # The primary does not come back to it: that is the operator's.
        world.hosts.slow = True
        await world.client.delete(EndpointSlice, LEADS)
        await world.until("led", lambda: slice_of(world) == led, 60)
        await world.ready(1)


@virtual_time
async def test_foreign_slice_does_not_block_serving_cluster() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, instances=3)
        await world.client.delete(EndpointSlice, LEADS)
        load_strangers_slice(world, LEADS)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict", 60)
        await world.annotate(fenced_instances="orders-1")

        def fenced() -> bool:
            pod = world.pods().get("orders-1")
            return pod is not None and pod.metadata.annotations.get("databases.steersman.dev/fenced") == "true"

        await world.until("fenced", fenced, 120)


@virtual_time
async def test_foreign_slice_of_additional_service_is_reported() -> None:
    world, [entry, _] = ClusterHarness(), NAMES.endpoint_slices("entry")
    load_strangers_slice(world, entry)
    before = slice_of(world, entry)
    async with world.operator():
        await world.create(
            instances=1, services=ServicesSettings(additional=(AdditionalService(name="entry", role="rw"),))
        )
        await world.until("serves", lambda: world.condition("Available") == "True/PrimaryAvailable", 120)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict", 60)
        assert f"EndpointSlice {entry.name} exists" in world.message("Ready")
        assert slice_of(world, entry) == before


SECRETS = [
    NAMES.administrator_secret,
    NAMES.ca_secret,
    NAMES.operator_certificate,
    NAMES.server_certificate,
]
STORE = sorted(NAMES.dcs_of("postgresql").all_keys)
OF_CLAIMS: list[tuple[type[Object], ObjectKey]] = [*((Secret, k) for k in SECRETS), *((ConfigMap, k) for k in STORE)]


def managed(world: ClusterHarness, kind: type[Object], key: ObjectKey) -> bool:
    found = world.server.read(kind, key)
    return found is not None and found.metadata.labels.get(MANAGED) == "steersman-databases"


@pytest.mark.parametrize("lost", ["Helm", None])
@virtual_time
async def test_lost_label_is_restored(lost: str | None) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        uids = world.uids()
        for kind, key in OF_CLAIMS:
            found = world.server.read(kind, key)
            assert found is not None
            await world.client.patch(kind, key, MergePatch({"metadata": {"labels": {MANAGED: lost}}}))
            await world.until("back", lambda kind=kind, key=key: managed(world, kind, key), 30)
            await world.until("ready", lambda: world.condition("Ready") == "True/AllInstancesReady", 30)
            again = world.server.read(kind, key)
            assert again is not None and again.metadata.uid == found.metadata.uid
            message = f"restored the labels {MANAGED}=steersman-databases of {kind.__name__} {key.name}"
            assert message in world.messages("Updated")
        assert world.uids() == uids
        assert not {"InstanceReplaced", "SecretRestored", "NameConflict"} & set(world.events())


@virtual_time
async def test_lost_label_keeps_group_leader() -> None:
    world = GroupHarness()
    async with world.operator():
        await world.create_ready(3, instances=3)
        uids = world.uids()
        await world.client.patch(ConfigMap, NAMES.group_config, MergePatch({"metadata": {"labels": {MANAGED: None}}}))
        await world.until("back", lambda: managed(world, ConfigMap, NAMES.group_config), 30)
        await world.ready(3)
        assert world.uids() == uids


@virtual_time
async def test_secret_owned_by_foreign_pvc_is_foreign() -> None:
    world = ClusterHarness()
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "theirs", "namespace": KEY.namespace, "uid": "another"}
    world.server.load({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    claim = world.server.read(PersistentVolumeClaim, ObjectKey(KEY.namespace, "theirs"))
    assert claim is not None
    owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "theirs", "uid": claim.metadata.uid}
    metadata = {"name": "orders-ca", "namespace": KEY.namespace, "ownerReferences": [owner]}
    world.server.load({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    async with world.operator():
        await world.create(instances=1)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict", 60)
        assert not managed(world, Secret, NAMES.ca_secret)


@virtual_time
async def test_paused_cluster_restores_no_label() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        for kind, key in ((Secret, NAMES.ca_secret), (ConfigMap, NAMES.dcs_leader)):
            await world.client.patch(kind, key, MergePatch({"metadata": {"labels": {MANAGED: None}}}))
        await world.wait(60)
        assert not managed(world, Secret, NAMES.ca_secret) and not managed(world, ConfigMap, NAMES.dcs_leader)
        await world.annotate(paused=None)
        await world.ready(1)
        assert managed(world, Secret, NAMES.ca_secret) and managed(world, ConfigMap, NAMES.dcs_leader)
