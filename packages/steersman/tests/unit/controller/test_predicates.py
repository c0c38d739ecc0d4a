"""Predicates: changes that trigger a reconcile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from framework_support.widget import Widget, widget
from steersman.cache import InformerEvent
from steersman.controller import (
    Predicate,
    PredicateFunc,
    all_of,
    annotations_changed,
    any_of,
    deletion_started,
    field_changed,
    generation_changed,
    has_label,
    labels_changed,
    matches_labels,
    not_,
    not_own_write,
    on_create,
    on_delete,
    on_update,
    resource_version_changed,
)
from steersman.meta import FrozenDict
from steersman.meta.selectors import SelectorError

THEN = datetime(2030, 1, 1, tzinfo=UTC)


def buoy_version(number: int, **metadata: Any) -> Widget:
    obj = widget("a", number)
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **metadata))


OLD = buoy_version(1, generation=1)
CREATION: InformerEvent[Any] = InformerEvent(None, OLD)
INITIAL: InformerEvent[Any] = InformerEvent(None, OLD, is_initial_list=True)
DELETION: InformerEvent[Any] = InformerEvent(OLD, None)
RESYNC: InformerEvent[Any] = InformerEvent(OLD, OLD)
STATUS: InformerEvent[Any] = InformerEvent(OLD, buoy_version(2, generation=1))
OWN: InformerEvent[Any] = InformerEvent(OLD, buoy_version(2, generation=1), from_own_write=True)
SPEC: InformerEvent[Any] = InformerEvent(OLD, buoy_version(2, generation=2))
LABELS: InformerEvent[Any] = InformerEvent(OLD, buoy_version(2, generation=1, labels=FrozenDict(x="y")))
ANNOTATIONS: InformerEvent[Any] = InformerEvent(OLD, buoy_version(2, generation=1, annotations=FrozenDict(x="y")))
DELETING: InformerEvent[Any] = InformerEvent(OLD, buoy_version(2, generation=1, deletion_timestamp=THEN))
STILL_DELETING: InformerEvent[Any] = InformerEvent(
    buoy_version(2, generation=1, deletion_timestamp=THEN), buoy_version(3, generation=1, deletion_timestamp=THEN)
)
FOUND_DELETING: InformerEvent[Any] = InformerEvent(
    None, buoy_version(2, deletion_timestamp=THEN), is_initial_list=True
)


def is_initial(event: InformerEvent[Any]) -> bool:
    return event.is_initial_list


EVENTS = {
    "creation": CREATION,
    "initial": INITIAL,
    "deletion": DELETION,
    "resync": RESYNC,
    "status": STATUS,
    "own": OWN,
    "spec": SPEC,
    "labels": LABELS,
    "annotations": ANNOTATIONS,
    "deleting": DELETING,
    "still deleting": STILL_DELETING,
    "found deleting": FOUND_DELETING,
}
NO_UPDATE = {"creation", "initial", "deletion", "resync", "found deleting"}


@pytest.mark.parametrize(
    ("predicate", "passes"),
    [
        (generation_changed, NO_UPDATE | {"spec", "deleting"}),
        (labels_changed, NO_UPDATE | {"labels"}),
        (annotations_changed, NO_UPDATE | {"annotations"}),
        (not_own_write, EVENTS.keys() - {"own"}),
        (generation_changed | not_own_write, EVENTS.keys() - {"own"}),
        (resource_version_changed, EVENTS.keys() - {"resync"}),
        (deletion_started, {"deleting", "found deleting"}),
        (on_create, {"creation", "initial", "found deleting"}),
        (on_delete, {"deletion"}),
        (on_update, EVENTS.keys() - {"creation", "initial", "deletion", "found deleting"}),
        (field_changed(lambda obj: len(obj.metadata.labels)), NO_UPDATE | {"labels"}),
        (labels_changed | annotations_changed, NO_UPDATE | {"labels", "annotations"}),
        (generation_changed & ~on_create, {"deletion", "resync", "spec", "deleting"}),
        (~resource_version_changed, {"resync"}),
        (on_delete | is_initial, {"deletion", "initial", "found deleting"}),
        (is_initial & ~deletion_started, {"initial"}),
        (not_(lambda change: change.new is not None), {"deletion"}),
        (all_of(), set(EVENTS)),
        (any_of(), set[str]()),
        (all_of(on_update, labels_changed, lambda change: change.old is not change.new), {"labels"}),
        (any_of(on_delete, on_create), {"creation", "initial", "found deleting", "deletion"}),
    ],
)
def test_predicate_passes_expected_events(predicate: PredicateFunc, passes: set[str]) -> None:
    assert {name for name, event in EVENTS.items() if predicate(event)} == passes


def labelled(**labels: str) -> Widget:
    return widget("a", labels=labels)


@pytest.mark.requirement("user/target-label")
@pytest.mark.parametrize(
    ("old", "new", "passes"),
    [
        (None, labelled(target="Orders"), True),
        (None, labelled(target="ORDERS"), True),
        (None, labelled(target="stock"), False),
        (None, labelled(), False),
        (labelled(target="orders"), None, True),
        (labelled(target="stock"), None, False),
        (labelled(target="orders"), labelled(target="orders", x="y"), True),
        # Both owners must be reconciled: the old and the new one.
        (labelled(target="orders"), labelled(target="stock"), True),
        (labelled(target="stock"), labelled(target="orders"), True),
        (labelled(target="stock"), labelled(target="returns"), False),
    ],
)
def test_has_label_ignore_case_matches_any_case(old: Widget | None, new: Widget | None, passes: bool) -> None:
    assert has_label("target", "oRDERs", ignore_case=True)(InformerEvent(old, new)) is passes


@pytest.mark.parametrize(
    ("predicate", "passes"),
    [
        (has_label("target"), True),
        (has_label("other"), False),
        (has_label("target", "Orders"), True),
        (has_label("target", "orders"), False),
        (matches_labels({"target": "Orders"}), True),
        (matches_labels({"target": "Orders", "tier": "gold"}), False),
        (matches_labels({}), True),
        (matches_labels("target in (Orders, stock), !tier"), True),
        (matches_labels("target!=Orders"), False),
    ],
)
def test_labels(predicate: Predicate, passes: bool) -> None:
    assert predicate(InformerEvent(None, labelled(target="Orders"))) is passes


def test_matches_labels_invalid_selector_raises_at_once() -> None:
    with pytest.raises(SelectorError):
        matches_labels("target in (")
