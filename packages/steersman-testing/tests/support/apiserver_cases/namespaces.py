"""Namespaces: phases, finalizers, and restrictions during their deletion."""

from __future__ import annotations

from apiserver_cases.api import Api, ApiResponse, Json, config_map


def _namespace(name: str, **fields: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, **fields}


async def _create(api: Api, name: str, **fields: Json) -> ApiResponse:
    return (await api.call("POST", "/api/v1/namespaces", _namespace(name, **fields))).expect_success()


async def case_namespace_is_defaulted(api: Api) -> None:
    name = f"{api.namespace}-n"
    created = await _create(api, name)
    assert created.body["spec"] == {"finalizers": ["kubernetes"]}
    assert created.body["status"] == {"phase": "Active"}
    assert created.metadata["labels"] == {"kubernetes.io/metadata.name": name}


async def case_name_label_is_immutable(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.namespace}"
    patch: Json = {"metadata": {"labels": {"kubernetes.io/metadata.name": None, "a": "b"}}}
    changed = (await api.call("PATCH", path, patch, None, "application/merge-patch+json")).expect_success()
    assert changed.metadata["labels"] == {"a": "b", "kubernetes.io/metadata.name": api.namespace}


async def case_a_namespace_in_deletion_is_terminating(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.namespace}"
    deleting = (await api.call("DELETE", path)).expect_success()
    assert deleting.body["kind"] == "Namespace"
    assert deleting.body["status"]["phase"] == "Terminating"
    assert deleting.metadata["deletionTimestamp"]
    found = (await api.call("GET", path)).expect_success()
    assert found.body["spec"] == {"finalizers": ["kubernetes"]}
    assert found.body["status"]["phase"] == "Terminating"


async def case_spec_finalizers_are_removed_by_finalize(api: Api) -> None:
    name = f"{api.namespace}-n"
    await _create(api, name)
    path = f"/api/v1/namespaces/{name}"
    patch: Json = {"spec": {"finalizers": []}}
    changed = (await api.call("PATCH", path, patch, None, "application/merge-patch+json")).expect_success()
    assert changed.body["spec"] == {"finalizers": ["kubernetes"]}
    (await api.call("DELETE", path)).expect_success()
    (await api.call("PUT", f"{path}/finalize", _namespace(name, spec={"finalizers": []}))).expect_success()
    (await api.call("GET", path)).expect_error(404, "NotFound", f'namespaces "{name}" not found')


async def case_finalize_needs_a_namespace(api: Api) -> None:
    body = _namespace("nowhere-to-be-found", spec={"finalizers": []})
    rejected = await api.call("PUT", "/api/v1/namespaces/nowhere-to-be-found/finalize", body)
    rejected.expect_error(404, "NotFound", 'namespaces "nowhere-to-be-found" not found')


async def case_a_namespace_is_deleted_once(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.namespace}"
    first = (await api.call("DELETE", path)).expect_success()
    again = (await api.call("DELETE", path)).expect_success()
    assert again.metadata["deletionTimestamp"] == first.metadata["deletionTimestamp"]


async def case_objects_in_a_terminating_namespace_can_still_change(api: Api) -> None:
    (await api.create("configmaps", config_map("a", {"k": "v"}, finalizers=["example.com/hold"]))).expect_success()
    (await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")).expect_success()
    changed = await api.merge("configmaps", "a", {"data": {"k": "w"}})
    assert changed.expect_success().body["data"] == {"k": "w"}
    (await api.apply("configmaps", config_map("b"))).expect_error(403, "Forbidden", "because it is being terminated")
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_namespaces_are_selected_by_phase(api: Api) -> None:
    query = {"fieldSelector": f"status.phase=Active,metadata.name={api.namespace}"}
    found = (await api.call("GET", "/api/v1/namespaces", None, query)).expect_success()
    assert [i["metadata"]["name"] for i in found.body["items"]] == [api.namespace]
    query = {"fieldSelector": f"status.phase=Terminating,metadata.name={api.namespace}"}
    assert (await api.call("GET", "/api/v1/namespaces", None, query)).expect_success().body["items"] == []


async def case_status_is_written_separately(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.namespace}"
    condition = {"type": "Odd", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    patch: Json = {"status": {"conditions": [condition]}}
    content_type = "application/merge-patch+json"
    changed = (await api.call("PATCH", f"{path}/status", patch, None, content_type)).expect_success()
    assert changed.body["status"]["conditions"][0]["type"] == "Odd"
    assert changed.body["status"]["phase"] == "Active"


async def case_deletecollection_is_rejected(api: Api) -> None:
    rejected = await api.call("DELETE", "/api/v1/namespaces")
    rejected.expect_error(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


async def case_initial_namespaces_exist(api: Api) -> None:
    names = {
        i["metadata"]["name"] for i in (await api.call("GET", "/api/v1/namespaces")).expect_success().body["items"]
    }
    assert {"default", "kube-node-lease", "kube-public", "kube-system"} <= names
