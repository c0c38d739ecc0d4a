"""Custom kinds with the names of built-in ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from steersman.client import HttpRequest
from steersman.client.transport import HttpResponse
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman_testing import InMemoryApiServer

Json = dict[str, Any]
GROUP = "example.com"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def serving(kind: str, plural: str) -> InMemoryApiServer:
    """Return a server with a custom kind without a schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural}
    server = InMemoryApiServer()
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }
    server.load(definition)
    return server


def send(server: InMemoryApiServer, method: str, path: str, body: Any = None, accept: str = "*/*") -> HttpResponse:
    encoded = None if body is None else json.dumps(body).encode()
    return server.handle(HttpRequest(method=method, path=path, body=encoded, accept=accept))


def test_custom_kind_named_like_webhook_configuration_works() -> None:
    server = serving("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
    names = {"apiVersion": f"{GROUP}/v1", "kind": "ValidatingWebhookConfiguration"}
    body = {**names, "metadata": {"name": "a"}, "webhooks": [{"name": "x"}]}
    created = send(server, "POST", f"/apis/{GROUP}/v1/validatingwebhookconfigurations", body)
    assert created.status == 201
    assert json.loads(created.body)["webhooks"] == [{"name": "x"}]


def test_custom_kind_named_pod_has_no_row_conditions() -> None:
    server = serving("Pod", "pods")
    path = f"/apis/{GROUP}/v1/pods"
    body: Json = {"apiVersion": f"{GROUP}/v1", "kind": "Pod", "metadata": {"name": "a"}}
    send(server, "POST", path, {**body, "status": {"phase": "Succeeded"}})
    table = json.loads(send(server, "GET", path, accept=TABLE).body)
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Age"]
    assert all("conditions" not in row for row in table["rows"])


def with_a_pod() -> tuple[InMemoryApiServer, str]:
    """Return a server and the path of its scheduled pod."""
    server = InMemoryApiServer()
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    server.load({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    return server, "/api/v1/namespaces/default/pods/p"


def test_pod_log_returns_lines_set_by_test() -> None:
    server, path = with_a_pod()
    rejected = send(server, "GET", f"{path}/log")
    assert rejected.status == 501
    assert b"unless the test sets it in pod_logs" in rejected.body
    server.pod_logs[ObjectKey("default", "p")] = ["a", "b"]
    assert send(server, "GET", f"{path}/log").body == b"a\nb\n"
    called = HttpRequest(method="GET", path=f"{path}/log", query={"tailLines": "1"})
    assert server.handle(called).body == b"b\n"


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_streaming_without_permission_returns_403(subresource: str) -> None:
    server, path = with_a_pod()
    assert send(server, "GET", f"{path}/{subresource}").status == 501
    rule = {"apiGroups": [""], "resources": [f"pods/{subresource}"], "verbs": ["get"]}
    names = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    server.grant("ann", {**names, "metadata": {"name": "r"}, "rules": [rule]})
    ann = server.as_user("ann")

    async def stream() -> None:
        async with ann.stream(HttpRequest(method="GET", path=f"{path}/{subresource}")):
            raise AssertionError("a stream began")

    with pytest.raises(ApiError) as rejected:
        asyncio.run(stream())
    assert rejected.value.code == 403
