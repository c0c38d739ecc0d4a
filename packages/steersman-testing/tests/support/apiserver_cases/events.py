"""Events: one collection, which two groups read and write by names of their own."""

from __future__ import annotations

import json
from typing import Any

from apiserver_cases.api import Api, Json, Reply
from apiserver_cases.apply import managers
from steersman.client import HttpRequest

_MERGE = "application/merge-patch+json"


def _older(api: Api, **fields: Any) -> Json:
    about = {"kind": "ConfigMap", "namespace": api.namespace, "name": "c"}
    names: Json = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}}
    return {**names, "involvedObject": about, "reason": "R", "message": "text", "type": "Normal", **fields}


def _newer(api: Api, name: str = "n", **fields: Any) -> Json:
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


async def _merge(api: Api, name: str, patch: Json, manager: str = "tester") -> Reply:
    return await api.call("PATCH", _path(api, name), patch, {"fieldManager": manager}, _MERGE)


async def case_an_event_is_read_in_the_newer_group(api: Api) -> None:
    times = {"firstTimestamp": "2024-01-02T03:04:05Z", "lastTimestamp": "2024-01-02T03:04:06Z"}
    (await api.create("events", _older(api, count=1, source={"component": "s", "host": "h"}, **times))).ok()
    read = (await api.call("GET", _path(api, "a"))).ok().body
    assert (read["note"], read["deprecatedCount"], read["deprecatedSource"]["host"]) == ("text", 1, "h")
    assert "reportingController" not in read
    (listed,) = (await api.call("GET", _path(api))).ok().body["items"]
    assert listed["regarding"]["name"] == "c"


async def case_an_event_of_the_newer_group_is_read_in_the_older(api: Api) -> None:
    (await api.call("POST", _path(api), _newer(api))).ok()
    read = (await api.get("events", "n")).ok().body
    assert (read["message"], read["reportingComponent"], read["source"]) == ("text", "example.dev/x", {})
    (await api.call("POST", _path(api), _newer(api))).refused(409, "AlreadyExists")
    (await api.create("events", _older(api, metadata={"name": "n"}))).refused(409, "AlreadyExists")
    (await api.delete("events", "n")).ok()
    (await api.call("GET", _path(api, "n"))).refused(404, "NotFound")


async def case_each_group_selects_by_its_own_names(api: Api) -> None:
    (await api.call("POST", _path(api), _newer(api))).ok()
    for older, newer in (
        ("involvedObject.name=c", "regarding.name=c"),
        ("involvedObject.uid!=u", "regarding.uid!=u"),
        ("reportingComponent=example.dev/x", "reportingController=example.dev/x"),
    ):
        assert len((await api.list("events", fieldSelector=older)).ok().body["items"]) == 1
        assert len((await api.call("GET", _path(api), None, {"fieldSelector": newer})).ok().body["items"]) == 1
        (await api.list("events", fieldSelector=newer)).refused(400, "BadRequest")
        (await api.call("GET", _path(api), None, {"fieldSelector": older})).refused(400, "BadRequest")


async def case_events_are_watched_in_each_group(api: Api) -> None:
    made = (await api.create("events", _older(api))).ok()
    (await api.call("POST", _path(api), _newer(api))).ok()
    (await api.merge("events", "a", {"message": "x"})).ok()
    (await api.delete("events", "a")).ok()
    seen = await api.events("events", 3, resourceVersion=made.version)
    assert [(e["type"], e["object"]["message"]) for e in seen] == [
        ("ADDED", "text"),
        ("MODIFIED", "x"),
        ("DELETED", "x"),
    ]
    query = {"watch": "true", "timeoutSeconds": "10", "resourceVersion": made.version}
    notes: list[str] = []
    async with api.transport.stream(HttpRequest(method="GET", path=_path(api), query=query, timeout=30)) as lines:
        async for line in lines:
            notes.append(json.loads(line)["object"]["note"])
            if len(notes) == 3:
                break
    assert notes == ["text", "x", "x"]


async def case_the_newer_group_changes_the_series_alone(api: Api) -> None:
    (await api.create("events", _older(api))).ok()
    (await api.call("POST", _path(api), _newer(api))).ok()
    for name in ("a", "n"):
        (await _merge(api, name, {"note": "other"})).refused(422, "Invalid")
        (await _merge(api, name, {"deprecatedCount": 4})).refused(422, "Invalid")
        (await _merge(api, name, {"metadata": {"labels": {"k": "v"}}})).ok()
    series = {"count": 2, "lastObservedTime": "2024-01-02T03:04:05.000006Z"}
    assert (await _merge(api, "n", {"series": series})).ok().body["series"] == series
    assert (await api.merge("events", "n", {"message": "x"})).ok().body["message"] == "x"


async def case_each_group_forgets_the_managers_of_the_other(api: Api) -> None:
    made = await api.create("events", _older(api), fieldManager="one")
    changed = await _merge(api, "a", {"metadata": {"labels": {"k": "v"}}}, "two")
    assert set(managers(made)) == {("one", "Update", "")}
    assert set(managers(changed)) == {("two", "Update", "")}
    config = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "x"}
    assert set(managers(await api.apply("events", config, "three"))) == {("three", "Apply", "")}
