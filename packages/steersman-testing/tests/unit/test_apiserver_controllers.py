"""Controllers after a deletion: dependents, namespaces, definitions, PVCs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from apiserver_cases import CRDS, Api
from apiserver_cases.api import ApiResponse, Json, config_map, widget
from apiserver_cases.backends import InMemoryBackend
from apiserver_cases.hooks import (
    WebhookStub,
    allow_response,
    deny_response,
    installed_configuration,
    webhook_manifest,
)
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

Story = Callable[[Api], Awaitable[None]]


def world(*, controllers: bool = True) -> tuple[InMemoryApiServer, Api]:
    server = InMemoryApiServer(virtual_runtime(), controllers=controllers)
    server.load(*CRDS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    return server, Api(server, "n")


def owner(response: ApiResponse, **fields: Any) -> Json:
    body = response.expect_success().body
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
        **fields,
    }


async def names(api: Api, plural: str = "configmaps") -> list[str]:
    return [i["metadata"]["name"] for i in (await api.list(plural)).expect_success().body["items"]]


@virtual_time
async def test_owner_deletion_deletes_dependents() -> None:
    _, api = world()
    created = await api.create("widgets", widget("a"))
    child = await api.create("configmaps", config_map("child", ownerReferences=[owner(created)]))
    await api.create("configmaps", config_map("grandchild", ownerReferences=[owner(child)]))
    await api.create("configmaps", config_map("other"))
    await api.delete("widgets", "a")
    assert await names(api) == ["other"]


@virtual_time
async def test_object_with_two_owners_is_deleted_after_both() -> None:
    _, api = world()
    owners = [owner(await api.create("widgets", widget(n))) for n in "ab"]
    await api.create("configmaps", config_map("child", ownerReferences=owners))
    await api.delete("widgets", "a")
    left = (await api.get("configmaps", "child")).expect_success()
    assert left.metadata["ownerReferences"] == [owners[1]]
    await api.delete("widgets", "b")
    assert await names(api) == []


@virtual_time
async def test_orphaned_dependents_lose_owner_reference() -> None:
    _, api = world()
    created = await api.create("widgets", widget("a"))
    await api.create("configmaps", config_map("child", ownerReferences=[owner(created)]))
    await api.delete("widgets", "a", {"propagationPolicy": "Orphan"})
    (await api.get("widgets", "a")).expect_error(404, "NotFound")
    assert "ownerReferences" not in (await api.get("configmaps", "child")).expect_success().metadata


@virtual_time
async def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    _, api = world()
    created = await api.create("widgets", widget("a"))
    blocking = owner(created, blockOwnerDeletion=True)
    body = config_map("child", ownerReferences=[blocking], finalizers=["example.com/hold"])
    await api.create("configmaps", body)
    await api.delete("widgets", "a", {"propagationPolicy": "Foreground"})
    assert (await api.get("widgets", "a")).expect_success().metadata["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in (await api.get("configmaps", "child")).expect_success().metadata
    await api.merge("configmaps", "child", {"metadata": {"finalizers": None}})
    (await api.get("widgets", "a")).expect_error(404, "NotFound")


@virtual_time
async def test_recreated_owner_does_not_adopt_dependents() -> None:
    _, api = world()
    created = await api.create("widgets", widget("a"))
    await api.create("configmaps", config_map("child", ownerReferences=[{**owner(created), "uid": "former"}]))
    assert await names(api) == ["child"]
    server, api = world()
    await api.create("configmaps", config_map("child", ownerReferences=[{**owner(created), "uid": "former"}]))
    server.collect_garbage()
    assert await names(api) == []


@virtual_time
async def test_namespace_deletion_deletes_content() -> None:
    server, api = world()
    await api.create("configmaps", config_map("a"))
    await api.create("widgets", widget("held", finalizers=["example.com/hold"]))
    await api.call("DELETE", "/api/v1/namespaces/n")
    assert await names(api) == []
    assert (await api.call("GET", "/api/v1/namespaces/n")).expect_success().body["status"]["phase"] == "Terminating"
    await api.merge("widgets", "held", {"metadata": {"finalizers": None}})
    (await api.call("GET", "/api/v1/namespaces/n")).expect_error(404, "NotFound")
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    (await api.create("configmaps", config_map("a"))).expect_success()


@virtual_time
async def test_crd_deletion_deletes_objects() -> None:
    server, api = world()
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRDS[0]['metadata']['name']}"
    await api.call("DELETE", path)
    assert (await api.get("widgets", "a")).expect_success().metadata["deletionTimestamp"]
    await api.merge("widgets", "a", {"metadata": {"finalizers": None}})
    assert (await api.list("widgets")).code == 404
    server.load(CRDS[0])
    assert await names(api, "widgets") == []


@virtual_time
async def test_pvc_is_protected_while_a_pod_uses_it() -> None:
    _, api = world()
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}
    (await api.create("persistentvolumeclaims", claim)).expect_success()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    containers = [{"name": "c", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    (await api.create("pods", {**pod, "spec": {"containers": containers, "volumes": volumes}})).expect_success()
    await api.delete("persistentvolumeclaims", "c")
    assert (await api.get("persistentvolumeclaims", "c")).expect_success().metadata["deletionTimestamp"]
    await api.delete("pods", "p")
    (await api.get("persistentvolumeclaims", "c")).expect_error(404, "NotFound")


@virtual_time
async def test_running_pod_deletion_honours_grace_period() -> None:
    _, api = world()
    spec = {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]}
    await api.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    deleting = (await api.delete("pods", "p")).expect_success()
    assert deleting.metadata["deletionGracePeriodSeconds"] == 30
    assert deleting.metadata["deletionTimestamp"] == "2030-01-01T00:00:30Z"
    (await api.get("pods", "p")).expect_success()
    await api.delete("pods", "p", {"gracePeriodSeconds": 0})
    (await api.get("pods", "p")).expect_error(404, "NotFound")


@virtual_time
async def test_controllers_disabled_keep_dependents() -> None:
    server, api = world(controllers=False)
    created = await api.create("widgets", widget("a"))
    await api.create("configmaps", config_map("child", ownerReferences=[owner(created)]))
    await api.delete("widgets", "a")
    assert await names(api) == ["child"]
    server.collect_garbage()
    assert await names(api) == []


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
@virtual_time
async def test_order_of_events_is_reproducible(policy: str) -> None:
    async def run_events() -> list[tuple[str, str]]:
        server, api = world()
        since = str(server.resource_version)
        created = await api.create("widgets", widget("a"))
        for number in range(5):
            await api.create("configmaps", config_map(f"c{number}", ownerReferences=[owner(created)]))
        await api.delete("widgets", "a", {"propagationPolicy": policy})
        events = await api.events("configmaps", 100, resourceVersion=since)
        return [(e["type"], e["object"]["metadata"]["name"]) for e in events]

    first = await run_events()
    assert len(first) == 10
    assert first == await run_events()


def child_of(response: ApiResponse, name: str, **metadata: Any) -> Json:
    """Return a ConfigMap that blocks the deletion of its owner."""
    return config_map(name, ownerReferences=[owner(response, blockOwnerDeletion=True)], **metadata)


@virtual_time
async def test_foreground_deletion_starts_at_leaves() -> None:
    server, api = world()
    root = await api.create("widgets", widget("root"))
    child = await api.create("configmaps", child_of(root, "child"))
    grandchild = await api.create("configmaps", child_of(child, "grandchild"))
    await api.create("configmaps", child_of(grandchild, "leaf", finalizers=["example.com/hold"]))
    await api.delete("widgets", "root", {"propagationPolicy": "Foreground"})
    for name in ("child", "grandchild"):
        waiting = (await api.get("configmaps", name)).expect_success().metadata
        assert waiting["finalizers"] == ["foregroundDeletion"]
        assert waiting["deletionTimestamp"]
    assert (await api.get("configmaps", "leaf")).expect_success().metadata["deletionTimestamp"]
    (await api.merge("configmaps", "leaf", {"metadata": {"finalizers": None}})).expect_success()
    assert await names(api) == []
    (await api.get("widgets", "root")).expect_error(404, "NotFound")
    removed = [e.before.key.name for e in server.history() if e.before is not None and e.after is None]
    assert removed == ["leaf", "grandchild", "child", "root"]


@virtual_time
async def test_foreground_deletion_ignores_non_blocking_dependents() -> None:
    _, api = world()
    root = await api.create("widgets", widget("root"))
    free = config_map("free", ownerReferences=[owner(root)], finalizers=["example.com/hold"])
    await api.create("configmaps", free)
    await api.delete("widgets", "root", {"propagationPolicy": "Foreground"})
    (await api.get("widgets", "root")).expect_error(404, "NotFound")
    assert (await api.get("configmaps", "free")).expect_success().metadata["deletionTimestamp"]


@virtual_time
async def test_foreground_deletion_keeps_shared_dependents() -> None:
    _, api = world()
    going, staying = [await api.create("widgets", widget(n)) for n in ("going", "staying")]
    references = [owner(going, blockOwnerDeletion=True), owner(staying)]
    await api.create("configmaps", config_map("child", ownerReferences=references))
    await api.delete("widgets", "going", {"propagationPolicy": "Foreground"})
    (await api.get("widgets", "going")).expect_error(404, "NotFound")
    left = (await api.get("configmaps", "child")).expect_success().metadata
    assert left["ownerReferences"] == references[1:]
    assert "deletionTimestamp" not in left


@virtual_time
async def test_owner_pending_deletion_still_keeps_dependents() -> None:
    _, api = world()
    going = await api.create("widgets", widget("a"))
    held = await api.create("widgets", widget("b", finalizers=["example.com/hold"]))
    references = [owner(going, blockOwnerDeletion=True), owner(held)]
    await api.create("configmaps", config_map("child", ownerReferences=references))
    await api.delete("widgets", "b", {"propagationPolicy": "Background"})
    await api.delete("widgets", "a", {"propagationPolicy": "Foreground"})
    assert (await api.get("configmaps", "child")).expect_success().metadata["ownerReferences"] == references[1:]
    (await api.merge("widgets", "b", {"metadata": {"finalizers": None}})).expect_success()
    assert await names(api) == []


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
@virtual_time
async def test_owner_cycle_is_deleted(policy: str) -> None:
    _, api = world()
    first = await api.create("configmaps", config_map("first"))
    second = await api.create("configmaps", child_of(first, "second"))
    third = await api.create("configmaps", child_of(second, "third"))
    patch = {"metadata": {"ownerReferences": [owner(third, blockOwnerDeletion=True)]}}
    (await api.merge("configmaps", "first", patch)).expect_success()
    await api.delete("configmaps", "first", {"propagationPolicy": policy})
    assert await names(api) == []


@virtual_time
async def test_dependent_finalizers_override_propagation() -> None:
    _, api = world()
    root = await api.create("widgets", widget("root"))
    body = config_map("child", ownerReferences=[owner(root)], finalizers=["orphan"])
    child = await api.create("configmaps", body)
    await api.create("configmaps", child_of(child, "grandchild"))
    await api.delete("widgets", "root")
    assert await names(api) == ["grandchild"]
    assert "ownerReferences" not in (await api.get("configmaps", "grandchild")).metadata


@virtual_time
async def test_jobs_orphan_pods_by_default() -> None:
    _, api = world()
    containers = [{"name": "c", "image": "i:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    for policy, left in ((None, ["p"]), ("Background", []), ("Foreground", [])):
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
        created = await api.create("jobs", job)
        meta = {"name": "p", "ownerReferences": [owner(created, blockOwnerDeletion=True)]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}}
        (await api.create("pods", pod)).expect_success()
        await api.delete("jobs", "j", {"propagationPolicy": policy} if policy else None)
        assert await names(api, "jobs") == []
        assert await names(api, "pods") == left
        await api.delete("pods", "p")


@virtual_time
async def test_owner_in_other_namespace_is_ignored() -> None:
    server, api = world()
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "m"}})
    other_namespace = Api(server, "m")
    foreign = await other_namespace.create("widgets", widget("a"))
    (await api.create("configmaps", config_map("child", ownerReferences=[owner(foreign)]))).expect_success()
    assert await names(api) == []
    own = await api.create("widgets", widget("b"))
    both = [owner(foreign), owner(own)]
    (await api.create("configmaps", config_map("child", ownerReferences=both))).expect_success()
    assert (await api.get("configmaps", "child")).expect_success().metadata["ownerReferences"] == both[1:]


@virtual_time
async def test_owner_with_wrong_name_or_kind_is_ignored() -> None:
    _, api = world()
    created = await api.create("widgets", widget("a"))
    for wrong in ({"name": "b"}, {"kind": "Gadget"}):
        (
            await api.create("configmaps", config_map("child", ownerReferences=[{**owner(created), **wrong}]))
        ).expect_success()
        assert await names(api) == []
    unknown = {**owner(created), "kind": "Odd"}
    (await api.create("configmaps", config_map("child", ownerReferences=[unknown]))).expect_success()
    await api.delete("widgets", "a")
    assert await names(api) == ["child"]


@virtual_time
async def test_cluster_scoped_object_has_cluster_scoped_owner() -> None:
    server, api = world()
    created = await api.create("widgets", widget("a"))
    meta = {"name": "v", "ownerReferences": [owner(created)]}
    server.load({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, "provisioner": "p"})
    await api.delete("widgets", "a")
    (await api.call("GET", "/apis/storage.k8s.io/v1/storageclasses/v")).expect_success()
    cluster = await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "top"}})
    await api.create("configmaps", config_map("child", ownerReferences=[owner(cluster)]))
    await api.call("DELETE", "/api/v1/namespaces/top")
    assert await names(api) == []


@virtual_time
async def test_bound_persistent_volume_is_protected() -> None:
    _, api = world()
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}
    path = "/api/v1/persistentvolumes/v"
    (await api.call("POST", "/api/v1/persistentvolumes", body)).expect_success()
    content_type = "application/merge-patch+json"
    await api.call("PATCH", f"{path}/status", {"status": {"phase": "Bound"}}, None, content_type)
    await api.call("DELETE", path)
    assert (await api.call("GET", path)).expect_success().metadata["deletionTimestamp"]
    await api.call("PATCH", f"{path}/status", {"status": {"phase": "Released"}}, None, content_type)
    (await api.call("GET", path)).expect_error(404, "NotFound")


@virtual_time
async def test_delete_collection_denied_partway_deletes_dependents() -> None:
    server, api = world()
    hook = WebhookStub(
        lambda r: (
            deny_response() if r.get("oldObject", {}).get("metadata", {}).get("name") == "b" else allow_response()
        )
    )
    api = replace(api, backend=InMemoryBackend(server))
    created = [await api.create("widgets", widget(n)) for n in "abc"]
    for response in created:
        name = response.metadata["name"]
        await api.create("configmaps", config_map(f"of-{name}", ownerReferences=[owner(response)]))
    rules = [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["widgets"]}]
    config = await api.serve_webhook(hook)
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)):
        (await api.call("DELETE", api.path("widgets"))).expect_error(400, "")
    assert await names(api, "widgets") == ["b", "c"]
    assert await names(api) == ["of-b", "of-c"]
