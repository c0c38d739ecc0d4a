"""List and watch as a state machine: each recovery, in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from framework_support.buoy import Buoy, wire
from framework_support.reflecting import asked, names, reflecting, reflector_of
from framework_support.scripted_transport import ScriptedTransport, bookmark, event, failure, listed, refusal
from steersman.cache import Informer, ReflectorState
from steersman.client import Client
from steersman.errors import ConnectionFailed
from steersman_testing.virtual_clock import virtual_runtime, virtual_time

LOST = ConnectionFailed("scripted loss")


def pauses(transport: ScriptedTransport) -> list[float]:
    times = [moment for moment, _ in transport.requests]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@virtual_time
async def test_list_then_watch_from_its_version() -> None:
    transport = ScriptedTransport(
        [listed(wire("a", 3), version="5")],
        [
            [
                event("ADDED", wire("b", 6)),
                event("MODIFIED", wire("a", 7)),
                event("DELETED", wire("b", 8)),
                bookmark("20"),
                600.0,
            ]
        ],
    )
    async with reflecting(transport) as informer:
        await informer.wait_for_sync()
        await asyncio.sleep(1)
        assert names(informer) == {"a": "7"}
        reflector = reflector_of(informer)
        assert (reflector.state, reflector.resource_version) == (ReflectorState.WATCHING, "20")
    assert asked(transport) == ["list", "5"]
    assert all(r.query["labelSelector"] == "x=y" for _, r in transport.requests)
    assert transport.open_streams == 0


@virtual_time
async def test_a_watch_that_the_server_ends_goes_on_from_where_it_was() -> None:
    transport = ScriptedTransport(
        [listed(version="5")], [[event("ADDED", wire("a", 6)), 100.0], [120.0], [bookmark("9")]]
    )
    async with reflecting(transport) as informer:
        await asyncio.sleep(300)
        assert names(informer) == {"a": "6"}
    assert asked(transport) == ["list", "5", "6", "6", "9"]
    assert pauses(transport)[1:] == pytest.approx([100, 120, 0])


@virtual_time
async def test_a_watch_that_ends_at_once_is_not_begun_again_at_once() -> None:
    transport = ScriptedTransport([listed(version="5")], [[] for _ in range(50)])
    async with reflecting(transport):
        await asyncio.sleep(60)
    assert 3 < len(transport.requests) < 12


@virtual_time
async def test_a_lost_connection_resumes_from_the_last_version() -> None:
    transport = ScriptedTransport(
        [listed(version="5")], [[event("ADDED", wire("a", 6)), LOST], [event("ADDED", wire("b", 7)), 600.0]]
    )
    async with reflecting(transport) as informer:
        await asyncio.sleep(10)
        assert names(informer) == {"a": "6", "b": "7"}
    assert asked(transport) == ["list", "5", "6"]


@pytest.mark.parametrize(
    "refused",
    [failure(410, "Expired"), failure(410, "Gone"), failure(504, "Timeout"), failure(500, "InternalError")],
)
@virtual_time
async def test_a_version_that_is_refused_is_listed_anew(refused: Exception) -> None:
    transport = ScriptedTransport([listed(wire("a", 3), version="5"), listed(wire("b", 8), version="9")], [[refused]])
    async with reflecting(transport) as informer:
        await asyncio.sleep(10)
        assert names(informer) == {"b": "8"}
    assert asked(transport) == ["list", "5", "list", "9"]


@virtual_time
async def test_a_version_that_expires_within_the_stream_is_listed_anew() -> None:
    gone = event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    transport = ScriptedTransport([listed(version="5"), listed(version="9")], [[bookmark("6"), gone]])
    async with reflecting(transport):
        await asyncio.sleep(10)
    assert asked(transport) == ["list", "5", "list", "9"]


@virtual_time
async def test_pauses_grow_to_half_a_minute_and_shrink_after_an_event() -> None:
    failures = [[LOST] for _ in range(10)]
    transport = ScriptedTransport([listed(version="5")], [*failures, [bookmark("6"), LOST], [600.0]])
    async with reflecting(transport):
        await asyncio.sleep(250)
    grown = pauses(transport)[1:]
    assert len(grown) == 11
    for number, pause in enumerate(grown[:10]):
        longest = min(0.8 * 2**number, 30.0)
        assert longest / 2 <= pause <= longest
    assert grown[10] <= 0.8


@virtual_time
async def test_pauses_stay_short_while_connections_are_refused() -> None:
    refused = ConnectionFailed("refused", sent=False)
    transport = ScriptedTransport([listed(version="5")], [*([refused] for _ in range(20)), [bookmark("6"), 600.0]])
    async with reflecting(transport):
        await asyncio.sleep(250)
    assert asked(transport)[:22] == ["list", *["5"] * 21]
    assert max(pauses(transport)[:21]) <= 6.4


@virtual_time
async def test_pauses_grow_too_when_lists_succeed_and_watches_expire() -> None:
    transport = ScriptedTransport([listed(version="5")] * 100, [[failure(410, "Expired")] for _ in range(100)])
    async with reflecting(transport):
        await asyncio.sleep(300)
    assert asked(transport).count("list") < 20


@virtual_time
async def test_the_server_says_when_to_come_back() -> None:
    transport = ScriptedTransport(
        [refusal(429, "TooManyRequests", retry_after=17), listed(version="5")],
        [[failure(503, "ServiceUnavailable", retry_after=90)]],
    )
    async with reflecting(transport):
        await asyncio.sleep(200)
    assert [round(p) for p in pauses(transport)] == [17, 0, 90]


@virtual_time
async def test_a_server_that_restarts_is_awaited() -> None:
    transport = ScriptedTransport(
        [LOST, refusal(503, "ServiceUnavailable"), refusal(403, "Forbidden"), listed(wire("a", 1), version="2")]
    )
    async with reflecting(transport) as informer:
        await informer.wait_for_sync()
        assert names(informer) == {"a": "1"}
        assert reflector_of(informer).last_error is None


@virtual_time
async def test_what_is_wrong_can_be_asked() -> None:
    transport = ScriptedTransport([refusal(403, "Forbidden")])
    async with reflecting(transport) as informer:
        await asyncio.sleep(0.1)
        reflector = reflector_of(informer)
        assert reflector.state is ReflectorState.BACKING_OFF
        assert str(reflector.last_error) == "scripted Forbidden"


@virtual_time
async def test_one_unreadable_object_is_named_and_skipped_and_the_stream_goes_on() -> None:
    lines = [event("ADDED", wire("bad", 6, depth="deep")), event("ADDED", wire("b", 7)), 600.0]
    transport = ScriptedTransport([listed(wire("a", 3), wire("worse", 4, depth={}), version="5")], [lines])
    with capture_logs() as logs:
        async with reflecting(transport) as informer:
            await asyncio.sleep(1)
            assert names(informer) == {"a": "3", "b": "7"}
            assert reflector_of(informer).resource_version == "7"
    assert [entry["object"] for entry in logs] == ["sea/worse", "sea/bad"]
    assert "depth" in logs[0]["error"]
    assert asked(transport) == ["list", "5"]


@virtual_time
async def test_an_object_that_became_unreadable_is_still_deleted() -> None:
    lines = [event("MODIFIED", wire("a", 6, depth="deep")), event("DELETED", wire("a", 7, depth="deep")), 600.0]
    transport = ScriptedTransport([listed(wire("a", 3), version="5")], [lines])
    async with reflecting(transport) as informer:
        await asyncio.sleep(1)
        assert names(informer) == {}


@virtual_time
async def test_a_line_that_is_no_json_is_a_broken_stream() -> None:
    transport = ScriptedTransport([listed(version="5")], [[event("ADDED", wire("a", 6)), b"<html>"], [600.0]])
    async with reflecting(transport) as informer:
        await asyncio.sleep(10)
        assert names(informer) == {"a": "6"}
    assert asked(transport) == ["list", "5", "6"]


@virtual_time
async def test_it_survives_what_nobody_thought_of() -> None:
    transport = ScriptedTransport(
        [RuntimeError("a bug"), listed(wire("a", 3), version="5")], [[KeyError("another")], [600.0]]
    )
    with capture_logs() as logs:
        async with reflecting(transport) as informer:
            await asyncio.sleep(30)
            assert names(informer) == {"a": "3"}
    failures = [entry["exc_info"] for entry in logs if entry["log_level"] == "warning"]
    assert [type(error) for error in failures] == [RuntimeError, KeyError]


@virtual_time
async def test_it_ends_by_cancellation_and_closes_its_stream() -> None:
    transport = ScriptedTransport([listed(version="5")])
    informer = Informer(Client(transport), Buoy, runtime=virtual_runtime())
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
        transport = ScriptedTransport([listed(version="5")])
        informer = Informer(Client(transport), Buoy, runtime=virtual_runtime(seed))
        reflector = reflector_of(informer)
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(1)
        task.cancel()
        limits.add(transport.requests[-1][1].query["timeoutSeconds"])
    assert len(limits) > 10
    assert all(300 <= int(limit) <= 600 for limit in limits)
