"""Control of the in-memory server by tests: faults, history and inspection."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest

from apiserver_cases import CRDS, Api
from apiserver_cases.api import config_map, widget
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, HttpRequest, MergePatch
from steersman.errors import ApiError, Conflict, ConnectionFailed, Expired, Invalid, NotFound
from steersman.meta import (
    ApiResource,
    Field,
    Object,
    ObjectKey,
    ObjectMeta,
    Resource,
    Spec,
    Status,
    resource,
    unstructured,
)
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

KEY = ObjectKey("default", "a")


class WebAppSpec(Spec):
    replicas: Annotated[int, Field(ge=1)] = 3


class WebAppStatus(Status):
    ready: bool = False


@resource(group="toys.example.com", version="v1")
class WebApp(Resource[WebAppSpec, WebAppStatus]):
    """A custom kind."""


def new_config_map(name: str = "a", **data: str) -> ConfigMap:
    from steersman.meta import FrozenDict

    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=FrozenDict(data))


@pytest.fixture
def server() -> InMemoryApiServer:
    return InMemoryApiServer(virtual_runtime())


@virtual_time
async def test_requests_are_recorded(server: InMemoryApiServer) -> None:
    client = Client(server)
    await client.create(new_config_map())
    await client.get(ConfigMap, KEY)
    assert [(r.method, r.path) for r in server.requests] == [
        ("POST", "/api/v1/namespaces/default/configmaps"),
        ("GET", "/api/v1/namespaces/default/configmaps/a"),
    ]
    assert [r.method for r in server.writes] == ["POST"]


@virtual_time
async def test_fault_before_write_rejects_request(server: InMemoryApiServer) -> None:
    client = Client(server)
    server.fail_next(matching("POST", "/configmaps"), 409)
    with pytest.raises(Conflict):
        await client.create(new_config_map())
    assert server.read(ConfigMap, KEY) is None
    await client.create(new_config_map())


@virtual_time
async def test_fault_after_write_loses_response(server: InMemoryApiServer) -> None:
    server.fail_next(matching("POST"), ConnectionFailed("reset by peer"), when="after")
    with pytest.raises(ConnectionFailed, match="reset by peer"):
        await Client(server).create(new_config_map())
    assert server.read(ConfigMap, KEY) is not None


@virtual_time
async def test_faults_match_requests_and_count(server: InMemoryApiServer) -> None:
    client = Client(server)
    server.fail_next(matching("GET", "/configmaps/a"), 503, times=2)
    await client.create(new_config_map())
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            await client.get(ConfigMap, KEY)
        assert caught.value.code == 503
    assert (await client.get(ConfigMap, KEY)).key == KEY


@virtual_time
async def test_fault_rejects_watch(server: InMemoryApiServer) -> None:
    server.fail_next(matching("GET"), 500)
    with pytest.raises(ApiError, match="Internal error"):
        await anext(Client(server).watch(ConfigMap, resource_version="1"))


@virtual_time
async def test_break_watches_ends_streams(server: InMemoryApiServer) -> None:
    client = Client(server)
    seen: list[str] = []

    async def follow() -> None:
        async for event in client.watch(ConfigMap, resource_version=str(server.resource_version)):
            assert event.object is not None
            seen.append(event.object.metadata.name)

    task = asyncio.create_task(follow())
    await asyncio.sleep(1)
    await client.create(new_config_map("a"))
    await asyncio.sleep(1)
    assert server.break_watches(ConfigMap) == 1
    with pytest.raises(ConnectionFailed, match="broken by the test"):
        await task
    assert seen == ["a"]
    assert server.break_watches() == 0


@virtual_time
async def test_watch_from_compacted_version_returns_410(server: InMemoryApiServer) -> None:
    client = Client(server)
    since = str(server.resource_version)
    await client.create(new_config_map("a"))
    server.compact()
    with pytest.raises(Expired, match="too old resource version"):
        await anext(client.watch(ConfigMap, resource_version=since))


@virtual_time
async def test_page_of_compacted_list_returns_410(server: InMemoryApiServer) -> None:
    api = Api(server, "default")
    for name in "abc":
        await api.create("configmaps", config_map(name))
    token = (await api.list("configmaps", limit="1")).metadata["continue"]
    await api.delete("configmaps", "b")
    server.compact()
    rejected = await api.list("configmaps", **{"continue": token})
    rejected.expect_error(410, "Expired", "The provided continue parameter is too old")


@virtual_time
async def test_watch_sends_bookmark_every_minute(server: InMemoryApiServer) -> None:
    query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "200", "resourceVersion": "1"}
    request = HttpRequest(method="GET", path="/api/v1/configmaps", query=query, timeout=300)
    began = asyncio.get_running_loop().time()
    async with server.stream(request) as lines:
        events = [json.loads(line) async for line in lines]
    assert [e["type"] for e in events] == ["BOOKMARK"] * 4
    assert events[0]["object"]["metadata"]["resourceVersion"] == str(server.resource_version)
    assert asyncio.get_running_loop().time() - began == pytest.approx(200)


@virtual_time
async def test_idle_stream_fails_after_request_timeout(server: InMemoryApiServer) -> None:
    request = HttpRequest(method="GET", path="/api/v1/configmaps", query={"watch": "true"}, timeout=20)
    async with server.stream(request) as lines:
        with pytest.raises(ConnectionFailed, match="silent for 20 s"):
            await anext(lines)
    assert server.break_watches() == 0


@virtual_time
async def test_closed_watch_is_unregistered(server: InMemoryApiServer) -> None:
    request = HttpRequest(method="GET", path="/api/v1/namespaces", query={"watch": "true"})
    async with server.stream(request) as lines:
        await anext(lines)
    assert server.break_watches() == 0


@virtual_time
async def test_watch_without_stream_raises(server: InMemoryApiServer) -> None:
    with pytest.raises(ValueError, match=r"stream\(\)"):
        await server.request(HttpRequest(method="GET", path="/api/v1/configmaps", query={"watch": "true"}))


@virtual_time
async def test_registered_type_is_validated(server: InMemoryApiServer) -> None:
    server.register(WebApp)
    client = Client(server)
    created = await client.create(WebApp(metadata=ObjectMeta(name="a", namespace="default"), spec=WebAppSpec()))
    assert created.spec.replicas == 3
    with pytest.raises(Invalid, match="should be greater than or equal to 1"):
        await client.create(WebApp(metadata=ObjectMeta(name="b", namespace="default"), spec=WebAppSpec(replicas=0)))
    assert server.read_all(WebApp) == (created,)


@virtual_time
async def test_registered_resource_is_served(server: InMemoryApiServer) -> None:
    names = ApiResource("toys.example.com", "v1", "Ball", "balls")
    server.register(names)
    api = Api(server, "default")
    body = {"apiVersion": "toys.example.com/v1", "kind": "Ball", "metadata": {"name": "a"}, "spec": {"any": 1}}
    created = await api.call("POST", names.path(namespace="default"), body)
    assert created.expect_success().body["spec"] == {"any": 1}


def test_load_and_read_record_no_requests(server: InMemoryApiServer) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "kube-system"}}
    server.load(new_config_map("a", k="v"), manifest)
    found = server.read(ConfigMap, KEY)
    assert found is not None
    assert found.data == {"k": "v"}
    assert [o.metadata.name for o in server.read_all(ConfigMap)] == ["a", "b"]
    assert [o.metadata.name for o in server.read_all(ConfigMap, "kube-system")] == ["b"]
    assert server.read(ConfigMap, ObjectKey("default", "none")) is None
    raw = server.manifest(ConfigMap, KEY)
    assert raw is not None
    assert raw["metadata"]["managedFields"][0]["operation"] == "Update"
    assert server.requests == []


def test_load_of_unserved_kind_raises(server: InMemoryApiServer) -> None:
    with pytest.raises(ValueError, match=r"toys.example.com/v1 WebApp is not served: register it first"):
        server.load(WebApp(metadata=ObjectMeta(name="a", namespace="default"), spec=WebAppSpec()))
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        server.load(ConfigMap(metadata=ObjectMeta(name="a", namespace="nowhere")))


@virtual_time
async def test_unsupported_feature_returns_501(server: InMemoryApiServer) -> None:
    server.load(*CRDS)
    api = Api(server, "default")
    (await api.create("widgets", widget("a"))).expect_success()
    rejected = await api.call("GET", "/api/v1/namespaces/default/pods/p/exec")
    rejected.expect_error(501, "NotImplemented", "does not implement this: the subresource pods/exec")
    crd = json.loads(json.dumps(CRDS[0]).replace("idget", "idow"))
    rule = {"rule": "google.protobuf.Int64Value{value: self.size} == 1"}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [rule]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await api.call("POST", path, crd)).expect_error(
        501, "NotImplemented", "the message google.protobuf.Int64Value in CEL"
    )


@virtual_time
async def test_unsupported_admission_plugin_returns_501(server: InMemoryApiServer) -> None:
    api = Api(server, "default")
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }
    (await api.create("pods", pod)).expect_success()
    ranked = {**pod, "metadata": {"name": "b"}, "spec": {**pod["spec"], "priorityClassName": "high"}}
    (await api.create("pods", ranked)).expect_error(501, "NotImplemented", "priorityClassName of a pod")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"configmaps": "1"}},
    }
    (await api.create("resourcequotas", quota)).expect_success()
    (await api.create("secrets", {"metadata": {"name": "s"}})).expect_success()
    rejected = await api.create("configmaps", {"metadata": {"name": "c"}})
    rejected.expect_error(501, "NotImplemented", "counting configmaps for the ResourceQuota q")


@virtual_time
async def test_versions_of_a_kind_share_objects(server: InMemoryApiServer) -> None:
    crd = json.loads(json.dumps(CRDS[0]))
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2", "storage": False})
    server.load(crd)
    api = Api(server, "default")
    await api.create("widgets", widget("a"))
    path = api.path("widgets", "a").replace("/v1/", "/v2/")
    found = (await api.call("GET", path)).expect_success()
    assert found.body["apiVersion"] == "cases.steersman.dev/v2"
    changed = await api.call("PATCH", path, {"spec": {"size": 4}}, {}, "application/merge-patch+json")
    assert changed.expect_success().body["spec"]["size"] == 4
    assert (await api.get("widgets", "a")).body["apiVersion"] == "cases.steersman.dev/v1"


@virtual_time
async def test_same_seed_gives_same_responses() -> None:
    async def story(seed: int) -> bytes:
        server = InMemoryApiServer(virtual_runtime(seed))
        api = Api(server, "default")
        await api.create("configmaps", {"metadata": {"generateName": "x-"}})
        return server.handle(HttpRequest(method="GET", path="/api/v1/configmaps")).body

    assert await story(1) == await story(1)
    assert await story(1) != await story(2)


def test_other_objects_register_without_a_schema(server: InMemoryApiServer) -> None:
    class Marble(Object):
        api_resource = ApiResource("toys.example.com", "v1", "Marble", "marbles")

    server.register(Marble)
    server.load(
        {"apiVersion": "toys.example.com/v1", "kind": "Marble", "metadata": {"name": "m", "namespace": "default"}}
    )
    assert len(server.read_all(Marble)) == 1


@resource(group="mesh.example.com", version="v1", plural="namespaces")
class Service(Resource[WebAppSpec, WebAppStatus]):
    """A kind with the name and the plural of a built-in one."""


@virtual_time
async def test_custom_kind_with_built_in_name_is_custom() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.register(Service)
    client = Client(server)
    metadata = ObjectMeta(name="a", namespace="default", finalizers=("example.com/x",))
    await client.create(Service(metadata=metadata, spec=WebAppSpec()))
    await client.delete(Service, KEY)
    left = await client.get(Service, KEY)
    assert left.metadata.deletion_grace_period_seconds == 0
    stored = server.read(unstructured(Service.api_resource), KEY)
    assert stored is not None
    assert "status" not in stored.content
    await client.patch(Service, KEY, MergePatch({"metadata": {"finalizers": []}}))
    assert server.read(Service, KEY) is None


@virtual_time
async def test_dry_run_given_twice_is_accepted() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.load(new_config_map())
    body = json.dumps({"dryRun": ["All", "All"]}).encode()
    path = "/api/v1/namespaces/default/configmaps/a"
    response = await server.request(HttpRequest(method="DELETE", path=path, body=body))
    assert response.status == 200
    assert server.read(ConfigMap, KEY) is not None
