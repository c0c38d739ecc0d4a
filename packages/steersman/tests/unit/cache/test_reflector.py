"""List and watch as a state machine: each recovery, in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from framework_support.informers import reflector_of, requested_versions, running_reflector, versions_by_name
from framework_support.transports import (
    ScriptedTransport,
    bookmark_line,
    error_response,
    failure,
    list_response,
    watch_line,
)
from framework_support.widget import Widget, widget_document
from steersman.cache import Informer, ReflectorState
from steersman.client import Client
from steersman.errors import ConnectionFailed
from steersman_testing.virtual_clock import virtual_runtime, virtual_time

CONNECTION_LOST = ConnectionFailed("scripted loss")


def request_intervals(transport: ScriptedTransport) -> list[float]:
    times = [moment for moment, _ in transport.requests]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.mark.requirement("programming/watch", "programming/stream")
@virtual_time
async def test_list_then_watch_from_its_version() -> None:
    transport = ScriptedTransport(
        [list_response(widget_document("a", 3), version="5")],
        [
            [
                watch_line("ADDED", widget_document("b", 6)),
                watch_line("MODIFIED", widget_document("a", 7)),
                watch_line("DELETED", widget_document("b", 8)),
                bookmark_line("20"),
                600.0,
            ]
        ],
    )
    async with running_reflector(transport) as informer:
        await informer.wait_for_sync()
        await asyncio.sleep(1)
        assert versions_by_name(informer) == {"a": "7"}
        reflector = reflector_of(informer)
        assert (reflector.state, reflector.resource_version) == (ReflectorState.WATCHING, "20")
    assert requested_versions(transport) == ["list", "5"]
    assert all(r.query["labelSelector"] == "x=y" for _, r in transport.requests)
    assert transport.open_streams == 0


@virtual_time
async def test_watch_ended_by_server_resumes_from_last_version() -> None:
    transport = ScriptedTransport(
        [list_response(version="5")],
        [[watch_line("ADDED", widget_document("a", 6)), 100.0], [120.0], [bookmark_line("9")]],
    )
    async with running_reflector(transport) as informer:
        await asyncio.sleep(300)
        assert versions_by_name(informer) == {"a": "6"}
    assert requested_versions(transport) == ["list", "5", "6", "6", "9"]
    assert request_intervals(transport)[1:] == pytest.approx([100, 120, 0])


@virtual_time
async def test_watch_ending_at_once_backs_off() -> None:
    transport = ScriptedTransport([list_response(version="5")], [[] for _ in range(50)])
    async with running_reflector(transport):
        await asyncio.sleep(60)
    assert 3 < len(transport.requests) < 12


@virtual_time
async def test_watch_resumes_after_lost_connection() -> None:
    transport = ScriptedTransport(
        [list_response(version="5")],
        [
            [watch_line("ADDED", widget_document("a", 6)), CONNECTION_LOST],
            [watch_line("ADDED", widget_document("b", 7)), 600.0],
        ],
    )
    async with running_reflector(transport) as informer:
        await asyncio.sleep(10)
        assert versions_by_name(informer) == {"a": "6", "b": "7"}
    assert requested_versions(transport) == ["list", "5", "6"]


@pytest.mark.parametrize(
    "refused",
    [failure(410, "Expired"), failure(410, "Gone"), failure(504, "Timeout"), failure(500, "InternalError")],
)
@virtual_time
async def test_watch_with_rejected_version_relists(refused: Exception) -> None:
    transport = ScriptedTransport(
        [list_response(widget_document("a", 3), version="5"), list_response(widget_document("b", 8), version="9")],
        [[refused]],
    )
    async with running_reflector(transport) as informer:
        await asyncio.sleep(10)
        assert versions_by_name(informer) == {"b": "8"}
    assert requested_versions(transport) == ["list", "5", "list", "9"]


@virtual_time
async def test_watch_version_expiring_in_stream_relists() -> None:
    gone = watch_line("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    transport = ScriptedTransport(
        [list_response(version="5"), list_response(version="9")], [[bookmark_line("6"), gone]]
    )
    async with running_reflector(transport):
        await asyncio.sleep(10)
    assert requested_versions(transport) == ["list", "5", "list", "9"]


@virtual_time
async def test_back_off_grows_to_30_s_and_resets_after_event() -> None:
    failures = [[CONNECTION_LOST] for _ in range(10)]
    transport = ScriptedTransport(
        [list_response(version="5")], [*failures, [bookmark_line("6"), CONNECTION_LOST], [600.0]]
    )
    async with running_reflector(transport):
        await asyncio.sleep(250)
    grown = request_intervals(transport)[1:]
    assert len(grown) == 11
    for number, pause in enumerate(grown[:10]):
        longest = min(0.8 * 2**number, 30.0)
        assert longest / 2 <= pause <= longest
    assert grown[10] <= 0.8


@virtual_time
async def test_pauses_stay_short_while_connections_are_refused() -> None:
    refused = ConnectionFailed("refused", sent=False)
    transport = ScriptedTransport(
        [list_response(version="5")], [*([refused] for _ in range(20)), [bookmark_line("6"), 600.0]]
    )
    async with running_reflector(transport):
        await asyncio.sleep(250)
    assert requested_versions(transport)[:22] == ["list", *["5"] * 21]
    assert max(request_intervals(transport)[:21]) <= 6.4


@virtual_time
async def test_back_off_grows_when_watches_keep_expiring() -> None:
    transport = ScriptedTransport([list_response(version="5")] * 100, [[failure(410, "Expired")] for _ in range(100)])
    async with running_reflector(transport):
        await asyncio.sleep(300)
    assert requested_versions(transport).count("list") < 20


@virtual_time
async def test_reflector_honours_retry_after() -> None:
    transport = ScriptedTransport(
        [error_response(429, "TooManyRequests", retry_after=17), list_response(version="5")],
        [[failure(503, "ServiceUnavailable", retry_after=90)]],
    )
    async with running_reflector(transport):
        await asyncio.sleep(200)
    assert [round(p) for p in request_intervals(transport)] == [17, 0, 90]


@virtual_time
async def test_watch_waits_for_restarting_server() -> None:
    transport = ScriptedTransport(
        [
            CONNECTION_LOST,
            error_response(503, "ServiceUnavailable"),
            error_response(403, "Forbidden"),
            list_response(widget_document("a", 1), version="2"),
        ]
    )
    async with running_reflector(transport) as informer:
        await informer.wait_for_sync()
        assert versions_by_name(informer) == {"a": "1"}
        assert reflector_of(informer).last_error is None


@virtual_time
async def test_reflector_exposes_state_and_last_error() -> None:
    transport = ScriptedTransport([error_response(403, "Forbidden")])
    async with running_reflector(transport) as informer:
        await asyncio.sleep(0.1)
        reflector = reflector_of(informer)
        assert reflector.state is ReflectorState.BACKING_OFF
        assert str(reflector.last_error) == "scripted Forbidden"


@virtual_time
async def test_undecodable_watch_event_is_skipped_and_named() -> None:
    lines = [
        watch_line("ADDED", widget_document("bad", 6, depth="deep")),
        watch_line("ADDED", widget_document("b", 7)),
        600.0,
    ]
    transport = ScriptedTransport(
        [list_response(widget_document("a", 3), widget_document("worse", 4, depth={}), version="5")], [lines]
    )
    with capture_logs() as logs:
        async with running_reflector(transport) as informer:
            await asyncio.sleep(1)
            assert versions_by_name(informer) == {"a": "3", "b": "7"}
            assert reflector_of(informer).resource_version == "7"
    assert [entry["object"] for entry in logs] == ["orders/worse", "orders/bad"]
    assert "depth" in logs[0]["error"]
    assert requested_versions(transport) == ["list", "5"]


@virtual_time
async def test_undecodable_object_is_still_deleted() -> None:
    lines = [
        watch_line("MODIFIED", widget_document("a", 6, depth="deep")),
        watch_line("DELETED", widget_document("a", 7, depth="deep")),
        600.0,
    ]
    transport = ScriptedTransport([list_response(widget_document("a", 3), version="5")], [lines])
    async with running_reflector(transport) as informer:
        await asyncio.sleep(1)
        assert versions_by_name(informer) == {}


@virtual_time
async def test_watch_line_without_json_breaks_the_stream() -> None:
    transport = ScriptedTransport(
        [list_response(version="5")], [[watch_line("ADDED", widget_document("a", 6)), b"<html>"], [600.0]]
    )
    async with running_reflector(transport) as informer:
        await asyncio.sleep(10)
        assert versions_by_name(informer) == {"a": "6"}
    assert requested_versions(transport) == ["list", "5", "6"]


@virtual_time
async def test_reflector_survives_unexpected_errors() -> None:
    transport = ScriptedTransport(
        [RuntimeError("a bug"), list_response(widget_document("a", 3), version="5")], [[KeyError("another")], [600.0]]
    )
    with capture_logs() as logs:
        async with running_reflector(transport) as informer:
            await asyncio.sleep(30)
            assert versions_by_name(informer) == {"a": "3"}
    failures = [entry["exc_info"] for entry in logs if entry["log_level"] == "warning"]
    assert [type(error) for error in failures] == [RuntimeError, KeyError]


@virtual_time
async def test_cancelled_reflector_closes_its_stream() -> None:
    transport = ScriptedTransport([list_response(version="5")])
    informer = Informer(Client(transport), Widget, runtime=virtual_runtime())
    task = asyncio.create_task(reflector_of(informer).run())
    await asyncio.sleep(1)
    assert transport.open_streams == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert transport.open_streams == 0


@virtual_time
async def test_watches_of_several_kinds_do_not_end_together() -> None:
    limits: set[str] = set()
    for seed in range(20):
        transport = ScriptedTransport([list_response(version="5")])
        informer = Informer(Client(transport), Widget, runtime=virtual_runtime(seed))
        reflector = reflector_of(informer)
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(1)
        task.cancel()
        limits.add(transport.requests[-1][1].query["timeoutSeconds"])
    assert len(limits) > 10
    assert all(300 <= int(limit) <= 600 for limit in limits)
