"""Discovery: groups, versions, resources and health."""

from __future__ import annotations

from apiserver_cases.api import AGGREGATED, GROUP, Api

_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


async def case_the_core_has_one_version(api: Api) -> None:
    found = (await api.call("GET", "/api")).expect_success().body
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])


async def case_groups_list_their_versions(api: Api) -> None:
    found = (await api.call("GET", "/apis")).expect_success().body
    assert (found["kind"], found["apiVersion"]) == ("APIGroupList", "v1")
    groups = {g["name"]: g for g in found["groups"]}
    version = {"groupVersion": "apps/v1", "version": "v1"}
    assert groups["apps"] == {"name": "apps", "versions": [version], "preferredVersion": version}
    assert groups[GROUP]["preferredVersion"]["groupVersion"] == f"{GROUP}/v2"


async def case_single_group(api: Api) -> None:
    for group in ("apps", GROUP):
        found = (await api.call("GET", f"/apis/{group}")).expect_success().body
        assert (found["kind"], found["name"]) == ("APIGroup", group)
    assert (await api.call("GET", "/apis/nobody.example.com")).code == 404


async def case_resources_have_kind_scope_and_verbs(api: Api) -> None:
    for path, name, kind, namespaced in (
        ("/api/v1", "configmaps", "ConfigMap", True),
        ("/api/v1", "nodes", "Node", False),
        ("/apis/apps/v1", "deployments", "Deployment", True),
        (f"/apis/{GROUP}/v1", "widgets", "Widget", True),
    ):
        found = (await api.call("GET", path)).expect_success().body
        assert (found["kind"], found["groupVersion"]) == (
            "APIResourceList",
            path.rpartition("/api/")[2].removeprefix("/apis/"),
        )
        (entry,) = (r for r in found["resources"] if r["name"] == name)
        assert (entry["kind"], entry["namespaced"], set(entry["verbs"])) == (kind, namespaced, _VERBS)


async def case_namespaces_have_no_deletecollection(api: Api) -> None:
    found = (await api.call("GET", "/api/v1")).expect_success().body
    (entry,) = (r for r in found["resources"] if r["name"] == "namespaces")
    assert set(entry["verbs"]) == _VERBS - {"deletecollection"}


async def case_subresources_have_verbs(api: Api) -> None:
    found = (await api.call("GET", "/apis/apps/v1")).expect_success().body
    entries = {r["name"]: r for r in found["resources"]}
    assert set(entries["deployments/status"]["verbs"]) == {"get", "patch", "update"}
    scale = entries["deployments/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


async def case_aggregated_discovery(api: Api) -> None:
    (group,) = (
        g
        for g in (await api.call("GET", "/apis", accept=AGGREGATED)).expect_success().body["items"]
        if g["metadata"]["name"] == "apps"
    )
    apart = (await api.call("GET", "/apis/apps/v1")).expect_success().body["resources"]
    together = {
        (f"{r['resource']}/{s['subresource']}" if s else r["resource"]): set((s or r)["verbs"])
        for r in group["versions"][0]["resources"]
        for s in (None, *r.get("subresources", ()))
    }
    assert together == {r["name"]: set(r["verbs"]) for r in apart}


async def case_health_endpoints(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        response = await api.call("GET", path)
        assert (response.code, response.message) == (200, "ok")


async def case_version(api: Api) -> None:
    found = (await api.call("GET", "/version")).expect_success().body
    assert found["major"] == "1"
    assert found["gitVersion"].startswith(f"v1.{found['minor']}.")


async def case_a_group_version_that_is_not_served_is_not_found(api: Api) -> None:
    for path in ("/apis/apps/v9", f"/apis/{GROUP}/v9", "/api/v9"):
        assert (await api.call("GET", path)).code == 404
