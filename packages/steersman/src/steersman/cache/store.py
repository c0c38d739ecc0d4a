"""The objects of one kind, by key and by index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from steersman.meta import Object, ObjectKey
from steersman.observability.logging import get_logger

T = TypeVar("T", bound=Object)
IndexFunction = Callable[[T], Iterable[str]]

log = get_logger("cache")


def _controller_uid(obj: Object) -> tuple[str, ...]:
    for reference in obj.metadata.owner_references:
        if reference.controller:
            return (reference.uid,)
    return ()


BUILT_IN_INDEXES: dict[str, IndexFunction[Any]] = {"owner": _controller_uid}
"""Indexes that every store has, from the first question on: ``owner`` is the UID of the controller owner."""


class Store(Generic[T]):
    """Holds the latest known object of each key. Objects are immutable, so reads copy nothing.

    Attributes:
        size_bytes: bytes of JSON of all objects together, as far as they were told.
    """

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._sizes: dict[ObjectKey, int] = {}
        self._index_functions: dict[str, IndexFunction[T]] = {}
        # Dicts as ordered sets: what is found comes in the same order on every run.
        self._indexes: dict[str, dict[str, dict[ObjectKey, None]]] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def get(self, key: ObjectKey) -> T | None:
        """The object ``key``, or None."""
        return self._objects.get(key)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Indexes objects, present and future, by the values that ``function`` gives for each.

        An object on which it fails is in the store all the same, under none of the index's values; that is logged.

        Raises:
            ValueError: there is an index of that name.
        """
        if name in self._index_functions or name in BUILT_IN_INDEXES:
            raise ValueError(f"index {name!r} exists")
        self._build_index(name, function)

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """The objects for which the index's function gave ``value``. Raises KeyError for an unknown index.

        ``by_index("owner", uid)`` gives the objects that the object ``uid`` controls, without further ado.
        """
        if name not in self._indexes and name in BUILT_IN_INDEXES:
            self._build_index(name, BUILT_IN_INDEXES[name])
        return tuple(self._objects[key] for key in self._indexes[name].get(value, ()))

    def put(self, obj: T, size: int = 0, key: ObjectKey | None = None) -> T | None:
        """Stores ``obj``, of ``size`` bytes of JSON, and returns what it replaces; ``key`` is its key, if at hand."""
        key = key or obj.key
        previous = self._objects.get(key)
        self._objects[key] = obj
        if size:
            self.size_bytes += size - self._sizes.get(key, 0)
            self._sizes[key] = size
        for name, function in self._index_functions.items():
            values = _index_values(name, function, obj)
            if previous is not None:
                previous_values = _index_values(name, function, previous)
                if previous_values == values:
                    continue
                for value in previous_values:
                    if value not in values:
                        self._remove_from_index(name, value, key)
            for value in values:
                self._indexes[name].setdefault(value, {})[key] = None
        return previous

    def remove(self, key: ObjectKey) -> T | None:
        """Removes and returns the object ``key``; None where there is none."""
        previous = self._objects.pop(key, None)
        if previous is not None:
            self.size_bytes -= self._sizes.pop(key, 0)
            for name, function in self._index_functions.items():
                for value in _index_values(name, function, previous):
                    self._remove_from_index(name, value, key)
        return previous

    def _build_index(self, name: str, function: IndexFunction[T]) -> None:
        self._index_functions[name] = function
        entries: dict[str, dict[ObjectKey, None]] = {}
        self._indexes[name] = entries
        for key, obj in self._objects.items():
            for value in _index_values(name, function, obj):
                entries.setdefault(value, {})[key] = None

    def _remove_from_index(self, name: str, value: str, key: ObjectKey) -> None:
        keys = self._indexes[name].get(value, {})
        keys.pop(key, None)
        if not keys:
            self._indexes[name].pop(value, None)


def _index_values(name: str, function: IndexFunction[T], obj: T) -> dict[str, None]:
    try:
        return dict.fromkeys(function(obj))
    except Exception:
        # One object that it does not expect must not cost subscribers the news of it.
        log.exception("index function failed", index=name, object=str(obj.key))
        return {}
