"""What somebody gave an object of a cluster that cannot be changed: told, or made anew where nothing else is lost."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman.meta import Object, ObjectKey, to_builtins
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_databases.features.certificates.x509 import sans
from steersman_testing import virtual_time

LEADS = NAMES.endpoint_slices("orders-rw")[0]
POOLER = ObjectKey(KEY.namespace, "orders-pooler-rw")
HELD = {"immutable": True, "metadata": {"finalizers": ["example.com/keep"]}}


def data_of(world: ClusterHarness, key: ObjectKey) -> dict[str, str]:
    found = world.server.read(ConfigMap, key)
    return dict(found.data) if found else {}


def leads_to(world: ClusterHarness) -> list[str]:
    found = world.server.read(EndpointSlice, LEADS)
    return [address for endpoint in (found.endpoints or () if found else ()) for address in endpoint.addresses]


def is_named(world: ClusterHarness, name: str) -> bool:
    found = world.server.read(Secret, NAMES.server_certificate)
    return found is not None and name in sans(found.data["tls.crt"].decode())


async def remake(world: ClusterHarness, kind: type[Object], key: ObjectKey, change: dict[str, Any]) -> str:
    """As by ``kubectl replace --force --cascade=orphan``, which keeps whose it is; gives the UID."""
    before = world.server.read(kind, key)
    assert before is not None
    wire: dict[str, Any] = to_builtins(before)
    body = {k: {**wire[k], **v} if k in ("spec", "data") else v for k, v in change.items()}
    kept = {k: wire["metadata"][k] for k in ("name", "namespace", "labels", "ownerReferences")}
    # All at once, as the operator is quicker than whoever does it one after the other.
    await world.client.delete(kind, key, propagation="Orphan")
    api = kind.api_resource
    world.server.load({**wire, **body, "apiVersion": api.api_version, "kind": api.kind, "metadata": kept})
    made = world.server.read(kind, key)
    assert made is not None
    return made.metadata.uid


@pytest.mark.parametrize(
    ("kind", "key", "change"),
    [
        (Service, NAMES.headless_service, {"spec": {"clusterIP": "", "clusterIPs": []}}),
        (Deployment, POOLER, {"spec": {"selector": {"matchLabels": {"databases.steersman.dev/pooler": "rw"}}}}),
        (StatefulSet, NAMES.statefulset(0), {"spec": {"serviceName": "elsewhere"}}),
        (StatefulSet, NAMES.statefulset(0), {"spec": {"podManagementPolicy": "OrderedReady"}}),
        (EndpointSlice, LEADS, {"addressType": "IPv6", "endpoints": []}),
    ],
    ids=lambda value: value.name if isinstance(value, ObjectKey) else None,
)
@virtual_time
async def test_foreign_object_with_immutable_fields_is_recreated(
    kind: type[Object], key: ObjectKey, change: dict[str, Any]
) -> None:
    """Told in the API server's words, and deleted by nobody but who reads them."""
    world = ClusterHarness()
    async with world.operator():
        await world.create(instances=1, pooler=PoolerSettings())
        await world.until("made", lambda: world.server.read(Deployment, POOLER), 60)
        await world.until("leads", lambda: world.condition("Available") == "True/PrimaryAvailable")
        await world.wait(30)
        uids, uid = world.uids(), await remake(world, kind, key, change)
        await world.until("told", lambda: world.condition("Ready") == "False/Invalid", 60)
        assert f'"{key.name}" is invalid' in world.message("Ready")
        await world.wait(60)
        found = world.server.read(kind, key)
        assert found is not None and found.metadata.uid == uid and world.uids() == uids
        await world.client.delete(kind, key, propagation="Orphan")
        await world.until("well", lambda: world.condition("Ready") != "False/Invalid", 60)
        await world.until("leads", lambda: world.condition("Available") == "True/PrimaryAvailable", 60)
        assert world.uids() == uids


@virtual_time
async def test_endpoints_follow_while_statefulset_is_rejected() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        led = leads_to(world)
        await remake(world, StatefulSet, NAMES.statefulset(1), {"spec": {"podManagementPolicy": "OrderedReady"}})
        await world.until("told", lambda: world.condition("Ready") == "False/Invalid", 60)
        # The primary does not come back to it: that is the operator's.
        world.hosts.slow = True
        await world.client.delete(EndpointSlice, LEADS)
        await world.until("led", lambda: leads_to(world) == led, 60)


@virtual_time
async def test_leader_is_kept_on_interrupted_removal() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2, deletion_policy="Delete")
        leader = int(world.status.primary.removeprefix("orders-"))
    claim = NAMES.data_pvc(leader)
    mark = MergePatch({"metadata": {"labels": {"databases.steersman.dev/removed-at": "true"}}})
    await world.client.patch(PersistentVolumeClaim, claim, mark)
    change = {"spec": {"podManagementPolicy": "OrderedReady"}}
    await remake(world, StatefulSet, NAMES.statefulset(leader), change)
    async with world.operator():
        await world.wait(120)
    found = world.server.read(PersistentVolumeClaim, claim)
    assert found is not None and found.metadata.deletion_timestamp is None


@pytest.mark.parametrize("change", [{"data": {"patroni.yaml": "x"}}, {"data": {"more": "x"}}], ids=["other", "more"])
@virtual_time
async def test_immutable_config_map_with_other_data_is_recreated(change: dict[str, Any]) -> None:
    world, key = ClusterHarness(), NAMES.local_configuration
    async with world.operator():
        await world.create_ready(1, instances=1)
        uids, before = world.uids(), data_of(world, key)
        await world.client.patch(ConfigMap, key, MergePatch({"immutable": True, **change}))
        await world.until("as declared", lambda: data_of(world, key) == before, 30)
        found = world.server.read(ConfigMap, key)
        assert found is not None and not found.immutable
        assert world.condition("Ready") == "True/AllInstancesReady" and world.uids() == uids


@virtual_time
async def test_immutable_config_map_with_finalizer_is_reported() -> None:
    world, key = ClusterHarness(), NAMES.local_configuration
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = data_of(world, key)
        await world.client.patch(ConfigMap, key, MergePatch({**HELD, "data": {"more": "x"}}))
        await world.until("told", lambda: world.condition("Ready") == "False/Creating", 60)
        assert f"ConfigMap {key.name} must be recreated" in world.message("Ready")
        assert "(finalizers: example.com/keep)" in world.message("Ready")
        await world.client.patch(ConfigMap, key, MergePatch({"metadata": {"finalizers": None}}))
        await world.until("as declared", lambda: data_of(world, key) == before, 30)
        await world.ready(1)


@virtual_time
async def test_immutable_certificate_with_finalizer_is_reported() -> None:
    world, key = ClusterHarness(), NAMES.server_certificate
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.client.patch(Secret, key, MergePatch(HELD))
        await world.change(tls={"additionalNames": ["db.example.com"]})
        await world.until("told", lambda: world.condition("Ready") == "False/Creating", 180)
        assert f"Secret {key.name} must be recreated" in world.message("Ready")
        assert "(finalizers: example.com/keep)" in world.message("Ready")
        await world.client.patch(Secret, key, MergePatch({"metadata": {"finalizers": None}}))
        await world.until("renewed", lambda: is_named(world, "db.example.com"), 30)
        await world.ready(1)


@virtual_time
async def test_immutable_certificate_is_renewed() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.client.patch(Secret, NAMES.server_certificate, MergePatch({"immutable": True}))
        await world.wait(60)
        kept = world.server.read(Secret, NAMES.server_certificate)
        assert kept is not None and kept.immutable, "it is in nobody's way"
        await world.change(tls={"additionalNames": ["db.example.com"]})
        await world.until("renewed", lambda: is_named(world, "db.example.com"), 30)
        await world.ready(1)
        found = world.server.read(Secret, NAMES.server_certificate)
        assert found is not None and [o.name for o in found.metadata.owner_references] == ["orders", "data-orders-0"]
