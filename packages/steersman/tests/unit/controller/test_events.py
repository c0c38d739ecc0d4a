"""Events are recorded without blocking the reconcile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from framework_support.controller_env import ControllerEnv
from steersman.api.core_v1 import Node
from steersman.api.events_v1 import Event
from steersman.api.rbac_v1 import ClusterRole
from steersman.controller import EventRecorder
from steersman.errors import ConnectionFailed
from steersman.meta import ObjectMeta
from steersman_testing import matching, virtual_time


@pytest.fixture
def world() -> ControllerEnv:
    world = ControllerEnv()
    world.create_widgets("a")
    return world


@asynccontextmanager
async def running_recorder(recorder: EventRecorder) -> AsyncGenerator[EventRecorder, None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def events(world: ControllerEnv) -> tuple[Event, ...]:
    return world.server.read_all(Event)


@pytest.mark.requirement("programming/events")
@virtual_time
async def test_event_has_reason_regarding_and_reporter(world: ControllerEnv) -> None:
    widget = world.read_widget("a")
    async with running_recorder(world.recorder("orders-operator/widget", "pod-7")) as recorder:
        recorder.warning(widget, "Sunk", "send a diver", action="Sound")
        await recorder.flush()
    (event,) = events(world)
    assert event.metadata.namespace == "orders"
    assert event.metadata.name.startswith("a.")
    assert (event.type, event.reason, event.action, event.note) == ("Warning", "Sunk", "Sound", "send a diver")
    assert (event.reporting_controller, event.reporting_instance) == ("orders-operator/widget", "pod-7")
    regarding = event.regarding
    assert (regarding.api_version, regarding.kind, regarding.name, regarding.uid) == (
        "shop.example.com/v1",
        "Widget",
        "a",
        widget.metadata.uid,
    )
    assert event.series is None


@virtual_time
async def test_repeats_count_up_one_event(world: ControllerEnv) -> None:
    async with running_recorder(world.recorder()) as recorder:
        for _ in range(4):
            recorder.normal(world.read_widget("a"), "Moved", "drifting")
            await asyncio.sleep(60)
        recorder.normal(world.read_widget("a"), "Moved", "drifting elsewhere")
        await recorder.flush()
    first, other = sorted(events(world), key=lambda e: len(e.note or ""))
    assert first.series is not None
    assert first.series.count == 4
    assert other.series is None


@virtual_time
async def test_late_repeat_creates_new_event(world: ControllerEnv) -> None:
    async with running_recorder(world.recorder()) as recorder:
        recorder.normal(world.read_widget("a"), "Moved", "drifting")
        await asyncio.sleep(3600)
        recorder.normal(world.read_widget("a"), "Moved", "drifting")
        await recorder.flush()
    assert len(events(world)) == 2


@virtual_time
async def test_expired_event_is_recreated(world: ControllerEnv) -> None:
    async with running_recorder(world.recorder()) as recorder:
        recorder.normal(world.read_widget("a"), "Moved", "drifting")
        await recorder.flush()
        (expired,) = events(world)
        await world.client.delete(Event, expired.key)
        recorder.normal(world.read_widget("a"), "Moved", "drifting")
        await recorder.flush()
    (renewed,) = events(world)
    assert renewed.metadata.name != expired.metadata.name


@virtual_time
async def test_recorder_full_queue_drops_and_logs(world: ControllerEnv) -> None:
    recorder = world.recorder()
    with capture_logs() as logs:
        for number in range(1005):
            recorder.normal(world.read_widget("a"), f"Moved{number}", f"wave {number}")
    assert [entry["note"] for entry in logs] == [f"wave {n}" for n in range(1000, 1005)]
    async with running_recorder(recorder):
        await recorder.flush()
    assert len(events(world)) == 1000


@pytest.mark.parametrize("failure", [403, 500, ConnectionFailed("lost")])
@virtual_time
async def test_recorder_write_failure_is_logged_and_next_is_sent(
    world: ControllerEnv, failure: int | ConnectionFailed
) -> None:
    world.server.fail_next(matching("POST", "/events"), failure)
    async with running_recorder(world.recorder()) as recorder:
        with capture_logs() as logs:
            recorder.normal(world.read_widget("a"), "Moved", "lost")
            recorder.normal(world.read_widget("a"), "Moved", "kept")
            await recorder.flush()
    assert [(entry["event"], entry["note"]) for entry in logs] == [("event not written", "lost")]
    assert [e.note for e in events(world)] == ["kept"]


@pytest.mark.parametrize("letter", ["x", "é", "水"])
@virtual_time
async def test_event_note_is_truncated_to_limit(world: ControllerEnv, letter: str) -> None:
    async with running_recorder(world.recorder()) as recorder:
        recorder.normal(world.read_widget("a"), "Moved", letter * 2000)
        await recorder.flush()
    (event,) = events(world)
    note = event.note or ""
    assert 1018 <= len(note.encode()) <= 1024
    assert note == letter * (len(note) - 1) + "…"


@virtual_time
async def test_event_name_and_instance_are_truncated_to_limit(world: ControllerEnv) -> None:
    name = "a" * 235 + "-" + "b" * 10
    world.create_widgets(name)
    async with running_recorder(world.recorder(instance="i" * 200)) as recorder:
        recorder.normal(world.read_widget(name), "Moved", "drifting")
        await recorder.flush()
    (event,) = events(world)
    assert event.metadata.name.startswith("a" * 235 + ".")
    assert len(event.metadata.name) <= 253
    assert len(event.reporting_instance or "") == 128


@virtual_time
async def test_event_of_cluster_scoped_object_is_in_default(world: ControllerEnv) -> None:
    async with running_recorder(world.recorder()) as recorder:
        recorder.normal(Node(metadata=ObjectMeta(name="n1", uid="u")), "Seen", "on the horizon")
        await recorder.flush()
    (event,) = events(world)
    assert (event.metadata.namespace, event.regarding.kind) == ("default", "Node")


@virtual_time
async def test_events_of_one_reason_are_limited(world: ControllerEnv) -> None:
    obj = world.read_widget("a")
    async with running_recorder(world.recorder("orders-operator/widget", "pod-7")) as recorder:
        for second in range(3600):
            recorder.warning(obj, "Sunk", f"depth {second}")
            await asyncio.sleep(1)
        recorder.normal(obj, "Raised", "afloat")
        await recorder.flush()
    reasons = [event.reason for event in events(world)]
    assert (reasons.count("Sunk"), reasons.count("Raised")) == (25 + 11, 1)


@pytest.mark.parametrize("name", ["system:foo", "A.b", "a..b", "_"])
@virtual_time
async def test_event_of_object_without_dns_name_is_written(world: ControllerEnv, name: str) -> None:
    role = ClusterRole(metadata=ObjectMeta(name=name, uid="uid-role"))
    async with running_recorder(world.recorder()) as recorder:
        recorder.normal(role, "Granted", "read pods")
        await recorder.flush()
    (event,) = events(world)
    assert event.metadata.name.startswith("clusterrole.")
    assert event.regarding.name == name


@pytest.mark.parametrize(("reason", "action"), [("", "Reconcile"), ("R" * 129, "Reconcile"), ("Sunk", "")])
def test_event_with_invalid_reason_raises(world: ControllerEnv, reason: str, action: str) -> None:
    with pytest.raises(ValueError, match="1 to 128 characters"):
        world.recorder().normal(world.read_widget("a"), reason, "note", action=action)
