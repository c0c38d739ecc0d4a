"""Watches: events, selectors, versions and bookmarks."""

from __future__ import annotations

import json

from apiserver_cases.api import Api, Json, config_map, widget
from steersman.client import HttpRequest


def event_types_and_names(events: list[Json]) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]


async def _version(api: Api) -> str:
    return (await api.list("configmaps")).resource_version


async def case_changes_come_in_order(api: Api) -> None:
    since = await _version(api)
    created = await api.create("configmaps", config_map("a", {"x": "1"}))
    changed = await api.merge("configmaps", "a", {"data": {"x": "2"}})
    await api.delete("configmaps", "a")
    events = await api.events("configmaps", 3, resourceVersion=since)
    assert event_types_and_names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions[:2] == [int(created.resource_version), int(changed.resource_version)]
    assert versions[2] > versions[1]
    assert events[2]["object"]["data"] == {"x": "2"}
    assert events[0]["object"]["kind"] == "ConfigMap"


async def case_watch_without_version_sends_current_objects(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    await api.create("configmaps", config_map("b"))
    for query in ({}, {"resourceVersion": "0"}):
        events = await api.events("configmaps", 2, **query)
        assert sorted(event_types_and_names(events)) == [("ADDED", "a"), ("ADDED", "b")]


async def case_objects_enter_and_leave_a_selection(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a", {"x": "1"}))
    await api.merge("configmaps", "a", {"metadata": {"labels": {"l": "1"}}})
    await api.merge("configmaps", "a", {"data": {"x": "2"}})
    left = await api.merge("configmaps", "a", {"metadata": {"labels": None}, "data": {"x": "3"}})
    events = await api.events("configmaps", 3, resourceVersion=since, labelSelector="l=1")
    assert event_types_and_names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    last = events[2]["object"]
    assert last["data"] == {"x": "2"}
    assert last["metadata"]["resourceVersion"] == left.resource_version


async def case_a_watch_can_be_of_one_object(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a"))
    await api.create("configmaps", config_map("b"))
    events = await api.events("configmaps", 1, resourceVersion=since, fieldSelector="metadata.name=b")
    assert event_types_and_names(events) == [("ADDED", "b")]


async def case_a_watch_is_of_one_namespace(api: Api) -> None:
    since = await _version(api)
    await api.call("POST", "/api/v1/namespaces/default/configmaps", config_map(api.namespace))
    await api.create("configmaps", config_map("a"))
    events = await api.events("configmaps", 1, resourceVersion=since)
    assert event_types_and_names(events) == [("ADDED", "a")]


async def case_watch_list_ends_initial_events_with_bookmark(api: Api) -> None:
    await api.create("widgets", widget("a"))
    events = await api.events(
        "widgets",
        2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert event_types_and_names(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[1]["object"]["kind"] == "Widget"


async def case_send_initial_events_needs_a_match(api: Api) -> None:
    query = {"watch": "true", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    request = await api.call("GET", api.path("configmaps"), None, query)
    request.expect_error(422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")


async def case_watch_ends_after_timeout(api: Api) -> None:
    since = await _version(api)
    assert await api.events("configmaps", 1, resourceVersion=since, timeoutSeconds="1") == []


async def case_finalized_objects_are_reported_as_deleted(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a")
    await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})
    events = await api.events("configmaps", 3, resourceVersion=since)
    assert event_types_and_names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def case_unchanged_writes_are_not_reported(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1"}))
    await api.put("configmaps", config_map("a", {"x": "1"}))
    await api.create("configmaps", config_map("b"))
    events = await api.events("configmaps", 1, resourceVersion=created.resource_version)
    assert event_types_and_names(events) == [("ADDED", "b")]


async def case_watch_from_future_version_waits(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    assert await api.events("configmaps", 1, resourceVersion="999999999", timeoutSeconds="1") == []


async def case_a_version_of_a_watch_is_a_number(api: Api) -> None:
    query = {"watch": "true", "resourceVersion": "x"}
    rejected = await api.call("GET", api.path("configmaps"), None, query)
    text = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    assert rejected.expect_error(500, "").message == text


async def case_watch_selectors_are_validated(api: Api) -> None:
    for query in ({"labelSelector": "=x"}, {"fieldSelector": "data.x=1"}):
        rejected = await api.call("GET", api.path("configmaps"), None, {"watch": "true", **query})
        rejected.expect_error(400, "BadRequest")


async def case_watch_of_unserved_kind_is_rejected(api: Api) -> None:
    response = await api.call("GET", api.path("widgets").replace("widgets", "odds"), None, {"watch": "true"})
    assert response.code == 404


async def case_a_match_without_initial_events_is_rejected(api: Api) -> None:
    query = {"watch": "true", "resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"}
    rejected = await api.call("GET", api.path("configmaps"), None, query)
    text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    rejected.expect_error(422, "Invalid", text)


async def case_a_watch_list_begins_with_the_selected_objects_in_order(api: Api) -> None:
    for name, label in (("c", "x"), ("a", "x"), ("b", "y")):
        await api.create("configmaps", config_map(name, labels={"l": label}))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await api.events("configmaps", 3, **query, labelSelector="l=x")
    assert event_types_and_names(events) == [("ADDED", "a"), ("ADDED", "c"), ("BOOKMARK", "")]


async def case_empty_watch_list_is_a_bookmark(api: Api) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    (event,) = await api.events("configmaps", 1, **query)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(event["object"]["metadata"]["resourceVersion"]) > 0


async def case_watch_list_continues_after_bookmark(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    begun = await api.events("configmaps", 2, **query)
    since = begun[1]["object"]["metadata"]["resourceVersion"]
    created = await api.create("configmaps", config_map("b"))
    (event,) = await api.events("configmaps", 1, resourceVersion=since)
    assert (event["type"], event["object"]["metadata"]["resourceVersion"]) == ("ADDED", created.resource_version)


async def case_a_watch_list_not_older_than_a_write_begins_with_it(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await api.events("configmaps", 2, resourceVersion=created.resource_version, **query)
    assert event_types_and_names(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert int(events[1]["object"]["metadata"]["resourceVersion"]) >= int(created.resource_version)


async def case_bookmarks_are_sent_on_request_only(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "2"}
    assert event_types_and_names(await api.events("configmaps", 2, **query)) == [("ADDED", "a")]


async def case_initial_events_can_be_declined(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    await api.create("configmaps", config_map("b"))
    query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    assert event_types_and_names(
        await api.events("configmaps", 1, resourceVersion=created.resource_version, **query)
    ) == [("ADDED", "b")]


async def case_a_status_write_is_an_event(api: Api) -> None:
    created = await api.create("widgets", widget("a"))
    await api.merge("widgets", "a", {"status": {"ready": 1}}, "status")
    (event,) = await api.events("widgets", 1, resourceVersion=created.resource_version)
    assert (event["type"], event["object"]["status"]) == ("MODIFIED", {"ready": 1})


async def case_dry_runs_send_no_events(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a"), dryRun="All")
    await api.create("configmaps", config_map("b"))
    await api.merge("configmaps", "b", {"data": {"k": "v"}}, dryRun="All")
    await api.delete("configmaps", "b", {"dryRun": ["All"]})
    await api.delete("configmaps", "b")
    events = await api.events("configmaps", 2, resourceVersion=since)
    assert event_types_and_names(events) == [("ADDED", "b"), ("DELETED", "b")]


async def case_each_object_of_a_deleted_collection_is_an_event(api: Api) -> None:
    for name in ("a", "b"):
        await api.create("configmaps", config_map(name))
    since = await _version(api)
    (await api.call("DELETE", api.path("configmaps"))).expect_success()
    events = await api.events("configmaps", 2, resourceVersion=since)
    assert sorted(event_types_and_names(events)) == [("DELETED", "a"), ("DELETED", "b")]


async def case_objects_enter_and_leave_a_selection_by_fields(api: Api) -> None:
    await api.create(
        "serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    )
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    created = (
        await api.create("pods", {**body, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
    ).expect_success()
    for phase in ("Running", "Succeeded"):
        (await api.merge("pods", "a", {"status": {"phase": phase}}, "status")).expect_success()
    events = await api.events(
        "pods", 2, resourceVersion=created.resource_version, fieldSelector="status.phase=Running"
    )
    assert event_types_and_names(events) == [("ADDED", "a"), ("DELETED", "a")]


async def case_a_watch_across_namespaces(api: Api) -> None:
    since = await _version(api)
    await api.create("configmaps", config_map("a", labels={"run": api.namespace}))
    query = {"watch": "true", "resourceVersion": since, "labelSelector": f"run={api.namespace}"}
    request = HttpRequest(method="GET", path="/api/v1/configmaps", query=query, timeout=30)
    async with api.transport.stream(request) as lines:
        event = json.loads(await anext(aiter(lines)))
    assert (event["type"], event["object"]["metadata"]["namespace"]) == ("ADDED", api.namespace)


async def case_recreated_object_is_added(api: Api) -> None:
    since = await _version(api)
    first = await api.create("configmaps", config_map("a"))
    await api.delete("configmaps", "a")
    second = await api.create("configmaps", config_map("a"))
    events = await api.events("configmaps", 3, resourceVersion=since)
    assert event_types_and_names(events) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    uids = [e["object"]["metadata"]["uid"] for e in events]
    assert uids == [first.metadata["uid"], first.metadata["uid"], second.metadata["uid"]]


async def case_watch_resumes_from_page_version(api: Api) -> None:
    for name in ("a", "b"):
        await api.create("configmaps", config_map(name))
    page = await api.list("configmaps", limit="1")
    await api.merge("configmaps", "b", {"data": {"k": "v"}})
    events = await api.events("configmaps", 1, resourceVersion=page.resource_version)
    assert event_types_and_names(events) == [("MODIFIED", "b")]


async def case_watch_on_object_path_is_a_get(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    actual = await api.call("GET", api.path("configmaps", "a"), None, {"watch": "true"})
    assert actual.expect_success().body == created.body


async def case_deletion_events_carry_the_last_state(api: Api) -> None:
    await api.create("widgets", widget("a", labels={"l": "1"}))
    last = await api.merge("widgets", "a", {"spec": {"size": 9}})
    await api.delete("widgets", "a")
    (event,) = await api.events("widgets", 1, resourceVersion=last.resource_version)
    assert (event["type"], event["object"]["spec"]["size"]) == ("DELETED", 9)
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(last.resource_version)
