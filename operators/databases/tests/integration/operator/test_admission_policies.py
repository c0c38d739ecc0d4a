"""The admission policies for the accounts of clusters, on the real API server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from steersman.client import HttpRequest, Impersonation, Transport, connect
from steersman_manifests.yaml_codec import load_yaml_documents
from steersman_testing.envtest import Envtest

POLICIES = Path(__file__).parents[3] / "config/admission-policy/policies.yaml"
PREFIX = "databases.steersman.dev"
LABELS = {f"{PREFIX}/cluster": "orders", f"{PREFIX}/role": "replica"}


def endpoint(pod: str, *addresses: str, **target: str) -> dict[str, Any]:
    reference = {"kind": "Pod", "name": pod, "namespace": "{namespace}", "uid": "u", **target}
    return {"addresses": addresses or ["10.0.0.1"], "targetRef": reference}


ALLOWED: dict[str, tuple[str, Any]] = {
    "role": ("pods", {"metadata": {"labels": {f"{PREFIX}/role": "primary"}}}),
    "state of Patroni": ("pods", {"metadata": {"annotations": {"status": "{}"}}}),
    "state of a member": ("pods", {"metadata": {"annotations": {f"{PREFIX}/member-status": "{}"}}}),
    "no state": ("pods", {"metadata": {"annotations": {f"{PREFIX}/write-error": None}}}),
    "own endpoint": ("slices", {"endpoints": [endpoint("orders-0-0")]}),
    "no endpoint": ("slices", {"endpoints": []}),
    "term": ("slices", {"metadata": {"annotations": {f"{PREFIX}/leader-term": "3"}}}),
}
DENIED: dict[str, tuple[str, Any]] = {
    "image": ("pods", {"spec": {"containers": [{"name": "server", "image": "other"}]}}),
    "cluster": ("pods", {"metadata": {"labels": {f"{PREFIX}/cluster": "other"}}}),
    "no cluster": ("pods", {"metadata": {"labels": {f"{PREFIX}/cluster": None}}}),
    "another label": ("pods", {"metadata": {"labels": {"app": "web"}}}),
    "another annotation": ("pods", {"metadata": {"annotations": {"sidecar.istio.io/inject": "false"}}}),
    "annotation of a person": ("pods", {"metadata": {"annotations": {"team": None}}}),
    "image of backup Jobs": ("pods", {"metadata": {"annotations": {f"{PREFIX}/image": "other"}}}),
    "fencing": ("pods", {"metadata": {"annotations": {f"{PREFIX}/fenced": None}}}),
    "finalizer": ("pods", {"metadata": {"finalizers": ["example.com/stay"]}}),
    "owner": ("pods", {"metadata": {"ownerReferences": []}}),
    "endpoint without a pod": ("slices", {"endpoints": [{"addresses": ["10.0.0.1"]}]}),
    "endpoint of another cluster": ("slices", {"endpoints": [endpoint("payments-0-0")]}),
    "endpoint of another namespace": ("slices", {"endpoints": [endpoint("orders-0-0", namespace="other")]}),
    "endpoint of another instance": ("slices", {"endpoints": [endpoint("orders-1-0")]}),
    "two addresses": ("slices", {"endpoints": [endpoint("orders-0-0", "10.0.0.1", "10.0.0.2")]}),
    "ports": ("slices", {"ports": [{"name": "postgresql", "port": 22}]}),
    "service": ("slices", {"metadata": {"labels": {"kubernetes.io/service-name": "other"}}}),
}


async def send(transport: Transport, method: str, path: str, body: Any) -> tuple[int, str]:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = HttpRequest(method=method, path=path, body=json.dumps(body).encode(), content_type=content_type)
    response = await transport.request(request)
    return response.status, response.body.decode()


@pytest.fixture
async def administrator(envtest: Envtest) -> AsyncGenerator[Transport]:
    """An administrator of an API server with the policies."""
    kinds = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }
    group = "/apis/admissionregistration.k8s.io/v1"
    manifests = [document for document in load_yaml_documents(POLICIES.read_text()) if document]
    async with connect(envtest.config) as transport:
        for manifest in manifests:
            status, text = await send(transport, "POST", f"{group}/{kinds[manifest['kind']]}", manifest)
            assert status == 201, text
        yield transport
        for manifest in reversed(manifests):
            path = f"{group}/{kinds[manifest['kind']]}/{manifest['metadata']['name']}"
            await send(transport, "DELETE", path, {})


async def create_objects(transport: Transport, namespace: str) -> dict[str, str]:
    """Create a pod and an EndpointSlice of a cluster. Return their paths."""
    core, discovery = f"/api/v1/namespaces/{namespace}", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}"
    _, text = await send(transport, "POST", f"{core}/configmaps", {"metadata": {"name": "owner"}})
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": json.loads(text)["metadata"]["uid"],
    }
    annotations = {"team": "shop", f"{PREFIX}/fenced": "true", f"{PREFIX}/write-error": "full"}
    metadata = {"labels": LABELS, "annotations": annotations, "ownerReferences": [owner]}
    pod = {
        "metadata": {**metadata, "name": "orders-0-0"},
        "spec": {"containers": [{"name": "server", "image": "postgresql"}]},
    }
    slices = {
        "metadata": {**metadata, "name": "orders-rw-ipv4"},
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [{"name": "postgresql", "port": 5432}],
    }
    for path, manifest in ((f"{core}/pods", pod), (f"{discovery}/endpointslices", slices)):
        status, text = await send(transport, "POST", path, manifest)
        assert status == 201, text
    account = f"system:serviceaccount:{namespace}"
    rules = [
        {"apiGroups": ["", "discovery.k8s.io"], "resources": ["pods", "endpointslices"], "verbs": ["get", "patch"]}
    ]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await send(transport, "POST", f"{rbac}/roles", {"metadata": {"name": "patch"}, "rules": rules})
    binding = {
        "metadata": {"name": "patch"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patch"},
        "subjects": [{"kind": "User", "name": f"{account}:{name}"} for name in ("orders", "operator")],
    }
    await send(transport, "POST", f"{rbac}/rolebindings", binding)
    return {"pods": f"{core}/pods/orders-0-0", "slices": f"{discovery}/endpointslices/orders-rw-ipv4"}


async def test_policies_limit_patches_of_instances(
    envtest: Envtest, envtest_namespace: str, administrator: Transport
) -> None:
    paths = await create_objects(administrator, envtest_namespace)
    account = f"system:serviceaccount:{envtest_namespace}"
    bound = {"authentication.kubernetes.io/pod-name": ("orders-0-0",)}

    async def patch(case: tuple[str, Any], user: str, extra: dict[str, tuple[str, ...]]) -> tuple[int, str]:
        what, body = case
        acting = Impersonation(user=f"{account}:{user}", groups=("system:serviceaccounts",), extra=extra)
        config = dataclasses.replace(envtest.config, impersonate=acting)
        async with connect(config, retry=None) as transport:
            filled = json.loads(json.dumps(body).replace("{namespace}", envtest_namespace))
            return await send(transport, "PATCH", f"{paths[what]}?dryRun=All", filled)

    # The API server observes Roles and policies a moment later.
    async with asyncio.timeout(30):
        while (await patch(ALLOWED["role"], "orders", bound))[0] != 200:
            await asyncio.sleep(0.05)
        for case in (DENIED["another label"], DENIED["ports"]):
            while (await patch(case, "orders", bound))[0] == 200:
                await asyncio.sleep(0.05)
    allowed = {name: await patch(case, "orders", bound) for name, case in ALLOWED.items()}
    assert {name: status for name, (status, _) in allowed.items()} == dict.fromkeys(ALLOWED, 200), allowed
    denied = {name: await patch(case, "orders", bound) for name, case in DENIED.items()}
    assert {name: status for name, (status, _) in denied.items()} == dict.fromkeys(DENIED, 422), denied
    assert "An instance can" in denied["another label"][1]
    # Another pod with the same account, and accounts that the policies do not concern.
    another = {"authentication.kubernetes.io/pod-name": ("orders-1-0",)}
    assert (await patch(ALLOWED["role"], "orders", another))[0] == 422
    assert (await patch(DENIED["another label"], "operator", {}))[0] == 200
