"""Tables, and the paths of their columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman.client import HttpRequest
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.apiserver.kinds import KindRegistry
from steersman_testing.apiserver.kubectl.durations import human_age, human_duration
from steersman_testing.apiserver.kubectl.json_path import find_results

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEB_APP: dict[str, Any] = {
    "kind": "WebApp",
    "spec": {"ports": ["jib", "main", "spinnaker"], "crew": {"owner": "ann", "mate.first": "bob"}, "length": 12},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "age": 3},
            {"type": "Afloat", "status": "False", "age": 7},
        ]
    },
}


def definition(*columns: dict[str, Any]) -> dict[str, Any]:
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: dict[str, Any] = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": kept}}
    if columns:
        version["additionalPrinterColumns"] = list(columns)
    spec = {"group": "shop.example.com", "scope": "Namespaced", "versions": [version]}
    names = {"kind": "WebApp", "plural": "webapps"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "webapps.shop.example.com"},
        "spec": {**spec, "names": names},
    }


def get(server: InMemoryApiServer, path: str, accept: str = TABLE, **query: str) -> Any:
    response = server.handle(HttpRequest(method="GET", path=path, accept=accept, query=query))
    assert response.status == 200, response.body
    return json.loads(response.body)


def columns(table: Any) -> list[str]:
    return [c["name"] for c in table["columnDefinitions"]]


def formatted(server: InMemoryApiServer, plural: str, group: str = "") -> dict[str, Any]:
    """Return the cells of the only object of a kind by column."""
    prefix = f"/apis/{group}" if group else "/api/v1"
    table = get(server, f"{prefix}/namespaces/default/{plural}")
    (row,) = table["rows"]
    return dict(zip(columns(table), row["cells"], strict=True))


@virtual_time
async def test_list_as_table_has_rows_and_continue() -> None:
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    for name in ("a", "b"):
        server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
    await runtime.clock.sleep(90)
    table = get(server, "/api/v1/namespaces/default/configmaps", limit="1")
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert columns(table) == ["Name", "Data", "Age"]
    assert [r["cells"] for r in table["rows"]] == [["a", 1, "90s"]]
    assert table["metadata"]["continue"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(("include", "kind"), [("Object", "ConfigMap"), ("Metadata", "PartialObjectMetadata")])
def test_table_include_object_is_honoured(include: str, kind: str) -> None:
    server = InMemoryApiServer()
    server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    path = "/api/v1/namespaces/default/configmaps/a"
    assert get(server, path, includeObject=include)["rows"][0]["object"]["kind"] == kind
    assert get(server, path, includeObject="None")["rows"][0]["object"] is None
    rejected = server.handle(HttpRequest(method="GET", path=path, accept=TABLE, query={"includeObject": "Some"}))
    assert rejected.status == 400


def test_table_rows_match_columns_for_built_in_kinds() -> None:
    server = InMemoryApiServer(controllers=False)
    specs: dict[str, Any] = {
        "Pod": {"containers": [{"name": "c", "image": "i"}]},
        "Service": {"ports": [{"port": 80}]},
    }
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": specs["Pod"]}
    for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"):
        specs[kind] = {"selector": {"matchLabels": {"a": "b"}}, "template": pods}
    tables = 0
    for kind in KindRegistry():
        resource = kind.resource
        place = resource.path(namespace="default") if resource.namespaced else resource.path()
        if resource.kind in specs:
            names = {"apiVersion": resource.api_version, "kind": resource.kind}
            server.load({**names, "metadata": {"name": "a"}, "spec": specs[resource.kind]})
        table = get(server, place)
        assert all(len(row["cells"]) == len(columns(table)) for row in table["rows"]), resource.kind
        tables += len(table["rows"])
    assert tables >= len(specs) + 4


def test_pod_table_shows_container_status() -> None:
    server = InMemoryApiServer()
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    server.load({**pod, "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}})
    waiting: dict[str, Any] = {"name": "c", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    running: dict[str, Any] = {"name": "d", "restartCount": 1, "ready": True, "state": {"running": {}}}
    status: dict[str, Any] = {
        "phase": "Running",
        "podIPs": [{"ip": "10.1.2.3"}],
        "containerStatuses": [waiting, running],
    }
    path = "/api/v1/namespaces/default/pods/p/status"
    body = json.dumps({"status": status}).encode()
    patch = HttpRequest(method="PATCH", path=path, body=body, content_type="application/merge-patch+json")
    assert server.handle(patch).status == 200
    cells = formatted(server, "pods")
    assert {n: cells[n] for n in ("Ready", "Status", "Restarts", "IP")} == {
        "Ready": "1/2",
        "Status": "CrashLoopBackOff",
        "Restarts": "5",
        "IP": "10.1.2.3",
    }


def test_table_columns_follow_printer_columns() -> None:
    server = InMemoryApiServer()
    server.load(
        definition(
            {"name": "Owner", "type": "string", "jsonPath": ".spec.crew.owner"},
            {"name": "Ports", "type": "string", "jsonPath": ".spec.ports"},
            {"name": "Length", "type": "integer", "jsonPath": ".spec.length", "priority": 1},
            {"name": "Ready", "type": "boolean", "jsonPath": ".status.conditions[0].status"},
            {"name": "None", "type": "string", "jsonPath": ".spec.none"},
        ),
        {**WEB_APP, "apiVersion": "shop.example.com/v1", "metadata": {"name": "a"}},
    )
    assert formatted(server, "webapps", "shop.example.com/v1") == {
        "Name": "a",
        "Owner": "ann",
        "Ports": '["jib","main","spinnaker"]',
        "Length": 12,
        "Ready": None,
        "None": None,
    }


def test_table_without_columns_shows_age() -> None:
    server = InMemoryApiServer()
    server.load(definition(), {**WEB_APP, "apiVersion": "shop.example.com/v1", "metadata": {"name": "a"}})
    assert list(formatted(server, "webapps", "shop.example.com/v1")) == ["Name", "Age"]


@virtual_time
async def test_watch_sends_columns_in_first_table_only() -> None:
    server = InMemoryApiServer(virtual_runtime())
    for name in ("a", "b"):
        server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    query = {"watch": "true", "timeoutSeconds": "1"}
    watch = HttpRequest(method="GET", path="/api/v1/configmaps", query=query, accept=TABLE)
    async with server.stream(watch) as lines:
        events = [json.loads(line) async for line in lines]
    assert [e["type"] for e in events] == ["ADDED", "ADDED"]
    assert [bool(e["object"]["columnDefinitions"]) for e in events] == [True, False]


def test_unsupported_accept_returns_406() -> None:
    accept = "application/yaml"
    rejected = InMemoryApiServer().handle(HttpRequest(method="GET", path="/api/v1/namespaces", accept=accept))
    assert rejected.status == 406


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.length", [12]),
        ("$.spec.length", [12]),
        (".spec['length']", [12]),
        (r".spec.crew.mate\.first", ["bob"]),
        (".spec.crew['mate.first','owner']", ["bob", "ann"]),
        (".spec.ports[0]", ["jib"]),
        (".spec.ports[-1]", ["spinnaker"]),
        (".spec.ports[0,2]", ["jib", "spinnaker"]),
        (".spec.ports[1:]", ["main", "spinnaker"]),
        (".spec.ports[::2]", ["jib", "spinnaker"]),
        (".spec.ports[9]", []),
        (".spec.ports[*]", ["jib", "main", "spinnaker"]),
        (".spec.crew.*", ["ann", "bob"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        (".status.conditions[?(@.age>3)].type", ["Afloat"]),
        (".status.conditions[?(@.age>='3')].type", []),
        (".status.conditions[?(@.missing)].type", []),
        ("..status", [WEB_APP["status"], "True", "False"]),
        (".nowhere.at.all", []),
        (".spec.length.unit", []),
    ],
)
def test_json_path_finds_results(path: str, found: list[Any]) -> None:
    assert list(find_results(path, WEB_APP)) == found


@pytest.mark.parametrize("path", ["spec", ".spec[", ".spec[?(@.a==b)]", ".spec..", ".a b"])
def test_invalid_json_path_raises(path: str) -> None:
    with pytest.raises(ValueError, match="JSONPath"):
        list(find_results(path, WEB_APP))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_durations_are_formatted(seconds: int, text: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", "2026-01-01T00:00:00"])
def test_invalid_timestamp_age_is_unknown(timestamp: str | None) -> None:
    assert human_age(timestamp, NOW) == "<unknown>"
