"""Dry runs."""

from __future__ import annotations

from apiserver_cases.api import Api, config_map, deployment, widget


async def case_create_is_defaulted(api: Api) -> None:
    dry_run = (await api.create("deployments", deployment("a"), dryRun="All")).expect_success()
    assert dry_run.code == 201
    assert dry_run.metadata["uid"]
    assert dry_run.metadata["creationTimestamp"]
    assert dry_run.body["spec"]["replicas"] == 1
    assert "resourceVersion" not in dry_run.metadata
    (await api.get("deployments", "a")).expect_error(404, "NotFound")


async def case_name_is_generated(api: Api) -> None:
    dry_run = (await api.create("configmaps", config_map("", generateName="a-"), dryRun="All")).expect_success()
    assert dry_run.metadata["name"].startswith("a-")
    assert (await api.list("configmaps")).body["items"] == []


async def case_create_is_validated(api: Api) -> None:
    (await api.create("widgets", widget("a", {"size": -1}), dryRun="All")).expect_error(422, "Invalid", "spec.size")
    (await api.create("configmaps", config_map("a"))).expect_success()
    (await api.create("configmaps", config_map("a"), dryRun="All")).expect_error(409, "AlreadyExists")


async def case_update_returns_result(api: Api) -> None:
    created = (await api.create("widgets", widget("a"))).expect_success()
    body = {**created.body, "spec": {"size": 5}}
    dry_run = (await api.put("widgets", body, dryRun="All")).expect_success()
    assert dry_run.body["spec"]["size"] == 5
    assert dry_run.metadata["generation"] == 2
    assert dry_run.resource_version == created.resource_version
    assert (await api.get("widgets", "a")).body == created.body


async def case_update_conflicts(api: Api) -> None:
    created = (await api.create("widgets", widget("a"))).expect_success()
    await api.merge("widgets", "a", {"spec": {"size": 2}})
    (await api.put("widgets", {**created.body, "spec": {"size": 5}}, dryRun="All")).expect_error(409, "Conflict")


async def case_patches_support_dry_run(api: Api) -> None:
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
        dry_run = (await api.call("PATCH", path, patch, query, content_type)).expect_success()
        assert dry_run.body["spec"]["replicas"] == 5
    assert (await api.get("deployments", "a")).body == before


async def case_status_supports_dry_run(api: Api) -> None:
    await api.create("widgets", widget("a"))
    dry_run = await api.merge("widgets", "a", {"status": {"ready": 1}}, "status", dryRun="All")
    assert dry_run.expect_success().body["status"] == {"ready": 1}
    assert "status" not in (await api.get("widgets", "a")).body


async def case_finalizer_removal_supports_dry_run(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    (await api.merge("widgets", "a", {"metadata": {"finalizers": None}}, dryRun="All")).expect_success()
    assert (await api.get("widgets", "a")).metadata["finalizers"] == ["example.com/hold"]
    (await api.merge("widgets", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_definition_is_not_served(api: Api) -> None:
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
    (await api.call("POST", path, body, {"dryRun": "All"})).expect_success()
    assert (await api.call("GET", f"/apis/{group}")).code == 404


async def case_create_keeps_sent_version(api: Api) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a", "resourceVersion": "5"},
    }
    dry_run = await api.put("leases", lease, dryRun="All")
    assert dry_run.expect_success().resource_version == "5"
    assert (await api.put("leases", lease)).expect_success().resource_version != "5"
    for plural, body in (
        ("configmaps", config_map("a", {"x": "1"}, resourceVersion="5")),
        ("widgets", widget("a", resourceVersion="5")),
    ):
        dry_run = await api.apply(plural, body, dryRun="All")
        assert (dry_run.code, dry_run.resource_version) == (201, "5")
        (await api.get(plural, "a")).expect_error(404, "NotFound")
        created = await api.apply(plural, body)
        assert created.expect_success().resource_version != "5"
        (await api.apply(plural, body, dryRun="All")).expect_error(409, "Conflict")
