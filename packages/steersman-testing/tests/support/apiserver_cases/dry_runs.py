"""Dry runs: the whole request but its effect."""

from __future__ import annotations

from apiserver_cases.api import Api, config_map, deployment, widget


async def case_a_tried_creation_is_completed(api: Api) -> None:
    tried = (await api.create("deployments", deployment("a"), dryRun="All")).ok()
    assert tried.code == 201
    assert tried.metadata["uid"]
    assert tried.metadata["creationTimestamp"]
    assert tried.body["spec"]["replicas"] == 1
    assert "resourceVersion" not in tried.metadata
    (await api.get("deployments", "a")).refused(404, "NotFound")


async def case_a_tried_name_is_generated(api: Api) -> None:
    tried = (await api.create("configmaps", config_map("", generateName="a-"), dryRun="All")).ok()
    assert tried.metadata["name"].startswith("a-")
    assert (await api.list("configmaps")).body["items"] == []


async def case_a_tried_creation_is_checked(api: Api) -> None:
    (await api.create("widgets", widget("a", {"size": -1}), dryRun="All")).refused(422, "Invalid", "spec.size")
    (await api.create("configmaps", config_map("a"))).ok()
    (await api.create("configmaps", config_map("a"), dryRun="All")).refused(409, "AlreadyExists")


async def case_a_tried_update_shows_what_would_be(api: Api) -> None:
    made = (await api.create("widgets", widget("a"))).ok()
    body = {**made.body, "spec": {"size": 5}}
    tried = (await api.put("widgets", body, dryRun="All")).ok()
    assert tried.body["spec"]["size"] == 5
    assert tried.metadata["generation"] == 2
    assert tried.version == made.version
    assert (await api.get("widgets", "a")).body == made.body


async def case_a_tried_update_conflicts(api: Api) -> None:
    made = (await api.create("widgets", widget("a"))).ok()
    await api.merge("widgets", "a", {"spec": {"size": 2}})
    (await api.put("widgets", {**made.body, "spec": {"size": 5}}, dryRun="All")).refused(409, "Conflict")


async def case_every_patch_can_be_tried(api: Api) -> None:
    await api.create("deployments", deployment("a"))
    before = (await api.get("deployments", "a")).body
    path = api.path("deployments", "a")
    for content_type, patch in (
        ("application/merge-patch+json", {"spec": {"replicas": 5}}),
        ("application/strategic-merge-patch+json", {"spec": {"replicas": 5}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 5}]),
        ("application/apply-patch+yaml", deployment("a", replicas=5)),
    ):
        query = {"dryRun": "All", "fieldManager": "tester", "force": "true"}
        if "apply" not in content_type:
            del query["force"]
        tried = (await api.call("PATCH", path, patch, query, content_type)).ok()
        assert tried.body["spec"]["replicas"] == 5
    assert (await api.get("deployments", "a")).body == before


async def case_a_status_can_be_tried(api: Api) -> None:
    await api.create("widgets", widget("a"))
    tried = await api.merge("widgets", "a", {"status": {"ready": 1}}, "status", dryRun="All")
    assert tried.ok().body["status"] == {"ready": 1}
    assert "status" not in (await api.get("widgets", "a")).body


async def case_releasing_the_last_finalizer_can_be_tried(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    (await api.merge("widgets", "a", {"metadata": {"finalizers": None}}, dryRun="All")).ok()
    assert (await api.get("widgets", "a")).metadata["finalizers"] == ["example.com/hold"]
    (await api.merge("widgets", "a", {"metadata": {"finalizers": None}})).ok()


async def case_a_tried_definition_is_not_served(api: Api) -> None:
    group = f"{api.namespace}.example.com"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [version],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await api.call("POST", path, body, {"dryRun": "All"})).ok()
    assert (await api.call("GET", f"/apis/{group}")).code == 404


async def case_a_tried_creation_keeps_the_version_sent(api: Api) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a", "resourceVersion": "5"},
    }
    tried = await api.put("leases", lease, dryRun="All")
    assert tried.ok().version == "5"
    assert (await api.put("leases", lease)).ok().version != "5"
    for plural, body in (
        ("configmaps", config_map("a", {"x": "1"}, resourceVersion="5")),
        ("widgets", widget("a", resourceVersion="5")),
    ):
        tried = await api.apply(plural, body, dryRun="All")
        assert (tried.code, tried.version) == (201, "5")
        (await api.get(plural, "a")).refused(404, "NotFound")
        made = await api.apply(plural, body)
        assert made.ok().version != "5"
        (await api.apply(plural, body, dryRun="All")).refused(409, "Conflict")
