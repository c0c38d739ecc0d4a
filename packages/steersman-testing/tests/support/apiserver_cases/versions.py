"""One kind in two versions with different schemas (conversion strategy ``None``)."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import GROUP, Api, ApiResponse, Json
from apiserver_cases.apply import fields_by_manager
from steersman.client import HttpRequest


def _version(name: str, *, storage: bool, **properties: Json) -> Json:
    schema: Json = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }


_TEXT: Json = {"type": "string"}
CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"twins.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Twin", "plural": "twins"},
        "versions": [
            _version("v1", storage=True, both=_TEXT, old=_TEXT, filled={**_TEXT, "default": "by v1"}),
            _version("v2", storage=False, both={**_TEXT, "maxLength": 4}, new=_TEXT),
        ],
    },
}


def twin_manifest(version: str, name: str = "a", **spec: Any) -> Json:
    """Return a custom resource of two versions."""
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Twin", "metadata": {"name": name}, "spec": spec}


def _path(api: Api, version: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/{version}/namespaces/{api.namespace}/twins"
    return f"{path}/{name}" if name else path


async def case_an_object_is_read_in_any_version(api: Api) -> None:
    created = (await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x"))).expect_success()
    other = (await api.call("GET", _path(api, "v2", "a"))).expect_success()
    assert (created.body["apiVersion"], other.body["apiVersion"]) == (f"{GROUP}/v1", f"{GROUP}/v2")
    assert (other.metadata["uid"], other.resource_version) == (created.metadata["uid"], created.resource_version)
    assert other.body["spec"]["both"] == "x"


async def case_an_object_is_written_in_any_version(api: Api) -> None:
    created = (await api.call("POST", _path(api, "v2"), twin_manifest("v2", both="x"))).expect_success()
    assert created.body["apiVersion"] == f"{GROUP}/v2"
    body = {**twin_manifest("v1", both="y"), "metadata": {"name": "a", "resourceVersion": created.resource_version}}
    changed = (await api.call("PUT", _path(api, "v1", "a"), body)).expect_success()
    assert changed.body["apiVersion"] == f"{GROUP}/v1"
    assert (await api.call("GET", _path(api, "v2", "a"))).body["spec"]["both"] == "y"


async def case_lists_have_requested_version(api: Api) -> None:
    (await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x"))).expect_success()
    listed = (await api.call("GET", _path(api, "v2"))).expect_success().body
    assert (listed["apiVersion"], listed["kind"]) == (f"{GROUP}/v2", "TwinList")
    assert [i["apiVersion"] for i in listed["items"]] == [f"{GROUP}/v2"]


async def case_watches_have_requested_version(api: Api) -> None:
    since = (await api.call("GET", _path(api, "v2"))).resource_version
    (await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x"))).expect_success()
    query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": "10"}
    request = HttpRequest(method="GET", path=_path(api, "v2"), query=query, timeout=30)
    async with api.transport.stream(request) as lines:
        line = await anext(aiter(lines))
    assert f'"apiVersion":"{GROUP}/v2"'.encode() in line


async def case_each_version_prunes_its_unknown_fields(api: Api) -> None:
    (await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x", old="o", new="n"))).expect_success()
    assert (await api.call("GET", _path(api, "v1", "a"))).body["spec"] == {"both": "x", "old": "o", "filled": "by v1"}
    assert (await api.call("GET", _path(api, "v2", "a"))).body["spec"] == {"both": "x"}


async def case_each_version_sets_its_defaults(api: Api) -> None:
    created = (await api.call("POST", _path(api, "v2"), twin_manifest("v2", new="n"))).expect_success()
    # Fields that the storage version does not have are lost as well.
    assert created.body["spec"] == {}
    assert (await api.call("GET", _path(api, "v1", "a"))).body["spec"] == {"filled": "by v1"}


async def case_each_version_validates_its_schema(api: Api) -> None:
    rejected = await api.call("POST", _path(api, "v2"), twin_manifest("v2", both="too long"))
    rejected.expect_error(422, "Invalid", "spec.both: Too long: may not be more than 4 bytes")
    (await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="too long"))).expect_success()


async def case_body_version_must_match_path(api: Api) -> None:
    rejected = await api.call("POST", _path(api, "v2"), twin_manifest("v1", both="x"))
    text = f"the API version in the data ({GROUP}/v1) does not match the expected API version ({GROUP}/v2)"
    rejected.expect_error(400, "BadRequest", text)


async def case_managers_have_their_version(api: Api) -> None:
    query = {"fieldManager": "maker"}
    (await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x"), query)).expect_success()
    patch, content_type = {"spec": {"both": "y"}}, "application/merge-patch+json"
    changed = await api.call("PATCH", _path(api, "v2", "a"), patch, {"fieldManager": "editor"}, content_type)
    versions = {e["manager"]: e["apiVersion"] for e in changed.expect_success().metadata["managedFields"]}
    assert versions == {"maker": f"{GROUP}/v1", "editor": f"{GROUP}/v2"}


async def case_applier_is_the_same_in_all_versions(api: Api) -> None:
    query, content_type = {"fieldManager": "tester"}, "application/apply-patch+yaml"
    (
        await api.call("PATCH", _path(api, "v1", "a"), twin_manifest("v1", both="x"), query, content_type)
    ).expect_success()
    again = await api.call("PATCH", _path(api, "v2", "a"), twin_manifest("v2", both="y"), query, content_type)
    assert list(fields_by_manager(again)) == [("tester", "Apply", "")]
    assert again.body["spec"]["both"] == "y"


async def case_updater_differs_between_versions(api: Api) -> None:
    (
        await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x"), {"fieldManager": "one"})
    ).expect_success()
    content_type = "application/merge-patch+json"
    patch = {"metadata": {"labels": {"a": "b"}}}
    changed = await api.call("PATCH", _path(api, "v2", "a"), patch, {"fieldManager": "one"}, content_type)
    found = [(e["manager"], e["apiVersion"]) for e in changed.expect_success().metadata["managedFields"]]
    assert sorted(found) == [("one", f"{GROUP}/v1"), ("one", f"{GROUP}/v2")]


async def case_versions_conflict_with_each_other(api: Api) -> None:
    created = (await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x"))).expect_success()
    content_type = "application/merge-patch+json"
    (await api.call("PATCH", _path(api, "v2", "a"), {"spec": {"both": "y"}}, None, content_type)).expect_success()
    body = {**twin_manifest("v1", both="z"), "metadata": {"name": "a", "resourceVersion": created.resource_version}}
    rejected = await api.call("PUT", _path(api, "v1", "a"), body)
    rejected.expect_error(409, "Conflict", "the object has been modified")


async def _apply(api: Api, version: str, manager: str, **spec: Any) -> ApiResponse:
    query = {"fieldManager": manager, "force": "true"}
    return await api.call(
        "PATCH", _path(api, version, "a"), twin_manifest(version, **spec), query, "application/apply-patch+yaml"
    )


async def case_ownership_is_transferred_between_versions(api: Api) -> None:
    await api.call("POST", _path(api, "v1"), twin_manifest("v1", both="x"), {"fieldManager": "one"})
    patch, kind = {"spec": {"both": "y"}}, "application/merge-patch+json"
    changed = await api.call("PATCH", _path(api, "v2", "a"), patch, {"fieldManager": "two"}, kind)
    assert fields_by_manager(changed) == {
        ("one", "Update", ""): {"f:spec": {".": {}, "f:filled": {}}},
        ("two", "Update", ""): {"f:spec": {"f:both": {}}},
    }


async def case_mismatch_with_manager_version_resets_managers(api: Api) -> None:
    await api.call("POST", _path(api, "v2"), twin_manifest("v2", both="x"), {"fieldManager": "one"})
    patch, kind = {"spec": {"both": "y"}}, "application/merge-patch+json"
    # The default of v1 is not a field of v2.
    changed = await api.call("PATCH", _path(api, "v1", "a"), patch, {"fieldManager": "two"}, kind)
    assert fields_by_manager(changed) == {}


async def case_apply_rejects_mismatch_with_manager_version(api: Api) -> None:
    (await _apply(api, "v2", "one", both="x")).expect_success()
    rejected = await _apply(api, "v1", "two", both="x")
    assert (rejected.code, rejected.message) == (500, ".spec.filled: field not declared in schema")
    assert set(fields_by_manager(await _apply(api, "v2", "two", both="y"))) == {("two", "Apply", "")}


async def case_applier_changes_its_version(api: Api) -> None:
    (await _apply(api, "v1", "one", both="x")).expect_success()
    (await _apply(api, "v2", "two", both="x")).expect_success()
    changed = await _apply(api, "v2", "one", both="z")
    assert fields_by_manager(changed) == {("one", "Apply", ""): {"f:spec": {"f:both": {}}}}
    assert changed.metadata["managedFields"][0]["apiVersion"] == f"{GROUP}/v2"
