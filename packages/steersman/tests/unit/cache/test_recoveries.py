"""The reflector recovers from silent, lagging and restored servers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from framework_support.informers import requested_versions, running_reflector, versions_by_name
from framework_support.transports import (
    ScriptedTransport,
    bookmark_line,
    error_response,
    failure,
    json_response,
    list_response,
    watch_line,
)
from framework_support.widget import Widget, widget_document
from steersman.cache import Informer, InformerEvent, ReflectorState
from steersman.cache.options import WatchScope
from steersman.client import Client
from steersman.client.transport.http import error_from_body
from steersman.errors import ApiError, ConnectionFailed
from steersman.observability.metrics import registry
from steersman_testing.virtual_clock import virtual_runtime, virtual_time

CONNECTION_LOST = ConnectionFailed("scripted loss")


def initial_events_end(version: str) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"}
    return watch_line("BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": annotations}})


def sample(name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


# Streaming lists


@virtual_time
async def test_streaming_list_continues_as_watch() -> None:
    lines = [
        watch_line("ADDED", widget_document("a", 3)),
        watch_line("ADDED", widget_document("b", 4)),
        initial_events_end("5"),
        watch_line("MODIFIED", widget_document("a", 6)),
    ]
    transport = ScriptedTransport([], [[*lines, 100.0, CONNECTION_LOST], [100.0]], streams_lists=True)
    async with running_reflector(transport) as informer:
        events: list[InformerEvent[Widget]] = []
        informer.subscribe(events.append)
        await informer.wait_for_sync()
        await asyncio.sleep(1)
        assert versions_by_name(informer) == {"a": "6", "b": "4"}
        assert [c.is_initial_list for c in events] == [True, True, False]
        assert informer.reflectors[0].state is ReflectorState.WATCHING
        await asyncio.sleep(110)
    assert requested_versions(transport) == ["", "6"]
    first = transport.requests[0][1].query
    assert (first["sendInitialEvents"], first["resourceVersionMatch"]) == ("true", "NotOlderThan")


@virtual_time
async def test_streaming_list_removes_missing_objects() -> None:
    transport = ScriptedTransport(
        [],
        [
            [
                watch_line("ADDED", widget_document("a", 3)),
                watch_line("ADDED", widget_document("b", 4)),
                initial_events_end("5"),
                failure(410, "Expired"),
            ],
            [watch_line("ADDED", widget_document("b", 4)), initial_events_end("9"), 100.0],
        ],
        streams_lists=True,
    )
    async with running_reflector(transport) as informer:
        await asyncio.sleep(10)
        assert versions_by_name(informer) == {"b": "4"}


@pytest.mark.parametrize(
    "answer",
    [
        [watch_line("ADDED", widget_document("a", 3)), bookmark_line("5"), 600.0],
        [watch_line("ADDED", widget_document("a", 3)), 600.0],
        [failure(400, "BadRequest")],
    ],
    ids=["an ordinary bookmark", "no end", "refused"],
)
@virtual_time
async def test_server_without_streaming_list_is_paged(answer: list[Any]) -> None:
    pages = [
        list_response(widget_document("a", 3), version="5", more="token"),
        list_response(widget_document("b", 4), version="5"),
    ]
    transport = ScriptedTransport(pages, [answer, [100.0]], streams_lists=True)
    async with running_reflector(transport) as informer:
        async with asyncio.timeout(70):
            await informer.wait_for_sync()
        assert versions_by_name(informer) == {"a": "3", "b": "4"}
    assert requested_versions(transport) == ["", "list", "list", "5"]


@pytest.mark.parametrize(
    "end",
    [[], [2.0], [CONNECTION_LOST], [2.0, CONNECTION_LOST]],
    ids=["at once", "late", "broken", "late and broken"],
)
@virtual_time
async def test_streaming_list_that_breaks_off_is_paged(end: list[Any]) -> None:
    streams = [[watch_line("ADDED", widget_document("a", 3)), *end]] * 3
    transport = ScriptedTransport([list_response(version="5")], [*streams, [100.0]], streams_lists=True)
    async with running_reflector(transport) as informer:
        async with asyncio.timeout(30):
            await informer.wait_for_sync()
    assert requested_versions(transport) == ["", "", "", "list", "5"]


@virtual_time
async def test_list_with_expired_pages_falls_back_to_full_list() -> None:
    pages = [
        list_response(widget_document("a", 3), version="5", more="token"),
        error_response(410, "Expired"),
        list_response(version="9"),
    ]
    transport = ScriptedTransport(pages)
    async with running_reflector(transport) as informer:
        await informer.wait_for_sync()
        assert versions_by_name(informer) == {}
    assert [r.query.get("limit") for _, r in transport.requests[:3]] == ["500", "500", None]


# Silence


@virtual_time
async def test_idle_watch_restarts_from_last_version() -> None:
    transport = ScriptedTransport(
        [list_response(version="5"), list_response(widget_document("a", 7), version="8")],
        [
            [watch_line("ADDED", widget_document("a", 7)), 1e6],
            [watch_line("MODIFIED", widget_document("a", 9)), 100.0],
        ],
    )
    before = sample("steersman_watch_restarts_total", kind="Widget", cause="Silent")
    with capture_logs() as logs:
        async with running_reflector(transport) as informer:
            await asyncio.sleep(170)
            assert versions_by_name(informer) == {"a": "9"}
    assert requested_versions(transport) == ["list", "5", "list", "7"]
    assert transport.requests[2][1].query["limit"] == "1"
    assert sample("steersman_watch_restarts_total", kind="Widget", cause="Silent") == before + 1
    assert [entry for entry in logs if entry["log_level"] != "debug"] == []


@virtual_time
async def test_bookmarks_keep_a_quiet_watch() -> None:
    transport = ScriptedTransport([list_response(version="5")], [[*[60.0, bookmark_line("6")] * 20]])
    async with running_reflector(transport):
        await asyncio.sleep(1000)
    assert requested_versions(transport) == ["list", "5"]


@virtual_time
async def test_watch_from_future_version_ends_in_relist() -> None:
    """etcd was restored to version 4: the watch from 9 is silent."""
    transport = ScriptedTransport(
        [
            list_response(widget_document("a", 9), widget_document("b", 3), version="9"),
            list_response(version="4"),
            *[list_response(widget_document("a", 2), version="4")] * 2,
        ],
        [[1e6], [watch_line("MODIFIED", widget_document("a", 5)), 100.0]],
    )
    before = sample("steersman_cache_resource_version_regressions_total", kind="Widget")
    with capture_logs() as logs:
        async with running_reflector(transport) as informer:
            events: list[InformerEvent[Widget]] = []
            await informer.wait_for_sync()
            informer.subscribe(events.append)
            await asyncio.sleep(160)
            assert versions_by_name(informer) == {"a": "5"}
    assert requested_versions(transport) == ["list", "9", "list", "list", "list", "4"]
    assert sample("steersman_cache_resource_version_regressions_total", kind="Widget") == before + 1
    assert "restored" in next(entry["event"] for entry in logs if entry["log_level"] == "error")
    assert [(c.old and c.old.metadata.name, c.new and c.new.metadata.resource_version) for c in events[2:]] == [
        ("a", "2"),
        ("b", None),
        ("a", "5"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        watch_line("MODIFIED", widget_document("a", 4)),
        bookmark_line("4"),
        watch_line("DELETED", widget_document("a", 4)),
    ],
)
@virtual_time
async def test_resource_version_regression_triggers_relist(line: bytes) -> None:
    transport = ScriptedTransport(
        [list_response(widget_document("a", 3), version="5"), list_response(widget_document("a", 6), version="7")],
        [[line, 600.0], [100.0]],
    )
    async with running_reflector(transport) as informer:
        await asyncio.sleep(2)
        assert versions_by_name(informer) == {"a": "6"}
    assert requested_versions(transport) == ["list", "5", "list", "7"]


# Servers that are behind, or overloaded


def resource_version_too_large() -> ApiError:
    document = {
        "reason": "Timeout",
        "code": 504,
        "message": "Too large resource version: 9, current: 5",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1},
    }
    return error_from_body(504, json_response(document).body, None)


@virtual_time
async def test_older_server_is_awaited_then_accepted() -> None:
    transport = ScriptedTransport(
        [list_response(version="9"), list_response(widget_document("a", 10), version="12")],
        [*[[resource_version_too_large()] for _ in range(5)], [100.0]],
    )
    async with running_reflector(transport) as informer:
        await asyncio.sleep(60)
        assert versions_by_name(informer) == {"a": "10"}
    assert requested_versions(transport) == ["list", *["9"] * 5, "list", "12"]


@pytest.mark.parametrize("code", [401, 403, 429, 503])
@virtual_time
async def test_throttled_watch_resumes_without_relist(code: int) -> None:
    refusals = [[failure(code, "", retry_after=1)] for _ in range(10)]
    transport = ScriptedTransport(
        [list_response(version="5")], [*refusals, [watch_line("ADDED", widget_document("a", 6)), 600.0]]
    )
    with capture_logs() as logs:
        async with running_reflector(transport) as informer:
            await asyncio.sleep(250)
            assert versions_by_name(informer) == {"a": "6"}
    assert requested_versions(transport) == ["list", *["5"] * 11]
    assert [(e["event"], e["log_level"]) for e in logs] == [
        ("watch interrupted", "warning"),
        ("watch resumed", "info"),
    ]


@virtual_time
async def test_quiet_watch_that_stays_open_recovers() -> None:
    transport = ScriptedTransport([list_response(version="5")], [[CONNECTION_LOST], [0.5, CONNECTION_LOST], [100.0]])
    with capture_logs() as logs:
        async with running_reflector(transport) as informer:
            await asyncio.sleep(5)
            assert informer.reflectors[0].last_error is None
    assert [e["event"] for e in logs] == ["watch interrupted", "watch resumed"]


@virtual_time
async def test_watch_outage_logs_once_plus_reminders() -> None:
    transport = ScriptedTransport([CONNECTION_LOST] * 1000)
    scopes = tuple(WatchScope(f"orders-{n}") for n in range(20))
    informer = Informer(Client(transport), Widget, runtime=virtual_runtime(), scopes=scopes)
    with capture_logs() as logs:
        tasks = [asyncio.create_task(r.run()) for r in informer.reflectors]
        await asyncio.sleep(610)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [e["event"] for e in logs] == ["watch interrupted"] * 3


@virtual_time
async def test_undecodable_objects_are_counted_and_some_named() -> None:
    bad = [widget_document(f"bad-{n}", 4, depth="deep") for n in range(100)]
    transport = ScriptedTransport([list_response(*bad, widget_document("good", 4), version="5")], [[600.0]])
    before = sample("steersman_decode_errors_total", kind="Widget")
    with capture_logs() as logs:
        async with running_reflector(transport) as informer:
            await asyncio.sleep(1)
            assert versions_by_name(informer) == {"good": "4"}
    assert sample("steersman_decode_errors_total", kind="Widget") == before + 100
    assert len(logs) == 6
    assert logs[-1]["objects"] == 95


@virtual_time
async def test_object_turned_undecodable_is_not_deleted() -> None:
    transport = ScriptedTransport(
        [
            list_response(widget_document("a", 3), version="5"),
            list_response(widget_document("a", 7, depth="deep"), version="8"),
        ],
        [[failure(410, "Gone")]],
    )
    async with running_reflector(transport) as informer:
        events: list[InformerEvent[Widget]] = []
        await informer.wait_for_sync()
        informer.subscribe(events.append)
        await asyncio.sleep(10)
        assert versions_by_name(informer) == {"a": "3"}
        assert len(events) == 1


@virtual_time
async def test_relist_can_be_requested() -> None:
    transport = ScriptedTransport([list_response(version="5"), list_response(widget_document("a", 6), version="7")])
    async with running_reflector(transport) as informer:
        await asyncio.sleep(1)
        informer.reflectors[0].relist()
        await asyncio.sleep(0.1)
        assert versions_by_name(informer) == {"a": "6"}
    assert requested_versions(transport) == ["list", "5", "list", "7"]


@virtual_time
async def test_relist_can_be_requested_while_waiting_for_turn() -> None:
    transport = ScriptedTransport(
        [list_response(version="5"), list_response(widget_document("a", 6), version="7")], [[10.0]]
    )
    async with running_reflector(transport) as informer:
        semaphore = informer.reflectors[0]._semaphore  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(1)
        async with AsyncExitStack() as stack:
            while not semaphore.locked():
                await stack.enter_async_context(semaphore)
            await asyncio.sleep(10)
            informer.reflectors[0].relist()
        await asyncio.sleep(0.1)
        assert versions_by_name(informer) == {"a": "6"}
    assert requested_versions(transport) == ["list", "5", "list", "7"]
