"""What the reflector does about servers that stream lists, fall silent, lag behind, or go back in time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from framework_support.buoy import Buoy, wire
from framework_support.reflecting import asked, names, reflecting
from framework_support.scripted_transport import ScriptedTransport, answer, bookmark, event, failure, listed, refusal
from steersman.cache import Change, Informer, ReflectorState
from steersman.cache.options import Scope
from steersman.client import Client
from steersman.client.http import error_from_body
from steersman.errors import ApiError, ConnectionFailed
from steersman.observability.metrics import registry
from steersman_testing.virtual_clock import virtual_runtime, virtual_time

LOST = ConnectionFailed("scripted loss")


def initial_end(version: str) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": annotations}})


def sample(name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


# Streaming lists


@virtual_time
async def test_a_streamed_list_goes_over_into_the_watch() -> None:
    lines = [
        event("ADDED", wire("a", 3)),
        event("ADDED", wire("b", 4)),
        initial_end("5"),
        event("MODIFIED", wire("a", 6)),
    ]
    transport = ScriptedTransport([], [[*lines, 100.0, LOST], [100.0]], streams_lists=True)
    async with reflecting(transport) as informer:
        changes: list[Change[Buoy]] = []
        informer.subscribe(changes.append)
        await informer.wait_for_sync()
        await asyncio.sleep(1)
        assert names(informer) == {"a": "6", "b": "4"}
        assert [c.initial for c in changes] == [True, True, False]
        assert informer.reflectors[0].state is ReflectorState.WATCHING
        await asyncio.sleep(110)
    assert asked(transport) == ["", "6"]
    first = transport.requests[0][1].query
    assert (first["sendInitialEvents"], first["resourceVersionMatch"]) == ("true", "NotOlderThan")


@virtual_time
async def test_what_is_missing_from_a_streamed_list_is_gone() -> None:
    transport = ScriptedTransport(
        [],
        [
            [event("ADDED", wire("a", 3)), event("ADDED", wire("b", 4)), initial_end("5"), failure(410, "Expired")],
            [event("ADDED", wire("b", 4)), initial_end("9"), 100.0],
        ],
        streams_lists=True,
    )
    async with reflecting(transport) as informer:
        await asyncio.sleep(10)
        assert names(informer) == {"b": "4"}


@pytest.mark.parametrize(
    "answer",
    [
        [event("ADDED", wire("a", 3)), bookmark("5"), 600.0],
        [event("ADDED", wire("a", 3)), 600.0],
        [failure(400, "BadRequest")],
    ],
    ids=["an ordinary bookmark", "no end", "refused"],
)
@virtual_time
async def test_a_server_that_does_not_stream_lists_is_listed_by_pages(answer: list[Any]) -> None:
    pages = [listed(wire("a", 3), version="5", more="token"), listed(wire("b", 4), version="5")]
    transport = ScriptedTransport(pages, [answer, [100.0]], streams_lists=True)
    async with reflecting(transport) as informer:
        async with asyncio.timeout(70):
            await informer.wait_for_sync()
        assert names(informer) == {"a": "3", "b": "4"}
    assert asked(transport) == ["", "list", "list", "5"]


@virtual_time
async def test_a_list_whose_pages_expire_is_read_in_one_piece() -> None:
    pages = [listed(wire("a", 3), version="5", more="token"), refusal(410, "Expired"), listed(version="9")]
    transport = ScriptedTransport(pages)
    async with reflecting(transport) as informer:
        await informer.wait_for_sync()
        assert names(informer) == {}
    assert [r.query.get("limit") for _, r in transport.requests[:3]] == ["500", "500", None]


# Silence


@virtual_time
async def test_a_watch_that_falls_silent_is_begun_anew_from_where_it_was() -> None:
    transport = ScriptedTransport(
        [listed(version="5"), listed(wire("a", 7), version="8")],
        [[event("ADDED", wire("a", 7)), 1e6], [event("MODIFIED", wire("a", 9)), 100.0]],
    )
    before = sample("steersman_watch_restarts_total", kind="Buoy", cause="Silent")
    with capture_logs() as logs:
        async with reflecting(transport) as informer:
            await asyncio.sleep(170)
            assert names(informer) == {"a": "9"}
    assert asked(transport) == ["list", "5", "list", "7"]
    assert transport.requests[2][1].query["limit"] == "1"
    assert sample("steersman_watch_restarts_total", kind="Buoy", cause="Silent") == before + 1
    assert [entry for entry in logs if entry["log_level"] != "debug"] == []


@virtual_time
async def test_bookmarks_keep_a_quiet_watch() -> None:
    transport = ScriptedTransport([listed(version="5")], [[*[60.0, bookmark("6")] * 20]])
    async with reflecting(transport):
        await asyncio.sleep(1000)
    assert asked(transport) == ["list", "5"]


@virtual_time
async def test_a_watch_from_a_future_that_never_comes_ends_in_a_list() -> None:
    """etcd was restored to version 4 while the watch stood at 9: such a watch is silent for ever."""
    transport = ScriptedTransport(
        [
            listed(wire("a", 9), wire("b", 3), version="9"),
            listed(version="4"),
            *[listed(wire("a", 2), version="4")] * 2,
        ],
        [[1e6], [event("MODIFIED", wire("a", 5)), 100.0]],
    )
    before = sample("steersman_cache_rollbacks_total", kind="Buoy")
    with capture_logs() as logs:
        async with reflecting(transport) as informer:
            changes: list[Change[Buoy]] = []
            await informer.wait_for_sync()
            informer.subscribe(changes.append)
            await asyncio.sleep(160)
            assert names(informer) == {"a": "5"}
    assert asked(transport) == ["list", "9", "list", "list", "list", "4"]
    assert sample("steersman_cache_rollbacks_total", kind="Buoy") == before + 1
    assert "restored" in next(entry["event"] for entry in logs if entry["log_level"] == "error")
    assert [(c.old and c.old.metadata.name, c.new and c.new.metadata.resource_version) for c in changes[2:]] == [
        ("a", "2"),
        ("b", None),
        ("a", "5"),
    ]


@pytest.mark.parametrize("line", [event("MODIFIED", wire("a", 4)), bookmark("4"), event("DELETED", wire("a", 4))])
@virtual_time
async def test_news_from_before_is_answered_by_a_list(line: bytes) -> None:
    transport = ScriptedTransport(
        [listed(wire("a", 3), version="5"), listed(wire("a", 6), version="7")], [[line, 600.0], [100.0]]
    )
    async with reflecting(transport) as informer:
        await asyncio.sleep(2)
        assert names(informer) == {"a": "6"}
    assert asked(transport) == ["list", "5", "list", "7"]


# Servers that are behind, or overloaded


def too_large() -> ApiError:
    document = {
        "reason": "Timeout",
        "code": 504,
        "message": "Too large resource version: 9, current: 5",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1},
    }
    return error_from_body(504, answer(document).body, None)


@virtual_time
async def test_a_server_that_is_behind_is_waited_for_and_then_believed() -> None:
    transport = ScriptedTransport(
        [listed(version="9"), listed(wire("a", 10), version="12")], [*[[too_large()] for _ in range(5)], [100.0]]
    )
    async with reflecting(transport) as informer:
        await asyncio.sleep(60)
        assert names(informer) == {"a": "10"}
    assert asked(transport) == ["list", *["9"] * 5, "list", "12"]


@pytest.mark.parametrize("code", [401, 403, 429, 503])
@virtual_time
async def test_a_storm_is_ridden_out_without_listing_again(code: int) -> None:
    refusals = [[failure(code, "", retry_after=1)] for _ in range(10)]
    transport = ScriptedTransport([listed(version="5")], [*refusals, [event("ADDED", wire("a", 6)), 600.0]])
    with capture_logs() as logs:
        async with reflecting(transport) as informer:
            await asyncio.sleep(250)
            assert names(informer) == {"a": "6"}
    assert asked(transport) == ["list", *["5"] * 11]
    assert [(e["event"], e["log_level"]) for e in logs] == [
        ("watch interrupted", "warning"),
        ("watch goes on", "info"),
    ]


@virtual_time
async def test_a_quiet_watch_that_lasts_is_a_recovery() -> None:
    transport = ScriptedTransport([listed(version="5")], [[LOST], [0.5, LOST], [100.0]])
    with capture_logs() as logs:
        async with reflecting(transport) as informer:
            await asyncio.sleep(5)
            assert informer.reflectors[0].last_error is None
    assert [e["event"] for e in logs] == ["watch interrupted", "watch goes on"]


@virtual_time
async def test_an_outage_of_many_watches_is_one_line_and_a_reminder_now_and_then() -> None:
    transport = ScriptedTransport([LOST] * 1000)
    scopes = tuple(Scope(f"sea-{n}") for n in range(20))
    informer = Informer(Client(transport), Buoy, runtime=virtual_runtime(), scopes=scopes)
    with capture_logs() as logs:
        tasks = [asyncio.create_task(r.run()) for r in informer.reflectors]
        await asyncio.sleep(610)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [e["event"] for e in logs] == ["watch interrupted"] * 3


@virtual_time
async def test_of_many_unreadable_objects_some_are_named_and_all_are_counted() -> None:
    bad = [wire(f"bad-{n}", 4, depth="deep") for n in range(100)]
    transport = ScriptedTransport([listed(*bad, wire("good", 4), version="5")], [[600.0]])
    before = sample("steersman_decode_errors_total", kind="Buoy")
    with capture_logs() as logs:
        async with reflecting(transport) as informer:
            await asyncio.sleep(1)
            assert names(informer) == {"good": "4"}
    assert sample("steersman_decode_errors_total", kind="Buoy") == before + 100
    assert len(logs) == 6
    assert logs[-1]["objects"] == 95


@virtual_time
async def test_an_object_that_became_unreadable_is_not_taken_for_deleted() -> None:
    transport = ScriptedTransport(
        [listed(wire("a", 3), version="5"), listed(wire("a", 7, depth="deep"), version="8")], [[failure(410, "Gone")]]
    )
    async with reflecting(transport) as informer:
        changes: list[Change[Buoy]] = []
        await informer.wait_for_sync()
        informer.subscribe(changes.append)
        await asyncio.sleep(10)
        assert names(informer) == {"a": "3"}
        assert len(changes) == 1


@virtual_time
async def test_a_list_can_be_asked_for() -> None:
    transport = ScriptedTransport([listed(version="5"), listed(wire("a", 6), version="7")])
    async with reflecting(transport) as informer:
        await asyncio.sleep(1)
        informer.reflectors[0].relist()
        await asyncio.sleep(0.1)
        assert names(informer) == {"a": "6"}
    assert asked(transport) == ["list", "5", "list", "7"]


@virtual_time
async def test_a_list_can_be_asked_for_of_a_reflector_that_waits_for_its_turn() -> None:
    transport = ScriptedTransport([listed(version="5"), listed(wire("a", 6), version="7")], [[10.0]])
    async with reflecting(transport) as informer:
        turns = informer.reflectors[0]._turns  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(1)
        async with AsyncExitStack() as others:
            while not turns.locked():
                await others.enter_async_context(turns)
            await asyncio.sleep(10)
            informer.reflectors[0].relist()
        await asyncio.sleep(0.1)
        assert names(informer) == {"a": "6"}
    assert asked(transport) == ["list", "5", "list", "7"]
