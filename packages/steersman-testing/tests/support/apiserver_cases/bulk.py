"""Deletion of collections: preconditions, pages and partial failures."""

from __future__ import annotations

from apiserver_cases.api import Api, ApiResponse, Json, config_map, widget
from apiserver_cases.hooks import WebhookStub, allow_response, deny_response, served_webhook


async def _delete_collection(api: Api, plural: str, options: Json | None = None, **query: str) -> ApiResponse:
    return await api.call("DELETE", api.path(plural), options, query)


async def _names(api: Api, plural: str = "configmaps") -> list[str]:
    return [i["metadata"]["name"] for i in (await api.list(plural)).expect_success().body["items"]]


async def case_preconditions_apply_to_each_object(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    for name in "bc":
        await api.create("configmaps", config_map(name))
    rejected = await _delete_collection(api, "configmaps", {"preconditions": {"uid": created.metadata["uid"]}})
    rejected.expect_error(409, "Conflict")
    assert await _names(api) == ["b", "c"]
    (await _delete_collection(api, "configmaps", {"preconditions": {"uid": created.metadata["uid"]}})).expect_error(
        409, "Conflict"
    )
    assert await _names(api) == ["b", "c"]


async def case_a_version_as_precondition(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    created = await api.create("configmaps", config_map("b"))
    options = {"preconditions": {"resourceVersion": created.resource_version}}
    (await _delete_collection(api, "configmaps", options)).expect_error(409, "Conflict")
    (await _delete_collection(api, "configmaps", options, fieldSelector="metadata.name=b")).expect_success()
    assert await _names(api) == ["a"]
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_custom_resources_with_preconditions(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.create("widgets", widget("b"))
    (await _delete_collection(api, "widgets", {"preconditions": {"uid": "other"}})).expect_error(409, "Conflict")
    assert "deletionTimestamp" not in (await api.get("widgets", "a")).metadata
    (await _delete_collection(api, "widgets", {"preconditions": {"uid": "other"}, "dryRun": ["All"]})).expect_error(
        409, "Conflict"
    )
    (await api.merge("widgets", "a", {"metadata": {"finalizers": None}})).expect_success()


def _deny_deletion_of_c(request: Json) -> Json:
    before: Json = request.get("oldObject") or {"metadata": {}}
    return deny_response() if before["metadata"].get("name") == "c" else allow_response()


async def case_rejection_keeps_remaining_objects(api: Api) -> None:
    hook = WebhookStub(_deny_deletion_of_c)
    for name in "abcd":
        await api.create("configmaps", config_map(name))
    async with served_webhook(api, hook):
        rejected = await _delete_collection(api, "configmaps")
    rejected.expect_error(400, "", "denied the request: no")
    assert await _names(api) == ["c", "d"]


async def case_failed_precondition_precedes_webhooks(api: Api) -> None:
    hook = WebhookStub()
    await api.create("configmaps", config_map("a"))
    async with served_webhook(api, hook):
        (await _delete_collection(api, "configmaps", {"preconditions": {"uid": "other"}})).expect_error(
            409, "Conflict"
        )
        for preconditions in ({"uid": "other"}, {"resourceVersion": "1"}, {"uid": ""}, {"resourceVersion": ""}):
            rejected = await api.delete("configmaps", "a", {"preconditions": preconditions})
            rejected.expect_error(409, "Conflict")
    assert hook.operations == []


async def case_a_page_of_a_collection(api: Api) -> None:
    for name in "abc":
        await api.create("configmaps", config_map(name))
    deleted = (await _delete_collection(api, "configmaps", limit="2")).expect_success()
    assert [i["metadata"]["name"] for i in deleted.body["items"]] == ["a", "b"]
    assert await _names(api) == ["c"]


async def case_pages_are_deleted_one_by_one(api: Api) -> None:
    for name in "abc":
        await api.create("widgets", widget(name))
    first = (await _delete_collection(api, "widgets", limit="2")).expect_success()
    rest = (
        await _delete_collection(api, "widgets", limit="2", **{"continue": first.metadata["continue"]})
    ).expect_success()
    assert [i["metadata"]["name"] for i in rest.body["items"]] == ["c"]
    assert await _names(api, "widgets") == []
    (await _delete_collection(api, "widgets", resourceVersion="99999999999")).expect_error(504, "Timeout")
    (await _delete_collection(api, "widgets", limit="x")).expect_error(400, "BadRequest")


async def case_response_lists_deleted_objects(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}))
    await api.create("configmaps", config_map("b", finalizers=["example.com/hold"]))
    deleted = (await _delete_collection(api, "configmaps")).expect_success()
    assert [i.get("data") for i in deleted.body["items"]] == [{"x": "1"}, None]
    assert "deletionTimestamp" not in deleted.body["items"][1]["metadata"]
    again = (await _delete_collection(api, "configmaps", {"propagationPolicy": "Foreground"})).expect_success()
    assert "deletionTimestamp" in again.body["items"][0]["metadata"]
    (await api.merge("configmaps", "b", {"metadata": {"finalizers": None}})).expect_success()
