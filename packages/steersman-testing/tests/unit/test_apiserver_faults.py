"""What tests do to the in-memory server, and what it tells them."""

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


class KiteSpec(Spec):
    length: Annotated[int, Field(ge=1)] = 3


class KiteStatus(Status):
    flying: bool = False


@resource(group="toys.example.com", version="v1")
class Kite(Resource[KiteSpec, KiteStatus]):
    """A kite."""


def make(name: str = "a", **data: str) -> ConfigMap:
    from steersman.meta import FrozenDict

    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=FrozenDict(data))


@pytest.fixture
def server() -> InMemoryApiServer:
    return InMemoryApiServer(virtual_runtime())


@virtual_time
async def test_requests_are_recorded(server: InMemoryApiServer) -> None:
    client = Client(server)
    await client.create(make())
    await client.get(ConfigMap, KEY)
    assert [(r.method, r.path) for r in server.requests] == [
        ("POST", "/api/v1/namespaces/default/configmaps"),
        ("GET", "/api/v1/namespaces/default/configmaps/a"),
    ]
    assert [r.method for r in server.writes] == ["POST"]


@virtual_time
async def test_a_request_fails_before_it_is_carried_out(server: InMemoryApiServer) -> None:
    client = Client(server)
    server.fail_next(matching("POST", "/configmaps"), 409)
    with pytest.raises(Conflict):
        await client.create(make())
    assert server.read(ConfigMap, KEY) is None
    await client.create(make())


@virtual_time
async def test_an_answer_is_lost_after_the_write(server: InMemoryApiServer) -> None:
    server.fail_next(matching("POST"), ConnectionFailed("reset by peer"), when="after")
    with pytest.raises(ConnectionFailed, match="reset by peer"):
        await Client(server).create(make())
    assert server.read(ConfigMap, KEY) is not None


@virtual_time
async def test_failures_are_counted_and_picked(server: InMemoryApiServer) -> None:
    client = Client(server)
    server.fail_next(matching("GET", "/configmaps/a"), 503, times=2)
    await client.create(make())
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            await client.get(ConfigMap, KEY)
        assert caught.value.code == 503
    assert (await client.get(ConfigMap, KEY)).key == KEY


@virtual_time
async def test_opening_a_watch_can_fail(server: InMemoryApiServer) -> None:
    server.fail_next(matching("GET"), 500)
    with pytest.raises(ApiError, match="Internal error"):
        await anext(Client(server).watch(ConfigMap, resource_version="1"))


@virtual_time
async def test_watches_break(server: InMemoryApiServer) -> None:
    client = Client(server)
    seen: list[str] = []

    async def follow() -> None:
        async for event in client.watch(ConfigMap, resource_version=str(server.resource_version)):
            assert event.object is not None
            seen.append(event.object.metadata.name)

    task = asyncio.create_task(follow())
    await asyncio.sleep(1)
    await client.create(make("a"))
    await asyncio.sleep(1)
    assert server.break_watches(ConfigMap) == 1
    with pytest.raises(ConnectionFailed, match="broken by the test"):
        await task
    assert seen == ["a"]
    assert server.break_watches() == 0


@virtual_time
async def test_a_compacted_version_has_expired(server: InMemoryApiServer) -> None:
    client = Client(server)
    since = str(server.resource_version)
    await client.create(make("a"))
    server.compact()
    with pytest.raises(Expired, match="too old resource version"):
        await anext(client.watch(ConfigMap, resource_version=since))


@virtual_time
async def test_a_page_of_a_compacted_list_has_expired(server: InMemoryApiServer) -> None:
    api = Api(server, "default")
    for name in "abc":
        await api.create("configmaps", config_map(name))
    token = (await api.list("configmaps", limit="1")).metadata["continue"]
    await api.delete("configmaps", "b")
    server.compact()
    refused = await api.list("configmaps", **{"continue": token})
    refused.refused(410, "Expired", "The provided continue parameter is too old")


@virtual_time
async def test_bookmarks_come_every_minute(server: InMemoryApiServer) -> None:
    query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "200", "resourceVersion": "1"}
    request = HttpRequest(method="GET", path="/api/v1/configmaps", query=query, timeout=300)
    began = asyncio.get_running_loop().time()
    async with server.stream(request) as lines:
        events = [json.loads(line) async for line in lines]
    assert [e["type"] for e in events] == ["BOOKMARK"] * 4
    assert events[0]["object"]["metadata"]["resourceVersion"] == str(server.resource_version)
    assert asyncio.get_running_loop().time() - began == pytest.approx(200)


@virtual_time
async def test_a_silent_stream_fails_at_the_requests_timeout(server: InMemoryApiServer) -> None:
    request = HttpRequest(method="GET", path="/api/v1/configmaps", query={"watch": "true"}, timeout=20)
    async with server.stream(request) as lines:
        with pytest.raises(ConnectionFailed, match="silent for 20 s"):
            await anext(lines)
    assert server.break_watches() == 0


@virtual_time
async def test_a_watch_that_is_left_is_forgotten(server: InMemoryApiServer) -> None:
    request = HttpRequest(method="GET", path="/api/v1/namespaces", query={"watch": "true"})
    async with server.stream(request) as lines:
        await anext(lines)
    assert server.break_watches() == 0


@virtual_time
async def test_a_watch_must_be_streamed(server: InMemoryApiServer) -> None:
    with pytest.raises(ValueError, match=r"stream\(\)"):
        await server.request(HttpRequest(method="GET", path="/api/v1/configmaps", query={"watch": "true"}))


@virtual_time
async def test_typed_kinds_are_registered_with_their_schema(server: InMemoryApiServer) -> None:
    server.register(Kite)
    client = Client(server)
    made = await client.create(Kite(metadata=ObjectMeta(name="a", namespace="default"), spec=KiteSpec()))
    assert made.spec.length == 3
    with pytest.raises(Invalid, match="should be greater than or equal to 1"):
        await client.create(Kite(metadata=ObjectMeta(name="b", namespace="default"), spec=KiteSpec(length=0)))
    assert server.read_all(Kite) == (made,)


@virtual_time
async def test_a_kind_can_be_registered_by_its_names(server: InMemoryApiServer) -> None:
    names = ApiResource("toys.example.com", "v1", "Ball", "balls")
    server.register(names)
    api = Api(server, "default")
    body = {"apiVersion": "toys.example.com/v1", "kind": "Ball", "metadata": {"name": "a"}, "spec": {"any": 1}}
    made = await api.call("POST", names.path(namespace="default"), body)
    assert made.ok().body["spec"] == {"any": 1}


def test_objects_are_loaded_and_read_without_a_trace(server: InMemoryApiServer) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "kube-system"}}
    server.load(make("a", k="v"), manifest)
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


def test_loading_fails_loudly(server: InMemoryApiServer) -> None:
    with pytest.raises(ValueError, match=r"toys.example.com/v1 Kite is not served: register it first"):
        server.load(Kite(metadata=ObjectMeta(name="a", namespace="default"), spec=KiteSpec()))
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        server.load(ConfigMap(metadata=ObjectMeta(name="a", namespace="nowhere")))


@virtual_time
async def test_what_is_not_imitated_is_refused(server: InMemoryApiServer) -> None:
    server.load(*CRDS)
    api = Api(server, "default")
    (await api.create("widgets", widget("a"))).ok()
    refused = await api.call("GET", "/api/v1/namespaces/default/pods/p/exec")
    refused.refused(501, "NotImplemented", "does not imitate this: the subresource pods/exec")
    crd = json.loads(json.dumps(CRDS[0]).replace("idget", "idow"))
    rule = {"rule": "google.protobuf.Int64Value{value: self.size} == 1"}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [rule]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await api.call("POST", path, crd)).refused(
        501, "NotImplemented", "the message google.protobuf.Int64Value in CEL"
    )


@virtual_time
async def test_plugins_that_are_not_imitated_refuse_what_they_would_decide(server: InMemoryApiServer) -> None:
    api = Api(server, "default")
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }
    (await api.create("pods", pod)).ok()
    ranked = {**pod, "metadata": {"name": "b"}, "spec": {**pod["spec"], "priorityClassName": "high"}}
    (await api.create("pods", ranked)).refused(501, "NotImplemented", "priorityClassName of a pod")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"configmaps": "1"}},
    }
    (await api.create("resourcequotas", quota)).ok()
    (await api.create("secrets", {"metadata": {"name": "s"}})).ok()
    refused = await api.create("configmaps", {"metadata": {"name": "c"}})
    refused.refused(501, "NotImplemented", "counting configmaps for the ResourceQuota q")


@virtual_time
async def test_versions_of_a_kind_share_their_objects(server: InMemoryApiServer) -> None:
    crd = json.loads(json.dumps(CRDS[0]))
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2", "storage": False})
    server.load(crd)
    api = Api(server, "default")
    await api.create("widgets", widget("a"))
    path = api.path("widgets", "a").replace("/v1/", "/v2/")
    found = (await api.call("GET", path)).ok()
    assert found.body["apiVersion"] == "cases.steersman.dev/v2"
    changed = await api.call("PATCH", path, {"spec": {"size": 4}}, {}, "application/merge-patch+json")
    assert changed.ok().body["spec"]["size"] == 4
    assert (await api.get("widgets", "a")).body["apiVersion"] == "cases.steersman.dev/v1"


@virtual_time
async def test_a_seed_repeats_everything() -> None:
    async def story(seed: int) -> bytes:
        server = InMemoryApiServer(virtual_runtime(seed))
        api = Api(server, "default")
        await api.create("configmaps", {"metadata": {"generateName": "x-"}})
        return server.answer(HttpRequest(method="GET", path="/api/v1/configmaps")).body

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
class Service(Resource[KiteSpec, KiteStatus]):
    """A kind with the name and the plural of built-in ones."""


@virtual_time
async def test_a_custom_kind_with_a_built_in_name_is_custom() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.register(Service)
    client = Client(server)
    metadata = ObjectMeta(name="a", namespace="default", finalizers=("example.com/x",))
    await client.create(Service(metadata=metadata, spec=KiteSpec()))
    await client.delete(Service, KEY)
    left = await client.get(Service, KEY)
    assert left.metadata.deletion_grace_period_seconds == 0
    stored = server.read(unstructured(Service.api_resource), KEY)
    assert stored is not None
    assert "status" not in stored.content
    await client.patch(Service, KEY, MergePatch({"metadata": {"finalizers": []}}))
    assert server.read(Service, KEY) is None


@virtual_time
async def test_a_dry_run_that_is_said_twice_is_one() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.load(make())
    body = json.dumps({"dryRun": ["All", "All"]}).encode()
    path = "/api/v1/namespaces/default/configmaps/a"
    response = await server.request(HttpRequest(method="DELETE", path=path, body=body))
    assert response.status == 200
    assert server.read(ConfigMap, KEY) is not None
