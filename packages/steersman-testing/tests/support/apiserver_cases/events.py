"""Events: one collection with different field names in two groups."""

from __future__ import annotations

import json
from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json
from apiserver_cases.apply import fields_by_manager
from steersman.client import HttpRequest

_MERGE = "application/merge-patch+json"


def _core_event(api: Api, **fields: Any) -> Json:
    involved_object = {"kind": "ConfigMap", "namespace": api.namespace, "name": "c"}
    names: Json = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}}
    return {**names, "involvedObject": involved_object, "reason": "R", "message": "text", "type": "Normal", **fields}


def _events_v1_event(api: Api, name: str = "n", **fields: Any) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2024-01-02T03:04:05.000006Z",
        "regarding": {"kind": "ConfigMap", "namespace": api.namespace, "name": "c"},
        "reason": "R",
        "action": "A",
        "type": "Normal",
        "reportingController": "example.dev/x",
        "reportingInstance": "x-1",
        "note": "text",
        **fields,
    }


def _path(api: Api, name: str = "") -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events" + (f"/{name}" if name else "")


async def _merge(api: Api, name: str, patch: Json, manager: str = "tester") -> ApiResponse:
    return await api.call("PATCH", _path(api, name), patch, {"fieldManager": manager}, _MERGE)


async def case_core_event_is_read_as_events_v1(api: Api) -> None:
    times = {"firstTimestamp": "2024-01-02T03:04:05Z", "lastTimestamp": "2024-01-02T03:04:06Z"}
    (
        await api.create("events", _core_event(api, count=1, source={"component": "s", "host": "h"}, **times))
    ).expect_success()
    read = (await api.call("GET", _path(api, "a"))).expect_success().body
    assert (read["note"], read["deprecatedCount"], read["deprecatedSource"]["host"]) == ("text", 1, "h")
    assert "reportingController" not in read
    (listed,) = (await api.call("GET", _path(api))).expect_success().body["items"]
    assert listed["regarding"]["name"] == "c"


async def case_events_v1_event_is_read_as_core(api: Api) -> None:
    (await api.call("POST", _path(api), _events_v1_event(api))).expect_success()
    read = (await api.get("events", "n")).expect_success().body
    assert (read["message"], read["reportingComponent"], read["source"]) == ("text", "example.dev/x", {})
    (await api.call("POST", _path(api), _events_v1_event(api))).expect_error(409, "AlreadyExists")
    (await api.create("events", _core_event(api, metadata={"name": "n"}))).expect_error(409, "AlreadyExists")
    (await api.delete("events", "n")).expect_success()
    (await api.call("GET", _path(api, "n"))).expect_error(404, "NotFound")


async def case_each_group_has_its_field_selectors(api: Api) -> None:
    (await api.call("POST", _path(api), _events_v1_event(api))).expect_success()
    for older, newer in (
        ("involvedObject.name=c", "regarding.name=c"),
        ("involvedObject.uid!=u", "regarding.uid!=u"),
        ("reportingComponent=example.dev/x", "reportingController=example.dev/x"),
    ):
        assert len((await api.list("events", fieldSelector=older)).expect_success().body["items"]) == 1
        assert (
            len((await api.call("GET", _path(api), None, {"fieldSelector": newer})).expect_success().body["items"])
            == 1
        )
        (await api.list("events", fieldSelector=newer)).expect_error(400, "BadRequest")
        (await api.call("GET", _path(api), None, {"fieldSelector": older})).expect_error(400, "BadRequest")


async def case_events_are_watched_in_each_group(api: Api) -> None:
    created = (await api.create("events", _core_event(api))).expect_success()
    (await api.call("POST", _path(api), _events_v1_event(api))).expect_success()
    (await api.merge("events", "a", {"message": "x"})).expect_success()
    (await api.delete("events", "a")).expect_success()
    seen = await api.events("events", 3, resourceVersion=created.resource_version)
    assert [(e["type"], e["object"]["message"]) for e in seen] == [
        ("ADDED", "text"),
        ("MODIFIED", "x"),
        ("DELETED", "x"),
    ]
    query = {"watch": "true", "timeoutSeconds": "10", "resourceVersion": created.resource_version}
    notes: list[str] = []
    async with api.transport.stream(HttpRequest(method="GET", path=_path(api), query=query, timeout=30)) as lines:
        async for line in lines:
            notes.append(json.loads(line)["object"]["note"])
            if len(notes) == 3:
                break
    assert notes == ["text", "x", "x"]


async def case_events_v1_updates_series_only(api: Api) -> None:
    (await api.create("events", _core_event(api))).expect_success()
    (await api.call("POST", _path(api), _events_v1_event(api))).expect_success()
    for name in ("a", "n"):
        (await _merge(api, name, {"note": "other"})).expect_error(422, "Invalid")
        (await _merge(api, name, {"deprecatedCount": 4})).expect_error(422, "Invalid")
        (await _merge(api, name, {"metadata": {"labels": {"k": "v"}}})).expect_success()
    series = {"count": 2, "lastObservedTime": "2024-01-02T03:04:05.000006Z"}
    assert (await _merge(api, "n", {"series": series})).expect_success().body["series"] == series
    assert (await api.merge("events", "n", {"message": "x"})).expect_success().body["message"] == "x"


async def case_each_group_drops_managers_of_the_other(api: Api) -> None:
    created = await api.create("events", _core_event(api), fieldManager="one")
    changed = await _merge(api, "a", {"metadata": {"labels": {"k": "v"}}}, "two")
    assert set(fields_by_manager(created)) == {("one", "Update", "")}
    assert set(fields_by_manager(changed)) == {("two", "Update", "")}
    config = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "x"}
    assert set(fields_by_manager(await api.apply("events", config, "three"))) == {("three", "Apply", "")}
