"""OpenAPI documents of the in-memory server, and protobuf bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from steersman.client import HttpRequest
from steersman_testing import InMemoryApiServer
from steersman_testing.apiserver.kinds import KindRegistry
from steersman_testing.apiserver.kubectl.protobuf import decode_protobuf
from steersman_testing.apiserver.requests.media import PROTOBUF
from steersman_testing.apiserver.values import is_list, is_map

PREFIX = "#/components/schemas/"


def get(server: InMemoryApiServer, path: str) -> Any:
    response = server.handle(HttpRequest(method="GET", path=path.partition("?")[0]))
    assert response.status == 200, path
    return json.loads(response.body)


def document(server: InMemoryApiServer, path: str) -> Any:
    return get(server, get(server, "/openapi/v3")["paths"][path]["serverRelativeURL"])


def references(value: Any) -> Iterator[str]:
    if is_list(value):
        for item in value:
            yield from references(item)
    elif is_map(value):
        for name, item in value.items():
            if name == "$ref" and isinstance(item, str):
                yield item
            yield from references(item)


def gvk(schema: Any) -> list[tuple[str, str, str]]:
    gvks = schema.get("x-kubernetes-group-version-kind", [])
    return [(k["group"], k["version"], k["kind"]) for k in gvks]


def definition(colours: list[str]) -> dict[str, Any]:
    colour = {"type": "string", "description": "Seen from afar.", "enum": colours}
    spec = {"type": "object", "properties": {"colour": colour}}
    schema = {"openAPIV3Schema": {"type": "object", "description": "Floats.", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def test_openapi_describes_built_in_kinds_completely() -> None:
    server, described = InMemoryApiServer(), set[tuple[str, str, str]]()
    for path in get(server, "/openapi/v3")["paths"]:
        found = document(server, path)
        schemas = found["components"]["schemas"]
        assert {r.removeprefix(PREFIX) for r in references(found)} <= schemas.keys()
        described |= {k for s in schemas.values() for k in gvk(s)}
    expected = {(k.resource.group, k.resource.version, k.resource.kind) for k in KindRegistry()}
    assert expected <= described


def test_openapi_publishes_enums() -> None:
    schemas = document(InMemoryApiServer(), "api/v1")["components"]["schemas"]
    assert "ClusterIP" in schemas["io.k8s.api.core.v1.ServiceSpec"]["properties"]["type"]["enum"]


def test_openapi_describes_custom_kind() -> None:
    server = InMemoryApiServer()
    server.load(definition(["red"]))
    found = document(server, "apis/shop.example.com/v1")
    schema = found["components"]["schemas"]["com.example.shop.v1.Widget"]
    assert gvk(schema) == [("shop.example.com", "v1", "Widget")]
    assert schema["properties"]["spec"]["properties"]["colour"]["enum"] == ["red"]
    assert schema["properties"]["apiVersion"]["description"].startswith("APIVersion defines")
    patched = found["paths"]["/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "fieldValidation" in {p["name"] for p in patched["parameters"]}
    assert "application/strategic-merge-patch+json" not in patched["requestBody"]["content"]


def test_openapi_hash_changes_with_the_schema() -> None:
    server, urls = InMemoryApiServer(), list[str]()
    server.load(definition(["red"]))
    for _ in range(2):
        urls.append(get(server, "/openapi/v3")["paths"]["apis/shop.example.com/v1"]["serverRelativeURL"])
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.shop.example.com"
    changed = json.dumps({"spec": definition(["red", "green"])["spec"]}).encode()
    patch = HttpRequest(method="PATCH", path=path, body=changed, content_type="application/merge-patch+json")
    assert server.handle(patch).status == 200
    urls.append(get(server, "/openapi/v3")["paths"]["apis/shop.example.com/v1"]["serverRelativeURL"])
    assert urls[0] == urls[1] != urls[2]


@pytest.mark.parametrize("path", ["/openapi/v3/apis/nobody.example.com/v1", "/openapi/v2", "/openapi"])
def test_openapi_unpublished_path_returns_404(path: str) -> None:
    assert InMemoryApiServer().handle(HttpRequest(method="GET", path=path)).status == 404


# Protobuf: a small encoder, from "Encoding" in the guide of Protocol Buffers.


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def enveloped(api_version: str, kind: str, message: bytes) -> bytes:
    named = field(1, api_version) + field(2, kind)
    return b"k8s\x00" + field(1, named) + field(2, message)


def test_protobuf_config_map_is_created() -> None:
    server = InMemoryApiServer()
    labels = field(11, field(1, "app") + field(2, "shop"))
    data = b"".join(field(2, field(1, k) + field(2, v)) for k, v in (("a", "1"), ("b", "")))
    binary = field(3, field(1, "c") + field(2, b"\x00\xff"))
    # Go encodes empty values as well. A zero creation time is not a time.
    body = enveloped("v1", "ConfigMap", field(1, field(1, "m") + field(8, b"") + labels) + data + binary)
    path = "/api/v1/namespaces/default/configmaps"
    response = server.handle(HttpRequest(method="POST", path=path, body=body, content_type=PROTOBUF))
    created = json.loads(response.body)
    assert response.status == 201
    assert (created["metadata"]["name"], created["metadata"]["labels"]) == ("m", {"app": "shop"})
    assert (created["data"], created["binaryData"]) == ({"a": "1", "b": ""}, {"c": "AP8="})


def test_protobuf_decodes_int_or_string_and_times() -> None:
    port = field(1, "http") + field(3, 80) + field(4, field(1, 0) + field(2, 8080))
    named = field(1, "web") + field(3, 81) + field(4, field(1, 1) + field(3, "web"))
    spec = field(1, port) + field(1, named) + field(2, field(1, "app") + field(2, "shop")) + field(12, -1)
    deleted = field(9, field(1, 1_700_000_000) + field(2, 0))
    created = decode_protobuf(enveloped("v1", "Service", field(1, field(1, "s") + deleted) + field(2, spec)))
    assert created["metadata"] == {"name": "s", "deletionTimestamp": "2023-11-14T22:13:20Z"}
    assert [p["targetPort"] for p in created["spec"]["ports"]] == [8080, "web"]
    assert created["spec"]["selector"] == {"app": "shop"}
    assert created["spec"]["healthCheckNodePort"] == -1


def test_protobuf_decodes_quantities_and_skips_unknown_fields() -> None:
    capacity = field(1, field(1, "storage") + field(2, field(1, "1Gi")))
    volume = field(2, capacity + field(999, "from a newer version"))
    created = decode_protobuf(enveloped("v1", "PersistentVolume", field(1, field(1, "v")) + volume))
    assert created["spec"]["capacity"] == {"storage": "1Gi"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "magic number"),
        (b"k8s\x00", "malformed protobuf"),
        (enveloped("v1", "Whale", b""), "v1 Whale has no protobuf message"),
        (enveloped("v1", "ConfigMap", field(1, b"\x0a\x05ab")), "unexpected end"),
        (b"k8s\x00" + b"\xff" * 12, "varint too long"),
        (enveloped("v1", "ConfigMap", b"\x0c"), "wire type"),
    ],
)
def test_protobuf_malformed_body_returns_400(body: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_protobuf(body)
    path = "/api/v1/namespaces/default/configmaps"
    request = HttpRequest(method="POST", path=path, body=body, content_type=PROTOBUF)
    assert InMemoryApiServer().handle(request).status == 400
