"""Predicates decide which events enqueue a reconcile.

A predicate is a function from an ``InformerEvent`` to bool. ``Predicate`` objects combine: ``generation_changed |
labels_changed``, ``has_label("target", "orders") & ~deletion_started``. ``all_of``, ``any_of`` and ``not_`` combine
plain functions.

``field_changed`` and the ``*_changed`` predicates accept all creations and deletions. They also accept events without
a change, which are resyncs and requests from sources. Only ``resource_version_changed`` rejects events without a
change.

``where``, ``has_label`` and ``matches_labels`` test the old and the new object of an update. A reconcile therefore
also runs when an object stops matching.

A predicate saves work, but guarantees nothing: the object may change before its reconcile, and other triggers may
enqueue it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steersman.cache import InformerEvent
from steersman.controller.triggers import is_unchanged
from steersman.meta import Object
from steersman.meta.json_equality import equal_json
from steersman.meta.selectors import label_matcher

PredicateFunc = Callable[[InformerEvent[Any]], bool]
"""The type of predicates: any function of this signature."""


class Predicate:
    """A predicate that combines with ``&``, ``|`` and ``~``. Usable as a decorator."""

    def __init__(self, function: PredicateFunc) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __call__(self, event: InformerEvent[Any]) -> bool:
        return self._function(event)

    def __and__(self, other: PredicateFunc) -> Predicate:
        return all_of(self, other)

    def __rand__(self, other: PredicateFunc) -> Predicate:
        return all_of(other, self)

    def __or__(self, other: PredicateFunc) -> Predicate:
        return any_of(self, other)

    def __ror__(self, other: PredicateFunc) -> Predicate:
        return any_of(other, self)

    def __invert__(self) -> Predicate:
        return not_(self)


def all_of(*predicates: PredicateFunc) -> Predicate:
    """Accept events that all of ``predicates`` accept."""
    return Predicate(lambda change: all(predicate(change) for predicate in predicates))


def any_of(*predicates: PredicateFunc) -> Predicate:
    """Accept events that at least one of ``predicates`` accepts."""
    return Predicate(lambda change: any(predicate(change) for predicate in predicates))


def not_(predicate: PredicateFunc) -> Predicate:
    """Accept events that ``predicate`` rejects."""
    return Predicate(lambda change: not predicate(change))


def field_changed(getter: Callable[[Any], object]) -> Predicate:
    """Accept creations, deletions, and updates that change a value.

    Args:
        getter: returns the value to compare.

    Example:
        ``field_changed(lambda node: node.spec.unschedulable)``
    """

    def predicate(event: InformerEvent[Any]) -> bool:
        old, new = event.old, event.new
        if old is None or new is None or is_unchanged(event):
            return True
        return not equal_json(getter(old), getter(new))

    return Predicate(predicate)


generation_changed = field_changed(lambda obj: (obj.metadata.generation, obj.metadata.deletion_timestamp))
"""Accept creations, deletions, and updates of the spec.

Updates of status or metadata alone are rejected.

The start of a deletion is accepted: it sets ``deletionTimestamp`` and, in Kubernetes, the generation.
"""

labels_changed = field_changed(lambda obj: obj.metadata.labels)
"""Accept creations, deletions, and updates of labels."""

annotations_changed = field_changed(lambda obj: obj.metadata.annotations)
"""Accept creations, deletions, and updates of annotations."""


@Predicate
def not_own_write(event: InformerEvent[Any]) -> bool:
    """Accept all events except updates that are responses to our own writes.

    Combine it with ``generation_changed`` to also reconcile when another client overwrites our status. Do not use it
    if each reconcile writes a different value, such as a timestamp: a write whose watch event arrives before its
    response counts as foreign, and the controller would loop.
    """
    return event.old is None or event.new is None or not event.from_own_write


@Predicate
def resource_version_changed(event: InformerEvent[Any]) -> bool:
    """Accept all events except those without a change, such as resyncs."""
    return not is_unchanged(event)


@Predicate
def deletion_started(event: InformerEvent[Any]) -> bool:
    """Accept the event that sets ``deletionTimestamp``, or first shows it."""
    old, new = event.old, event.new
    if new is None or new.metadata.deletion_timestamp is None:
        return False
    return old is None or old.metadata.deletion_timestamp is None


@Predicate
def on_create(event: InformerEvent[Any]) -> bool:
    """Accept creations, and objects of the first list."""
    return event.old is None


@Predicate
def on_update(event: InformerEvent[Any]) -> bool:
    """Accept updates of existing objects."""
    return event.old is not None and event.new is not None


@Predicate
def on_delete(event: InformerEvent[Any]) -> bool:
    """Accept DELETED events. See ``deletion_started`` for the start of a deletion."""
    return event.new is None


def where(condition: Callable[[Any], bool]) -> Predicate:
    """Accept events whose old or new object meets ``condition``."""
    return Predicate(lambda change: any(side is not None and condition(side) for side in (change.new, change.old)))


def has_label(key: str, value: str | None = None, *, ignore_case: bool = False) -> Predicate:
    """Accept events whose old or new object has a label.

    An operator can serve the objects of one target: ``has_label("target", options.target, ignore_case=True)``.

    Args:
        key: the label.
        value: the value of the label. Defaults to any.
        ignore_case: treat ``Orders`` and ``orders`` as the same value.
    """
    expected = value.casefold() if value is not None and ignore_case else value

    def has_expected_label(obj: Object) -> bool:
        found = obj.metadata.labels.get(key)
        if found is None or expected is None:
            return found is not None
        return (found.casefold() if ignore_case else found) == expected

    return where(has_expected_label)


def matches_labels(selector: str | Mapping[str, str]) -> Predicate:
    """Accept events whose old or new object matches a label selector.

    Args:
        selector: as for ``kubectl get -l``, such as ``tier in (gold, silver),!paused``; or required labels.

    Raises:
        SelectorError: the selector is invalid.
    """
    if isinstance(selector, str):
        matcher = label_matcher(selector)
        return where(lambda obj: matcher(obj.metadata.labels))
    expected = selector.items()
    return where(lambda obj: expected <= obj.metadata.labels.items())
