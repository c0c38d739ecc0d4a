"""Which changes are worth a reconcile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from framework_support.buoy import Buoy, buoy
from steersman.cache import Change
from steersman.controller import (
    ChangeFilter,
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    by_others,
    changed,
    created,
    deleted,
    deletion_started,
    generation_changed,
    has_label,
    labels_changed,
    matches_labels,
    not_,
    resource_version_changed,
    updated,
)
from steersman.meta import FrozenDict
from steersman.meta.selectors import SelectorError

THEN = datetime(2030, 1, 1, tzinfo=UTC)


def version(number: int, **metadata: Any) -> Buoy:
    obj = buoy("a", number)
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **metadata))


OLD = version(1, generation=1)
CREATION: Change[Any] = Change(None, OLD)
INITIAL: Change[Any] = Change(None, OLD, initial=True)
DELETION: Change[Any] = Change(OLD, None)
RESYNC: Change[Any] = Change(OLD, OLD)
STATUS: Change[Any] = Change(OLD, version(2, generation=1))
OWN: Change[Any] = Change(OLD, version(2, generation=1), own=True)
SPEC: Change[Any] = Change(OLD, version(2, generation=2))
LABELS: Change[Any] = Change(OLD, version(2, generation=1, labels=FrozenDict(x="y")))
ANNOTATIONS: Change[Any] = Change(OLD, version(2, generation=1, annotations=FrozenDict(x="y")))
DELETING: Change[Any] = Change(OLD, version(2, generation=1, deletion_timestamp=THEN))
STILL_DELETING: Change[Any] = Change(
    version(2, generation=1, deletion_timestamp=THEN), version(3, generation=1, deletion_timestamp=THEN)
)
FOUND_DELETING: Change[Any] = Change(None, version(2, deletion_timestamp=THEN), initial=True)


def is_initial(change: Change[Any]) -> bool:
    return change.initial


EVERYTHING = {
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
        (by_others, EVERYTHING.keys() - {"own"}),
        (generation_changed | by_others, EVERYTHING.keys() - {"own"}),
        (resource_version_changed, EVERYTHING.keys() - {"resync"}),
        (deletion_started, {"deleting", "found deleting"}),
        (created, {"creation", "initial", "found deleting"}),
        (deleted, {"deletion"}),
        (updated, EVERYTHING.keys() - {"creation", "initial", "deletion", "found deleting"}),
        (changed(lambda obj: len(obj.metadata.labels)), NO_UPDATE | {"labels"}),
        (labels_changed | annotations_changed, NO_UPDATE | {"labels", "annotations"}),
        (generation_changed & ~created, {"deletion", "resync", "spec", "deleting"}),
        (~resource_version_changed, {"resync"}),
        (deleted | is_initial, {"deletion", "initial", "found deleting"}),
        (is_initial & ~deletion_started, {"initial"}),
        (not_(lambda change: change.new is not None), {"deletion"}),
        (all_of(), set(EVERYTHING)),
        (any_of(), set[str]()),
        (all_of(updated, labels_changed, lambda change: change.old is not change.new), {"labels"}),
        (any_of(deleted, created), {"creation", "initial", "found deleting", "deletion"}),
    ],
)
def test_what_passes(predicate: ChangeFilter, passes: set[str]) -> None:
    assert {name for name, change in EVERYTHING.items() if predicate(change)} == passes


def labelled(**labels: str) -> Buoy:
    return buoy("a", labels=labels)


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
        # Who loses an object must hear of it as well as who gets it.
        (labelled(target="orders"), labelled(target="stock"), True),
        (labelled(target="stock"), labelled(target="orders"), True),
        (labelled(target="stock"), labelled(target="returns"), False),
    ],
)
def test_one_operator_a_target_whatever_the_case(old: Buoy | None, new: Buoy | None, passes: bool) -> None:
    assert has_label("target", "oRDERs", ignore_case=True)(Change(old, new)) is passes


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
    assert predicate(Change(None, labelled(target="Orders"))) is passes


def test_a_selector_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(SelectorError):
        matches_labels("target in (")
