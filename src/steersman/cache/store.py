"""The objects of one kind, by key and by index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from steersman.meta import Object, ObjectKey

T = TypeVar("T", bound=Object)
IndexFunction = Callable[[T], Iterable[str]]


class Store(Generic[T]):
    """Holds the latest known object of each key. Objects are immutable, so reads copy nothing."""

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._functions: dict[str, IndexFunction[T]] = {}
        # Dicts as ordered sets: what is found comes in the same order on every run.
        self._indexes: dict[str, dict[str, dict[ObjectKey, None]]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def get(self, key: ObjectKey) -> T | None:
        """The object ``key``, or None."""
        return self._objects.get(key)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Indexes objects, present and future, by the values that ``function`` gives for each.

        Raises:
            ValueError: there is an index of that name.
        """
        if name in self._functions:
            raise ValueError(f"index {name!r} exists")
        self._functions[name] = function
        self._indexes[name] = {}
        for obj in self._objects.values():
            self._enter(name, obj)

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """The objects for which the index's function gave ``value``. Raises KeyError for an unknown index."""
        return tuple(self._objects[key] for key in self._indexes[name].get(value, ()))

    def put(self, obj: T) -> T | None:
        """Stores ``obj`` and returns what it replaces."""
        former = self.remove(obj.key)
        self._objects[obj.key] = obj
        for name in self._functions:
            self._enter(name, obj)
        return former

    def remove(self, key: ObjectKey) -> T | None:
        """Removes and returns the object ``key``; None where there is none."""
        former = self._objects.pop(key, None)
        if former is not None:
            for name, function in self._functions.items():
                for value in function(former):
                    self._leave(name, value, key)
        return former

    def _enter(self, name: str, obj: T) -> None:
        for value in self._functions[name](obj):
            self._indexes[name].setdefault(value, {})[obj.key] = None

    def _leave(self, name: str, value: str, key: ObjectKey) -> None:
        keys = self._indexes[name].get(value, {})
        keys.pop(key, None)
        if not keys:
            self._indexes[name].pop(value, None)
