"""Events tell a story without ever holding up who tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from framework_support.world import World
from steersman.api.core_v1 import Node
from steersman.api.events_v1 import Event
from steersman.controller import EventRecorder
from steersman.errors import ConnectionFailed
from steersman.meta import ObjectMeta
from steersman_testing import matching, virtual_time


@pytest.fixture
def world() -> World:
    world = World()
    world.make("a")
    return world


@asynccontextmanager
async def recording(recorder: EventRecorder) -> AsyncGenerator[EventRecorder, None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def events(world: World) -> tuple[Event, ...]:
    return world.server.read_all(Event)


@virtual_time
async def test_an_event_says_what_happened_to_what(world: World) -> None:
    buoy = world.buoy("a")
    async with recording(world.recorder("sea-operator/buoy", "pod-7")) as recorder:
        recorder.warning(buoy, "Sunk", "send a diver", action="Sound")
        await recorder.flush()
    (event,) = events(world)
    assert event.metadata.namespace == "sea"
    assert event.metadata.name.startswith("a.")
    assert (event.type, event.reason, event.action, event.note) == ("Warning", "Sunk", "Sound", "send a diver")
    assert (event.reporting_controller, event.reporting_instance) == ("sea-operator/buoy", "pod-7")
    about = event.regarding
    assert (about.api_version, about.kind, about.name, about.uid) == (
        "sea.example.com/v1",
        "Buoy",
        "a",
        buoy.metadata.uid,
    )
    assert event.series is None


@virtual_time
async def test_repeats_count_up_one_event(world: World) -> None:
    async with recording(world.recorder()) as recorder:
        for _ in range(4):
            recorder.normal(world.buoy("a"), "Moved", "drifting")
            await asyncio.sleep(60)
        recorder.normal(world.buoy("a"), "Moved", "drifting elsewhere")
        await recorder.flush()
    first, other = sorted(events(world), key=lambda e: len(e.note or ""))
    assert first.series is not None
    assert first.series.count == 4
    assert other.series is None


@virtual_time
async def test_a_repeat_after_a_long_time_is_a_new_event(world: World) -> None:
    async with recording(world.recorder()) as recorder:
        recorder.normal(world.buoy("a"), "Moved", "drifting")
        await asyncio.sleep(3600)
        recorder.normal(world.buoy("a"), "Moved", "drifting")
        await recorder.flush()
    assert len(events(world)) == 2


@virtual_time
async def test_an_event_that_expired_is_written_anew(world: World) -> None:
    async with recording(world.recorder()) as recorder:
        recorder.normal(world.buoy("a"), "Moved", "drifting")
        await recorder.flush()
        (expired,) = events(world)
        await world.client.delete(Event, expired.key)
        recorder.normal(world.buoy("a"), "Moved", "drifting")
        await recorder.flush()
    (renewed,) = events(world)
    assert renewed.metadata.name != expired.metadata.name


@virtual_time
async def test_telling_never_waits_and_what_is_too_much_is_logged(world: World) -> None:
    recorder = world.recorder()
    with capture_logs() as logs:
        for number in range(1005):
            recorder.normal(world.buoy("a"), "Moved", f"wave {number}")
    assert [entry["note"] for entry in logs] == [f"wave {n}" for n in range(1000, 1005)]
    async with recording(recorder):
        await recorder.flush()
    assert len(events(world)) == 1000


@pytest.mark.parametrize("failure", [403, 500, ConnectionFailed("lost")])
@virtual_time
async def test_an_event_that_cannot_be_written_is_logged_and_the_next_is_not_lost(
    world: World, failure: int | ConnectionFailed
) -> None:
    world.server.fail_next(matching("POST", "/events"), failure)
    async with recording(world.recorder()) as recorder:
        with capture_logs() as logs:
            recorder.normal(world.buoy("a"), "Moved", "lost")
            recorder.normal(world.buoy("a"), "Moved", "kept")
            await recorder.flush()
    assert [(entry["event"], entry["note"]) for entry in logs] == [("event not written", "lost")]
    assert [e.note for e in events(world)] == ["kept"]


@pytest.mark.parametrize("letter", ["x", "é", "水"])
@virtual_time
async def test_long_notes_are_cut_to_what_the_api_server_takes(world: World, letter: str) -> None:
    async with recording(world.recorder()) as recorder:
        recorder.normal(world.buoy("a"), "Moved", letter * 2000)
        await recorder.flush()
    (event,) = events(world)
    note = event.note or ""
    assert 1018 <= len(note.encode()) <= 1024
    assert note == letter * (len(note) - 1) + "…"


@virtual_time
async def test_names_and_instances_are_cut_to_what_the_api_server_takes(world: World) -> None:
    name = "a" * 235 + "-" + "b" * 10
    world.make(name)
    async with recording(world.recorder(instance="i" * 200)) as recorder:
        recorder.normal(world.buoy(name), "Moved", "drifting")
        await recorder.flush()
    (event,) = events(world)
    assert event.metadata.name.startswith("a" * 235 + ".")
    assert len(event.metadata.name) <= 253
    assert len(event.reporting_instance or "") == 128


@virtual_time
async def test_what_has_no_namespace_is_told_in_the_default_one(world: World) -> None:
    async with recording(world.recorder()) as recorder:
        recorder.normal(Node(metadata=ObjectMeta(name="n1", uid="u")), "Seen", "on the horizon")
        await recorder.flush()
    (event,) = events(world)
    assert (event.metadata.namespace, event.regarding.kind) == ("default", "Node")
