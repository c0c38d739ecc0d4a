"""What somebody changes by hand in an object of a cluster is healed, also where an apply does not put it back."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.cluster_world import KEY, NAMES, ClusterWorld
from database_support.group_world import GroupWorld
from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.client import MergePatch
from steersman.meta import Object, ObjectKey, to_builtins
from steersman_databases.api.cluster_parts import AdditionalService, Pooler, Services
from steersman_testing import virtual_time

MANAGED = "app.kubernetes.io/managed-by"
LEADS = NAMES.slices("orders-rw")[0]
POOLER = ObjectKey(KEY.namespace, "orders-pooler-rw")


def spec_of(world: ClusterWorld, kind: type[Object], key: ObjectKey) -> Any:
    found = world.server.read(kind, key)
    return None if found is None else to_builtins(found)["spec"]


def data_of(world: ClusterWorld, key: ObjectKey) -> dict[str, str]:
    found = world.server.read(ConfigMap, key)
    return dict(found.data) if found else {}


async def heals(world: ClusterWorld, kind: type[Object], key: ObjectKey, patch: dict[str, Any]) -> None:
    """That the spec is again as it was, with an Event, and the cluster Ready."""
    before = spec_of(world, kind, key)
    await world.client.patch(kind, key, MergePatch({"spec": patch}))
    assert spec_of(world, kind, key) != before
    await world.until("healed", lambda: spec_of(world, kind, key) == before, 30)
    await world.until("told", lambda: f"updated {kind.__name__} {key.name}" in world.messages("Updated"), 30)
    await world.until("ready", lambda: world.condition("Ready") == "True/ClusterReady", 30)


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
async def test_a_service(service: str, patch: dict[str, Any]) -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await heals(world, Service, ObjectKey(KEY.namespace, service), patch)


@virtual_time
async def test_a_load_balancer() -> None:
    world = ClusterWorld()
    declared = AdditionalService(
        name="public", role="rw", type="LoadBalancer", load_balancer_source_ranges=("192.0.2.0/24",)
    )
    async with world.operator():
        await world.create(instances=1, services=Services(additional=(declared,)))
        await world.ready(1)
        public = ObjectKey(KEY.namespace, "public")
        await heals(world, Service, public, {"externalTrafficPolicy": "Local"})
        await heals(world, Service, public, {"loadBalancerSourceRanges": ["0.0.0.0/0"]})
        await heals(world, Service, public, {"loadBalancerSourceRanges": None})


@virtual_time
async def test_what_is_declared_of_a_load_balancer_stays() -> None:
    world, public = ClusterWorld(), ObjectKey(KEY.namespace, "public")
    declared = AdditionalService(
        name="public",
        role="rw",
        type="LoadBalancer",
        external_traffic_policy="Local",
        load_balancer_source_ranges=("192.0.2.0/24",),
    )
    async with world.operator():
        await world.create(instances=1, services=Services(additional=(declared,)))
        await world.ready(1)
        await world.rest(120)
        spec = spec_of(world, Service, public)
        assert (spec["externalTrafficPolicy"], spec["loadBalancerSourceRanges"]) == ("Local", ["192.0.2.0/24"])
        assert "updated Service public" not in world.messages("Updated")


@virtual_time
async def test_a_budget_with_the_other_limit() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        await heals(world, PodDisruptionBudget, KEY, {"minAvailable": 2, "maxUnavailable": None})


@pytest.mark.parametrize(
    "patch",
    [{"paused": True}, {"strategy": {"type": "Recreate", "rollingUpdate": None}}],
    ids=["paused", "all at once"],
)
@virtual_time
async def test_a_pooler(patch: dict[str, Any]) -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, pooler=Pooler())
        await world.until("made", lambda: world.server.read(Deployment, POOLER), 60)
        await world.rest(30)
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
async def test_a_statefulset(patch: dict[str, Any]) -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await heals(world, StatefulSet, NAMES.statefulset(0), patch)


@pytest.mark.parametrize(
    ("of", "key"), [(ClusterWorld, NAMES.local_configuration), (GroupWorld, NAMES.mysql_configuration)]
)
@virtual_time
async def test_files_that_nobody_declared(of: type[ClusterWorld], key: ObjectKey) -> None:
    world = of()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
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


def slice_of(world: ClusterWorld, key: ObjectKey = LEADS) -> Any:
    found = world.server.read(EndpointSlice, key)
    if found is None:
        return None
    wire = to_builtins(found)
    return wire["metadata"]["labels"], wire.get("ports"), [e["addresses"] for e in wire.get("endpoints") or ()]


@pytest.mark.parametrize("patch", SLICE_CHANGES.values(), ids=SLICE_CHANGES)
@virtual_time
async def test_where_clients_of_the_primary_are_led(patch: dict[str, Any]) -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        before = slice_of(world)
        await world.client.patch(EndpointSlice, LEADS, MergePatch(patch))
        assert slice_of(world) != before
        await world.until("healed", lambda: slice_of(world) == before, 30)
        await world.ready(1)


@virtual_time
async def test_an_endpoint_that_somebody_made_not_ready() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        found = world.server.read(EndpointSlice, LEADS)
        assert found is not None
        [endpoint] = to_builtins(found)["endpoints"]
        endpoint["conditions"]["ready"] = False
        await world.client.patch(EndpointSlice, LEADS, MergePatch({"endpoints": [endpoint]}))

        def leads() -> bool:
            present = world.server.read(EndpointSlice, LEADS)
            return present is not None and [e.conditions.ready for e in present.endpoints or ()] == [True]

        await world.until("healed", leads, 30)
        assert "Service orders-rw leads to orders-0-0" in world.messages("DriftRepaired")


def load_strangers_slice(world: ClusterWorld, key: ObjectKey) -> None:
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
async def test_a_strangers_slice_is_not_taken() -> None:
    """It would lead his clients to our primary, and ours nowhere."""
    world = ClusterWorld()
    load_strangers_slice(world, LEADS)
    before = slice_of(world)
    async with world.operator():
        await world.create(instances=1)
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken", 60)
        assert f"EndpointSlice {LEADS.name} exists and does not belong to this cluster" in world.message("Ready")
        await world.rest(60)
        assert slice_of(world) == before
        await world.client.delete(EndpointSlice, LEADS)
        await world.ready(1)


@virtual_time
async def test_a_strangers_slice_in_place_of_one_that_was_deleted() -> None:
    """Made before the operator could: its clients are not led to our primary, and ours are when it is gone."""
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        led = slice_of(world)
        await world.client.delete(EndpointSlice, LEADS)
        load_strangers_slice(world, LEADS)
        before = slice_of(world)
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken", 60)
        await world.rest(60)
        assert slice_of(world) == before
        # The primary does not come back to it: that is the operator's.
        world.hosts.slow = True
        await world.client.delete(EndpointSlice, LEADS)
        await world.until("led", lambda: slice_of(world) == led, 60)
        await world.ready(1)


@virtual_time
async def test_a_strangers_slice_keeps_nobody_from_a_cluster_that_serves() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=3)
        await world.ready(3)
        await world.client.delete(EndpointSlice, LEADS)
        load_strangers_slice(world, LEADS)
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken", 60)
        await world.annotate(fenced="orders-1")

        def fenced() -> bool:
            pod = world.pods().get("orders-1")
            return pod is not None and pod.metadata.annotations.get("databases.steersman.dev/fenced") == "true"

        await world.until("fenced", fenced, 120)


@virtual_time
async def test_a_strangers_slice_of_an_additional_service_is_told_and_the_cluster_serves() -> None:
    world, [entry, _] = ClusterWorld(), NAMES.slices("entry")
    load_strangers_slice(world, entry)
    before = slice_of(world, entry)
    async with world.operator():
        await world.create(instances=1, services=Services(additional=(AdditionalService(name="entry", role="rw"),)))
        await world.until("serves", lambda: world.condition("Available") == "True/PrimaryAccepts", 120)
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken", 60)
        assert f"EndpointSlice {entry.name} exists" in world.message("Ready")
        assert slice_of(world, entry) == before


SECRETS = [
    NAMES.administrator_secret,
    NAMES.authorities,
    NAMES.operator_certificate,
    NAMES.server_certificate,
]
STORE = sorted(NAMES.store_of("postgresql").every)
OF_CLAIMS: list[tuple[type[Object], ObjectKey]] = [*((Secret, k) for k in SECRETS), *((ConfigMap, k) for k in STORE)]


def managed(world: ClusterWorld, kind: type[Object], key: ObjectKey) -> bool:
    found = world.server.read(kind, key)
    return found is not None and found.metadata.labels.get(MANAGED) == "steersman-databases"


@pytest.mark.parametrize("lost", ["Helm", None])
@pytest.mark.parametrize(
    ("kind", "key"), [*((Secret, k) for k in SECRETS), *((ConfigMap, k) for k in STORE)], ids=str
)
@virtual_time
async def test_a_lost_label_comes_back(kind: type[Object], key: ObjectKey, lost: str | None) -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        found = world.server.read(kind, key)
        assert found is not None
        uid, uids = found.metadata.uid, world.uids()
        await world.client.patch(kind, key, MergePatch({"metadata": {"labels": {MANAGED: lost}}}))
        await world.until("back", lambda: managed(world, kind, key), 30)
        await world.until("ready", lambda: world.condition("Ready") == "True/ClusterReady", 30)
        again = world.server.read(kind, key)
        assert again is not None and again.metadata.uid == uid and world.uids() == uids
        told = f"put back the labels {MANAGED}=steersman-databases of {kind.__name__} {key.name}, which had lost them"
        assert told in world.messages("Updated")
        assert not {"InstanceReplaced", "SecretRepaired", "NameTaken"} & set(world.events())


@virtual_time
async def test_a_group_keeps_who_leads_where_a_label_is_lost() -> None:
    world = GroupWorld()
    async with world.operator():
        await world.create(instances=3)
        await world.ready(3)
        uids = world.uids()
        await world.client.patch(ConfigMap, NAMES.group, MergePatch({"metadata": {"labels": {MANAGED: None}}}))
        await world.until("back", lambda: managed(world, ConfigMap, NAMES.group), 30)
        await world.ready(3)
        assert world.uids() == uids


@virtual_time
async def test_a_secret_of_somebody_elses_claim_is_a_strangers() -> None:
    world = ClusterWorld()
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
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken", 60)
        assert not managed(world, Secret, NAMES.authorities)


@virtual_time
async def test_while_it_is_paused_no_label_is_put_back() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        for kind, key in ((Secret, NAMES.authorities), (ConfigMap, NAMES.store_leader)):
            await world.client.patch(kind, key, MergePatch({"metadata": {"labels": {MANAGED: None}}}))
        await world.rest(60)
        assert not managed(world, Secret, NAMES.authorities) and not managed(world, ConfigMap, NAMES.store_leader)
        await world.annotate(paused=None)
        await world.ready(1)
        assert managed(world, Secret, NAMES.authorities) and managed(world, ConfigMap, NAMES.store_leader)
