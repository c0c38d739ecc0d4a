"""Watches: events, selection, versions, bookmarks."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, config_map, widget


def told(events: list[Json]) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]


async def _version(api: Api) -> str:
    return (await api.list("configmaps")).version


async def case_changes_come_in_order(api: Api) -> None:
    since = await _version(api)
    made = await api.create("configmaps", config_map("a", {"x": "1"}))
    changed = await api.merge("configmaps", "a", {"data": {"x": "2"}})
    await api.delete("configmaps", "a")
    events = await api.events("configmaps", 3, resourceVersion=since)
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions[:2] == [int(made.version), int(changed.version)]
    assert versions[2] > versions[1]
    assert events[2]["object"]["data"] == {"x": "2"}
    assert events[0]["object"]["kind"] == "ConfigMap"


async def case_a_watch_without_version_begins_with_what_is_there(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    await api.create("configmaps", config_map("b"))
    for query in ({}, {"resourceVersion": "0"}):
        events = await api.events("configmaps", 2, **query)
        assert sorted(told(events)) == [("ADDED", "a"), ("ADDED", "b")]


async def case_objects_enter_and_leave_a_selection(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a", {"x": "1"}))
    await api.merge("configmaps", "a", {"metadata": {"labels": {"l": "1"}}})
    await api.merge("configmaps", "a", {"data": {"x": "2"}})
    left = await api.merge("configmaps", "a", {"metadata": {"labels": None}, "data": {"x": "3"}})
    events = await api.events("configmaps", 3, resourceVersion=since, labelSelector="l=1")
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    last = events[2]["object"]
    assert last["data"] == {"x": "2"}
    assert last["metadata"]["resourceVersion"] == left.version


async def case_a_watch_can_be_of_one_object(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a"))
    await api.create("configmaps", config_map("b"))
    events = await api.events("configmaps", 1, resourceVersion=since, fieldSelector="metadata.name=b")
    assert told(events) == [("ADDED", "b")]


async def case_a_watch_is_of_one_namespace(api: Api) -> None:
    since = await _version(api)
    await api.call("POST", "/api/v1/namespaces/default/configmaps", config_map(api.namespace))
    await api.create("configmaps", config_map("a"))
    events = await api.events("configmaps", 1, resourceVersion=since)
    assert told(events) == [("ADDED", "a")]


async def case_a_watch_list_ends_its_beginning_with_a_bookmark(api: Api) -> None:
    await api.create("widgets", widget("a"))
    events = await api.events(
        "widgets",
        2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert told(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[1]["object"]["kind"] == "Widget"


async def case_send_initial_events_needs_a_match(api: Api) -> None:
    query = {"watch": "true", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    request = await api.call("GET", api.path("configmaps"), None, query)
    request.refused(422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")


async def case_the_watch_ends_in_time(api: Api) -> None:
    since = await _version(api)
    assert await api.events("configmaps", 1, resourceVersion=since, timeoutSeconds="1") == []


async def case_finalized_objects_are_reported_as_deleted(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a")
    await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})
    events = await api.events("configmaps", 3, resourceVersion=since)
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def case_writes_that_change_nothing_are_not_reported(api: Api) -> None:
    made = await api.create("configmaps", config_map("a", {"x": "1"}))
    await api.put("configmaps", config_map("a", {"x": "1"}))
    await api.create("configmaps", config_map("b"))
    events = await api.events("configmaps", 1, resourceVersion=made.version)
    assert told(events) == [("ADDED", "b")]
