"""Which changes are worth a reconcile.

A predicate is any function from a ``Change`` to bool. Those here combine: ``generation_changed | labels_changed``,
``has_label("target", "orders") & ~deletion_started``; ``all_of``, ``any_of`` and ``not_`` do the same for plain
functions.

They look at creations, updates and deletions alike. Those that ask what changed let creations and deletions through,
and what did not change at all, too: a resync, or a request from a source, is meant to look again (only
``resource_version_changed`` holds it back). Those that ask what an object is like look at both sides of an update, so
that who is concerned no longer hears of that as well. A predicate saves work, it protects nothing: the object may
change before it is reconciled, and other triggers lead to it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steersman.cache import InformerEvent
from steersman.controller.triggers import is_unchanged
from steersman.meta import Object
from steersman.meta.selectors import label_matcher

PredicateFunc = Callable[[InformerEvent[Any]], bool]
"""What is accepted wherever a predicate is asked for."""


class Predicate:
    """A filter of changes that combines with others by ``&``, ``|`` and ``~``; usable as a decorator."""

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
    """Lets through what every one of ``predicates`` lets through."""
    return Predicate(lambda change: all(predicate(change) for predicate in predicates))


def any_of(*predicates: PredicateFunc) -> Predicate:
    """Lets through what at least one of ``predicates`` lets through."""
    return Predicate(lambda change: any(predicate(change) for predicate in predicates))


def not_(predicate: PredicateFunc) -> Predicate:
    """Lets through what ``predicate`` holds back."""
    return Predicate(lambda change: not predicate(change))


def field_changed(getter: Callable[[Any], object]) -> Predicate:
    """Lets through updates in which what ``aspect`` gives for the object differs, and creations and deletions.

    Example:
        ``changed(lambda node: node.spec.unschedulable)``
    """

    def predicate(event: InformerEvent[Any]) -> bool:
        old, new = event.old, event.new
        if old is None or new is None or is_unchanged(event):
            return True
        return getter(old) != getter(new)

    return Predicate(predicate)


generation_changed = field_changed(lambda obj: (obj.metadata.generation, obj.metadata.deletion_timestamp))
"""Lets through creations, deletions, and updates of the spec; not those of status or metadata alone.

The start of a deletion counts: it sets ``deletionTimestamp`` and, in Kubernetes, the generation.
"""

labels_changed = field_changed(lambda obj: obj.metadata.labels)
"""Lets through creations, deletions, and updates of labels."""

annotations_changed = field_changed(lambda obj: obj.metadata.annotations)
"""Lets through creations, deletions, and updates of annotations."""


@Predicate
def not_own_write(event: InformerEvent[Any]) -> bool:
    """Lets through creations, deletions, and updates that are not answers to this process's own writes.

    Beside ``generation_changed`` it has a status written anew that somebody else wrote, or that a former leader did
    whose request was long on its way. An own write that the watch tells of before its answer is another's here,
    so what is written each time must not say something new each time: use ``generation_changed`` alone for that.
    """
    return event.old is None or event.new is None or not event.from_own_write


@Predicate
def resource_version_changed(event: InformerEvent[Any]) -> bool:
    """Lets through everything but what did not change, such as a resync."""
    return not is_unchanged(event)


@Predicate
def deletion_started(event: InformerEvent[Any]) -> bool:
    """Lets through only the moment from which an object is being deleted, or found to be."""
    old, new = event.old, event.new
    if new is None or new.metadata.deletion_timestamp is None:
        return False
    return old is None or old.metadata.deletion_timestamp is None


@Predicate
def on_create(event: InformerEvent[Any]) -> bool:
    """Lets through only creations, and objects that are found at the start."""
    return event.old is None


@Predicate
def on_update(event: InformerEvent[Any]) -> bool:
    """Lets through only updates."""
    return event.old is not None and event.new is not None


@Predicate
def on_delete(event: InformerEvent[Any]) -> bool:
    """Lets through only the end of objects; see ``deletion_started`` for its beginning."""
    return event.new is None


def where(condition: Callable[[Any], bool]) -> Predicate:
    """Lets through changes of objects for which ``test`` holds, before an update or after it."""
    return Predicate(lambda change: any(side is not None and condition(side) for side in (change.new, change.old)))


def has_label(key: str, value: str | None = None, *, ignore_case: bool = False) -> Predicate:
    """Lets through changes of objects with the label ``key``, before an update or after it.

    So one operator serves the objects of one target: ``has_label("target", options.target, ignore_case=True)``.

    Args:
        key: the label.
        value: what it must be; None for anything.
        ignore_case: whether ``Orders`` and ``orders`` are the same value.
    """
    expected = value.casefold() if value is not None and ignore_case else value

    def has_expected_label(obj: Object) -> bool:
        found = obj.metadata.labels.get(key)
        if found is None or expected is None:
            return found is not None
        return (found.casefold() if ignore_case else found) == expected

    return where(has_expected_label)


def matches_labels(selector: str | Mapping[str, str]) -> Predicate:
    """Lets through changes of objects whose labels fit, before an update or after it.

    Args:
        selector: as for ``kubectl get -l``, such as ``tier in (gold, silver),!paused``; or labels that must be there.

    Raises:
        SelectorError: it is none.
    """
    if isinstance(selector, str):
        matcher = label_matcher(selector)
        return where(lambda obj: matcher(obj.metadata.labels))
    expected = selector.items()
    return where(lambda obj: expected <= obj.metadata.labels.items())
