"""Patroni's callback against the real API server, as the pods' ServiceAccount with its token and nothing else."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from database_support.unit.declared_clusters import declared_cluster
from database_support.unit.image_script import script
from steersman.api.apply import core, discovery, meta
from steersman.api.core_v1 import ConfigMap
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import Client, MergePatch, connect
from steersman.errors import AlreadyExists
from steersman.meta import ObjectKey
from steersman_databases.core.labels import cluster_labels
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQLServers
from steersman_databases.features.access import rbac
from steersman_databases.features.services.specs import endpoint_slices
from steersman_pod import api_client
from steersman_testing.envtest import Envtest

role = script("postgresql", "role")


async def prepare(client: Client, cluster: DeclaredCluster, account: Path) -> None:
    names, labels = cluster.names, cluster_labels(cluster)
    await client.apply(rbac.service_account(names, labels))
    await client.apply(
        rbac.role(
            names,
            labels,
            PostgreSQLServers.permissions,
            dcs_config_maps=names.dcs_of("postgresql").all_keys,
            instances=[0, 1],
            writable=["orders-rw"],
        ),
        force=True,
    )
    await client.apply(rbac.role_binding(names, labels))
    await client.apply(core.ConfigMap(metadata=meta.ObjectMeta(name="orders-leader", namespace=names.key.namespace)))
    for config in endpoint_slices(cluster, "orders-rw", 5432):
        # The operator does no more, where there is one: what is in it belongs to the primary.
        with suppress(AlreadyExists):
            await client.create(config)
    given = await client.create_token(names.service_account, expiration_seconds=600)
    (account / "token").write_text(given.status.token)


def call(name: str, namespace: str) -> None:
    """What `steersman-role` does before it has the accounts."""
    pod = role.PodIdentity(
        name=name, namespace=namespace, uid=f"uid-{name}", node="n1", addresses=("10.0.0.9", "fd00::9")
    )
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    leader = f"/api/v1/namespaces/{namespace}/configmaps/orders-leader"
    answer = partial(api_client.send_with_retries, api_client.ApiClient("steersman-role"), (200, 404, 409), math.inf)
    for family in ("ipv4", "ipv6"):
        api_client.run_requests(role.claim_slice(pod, "orders", f"{slices}/orders-rw-{family}", leader), answer)


async def test_primary_writes_itself_into_both_slices(
    envtest: Envtest, envtest_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = urlsplit(envtest.config.server)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address.hostname or "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    monkeypatch.setattr(api_client, "ACCOUNT", tmp_path)
    assert isinstance(envtest.config.ca, bytes)
    (tmp_path / "ca.crt").write_bytes(envtest.config.ca)
    cluster = declared_cluster(namespace=envtest_namespace)
    async with connect(envtest.config) as transport:
        client = Client(transport)
        await prepare(client, cluster, tmp_path)

        async def lead(name: str, transitions: int) -> None:
            held = {
                "leader": name,
                "transitions": str(transitions),
                "acquireTime": f"2026-11-22T00:00:0{transitions}",
            }
            patch = MergePatch({"metadata": {"annotations": held}})
            await client.patch(ConfigMap, ObjectKey(envtest_namespace, "orders-leader"), patch)

        async def slices() -> list[EndpointSlice]:
            keys = [ObjectKey(envtest_namespace, f"orders-rw-{family}") for family in ("ipv4", "ipv6")]
            return [await client.get(EndpointSlice, key) for key in keys]

        await lead("orders-0-0", 0)
        await asyncio.to_thread(call, "orders-0-0", envtest_namespace)
        first = await slices()
        assert [one.endpoints[0].addresses for one in first] == [("10.0.0.9",), ("fd00::9",)]

        # The operator's declaration leaves the endpoints as they are, and another pod's callback too.
        await prepare(client, cluster, tmp_path)
        await asyncio.to_thread(call, "orders-1-0", envtest_namespace)
        assert [one.endpoints for one in await slices()] == [one.endpoints for one in first]

        # A second leadership of the same pod is a write, which a late one of somebody else cannot pass.
        await lead("orders-0-0", 2)
        await asyncio.to_thread(call, "orders-0-0", envtest_namespace)
        later = await slices()
        for now, then in zip(later, first, strict=True):
            assert now.metadata.resource_version != then.metadata.resource_version

        # What somebody else made in place of one of them is his.
        await client.delete(EndpointSlice, first[1].key)
        theirs = meta.ObjectMeta(name=first[1].key.name, namespace=envtest_namespace)
        await client.apply(discovery.EndpointSlice(metadata=theirs, address_type="IPv6", endpoints=[], ports=[]))
        await lead("orders-1-0", 3)
        await asyncio.to_thread(call, "orders-1-0", envtest_namespace)
        ours, strangers = await slices()
        assert ours.endpoints[0].target_ref is not None and ours.endpoints[0].target_ref.name == "orders-1-0"
        assert not strangers.endpoints
