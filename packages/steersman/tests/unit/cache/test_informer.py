"""Informer events agree with the store."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from framework_support.transports import ScriptedTransport
from framework_support.widget import Widget, widget
from steersman.cache import Informer, InformerEvent
from steersman.cache.sink import InformerSink
from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_testing.virtual_clock import virtual_runtime


@pytest.fixture
def informer() -> Informer[Widget]:
    return Informer(Client(ScriptedTransport()), Widget, runtime=virtual_runtime())


@pytest.fixture
def sink(informer: Informer[Widget]) -> InformerSink[Widget]:
    return informer.sinks[0]


def apply_list(sink: InformerSink[Widget], *objects: Widget) -> None:
    """A list of ``objects``, as new as the newest of them."""
    sink.init(replace_all=False)
    for obj in objects:
        sink.init_apply(obj, 100)
    assert sink.init_done(max((o.metadata.resource_version for o in objects), key=int))


class RecordedEvents(list[tuple[str, str, str]]):
    """Events of a subscriber: old version, new version, name."""

    def __call__(self, event: InformerEvent[Widget]) -> None:
        old = event.old.metadata.resource_version if event.old else ""
        new = event.new.metadata.resource_version if event.new else ""
        self.append((old, new, event.object.metadata.name))

    def take(self) -> list[tuple[str, str, str]]:
        taken = list(self)
        self.clear()
        return taken


@pytest.fixture
def recorded(informer: Informer[Widget]) -> RecordedEvents:
    recorded = RecordedEvents()
    informer.subscribe(recorded)
    return recorded


@pytest.mark.requirement("design/informer")
def test_informer_list_then_watch_notifies(
    informer: Informer[Widget], sink: InformerSink[Widget], recorded: RecordedEvents
) -> None:
    assert not informer.has_synced
    apply_list(sink, widget("a", 1), widget("b", 2))
    assert informer.has_synced
    assert recorded.take() == [("", "1", "a"), ("", "2", "b")]
    sink.apply(widget("a", 3), 100)
    sink.delete(ObjectKey("orders", "b"), "uid-b", "99")
    assert recorded.take() == [("1", "3", "a"), ("2", "", "b")]
    assert [o.metadata.name for o in informer.store] == ["a"]


def test_subscriber_initial_is_true_only_for_first_list(
    informer: Informer[Widget], sink: InformerSink[Widget]
) -> None:
    seen: list[bool] = []
    informer.subscribe(lambda change: seen.append(change.is_initial_list))
    apply_list(sink, widget("a", 1))
    sink.apply(widget("b", 2), 100)
    apply_list(sink, widget("a", 3), widget("b", 2), widget("c", 4))
    assert seen == [True, False, False, True]


def test_relist_reports_missed_deletion(
    informer: Informer[Widget], sink: InformerSink[Widget], recorded: RecordedEvents
) -> None:
    apply_list(sink, widget("a", 1), widget("b", 2))
    recorded.take()
    apply_list(sink, widget("b", 2))
    assert recorded.take() == [("1", "", "a")]


def test_relist_reports_missed_recreation(
    informer: Informer[Widget], sink: InformerSink[Widget], recorded: RecordedEvents
) -> None:
    apply_list(sink, widget("a", 1, uid="first"))
    recorded.take()
    apply_list(sink, widget("a", 9, uid="second"))
    assert recorded.take() == [("1", "", "a"), ("", "9", "a")]


def test_same_resource_version_is_not_reported(
    informer: Informer[Widget], sink: InformerSink[Widget], recorded: RecordedEvents
) -> None:
    apply_list(sink, widget("a", 1))
    recorded.take()
    apply_list(sink, widget("a", 1))
    sink.apply(widget("a", 1), 100)
    assert recorded == []


def test_deletion_of_unknown_object_is_not_reported(
    informer: Informer[Widget], sink: InformerSink[Widget], recorded: RecordedEvents
) -> None:
    sink.delete(ObjectKey("orders", "never"), "uid-never", "99")
    assert recorded == []


def test_late_subscriber_receives_stored_objects(informer: Informer[Widget], sink: InformerSink[Widget]) -> None:
    apply_list(sink, widget("a", 1), widget("b", 2))
    recorded = RecordedEvents()
    informer.subscribe(recorded)
    assert recorded == [("", "1", "a"), ("", "2", "b")]


def test_store_is_updated_before_subscribers_run(informer: Informer[Widget], sink: InformerSink[Widget]) -> None:
    seen: list[bool] = []
    informer.subscribe(lambda change: seen.append(informer.store.get(change.object.key) is change.new))
    apply_list(sink, widget("a", 1))
    sink.apply(widget("a", 2), 100)
    sink.delete(ObjectKey("orders", "a"), "uid-a", "99")
    assert seen == [True, True, True]


def test_failing_subscriber_does_not_affect_others(informer: Informer[Widget], sink: InformerSink[Widget]) -> None:
    def fail(event: InformerEvent[Widget]) -> None:
        raise RuntimeError(f"cannot map {event.object.metadata.name}")

    recorded = RecordedEvents()
    informer.subscribe(fail)
    informer.subscribe(recorded)
    with capture_logs() as logs:
        apply_list(sink, widget("a", 1), widget("b", 2))
    assert recorded == [("", "1", "a"), ("", "2", "b")]
    assert [(entry["log_level"], entry["object"]) for entry in logs] == [("error", "orders/a"), ("error", "orders/b")]
