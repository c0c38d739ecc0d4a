"""Verbs: requests and the handling of responses."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from framework_support.transports import (
    ScriptedTransport,
    bookmark_line,
    error_response,
    failure,
    json_response,
    list_response,
    watch_line,
)
from framework_support.widget import (
    Widget,
    WidgetApply,
    WidgetSpec,
    WidgetSpecApply,
    WidgetStatus,
    widget,
    widget_document,
)
from steersman.api.apply import meta
from steersman.client import Client, HttpRequest, HttpResponse, JsonPatch, MergePatch, WatchEvent
from steersman.client.decode import DecodeErrorHandler
from steersman.errors import AlreadyExists, Conflict, ConnectionFailed, Expired, NotFound
from steersman.meta import Condition, FrozenDict, ObjectKey, ObjectMeta, unstructured
from steersman_testing.virtual_clock import virtual_time

KEY = ObjectKey("orders", "a")


def client(transport: ScriptedTransport) -> Client:
    return Client(transport, field_manager="tester")


def last_request(transport: ScriptedTransport) -> tuple[HttpRequest, Any]:
    request = transport.requests[-1][1]
    return request, json.loads(request.body) if request.body is not None else None


@virtual_time
async def test_get() -> None:
    transport = ScriptedTransport([json_response(widget_document(depth=3)), error_response(404, "NotFound")])
    assert (await client(transport).get(Widget, KEY)).spec.depth == 3
    request, body = last_request(transport)
    assert (request.method, request.path, body) == (
        "GET",
        "/apis/shop.example.com/v1/namespaces/orders/widgets/a",
        None,
    )
    with pytest.raises(NotFound, match="scripted"):
        await client(transport).get(Widget, KEY)


@virtual_time
async def test_html_response_of_proxy_raises_connection_failed() -> None:
    page = HttpResponse(200, b"<html>Log in</html>")
    mine = client(ScriptedTransport([page] * 4))
    for verb in (mine.get(Widget, KEY), mine.list(Widget), mine.create(widget()), mine.delete(Widget, KEY)):
        with pytest.raises(ConnectionFailed, match="does not come from the API server"):
            await verb


@virtual_time
async def test_lists_are_read_page_by_page() -> None:
    transport = ScriptedTransport(
        [
            list_response(widget_document("a"), widget_document("b"), version="7", more="next"),
            list_response(widget_document("c"), version="7"),
        ]
    )
    found = await client(transport).list(Widget, namespace="orders", label_selector="x=y", page_size=2)
    assert [b.metadata.name for b in found.items] == ["a", "b", "c"]
    assert found.resource_version == "7"
    first, second = (r.query for _, r in transport.requests)
    assert first == {"limit": "2", "labelSelector": "x=y"}
    assert second == {"limit": "2", "labelSelector": "x=y", "continue": "next"}


@virtual_time
async def test_list_with_expired_pages_restarts_without_limit() -> None:
    whole = list_response(widget_document("a"), widget_document("c"), version="9")
    transport = ScriptedTransport(
        [
            list_response(widget_document("a"), widget_document("b"), more="next"),
            error_response(410, "Expired"),
            whole,
        ]
    )
    found = await client(transport).list(Widget)
    assert ([b.metadata.name for b in found.items], found.resource_version) == (["a", "c"], "9")
    assert transport.requests[-1][1].query == {}


@virtual_time
async def test_list_with_expired_version_raises_expired() -> None:
    transport = ScriptedTransport([error_response(410, "Expired")])
    with pytest.raises(Expired):
        await client(transport).list(Widget, resource_version="3", resource_version_match="Exact")
    assert transport.requests[0][1].query == {"limit": "500", "resourceVersion": "3", "resourceVersionMatch": "Exact"}


@virtual_time
async def test_pages_are_requested_lazily() -> None:
    transport = ScriptedTransport(
        [
            list_response(widget_document("a"), widget_document("b"), version="7", more="next"),
            list_response(widget_document("c"), version="7"),
            list_response(more="x"),
        ]
    )
    pages = client(transport).pages(Widget, page_size=2, resource_version="5", resource_version_match="NotOlderThan")
    first = await anext(pages)
    assert ([b.metadata.name for b in first.items], first.resource_version) == (["a", "b"], "7")
    assert first.sizes == tuple(len(json.dumps(widget_document(n))) for n in "ab")
    assert len(transport.requests) == 1
    assert [len(p.items) async for p in pages] == [1]
    # The token contains the resourceVersion. The API server rejects a request with both.
    assert transport.requests[1][1].query == {"limit": "2", "continue": "next"}


@virtual_time
async def test_pages_with_expired_token_raises_expired() -> None:
    transport = ScriptedTransport([list_response(widget_document("a"), more="next"), error_response(410, "Expired")])
    with pytest.raises(Expired):
        assert [p async for p in client(transport).pages(Widget)] == []


@virtual_time
async def test_list_with_null_items_is_empty() -> None:
    transport = ScriptedTransport([json_response({"metadata": {"resourceVersion": "3"}, "items": None})])
    assert (await client(transport).list(Widget)).items == ()


@virtual_time
async def test_list_skips_undecodable_object_and_reports_key() -> None:
    page = list_response(widget_document("a"), widget_document("b", depth="deep"), widget_document("c"))
    skipped: list[ObjectKey] = []
    transport = ScriptedTransport([page, page])
    found = await client(transport).list(Widget, on_decode_error=lambda key, _: skipped.append(key))
    assert [b.metadata.name for b in found.items] == ["a", "c"]
    assert skipped == [ObjectKey("orders", "b")]
    with pytest.raises(msgspec.ValidationError, match="depth"):
        await client(transport).list(Widget)


@virtual_time
async def test_create() -> None:
    transport = ScriptedTransport([json_response(widget_document(), 201), error_response(409, "AlreadyExists")])
    config = WidgetApply(metadata=meta.ObjectMeta(name="a", namespace="orders"), spec=WidgetSpecApply(depth=0))
    assert (await client(transport).create(config)).metadata.uid == "uid-a"
    request, body = last_request(transport)
    assert (request.method, request.path) == ("POST", "/apis/shop.example.com/v1/namespaces/orders/widgets")
    assert request.query == {"fieldManager": "tester", "fieldValidation": "Strict"}
    assert body == {
        "apiVersion": "shop.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "orders"},
        "spec": {"depth": 0},
    }
    with pytest.raises(AlreadyExists):
        await client(transport).create(config)


@virtual_time
async def test_apply_sends_set_fields_and_forces() -> None:
    transport = ScriptedTransport([json_response(widget_document())] * 2)
    config = WidgetApply(metadata=meta.ObjectMeta(name="a", namespace="orders"), spec=WidgetSpecApply(depth=1))
    await client(transport).apply(config)
    request, body = last_request(transport)
    assert (request.method, request.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert request.query == {"fieldManager": "tester", "force": "true", "fieldValidation": "Strict"}
    assert body["spec"] == {"depth": 1}  # the default of the read type, but sent because it is set
    await client(transport).apply(config, force=False)
    assert last_request(transport)[0].query["force"] == "false"


@pytest.mark.requirement("design/garbage-collection")
@virtual_time
async def test_apply_appends_owner_reference() -> None:
    transport = ScriptedTransport([json_response(widget_document())])
    other = meta.OwnerReference(api_version="v1", kind="Node", name="n", uid="u")
    config = WidgetApply(
        metadata=meta.ObjectMeta(name="a", namespace="orders", owner_references=[other]),
        spec=WidgetSpecApply(depth=1),
    )
    await client(transport).apply(config, owner=widget("mother"))
    assert last_request(transport)[1]["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"},
        {
            "apiVersion": "shop.example.com/v1",
            "kind": "Widget",
            "name": "mother",
            "uid": "uid-mother",
            "controller": True,
            "blockOwnerDeletion": True,
        },
    ]


@virtual_time
async def test_create_adds_the_owner() -> None:
    transport = ScriptedTransport([json_response(widget_document())])
    made = Widget(metadata=ObjectMeta(name="a", namespace="orders"), spec=WidgetSpec())
    await client(transport).create(made, owner=widget("mother"))
    (reference,) = last_request(transport)[1]["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("uid-mother", True)


@virtual_time
async def test_create_with_owner_in_other_namespace_raises() -> None:
    config = WidgetApply(metadata=meta.ObjectMeta(name="a", namespace="lake"), spec=WidgetSpecApply(depth=1))
    with pytest.raises(ValueError, match="orders/mother cannot own lake/a"):
        await client(ScriptedTransport()).apply(config, owner=widget("mother"))


@virtual_time
async def test_apply_without_namespace_raises_value_error() -> None:
    typed = WidgetApply(metadata=meta.ObjectMeta(name="a"), spec=WidgetSpecApply(depth=1))
    untyped = unstructured(Widget.api_resource).of({"metadata": {"name": "a"}})
    for config in (typed, untyped):
        with pytest.raises(ValueError, match=r"Widget a has no namespace: set metadata\.namespace"):
            await client(ScriptedTransport()).apply(config)


@virtual_time
async def test_apply_of_read_type_raises_type_error() -> None:
    read: Any = widget()
    with pytest.raises(TypeError, match="not the read type Widget: "):
        await client(ScriptedTransport()).apply(read)


@virtual_time
async def test_apply_status_sends_defaults() -> None:
    transport = ScriptedTransport([json_response(widget_document())])
    condition = Condition(type="Ready", status="True", reason="Afloat")
    await client(transport).apply_status(widget(), WidgetStatus(depth=0, conditions=(condition,)))
    request, body = last_request(transport)
    assert request.path.endswith("/widgets/a/status")
    assert body == {
        "apiVersion": "shop.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "orders"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "Afloat", "message": ""}],
            "depth": 0,
            "note": "",
        },
    }


@virtual_time
async def test_patch_sends_its_content_type() -> None:
    transport = ScriptedTransport(
        [json_response(widget_document()), json_response(widget_document()), error_response(409, "Conflict")]
    )
    await client(transport).patch(Widget, KEY, MergePatch({"spec": {"depth": None}}), subresource="scale")
    request, body = last_request(transport)
    assert (request.content_type, request.path) == (
        "application/merge-patch+json",
        Widget.api_resource.path(KEY) + "/scale",
    )
    assert body == {"spec": {"depth": None}}
    await client(transport).patch(Widget, KEY, JsonPatch([{"op": "remove", "path": "/spec/depth"}]))
    request, body = last_request(transport)
    assert request.content_type == "application/json-patch+json"
    assert body == [{"op": "remove", "path": "/spec/depth"}]
    with pytest.raises(Conflict):
        await client(transport).patch(Widget, KEY, MergePatch({}))


@virtual_time
async def test_delete_carries_preconditions() -> None:
    transport = ScriptedTransport([json_response({"kind": "Status"})] * 2)
    await client(transport).delete(Widget, KEY, uid="u", resource_version="5", propagation="Foreground")
    request, body = last_request(transport)
    assert request.method == "DELETE"
    assert body == {"propagationPolicy": "Foreground", "preconditions": {"uid": "u", "resourceVersion": "5"}}
    await client(transport).delete(Widget, KEY)
    assert last_request(transport)[1] == {"propagationPolicy": "Background"}


@virtual_time
async def test_delete_with_empty_name_is_rejected() -> None:
    transport = ScriptedTransport()
    with pytest.raises(ValueError, match="not a valid name"):
        await client(transport).delete(Widget, ObjectKey("orders", ""))
    assert transport.requests == []


async def collect_events(
    transport: ScriptedTransport, on_decode_error: DecodeErrorHandler | None = None, **arguments: Any
) -> list[WatchEvent[Widget]]:
    stream = client(transport).watch(Widget, resource_version="5", on_decode_error=on_decode_error, **arguments)
    return [e async for e in stream]


@pytest.mark.requirement("programming/stream")
@virtual_time
async def test_watch() -> None:
    lines = [
        watch_line("ADDED", widget_document("a", 6)),
        watch_line("MODIFIED", widget_document("a", 7, depth=2)),
        bookmark_line("8"),
        watch_line("TELEGRAM", {}),
        watch_line("DELETED", widget_document("a", 9)),
    ]
    transport = ScriptedTransport(streams=[lines])
    events = await collect_events(transport, namespace="orders", label_selector="x", timeout=60)
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
    line = watch_line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    with pytest.raises(Expired, match="too old"):
        await collect_events(ScriptedTransport(streams=[[line]]))
    with pytest.raises(Expired, match="scripted"):
        await collect_events(ScriptedTransport(streams=[[failure(410, "Gone")]]))


@virtual_time
async def test_watch_reports_key_of_undecodable_object() -> None:
    lines = [
        watch_line("MODIFIED", widget_document("b", 6, depth="deep")),
        watch_line("DELETED", widget_document("b", 7, depth="deep")),
    ]
    skipped: list[ObjectKey] = []
    events = await collect_events(
        ScriptedTransport(streams=[lines]), on_decode_error=lambda key, _: skipped.append(key)
    )
    key, size = ObjectKey("orders", "b"), len(json.dumps(widget_document("b", 6, depth="deep")))
    assert events == [
        WatchEvent("MODIFIED", None, key, "6", "uid-b", size),
        WatchEvent("DELETED", None, key, "7", "uid-b", size),
    ]
    assert skipped == [key, key]
    with pytest.raises(msgspec.ValidationError):
        await collect_events(ScriptedTransport(streams=[lines]))


@virtual_time
async def test_watch_is_closed_after_break() -> None:
    transport = ScriptedTransport(streams=[[watch_line("ADDED", widget_document("a", 6)), 1e6]])
    stream = client(transport).watch(Widget, resource_version="5")
    await anext(stream)
    assert transport.open_streams == 1
    await stream.aclose()
    assert transport.open_streams == 0


@virtual_time
async def test_watch_skip_callback_prevents_decoding() -> None:
    lines = [
        watch_line(kind, widget_document("a", n, depth="deep"))
        for n, kind in enumerate(("ADDED", "MODIFIED", "DELETED"), 5)
    ]
    asked: list[Any] = []

    def skip(raw: bytes | msgspec.Raw) -> bool:
        asked.append(msgspec.json.decode(raw)["metadata"]["resourceVersion"])
        return True

    events = await collect_events(ScriptedTransport(streams=[lines[:2]]), skip_decode=skip)
    assert asked == ["5", "6"]
    assert [(e.type, e.object, e.key, e.uid, e.resource_version) for e in events] == [
        ("ADDED", None, KEY, "uid-a", "5"),
        ("MODIFIED", None, KEY, "uid-a", "6"),
    ]
    with pytest.raises(msgspec.ValidationError):
        await collect_events(ScriptedTransport(streams=[lines[2:]]), skip_decode=skip)


@virtual_time
async def test_streaming_list_initial_events_end_with_bookmark() -> None:
    end = {"metadata": {"resourceVersion": "8", "annotations": {"k8s.io/initial-events-end": "true"}}}
    lines = [
        watch_line("ADDED", widget_document("a", 6)),
        bookmark_line("7"),
        watch_line("BOOKMARK", end),
        watch_line("MODIFIED", widget_document("a", 9)),
    ]
    transport = ScriptedTransport(streams=[lines], streams_lists=True)
    stream = client(transport).watch(Widget, send_initial_events=True)
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
async def test_watch_lines_are_parsed_with_any_whitespace(compact: bool) -> None:
    separators = (",", ":") if compact else None
    document = {"type": "ADDED", "object": widget_document("a", 6, depth=4)}
    line = json.dumps(document, separators=separators).encode()
    (read,) = await collect_events(ScriptedTransport(streams=[[line]]))
    assert read.object is not None
    assert (read.object.spec.depth, read.uid) == (4, "uid-a")
    assert read.size == len(json.dumps(document["object"], separators=separators))


@virtual_time
@pytest.mark.parametrize("kept", [5, 30, 60, -1, -2])
async def test_truncated_watch_line_raises_connection_error(kept: int) -> None:
    line = b'{"type":"ADDED","object":' + json.dumps(widget_document("a", 6)).encode() + b"}"
    with pytest.raises(ConnectionFailed, match="incomplete line"):
        await collect_events(ScriptedTransport(streams=[[line[:kept]]]))


def test_encode_omits_defaults_of_read_object() -> None:
    obj = Widget(metadata=ObjectMeta(name="a", labels=FrozenDict({"x": "y"})), spec=widget().spec)
    assert msgspec.to_builtins(obj) == {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {}}


@virtual_time
async def test_logs_are_streamed_by_line() -> None:
    transport = ScriptedTransport(streams=[[b"one", b"", b"caf\xc3\xa9 \xff"], []])
    options: dict[str, Any] = {"follow": True, "tail_lines": 0, "since_seconds": 60, "timestamps": True}
    lines = [line async for line in client(transport).logs(KEY, container="main", previous=True, **options)]
    assert lines == ["one", "", "café \ufffd"]
    request = transport.requests[0][1]
    assert request.path == "/api/v1/namespaces/orders/pods/a/log"
    assert request.query == {
        "container": "main",
        "follow": "true",
        "previous": "true",
        "tailLines": "0",
        "sinceSeconds": "60",
        "timestamps": "true",
    }
    # A pod may write no logs for an hour. The connection must not time out.
    assert request.timeout > 3600
    assert [line async for line in client(transport).logs(KEY)] == []
    assert transport.requests[1][1].query == {}


@virtual_time
async def test_log_stream_is_closed_after_break() -> None:
    transport = ScriptedTransport(streams=[[b"one", 1e6]])
    lines = client(transport).logs(KEY, follow=True)
    await anext(lines)
    assert transport.open_streams == 1
    await lines.aclose()
    assert transport.open_streams == 0


@virtual_time
async def test_options_of_a_deletion() -> None:
    transport = ScriptedTransport([json_response({"kind": "Status"})] * 2)
    await client(transport).delete(Widget, KEY, grace_period_seconds=0, dry_run=True)
    request, body = last_request(transport)
    assert body == {"propagationPolicy": "Background", "gracePeriodSeconds": 0, "dryRun": ["All"]}
    assert request.query == {"dryRun": "All"}
    await client(transport).delete_collection(Widget, namespace="orders", field_selector="metadata.name=a")
    request, body = last_request(transport)
    assert (request.path, request.query) == (
        "/apis/shop.example.com/v1/namespaces/orders/widgets",
        {"fieldSelector": "metadata.name=a"},
    )
    assert body == {"propagationPolicy": "Background"}
