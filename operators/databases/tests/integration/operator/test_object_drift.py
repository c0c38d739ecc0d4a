"""What somebody changes by hand in the objects of a cluster, where the real API server completes and refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from database_support.servers.operator_on_api_server import admin_client, running_operator
from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.core_v1 import ConfigMap, Secret, Service, ServiceAccount
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.client import Client, MergePatch
from steersman.errors import NotFound
from steersman.meta import Object, ObjectKey, ObjectMeta, Quantity, decode_builtins, to_builtins
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.cluster_common import AdditionalService, PoolerSettings, ServicesSettings, VolumeSettings
from steersman_testing.envtest import Envtest

pytestmark = pytest.mark.xdist_group("object-drift")

Change = tuple[type[Object], str, dict[str, Any]]

SELECTS_ALL = {"matchLabels": None, "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
PORT = {"name": "postgresql", "port": 5432, "protocol": "TCP", "targetPort": 5432}
SERVICES: list[Change] = [
    (Service, "orders-rw", {"spec": {"ports": [{**PORT, "port": 1}]}}),
    (Service, "orders-rw", {"spec": {"ports": [{**PORT, "protocol": "UDP"}]}}),
    (Service, "orders-rw", {"spec": {"ports": [{**PORT, "targetPort": 1}]}}),
    (Service, "orders-rw", {"spec": {"ports": [{**PORT, "name": "other"}]}}),
    (Service, "orders-rw", {"spec": {"selector": {"app": "mine"}}}),
    (Service, "orders-rw", {"spec": {"selector": None}}),
    (Service, "orders-rw", {"spec": {"sessionAffinity": "ClientIP"}}),
    (Service, "orders-rw", {"spec": {"internalTrafficPolicy": "Local"}}),
    (Service, "orders-rw", {"spec": {"externalIPs": ["192.0.2.1"]}}),
    (Service, "orders-rw", {"spec": {"publishNotReadyAddresses": True}}),
    (Service, "orders-rw", {"spec": {"type": "NodePort", "externalTrafficPolicy": "Local"}}),
    (Service, "orders-rw", {"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]}}),
    (Service, "public", {"spec": {"externalTrafficPolicy": "Local"}}),
    (Service, "public", {"spec": {"loadBalancerSourceRanges": ["0.0.0.0/0"]}}),
    (Service, "public", {"spec": {"loadBalancerSourceRanges": None}}),
    (Service, "public", {"spec": {"type": "ClusterIP", "loadBalancerSourceRanges": None}}),
    (Service, "orders-headless", {"spec": {"publishNotReadyAddresses": None}}),
    (Service, "orders-headless", {"spec": {"sessionAffinity": "ClientIP"}}),
    (Service, "orders-pooler-rw", {"spec": {"ports": [{**PORT, "name": "sql", "targetPort": 1}]}}),
]
OTHERS: list[Change] = [
    (PodDisruptionBudget, "orders", {"spec": {"minAvailable": 2, "maxUnavailable": None}}),
    (PodDisruptionBudget, "orders", {"spec": {"maxUnavailable": "100%"}}),
    (PodDisruptionBudget, "orders", {"spec": {"selector": SELECTS_ALL}}),
    (PodDisruptionBudget, "orders", {"spec": {"unhealthyPodEvictionPolicy": None}}),
    (PodDisruptionBudget, "orders-pooler-rw", {"spec": {"minAvailable": "50%", "maxUnavailable": None}}),
    (NetworkPolicy, "orders", {"spec": {"ingress": [{}]}}),
    (NetworkPolicy, "orders", {"spec": {"ingress": None}}),
    (NetworkPolicy, "orders", {"spec": {"policyTypes": ["Ingress", "Egress"]}}),
    (NetworkPolicy, "orders", {"spec": {"podSelector": SELECTS_ALL}}),
    (NetworkPolicy, "orders-pooler", {"spec": {"ingress": None}}),
    (Role, "orders", {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}),
    (Role, "orders", {"rules": None}),
    (RoleBinding, "orders", {"subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]}),
    (RoleBinding, "orders", {"subjects": None}),
    (ServiceAccount, "orders", {"automountServiceAccountToken": True}),
    (ConfigMap, "orders-patroni", {"data": {"patroni.yaml": "x", "more": "x"}}),
    (ConfigMap, "orders-patroni", {"binaryData": {"more": "AA=="}}),
    (ConfigMap, "orders-patroni", {"immutable": True, "data": {"patroni.yaml": "x"}}),
    (ConfigMap, "orders-pooler-rw", {"data": None}),
    (EndpointSlice, "orders-rw-ipv4", {"ports": [{"name": "postgresql", "port": 1, "protocol": "TCP"}]}),
    (EndpointSlice, "orders-rw-ipv4", {"ports": None}),
    (Deployment, "orders-pooler-rw", {"spec": {"paused": True}}),
    (Deployment, "orders-pooler-rw", {"spec": {"replicas": 0}}),
    (Deployment, "orders-pooler-rw", {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}),
    (Deployment, "orders-pooler-rw", {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}}),
    (StatefulSet, "orders-0", {"spec": {"replicas": 2}}),
    (StatefulSet, "orders-0", {"spec": {"ordinals": {"start": 5}}}),
    (StatefulSet, "orders-0", {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}),
]
LABEL = "app.kubernetes.io/managed-by"
LABELLED: list[tuple[type[Object], str]] = [
    (Secret, "orders-ca"),
    (Secret, "orders-tls"),
    (Secret, "orders-admin"),
    (ConfigMap, "orders-config"),
    (ConfigMap, "orders-leader"),
    (ConfigMap, "orders-patroni"),
    (EndpointSlice, "orders-rw-ipv4"),
    (Service, "orders-rw"),
    (PodDisruptionBudget, "orders"),
    (NetworkPolicy, "orders"),
    (Role, "orders"),
    (RoleBinding, "orders"),
    (ServiceAccount, "orders"),
    (Deployment, "orders-pooler-rw"),
    (StatefulSet, "orders-0"),
]


async def content(client: Client, kind: type[Object], key: ObjectKey) -> Any:
    """All that is declared of an object, and what the API server made of it; None where it is not there."""
    try:
        wire: dict[str, Any] = to_builtins(await client.get(kind, key))
    except NotFound:
        return None
    wire["metadata"] = wire["metadata"]["labels"]
    # Chosen anew with each type that has them.
    for port in wire.get("spec", {}).get("ports", []) if kind is Service else ():
        port.pop("nodePort", None)
    for chosen in ("clusterIP", "clusterIPs") if kind is Service else ():
        wire["spec"][chosen] = "None" in wire["spec"].get(chosen, [])
    wire.pop("status", None)
    return wire


async def made(client: Client, namespace: str) -> None:
    """A cluster, as far as it gets where no pod runs."""
    spec = PostgreSQLClusterSpec(
        version="17",
        instances=2,
        storage=VolumeSettings(size=Quantity("1Gi")),
        pooler=PoolerSettings(replicas=2),
        services=ServicesSettings(
            additional=(
                AdditionalService(
                    name="public", role="rw", type="LoadBalancer", load_balancer_source_ranges=("192.0.2.0/24",)
                ),
            )
        ),
    )
    await client.create(PostgreSQLCluster(metadata=ObjectMeta(name="orders", namespace=namespace), spec=spec))
    for kind, name in (*LABELLED, *((kind, name) for kind, name, _ in (*SERVICES, *OTHERS))):
        while await content(client, kind, ObjectKey(namespace, name)) is None:
            await asyncio.sleep(0.05)


async def reason(client: Client, namespace: str) -> str:
    """The reason of the condition Ready."""
    cluster = await client.get(PostgreSQLCluster, ObjectKey(namespace, "orders"))
    conditions = cluster.status.conditions if cluster.status else ()
    return next((c.reason for c in conditions if c.type == "Ready"), "")


@pytest.mark.parametrize(
    ("namespace", "changes"), [("drift-services", SERVICES), ("drift-others", OTHERS)], ids=["Services", "others"]
)
async def test_object_edited_by_hand_is_restored(installed: Envtest, namespace: str, changes: list[Change]) -> None:
    stays: list[str] = []
    async with admin_client(installed, namespace) as client, running_operator(installed, namespace):
        async with asyncio.timeout(60):
            await made(client, namespace)
        for kind, name, patch in changes:
            key = ObjectKey(namespace, name)
            before, version = (
                await content(client, kind, key),
                (await client.get(kind, key)).metadata.resource_version,
            )
            changed = await client.patch(kind, key, MergePatch(patch))
            assert changed.metadata.resource_version != version, f"{kind.__name__} {name} {patch} changes nothing"
            try:
                async with asyncio.timeout(10):
                    while await content(client, kind, key) != before:
                        await asyncio.sleep(0.05)
            except TimeoutError:
                after = await content(client, kind, key)
                parts = {k: (before.get(k), after.get(k)) for k in before | after if before.get(k) != after.get(k)}
                stays.append(f"{kind.__name__} {name} {patch}: {await reason(client, namespace)} {parts}")
        assert await reason(client, namespace) not in ("Invalid", "NameConflict", "Forbidden", "BadRequest")
    assert stays == []


async def test_lost_labels_are_restored(installed: Envtest) -> None:
    namespace = "drift-labels"
    async with (
        admin_client(installed, namespace) as client,
        running_operator(installed, namespace),
        asyncio.timeout(120),
    ):
        await made(client, namespace)
        for kind, name in LABELLED:
            key = ObjectKey(namespace, name)
            before = await client.get(kind, key)
            await client.patch(kind, key, MergePatch({"metadata": {"labels": {LABEL: None}}}))
            while (found := await client.get(kind, key)).metadata.labels != before.metadata.labels:
                await asyncio.sleep(0.05)
            assert found.metadata.uid == before.metadata.uid


UNCHANGEABLE: list[Change] = [
    (Service, "orders-headless", {"spec": {"clusterIP": "", "clusterIPs": []}}),
    (StatefulSet, "orders-0", {"spec": {"podManagementPolicy": "OrderedReady"}}),
    (
        Deployment,
        "orders-pooler-rw",
        {"spec": {"selector": {"matchLabels": {"databases.steersman.dev/pooler": "rw"}}}},
    ),
    (EndpointSlice, "orders-rw-ipv4", {"addressType": "IPv6"}),
]


@pytest.mark.parametrize(
    ("number", "change"), list(enumerate(UNCHANGEABLE)), ids=[name for _, name, _ in UNCHANGEABLE]
)
async def test_immutable_drift_is_reported_until_recreated(installed: Envtest, number: int, change: Change) -> None:
    namespace, (kind, name, fields) = f"drift-anew-{number}", change
    key = ObjectKey(namespace, name)
    async with admin_client(installed, namespace) as client:
        async with running_operator(installed, namespace), asyncio.timeout(60):
            await made(client, namespace)
        before = await content(client, kind, key)
        # While nobody operates: the operator would be quicker than who makes it anew.
        wire: dict[str, Any] = to_builtins(await client.get(kind, key))
        kept = {k: wire["metadata"][k] for k in ("name", "namespace", "labels", "ownerReferences")}
        body = dict[str, Any]()
        for field, value in fields.items():
            body[field] = {**wire.get(field, {}), **value} if isinstance(value, dict) else value
        await client.delete(kind, key)
        await client.create(decode_builtins({**wire, **body, "metadata": kept}, kind))
        async with running_operator(installed, namespace), asyncio.timeout(60):
            while await reason(client, namespace) != "Invalid":
                await asyncio.sleep(0.05)
            await client.delete(kind, key)
            while await content(client, kind, key) != before:
                await asyncio.sleep(0.05)
