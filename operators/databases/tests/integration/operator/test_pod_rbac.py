"""The rights of a cluster's pods, as the real API server judges their ServiceAccount; and that we may give them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from database_support.unit.declared_clusters import declared_cluster
from database_support.unit.fake_patroni import FakeHosts, FakePatroniBackend
from steersman.api.apply import rbac
from steersman.client import Client, HttpRequest, Impersonation, Transport, connect
from steersman.controller import Permission
from steersman.manager import Manager
from steersman.meta import to_builtins
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.core.labels import cluster_labels
from steersman_databases.engines.cluster_engine import ClusterEngine, DeclaredCluster
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine as MySQLServers
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQLServers
from steersman_databases.features.access import rbac as access_rbac
from steersman_databases.setup import setup
from steersman_manifests.rbac import policy_rules
from steersman_testing.envtest import Envtest

RBAC = "rbac.authorization.k8s.io/v1"
ENGINES: tuple[ClusterEngine, ...] = (PostgreSQLServers(), MySQLServers())
STORES = {
    "postgresql": ("orders-config", "orders-leader", "orders-sync", "orders-failover", "orders-timelines"),
    "mysql": ("orders-group",),
}
SLICES = ("orders-rw-ipv4", "orders-rw-ipv6", "orders.outside-ipv4")


@asynccontextmanager
async def acting(envtest: Envtest, user: str, *groups: str) -> AsyncGenerator[Transport]:
    """As ``user``, whom the administrator pretends to be."""
    pretended = Impersonation(user=user, groups=("system:authenticated", *groups))
    async with connect(dataclasses.replace(envtest.config, impersonate=pretended), retry=None) as transport:
        yield transport


async def ask(transport: Transport, method: str, path: str, body: dict[str, Any] | None = None) -> int:
    """The status of an answer; nothing is kept of what is asked."""
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    query = {} if method == "GET" else {"dryRun": "All"}
    if path.endswith("?watch"):
        path, query = path.removesuffix("?watch"), {"watch": "1", "timeoutSeconds": "1"}
    request = HttpRequest(
        method=method,
        path=path,
        query=query,
        body=json.dumps(body).encode() if body is not None else b"",
        content_type=content_type,
    )
    return (await transport.request(request)).status


def role(cluster: DeclaredCluster, engine: ClusterEngine, *instances: int, writable: Sequence[str] = ()) -> rbac.Role:
    names, labels = cluster.names, cluster_labels(cluster)
    store = names.dcs_of(engine.name).all_keys
    return access_rbac.role(
        names, labels, engine.permissions, dcs_config_maps=store, instances=instances, writable=writable
    )


async def give(client: Client, cluster: DeclaredCluster, engine: ClusterEngine) -> None:
    names, labels = cluster.names, cluster_labels(cluster)
    await client.apply(access_rbac.service_account(names, labels))
    await client.apply(role(cluster, engine, 0, 3, writable=["orders-rw", "outside"]), force=True)
    await client.apply(access_rbac.role_binding(names, labels))


def _requests(namespace: str, engine: str) -> dict[str, bool]:
    """Each "method path" with whether the ServiceAccount may."""
    core, slices = f"/api/v1/namespaces/{namespace}", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}"
    watches = engine == "postgresql"
    table: dict[str, bool] = {}
    ours = [
        *(f"{core}/configmaps/{name}" for name in STORES[engine]),
        *(f"{slices}/endpointslices/{name}" for name in SLICES),
    ]
    pods = [f"{core}/pods/{name}" for name in ("orders-0-0", "orders-3-0")]
    others = [
        *(f"{core}/configmaps/{name}" for name in ("orders-patroni", "orders-mysql", "kube-root-ca.crt")),
        *(f"{core}/configmaps/{name}" for other in STORES.keys() - {engine} for name in STORES[other]),
        *(f"{core}/pods/{name}" for name in ("orders-1-0", "orders-0", "other-0-0")),
        *(f"{slices}/endpointslices/{name}" for name in ("orders-ro-ipv4", "other-rw-ipv4")),
        *(f"{core}/secrets/{name}" for name in ("orders-ca", "orders-tls", "orders-admin")),
        *(f"{core}/{kind}/orders" for kind in ("services", "serviceaccounts", "persistentvolumeclaims", "endpoints")),
        f"/apis/{RBAC}/namespaces/{namespace}/roles/orders",
        f"/apis/apps/v1/namespaces/{namespace}/statefulsets/orders-0",
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/orders",
        f"/apis/databases.steersman.dev/v1alpha1/namespaces/{namespace}/postgresqlclusters/orders",
    ]
    on_pods = ("GET", "PATCH") if watches else ("PATCH",)
    for paths, may in ((ours, ("GET", "PATCH")), (pods, on_pods), (others, ())):
        table |= {f"{method} {path}": method in may for path in paths for method in ("GET", "PATCH", "PUT", "DELETE")}
    for path, lists in ((f"{core}/configmaps", watches), (f"{core}/pods", True)):
        table |= {f"GET {path}": lists, f"GET {path}?watch": watches}
        table |= {f"POST {path}": False, f"DELETE {path}": False}
    for path in (f"{core}/secrets", f"{slices}/endpointslices", f"{core}/events", f"{core}/services"):
        table |= {f"{method} {path}": False for method in ("GET", "POST", "DELETE")}
    for path in ("/api/v1/nodes", "/api/v1/namespaces/default/pods", "/api/v1/configmaps"):
        table |= {f"GET {path}": False}
    table |= {f"POST {core}/pods/orders-0-0/{what}": False for what in ("exec", "eviction", "binding")}
    table |= {f"POST {core}/serviceaccounts/orders/token": False}
    return table


EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES, ids=[engine.name for engine in ENGINES])


@EACH_ENGINE
async def test_pod_role_allows_exactly_what_is_needed(
    envtest: Envtest, envtest_namespace: str, engine: ClusterEngine
) -> None:
    cluster = declared_cluster(namespace=envtest_namespace)
    async with connect(envtest.config) as administrator:
        await give(Client(administrator), cluster, engine)
    account = f"system:serviceaccount:{envtest_namespace}:orders"
    async with acting(envtest, account, "system:serviceaccounts") as transport:
        # The authorizer learns of a new Role by its watch.
        async with asyncio.timeout(20):
            while await ask(transport, "GET", f"/api/v1/namespaces/{envtest_namespace}/pods") == 403:
                await asyncio.sleep(0.05)
        wrong: list[str] = []
        for line, may in _requests(envtest_namespace, engine.name).items():
            method, path = line.split()
            status = await ask(transport, method, path, None if method in ("GET", "DELETE") else {})
            if (status != 403) is not may:
                wrong.append(f"{line}: {status}")
        assert wrong == []


@EACH_ENGINE
async def test_role_without_instances_allows_nothing(engine: ClusterEngine) -> None:
    for rule in role(declared_cluster(), engine).rules or ():
        assert rule.resource_names or set(rule.verbs or ()) <= {"list", "watch"}


async def _operator(transport: Transport, name: str, permissions: tuple[Permission, ...]) -> None:
    """A user with what the operator's generated role has."""
    metadata = {"metadata": {"name": name}}
    role = {"apiVersion": RBAC, "kind": "ClusterRole", **metadata, "rules": policy_rules(permissions)}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {
        "apiVersion": RBAC,
        "kind": "ClusterRoleBinding",
        **metadata,
        "roleRef": reference,
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    for plural, manifest in (("clusterroles", role), ("clusterrolebindings", binding)):
        body = json.dumps(manifest).encode()
        path = f"/apis/{RBAC}/{plural}"
        answer = await transport.request(
            HttpRequest(method="POST", path=path, body=body, content_type="application/json")
        )
        assert answer.status == 201, answer.body


@EACH_ENGINE
@pytest.mark.parametrize("lacking", ["", "endpointslices", "pods", "configmaps"])
async def test_operator_grants_only_rights_it_holds(
    envtest: Envtest, envtest_namespace: str, engine: ClusterEngine, lacking: str
) -> None:
    async with connect(envtest.config) as administrator:
        manager = Manager(administrator)
        setup(
            manager,
            postgresql_factory=lambda c: EngineParts(PostgreSQLServers(), FakePatroniBackend(c.client, FakeHosts())),
        )
        held = tuple(p for p in manager.permissions if not (p.resource.plural == lacking and "patch" in p.verbs))
        name = f"operator-{envtest_namespace}"
        await _operator(administrator, name, held)
        cluster = declared_cluster(namespace=envtest_namespace)
        rights = to_builtins(role(cluster, engine, 0, writable=["orders-rw"]))
        body: dict[str, Any] = {"apiVersion": RBAC, "kind": "Role", **rights}
        async with acting(envtest, name) as transport:
            path = f"/apis/{RBAC}/namespaces/{envtest_namespace}/roles"
            async with asyncio.timeout(20):
                while await ask(transport, "GET", f"{path}/none") == 403:
                    await asyncio.sleep(0.05)
            assert await ask(transport, "POST", path, body) == (403 if lacking else 201)
