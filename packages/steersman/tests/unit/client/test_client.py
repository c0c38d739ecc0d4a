"""Verbs: what is sent, and what is made of the answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from framework_support.buoy import Buoy, BuoyApply, BuoySpec, BuoySpecApply, BuoyStatus, buoy, wire
from framework_support.scripted_transport import ScriptedTransport, answer, bookmark, event, failure, listed, refusal
from steersman.client import Client, HttpRequest, HttpResponse, JsonPatch, MergePatch, WatchEvent
from steersman.client.listing import DecodeErrorHandler
from steersman.errors import AlreadyExists, Conflict, ConnectionFailed, Expired, NotFound
from steersman.meta import Condition, FrozenDict, ObjectKey, ObjectMeta, ObjectMetaApply, OwnerReferenceApply
from steersman_testing.virtual_clock import virtual_time

KEY = ObjectKey("sea", "a")


def client(transport: ScriptedTransport) -> Client:
    return Client(transport, field_manager="tester")


def sent(transport: ScriptedTransport) -> tuple[HttpRequest, Any]:
    request = transport.requests[-1][1]
    return request, json.loads(request.body) if request.body is not None else None


@virtual_time
async def test_get() -> None:
    transport = ScriptedTransport([answer(wire(depth=3)), refusal(404, "NotFound")])
    assert (await client(transport).get(Buoy, KEY)).spec.depth == 3
    request, body = sent(transport)
    assert (request.method, request.path, body) == ("GET", "/apis/sea.example.com/v1/namespaces/sea/buoys/a", None)
    with pytest.raises(NotFound, match="scripted"):
        await client(transport).get(Buoy, KEY)


@virtual_time
async def test_what_a_proxy_answers_in_the_servers_place_is_no_answer() -> None:
    page = HttpResponse(200, b"<html>Log in</html>")
    mine = client(ScriptedTransport([page] * 4))
    for verb in (mine.get(Buoy, KEY), mine.list(Buoy), mine.create(buoy()), mine.delete(Buoy, KEY)):
        with pytest.raises(ConnectionFailed, match="not the API server's"):
            await verb


@virtual_time
async def test_lists_are_read_page_by_page() -> None:
    transport = ScriptedTransport(
        [listed(wire("a"), wire("b"), version="7", more="next"), listed(wire("c"), version="7")]
    )
    found = await client(transport).list(Buoy, namespace="sea", label_selector="x=y", page_size=2)
    assert [b.metadata.name for b in found.items] == ["a", "b", "c"]
    assert found.resource_version == "7"
    first, second = (r.query for _, r in transport.requests)
    assert first == {"limit": "2", "labelSelector": "x=y"}
    assert second == {"limit": "2", "labelSelector": "x=y", "continue": "next"}


@virtual_time
async def test_a_list_whose_pages_expire_is_read_anew_in_one() -> None:
    whole = listed(wire("a"), wire("c"), version="9")
    transport = ScriptedTransport([listed(wire("a"), wire("b"), more="next"), refusal(410, "Expired"), whole])
    found = await client(transport).list(Buoy)
    assert ([b.metadata.name for b in found.items], found.resource_version) == (["a", "c"], "9")
    assert transport.requests[-1][1].query == {}


@virtual_time
async def test_a_version_that_is_forgotten_ends_the_list() -> None:
    transport = ScriptedTransport([refusal(410, "Expired")])
    with pytest.raises(Expired):
        await client(transport).list(Buoy, resource_version="3", match="Exact")
    assert transport.requests[0][1].query == {"limit": "500", "resourceVersion": "3", "resourceVersionMatch": "Exact"}


@virtual_time
async def test_pages_come_one_by_one() -> None:
    transport = ScriptedTransport(
        [listed(wire("a"), wire("b"), version="7", more="next"), listed(wire("c"), version="7"), listed(more="x")]
    )
    pages = client(transport).pages(Buoy, page_size=2, resource_version="5", match="NotOlderThan")
    first = await anext(pages)
    assert ([b.metadata.name for b in first.items], first.resource_version) == (["a", "b"], "7")
    assert first.sizes == tuple(len(json.dumps(wire(n))) for n in "ab")
    assert len(transport.requests) == 1
    assert [len(p.items) async for p in pages] == [1]
    # The token says the version, and the server refuses both together.
    assert transport.requests[1][1].query == {"limit": "2", "continue": "next"}


@virtual_time
async def test_pages_that_expire_are_for_the_caller_to_read_anew() -> None:
    transport = ScriptedTransport([listed(wire("a"), more="next"), refusal(410, "Expired")])
    with pytest.raises(Expired):
        assert [p async for p in client(transport).pages(Buoy)] == []


@virtual_time
async def test_an_empty_list_may_be_null() -> None:
    transport = ScriptedTransport([answer({"metadata": {"resourceVersion": "3"}, "items": None})])
    assert (await client(transport).list(Buoy)).items == ()


@virtual_time
async def test_one_unreadable_object_is_reported_by_its_key_and_left_out() -> None:
    page = listed(wire("a"), wire("b", depth="deep"), wire("c"))
    skipped: list[ObjectKey] = []
    transport = ScriptedTransport([page, page])
    found = await client(transport).list(Buoy, on_decode_error=lambda key, _: skipped.append(key))
    assert [b.metadata.name for b in found.items] == ["a", "c"]
    assert skipped == [ObjectKey("sea", "b")]
    with pytest.raises(msgspec.ValidationError, match="depth"):
        await client(transport).list(Buoy)


@virtual_time
async def test_create() -> None:
    transport = ScriptedTransport([answer(wire(), 201), refusal(409, "AlreadyExists")])
    config = BuoyApply(metadata=ObjectMetaApply(name="a", namespace="sea"), spec=BuoySpecApply(depth=0))
    assert (await client(transport).create(config)).metadata.uid == "uid-a"
    request, body = sent(transport)
    assert (request.method, request.path) == ("POST", "/apis/sea.example.com/v1/namespaces/sea/buoys")
    assert request.query == {"fieldManager": "tester", "fieldValidation": "Strict"}
    assert body == {
        "apiVersion": "sea.example.com/v1",
        "kind": "Buoy",
        "metadata": {"name": "a", "namespace": "sea"},
        "spec": {"depth": 0},
    }
    with pytest.raises(AlreadyExists):
        await client(transport).create(config)


@virtual_time
async def test_apply_sends_what_was_set_and_forces() -> None:
    transport = ScriptedTransport([answer(wire())] * 2)
    config = BuoyApply(metadata=ObjectMetaApply(name="a", namespace="sea"), spec=BuoySpecApply(depth=1))
    await client(transport).apply(config)
    request, body = sent(transport)
    assert (request.method, request.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert request.query == {"fieldManager": "tester", "force": "true", "fieldValidation": "Strict"}
    assert body["spec"] == {"depth": 1}  # the default of the read type, and sent all the same
    await client(transport).apply(config, force=False)
    assert sent(transport)[0].query["force"] == "false"


@virtual_time
async def test_apply_adds_the_owner_to_those_that_were_declared() -> None:
    transport = ScriptedTransport([answer(wire())])
    other = OwnerReferenceApply(api_version="v1", kind="Node", name="n", uid="u")
    config = BuoyApply(
        metadata=ObjectMetaApply(name="a", namespace="sea", owner_references=[other]), spec=BuoySpecApply(depth=1)
    )
    await client(transport).apply(config, owner=buoy("mother"))
    assert sent(transport)[1]["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"},
        {
            "apiVersion": "sea.example.com/v1",
            "kind": "Buoy",
            "name": "mother",
            "uid": "uid-mother",
            "controller": True,
            "blockOwnerDeletion": True,
        },
    ]


@virtual_time
async def test_create_adds_the_owner() -> None:
    transport = ScriptedTransport([answer(wire())])
    made = Buoy(metadata=ObjectMeta(name="a", namespace="sea"), spec=BuoySpec())
    await client(transport).create(made, owner=buoy("mother"))
    (reference,) = sent(transport)[1]["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("uid-mother", True)


@virtual_time
async def test_an_owner_in_another_namespace_is_refused() -> None:
    config = BuoyApply(metadata=ObjectMetaApply(name="a", namespace="lake"), spec=BuoySpecApply(depth=1))
    with pytest.raises(ValueError, match="sea/mother cannot own lake/a"):
        await client(ScriptedTransport()).apply(config, owner=buoy("mother"))


@virtual_time
async def test_an_object_that_was_read_is_not_applied() -> None:
    read: Any = buoy()
    with pytest.raises(TypeError, match="BuoyApply"):
        await client(ScriptedTransport()).apply(read)


@virtual_time
async def test_a_status_is_declared_whole() -> None:
    transport = ScriptedTransport([answer(wire())])
    condition = Condition(type="Ready", status="True", reason="Afloat")
    await client(transport).apply_status(buoy(), BuoyStatus(depth=0, conditions=(condition,)))
    request, body = sent(transport)
    assert request.path.endswith("/buoys/a/status")
    assert body == {
        "apiVersion": "sea.example.com/v1",
        "kind": "Buoy",
        "metadata": {"name": "a", "namespace": "sea"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "Afloat", "message": ""}],
            "depth": 0,
            "note": "",
        },
    }


@virtual_time
async def test_patches_tell_their_kind() -> None:
    transport = ScriptedTransport([answer(wire()), answer(wire()), refusal(409, "Conflict")])
    await client(transport).patch(Buoy, KEY, MergePatch({"spec": {"depth": None}}), subresource="scale")
    request, body = sent(transport)
    assert (request.content_type, request.path) == (
        "application/merge-patch+json",
        Buoy.api_resource.path(KEY) + "/scale",
    )
    assert body == {"spec": {"depth": None}}
    await client(transport).patch(Buoy, KEY, JsonPatch([{"op": "remove", "path": "/spec/depth"}]))
    request, body = sent(transport)
    assert request.content_type == "application/json-patch+json"
    assert body == [{"op": "remove", "path": "/spec/depth"}]
    with pytest.raises(Conflict):
        await client(transport).patch(Buoy, KEY, MergePatch({}))


@virtual_time
async def test_delete_carries_preconditions() -> None:
    transport = ScriptedTransport([answer({"kind": "Status"})] * 2)
    await client(transport).delete(Buoy, KEY, uid="u", resource_version="5", propagation="Foreground")
    request, body = sent(transport)
    assert request.method == "DELETE"
    assert body == {"propagationPolicy": "Foreground", "preconditions": {"uid": "u", "resourceVersion": "5"}}
    await client(transport).delete(Buoy, KEY)
    assert sent(transport)[1] == {"propagationPolicy": "Background"}


@virtual_time
async def test_deleting_nothing_by_name_never_deletes_everything() -> None:
    transport = ScriptedTransport()
    with pytest.raises(ValueError, match="not a possible name"):
        await client(transport).delete(Buoy, ObjectKey("sea", ""))
    assert transport.requests == []


async def watched(
    transport: ScriptedTransport, on_decode_error: DecodeErrorHandler | None = None, **arguments: Any
) -> list[WatchEvent[Buoy]]:
    stream = client(transport).watch(Buoy, resource_version="5", on_decode_error=on_decode_error, **arguments)
    return [e async for e in stream]


@virtual_time
async def test_watch() -> None:
    lines = [
        event("ADDED", wire("a", 6)),
        event("MODIFIED", wire("a", 7, depth=2)),
        bookmark("8"),
        event("TELEGRAM", {}),
        event("DELETED", wire("a", 9)),
    ]
    transport = ScriptedTransport(streams=[lines])
    events = await watched(transport, namespace="sea", label_selector="x", timeout=60)
    assert [(e.type, e.resource_version) for e in events] == [
        ("ADDED", "6"),
        ("MODIFIED", "7"),
        ("BOOKMARK", "8"),
        ("DELETED", "9"),
    ]
    assert events[1].object is not None
    assert (events[1].key, events[1].object.spec.depth) == (KEY, 2)
    request = transport.requests[0][1]
    assert request.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "60",
        "labelSelector": "x",
    }
    assert request.timeout > 60


@virtual_time
async def test_errors_within_a_watch_are_raised_by_reason() -> None:
    line = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    with pytest.raises(Expired, match="too old"):
        await watched(ScriptedTransport(streams=[[line]]))
    with pytest.raises(Expired, match="scripted"):
        await watched(ScriptedTransport(streams=[[failure(410, "Gone")]]))


@virtual_time
async def test_an_unreadable_object_in_a_watch_is_known_by_its_key() -> None:
    lines = [event("MODIFIED", wire("b", 6, depth="deep")), event("DELETED", wire("b", 7, depth="deep"))]
    skipped: list[ObjectKey] = []
    events = await watched(ScriptedTransport(streams=[lines]), on_decode_error=lambda key, _: skipped.append(key))
    key, size = ObjectKey("sea", "b"), len(json.dumps(wire("b", 6, depth="deep")))
    assert events == [
        WatchEvent("MODIFIED", None, key, "6", "uid-b", size),
        WatchEvent("DELETED", None, key, "7", "uid-b", size),
    ]
    assert skipped == [key, key]
    with pytest.raises(msgspec.ValidationError):
        await watched(ScriptedTransport(streams=[lines]))


@virtual_time
async def test_a_watch_that_is_left_is_closed() -> None:
    transport = ScriptedTransport(streams=[[event("ADDED", wire("a", 6)), 1e6]])
    stream = client(transport).watch(Buoy, resource_version="5")
    await anext(stream)
    assert transport.open_streams == 1
    await stream.aclose()
    assert transport.open_streams == 0


@virtual_time
async def test_what_the_caller_knows_is_not_read() -> None:
    lines = [event(kind, wire("a", n, depth="deep")) for n, kind in enumerate(("ADDED", "MODIFIED", "DELETED"), 5)]
    asked: list[Any] = []

    def skip(raw: bytes | msgspec.Raw) -> bool:
        asked.append(msgspec.json.decode(raw)["metadata"]["resourceVersion"])
        return True

    events = await watched(ScriptedTransport(streams=[lines[:2]]), skip=skip)
    assert asked == ["5", "6"]
    assert [(e.type, e.object, e.key, e.uid, e.resource_version) for e in events] == [
        ("ADDED", None, KEY, "uid-a", "5"),
        ("MODIFIED", None, KEY, "uid-a", "6"),
    ]
    with pytest.raises(msgspec.ValidationError):
        await watched(ScriptedTransport(streams=[lines[2:]]), skip=skip)


@virtual_time
async def test_a_streaming_list_ends_its_beginning_with_a_bookmark() -> None:
    end = {"metadata": {"resourceVersion": "8", "annotations": {"k8s.io/initial-events-end": "true"}}}
    lines = [event("ADDED", wire("a", 6)), bookmark("7"), event("BOOKMARK", end), event("MODIFIED", wire("a", 9))]
    transport = ScriptedTransport(streams=[lines], streams_lists=True)
    stream = client(transport).watch(Buoy, send_initial_events=True)
    events = [e async for e in stream]
    assert [(e.type, e.initial_events_end) for e in events] == [
        ("ADDED", False),
        ("BOOKMARK", False),
        ("BOOKMARK", True),
        ("MODIFIED", False),
    ]
    assert {**transport.requests[0][1].query, "timeoutSeconds": ""} == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "",
        "timeoutSeconds": "",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


@virtual_time
@pytest.mark.parametrize("compact", [False, True])
async def test_lines_are_understood_however_they_are_spaced(compact: bool) -> None:
    separators = (",", ":") if compact else None
    document = {"type": "ADDED", "object": wire("a", 6, depth=4)}
    line = json.dumps(document, separators=separators).encode()
    (read,) = await watched(ScriptedTransport(streams=[[line]]))
    assert read.object is not None
    assert (read.object.spec.depth, read.uid) == (4, "uid-a")
    assert read.size == len(json.dumps(document["object"], separators=separators))


@virtual_time
@pytest.mark.parametrize("kept", [5, 30, 60, -1, -2])
async def test_a_line_that_breaks_off_is_a_lost_connection(kept: int) -> None:
    line = b'{"type":"ADDED","object":' + json.dumps(wire("a", 6)).encode() + b"}"
    with pytest.raises(ConnectionFailed, match="within a line"):
        await watched(ScriptedTransport(streams=[[line[:kept]]]))


def test_read_objects_are_written_without_their_defaults() -> None:
    obj = Buoy(metadata=ObjectMeta(name="a", labels=FrozenDict({"x": "y"})), spec=buoy().spec)
    assert msgspec.to_builtins(obj) == {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {}}


@virtual_time
async def test_logs_come_line_by_line() -> None:
    transport = ScriptedTransport(streams=[[b"one", b"", b"caf\xc3\xa9 \xff"], []])
    options: dict[str, Any] = {"follow": True, "tail_lines": 0, "since_seconds": 60, "timestamps": True}
    lines = [line async for line in client(transport).logs(KEY, container="main", previous=True, **options)]
    assert lines == ["one", "", "café \ufffd"]
    request = transport.requests[0][1]
    assert request.path == "/api/v1/namespaces/sea/pods/a/log"
    assert request.query == {
        "container": "main",
        "follow": "true",
        "previous": "true",
        "tailLines": "0",
        "sinceSeconds": "60",
        "timestamps": "true",
    }
    # A pod that has nothing to say for an hour is not a dead connection.
    assert request.timeout > 3600
    assert [line async for line in client(transport).logs(KEY)] == []
    assert transport.requests[1][1].query == {}


@virtual_time
async def test_a_log_that_is_left_is_closed() -> None:
    transport = ScriptedTransport(streams=[[b"one", 1e6]])
    lines = client(transport).logs(KEY, follow=True)
    await anext(lines)
    assert transport.open_streams == 1
    await lines.aclose()
    assert transport.open_streams == 0


@virtual_time
async def test_options_of_a_deletion() -> None:
    transport = ScriptedTransport([answer({"kind": "Status"})] * 2)
    await client(transport).delete(Buoy, KEY, grace_period_seconds=0, dry_run=True)
    request, body = sent(transport)
    assert body == {"propagationPolicy": "Background", "gracePeriodSeconds": 0, "dryRun": ["All"]}
    assert request.query == {"dryRun": "All"}
    await client(transport).delete_collection(Buoy, namespace="sea", field_selector="metadata.name=a")
    request, body = sent(transport)
    assert (request.path, request.query) == (
        "/apis/sea.example.com/v1/namespaces/sea/buoys",
        {"fieldSelector": "metadata.name=a"},
    )
    assert body == {"propagationPolicy": "Background"}
