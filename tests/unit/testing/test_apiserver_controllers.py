"""What follows from a deletion: dependents, namespaces, definitions, claims."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apiserver_cases import CRDS, Api
from apiserver_cases.api import Json, Reply, config_map, widget
from steersman.testing import InMemoryApiServer, virtual_runtime, virtual_time

Story = Callable[[Api], Awaitable[None]]


def world(*, controllers: bool = True) -> tuple[InMemoryApiServer, Api]:
    server = InMemoryApiServer(virtual_runtime(), controllers=controllers)
    server.load(*CRDS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    return server, Api(server, "n")


def owner(reply: Reply, **fields: Any) -> Json:
    body = reply.ok().body
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
        **fields,
    }


async def names(api: Api, plural: str = "configmaps") -> list[str]:
    return [i["metadata"]["name"] for i in (await api.list(plural)).ok().body["items"]]


@virtual_time
async def test_dependents_go_with_their_owner() -> None:
    _, api = world()
    made = await api.create("widgets", widget("a"))
    child = await api.create("configmaps", config_map("child", ownerReferences=[owner(made)]))
    await api.create("configmaps", config_map("grandchild", ownerReferences=[owner(child)]))
    await api.create("configmaps", config_map("other"))
    await api.delete("widgets", "a")
    assert await names(api) == ["other"]


@virtual_time
async def test_an_object_of_two_owners_stays_until_both_are_gone() -> None:
    _, api = world()
    owners = [owner(await api.create("widgets", widget(n))) for n in "ab"]
    await api.create("configmaps", config_map("child", ownerReferences=owners))
    await api.delete("widgets", "a")
    left = (await api.get("configmaps", "child")).ok()
    assert left.metadata["ownerReferences"] == [owners[1]]
    await api.delete("widgets", "b")
    assert await names(api) == []


@virtual_time
async def test_orphans_lose_their_owner_and_live() -> None:
    _, api = world()
    made = await api.create("widgets", widget("a"))
    await api.create("configmaps", config_map("child", ownerReferences=[owner(made)]))
    await api.delete("widgets", "a", {"propagationPolicy": "Orphan"})
    (await api.get("widgets", "a")).refused(404, "NotFound")
    assert "ownerReferences" not in (await api.get("configmaps", "child")).ok().metadata


@virtual_time
async def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    _, api = world()
    made = await api.create("widgets", widget("a"))
    blocking = owner(made, blockOwnerDeletion=True)
    body = config_map("child", ownerReferences=[blocking], finalizers=["example.com/hold"])
    await api.create("configmaps", body)
    await api.delete("widgets", "a", {"propagationPolicy": "Foreground"})
    assert (await api.get("widgets", "a")).ok().metadata["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in (await api.get("configmaps", "child")).ok().metadata
    await api.merge("configmaps", "child", {"metadata": {"finalizers": None}})
    (await api.get("widgets", "a")).refused(404, "NotFound")


@virtual_time
async def test_a_namesake_of_the_owner_does_not_adopt() -> None:
    _, api = world()
    made = await api.create("widgets", widget("a"))
    await api.create("configmaps", config_map("child", ownerReferences=[{**owner(made), "uid": "former"}]))
    assert await names(api) == ["child"]
    server, api = world()
    await api.create("configmaps", config_map("child", ownerReferences=[{**owner(made), "uid": "former"}]))
    server.collect_garbage()
    assert await names(api) == []


@virtual_time
async def test_a_namespace_takes_its_content_along() -> None:
    server, api = world()
    await api.create("configmaps", config_map("a"))
    await api.create("widgets", widget("held", finalizers=["example.com/hold"]))
    await api.call("DELETE", "/api/v1/namespaces/n")
    assert await names(api) == []
    assert (await api.call("GET", "/api/v1/namespaces/n")).ok().body["status"]["phase"] == "Terminating"
    await api.merge("widgets", "held", {"metadata": {"finalizers": None}})
    (await api.call("GET", "/api/v1/namespaces/n")).refused(404, "NotFound")
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    (await api.create("configmaps", config_map("a"))).ok()


@virtual_time
async def test_a_definition_takes_its_objects_along() -> None:
    server, api = world()
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRDS[0]['metadata']['name']}"
    await api.call("DELETE", path)
    assert (await api.get("widgets", "a")).ok().metadata["deletionTimestamp"]
    await api.merge("widgets", "a", {"metadata": {"finalizers": None}})
    assert (await api.list("widgets")).code == 404
    server.load(CRDS[0])
    assert await names(api, "widgets") == []


@virtual_time
async def test_a_claim_stays_while_a_pod_uses_it() -> None:
    _, api = world()
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}
    (await api.create("persistentvolumeclaims", claim)).ok()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    containers = [{"name": "c", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    (await api.create("pods", {**pod, "spec": {"containers": containers, "volumes": volumes}})).ok()
    await api.delete("persistentvolumeclaims", "c")
    assert (await api.get("persistentvolumeclaims", "c")).ok().metadata["deletionTimestamp"]
    await api.delete("pods", "p")
    (await api.get("persistentvolumeclaims", "c")).refused(404, "NotFound")


@virtual_time
async def test_a_running_pod_is_given_time_to_end() -> None:
    _, api = world()
    spec = {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]}
    await api.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    marked = (await api.delete("pods", "p")).ok()
    assert marked.metadata["deletionGracePeriodSeconds"] == 30
    assert marked.metadata["deletionTimestamp"] == "2030-01-01T00:00:30Z"
    (await api.get("pods", "p")).ok()
    await api.delete("pods", "p", {"gracePeriodSeconds": 0})
    (await api.get("pods", "p")).refused(404, "NotFound")


@virtual_time
async def test_without_controllers_nothing_follows() -> None:
    server, api = world(controllers=False)
    made = await api.create("widgets", widget("a"))
    await api.create("configmaps", config_map("child", ownerReferences=[owner(made)]))
    await api.delete("widgets", "a")
    assert await names(api) == ["child"]
    server.collect_garbage()
    assert await names(api) == []


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
@virtual_time
async def test_the_order_of_events_repeats(policy: str) -> None:
    async def story() -> list[tuple[str, str]]:
        server, api = world()
        since = str(server.resource_version)
        made = await api.create("widgets", widget("a"))
        for number in range(5):
            await api.create("configmaps", config_map(f"c{number}", ownerReferences=[owner(made)]))
        await api.delete("widgets", "a", {"propagationPolicy": policy})
        events = await api.events("configmaps", 100, resourceVersion=since)
        return [(e["type"], e["object"]["metadata"]["name"]) for e in events]

    first = await story()
    assert len(first) == 10
    assert first == await story()
