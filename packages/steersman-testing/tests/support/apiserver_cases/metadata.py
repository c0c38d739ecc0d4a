"""Metadata of objects as ``PartialObjectMetadata``."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, config_map, widget

PARTIAL_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST_ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def _is_partial(obj: Json) -> bool:
    return (obj["apiVersion"], obj["kind"]) == ("meta.k8s.io/v1", "PartialObjectMetadata") and set(obj) == {
        "apiVersion",
        "kind",
        "metadata",
    }


async def case_one_object(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a", {"k": "v"}, labels={"l": "x"})), ("widgets", widget("a"))):
        created = (await api.create(plural, body)).expect_success()
        actual = (await api.call("GET", api.path(plural, "a"), accept=PARTIAL_ACCEPT)).expect_success()
        assert _is_partial(actual.body)
        assert actual.metadata == created.metadata


async def case_lists(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a", {"k": "v"})), ("widgets", widget("a"))):
        await api.create(plural, body)
        actual = (
            await api.call("GET", api.path(plural), None, {"limit": "1"}, accept=PARTIAL_LIST_ACCEPT)
        ).expect_success()
        assert (actual.body["apiVersion"], actual.body["kind"]) == ("meta.k8s.io/v1", "PartialObjectMetadataList")
        assert int(actual.resource_version) > 0
        assert all(_is_partial(i) for i in actual.body["items"])
        assert actual.body["items"][0]["metadata"]["name"] == "a"


async def case_watches(api: Api) -> None:
    since = (await api.list("widgets")).resource_version
    await api.create("widgets", widget("a"))
    await api.merge("widgets", "a", {"spec": {"size": 2}})
    await api.delete("widgets", "a")
    events = await api.events("widgets", 3, PARTIAL_ACCEPT, resourceVersion=since)
    assert [e["type"] for e in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert all(_is_partial(e["object"]) for e in events)
    assert events[1]["object"]["metadata"]["generation"] == 2


async def case_initial_events_bookmark(api: Api) -> None:
    await api.create("widgets", widget("a"))
    events = await api.events(
        "widgets",
        2,
        PARTIAL_ACCEPT,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert [e["type"] for e in events] == ["ADDED", "BOOKMARK"]
    bookmark = events[1]["object"]
    assert _is_partial(bookmark)
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def case_writes_return_metadata(api: Api) -> None:
    created = await api.call("POST", api.path("configmaps"), config_map("a", {"k": "v"}), accept=PARTIAL_ACCEPT)
    assert _is_partial(created.expect_success().body)
    patch = {"metadata": {"labels": {"l": "x"}, "finalizers": ["example.com/hold"]}}
    content_type = "application/merge-patch+json"
    changed = await api.call("PATCH", api.path("configmaps", "a"), patch, None, content_type, PARTIAL_ACCEPT)
    assert _is_partial(changed.expect_success().body)
    assert (await api.get("configmaps", "a")).body["data"] == {"k": "v"}
    held = (await api.call("DELETE", api.path("configmaps", "a"), accept=PARTIAL_ACCEPT)).expect_success()
    assert _is_partial(held.body)
    await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})
    await api.create("configmaps", config_map("b"))
    deleted = (await api.call("DELETE", api.path("configmaps", "b"), accept=PARTIAL_ACCEPT)).expect_success()
    assert deleted.body["kind"] == "Status"


async def case_a_collection_is_deleted(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"k": "v"}, labels={"l": "x"}))
    deleted = await api.call(
        "DELETE", api.path("configmaps"), None, {"labelSelector": "l=x"}, accept=PARTIAL_LIST_ACCEPT
    )
    assert deleted.expect_success().body["kind"] == "PartialObjectMetadataList"
    assert [i["metadata"]["name"] for i in deleted.body["items"]] == ["a"]


async def case_errors_are_complete(api: Api) -> None:
    (await api.call("GET", api.path("configmaps", "a"), accept=PARTIAL_ACCEPT)).expect_error(
        404, "NotFound", "not found"
    )


async def case_other_form_is_not_acceptable(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    (await api.call("GET", api.path("configmaps"), accept=PARTIAL_ACCEPT)).expect_error(406, "NotAcceptable")
    (await api.call("GET", api.path("configmaps", "a"), accept=PARTIAL_LIST_ACCEPT)).expect_error(
        406, "NotAcceptable"
    )
    several = await api.call("GET", api.path("configmaps"), accept=f"{PARTIAL_ACCEPT},application/json")
    several.expect_error(406, "NotAcceptable")
