"""Objects of one kind by key and index, and their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from steersman.cache.interning import Interner
from steersman.meta import Object, ObjectKey
from steersman.observability.logging import get_logger

T = TypeVar("T", bound=Object)
IndexFunction = Callable[[T], Iterable[str]]

# Bytes of JSON. Smaller objects have few parts in common.
_INTERN_MIN_BYTES = 2048

log = get_logger("cache")


class InformerEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change of one object.

    ``old`` is None if the object was created, ``new`` is None if it was deleted.

    Attributes:
        old: the object before the change.
        new: the object after the change.
        is_initial_list: True if the object came from a list, not from a watch event.
        is_resync: True if nothing changed and the informer repeats every object.
        from_own_write: True if the new state is the response to our own write.
    """

    old: T | None
    new: T | None
    is_initial_list: bool = False
    is_resync: bool = False
    from_own_write: bool = False

    @property
    def object(self) -> T:
        """The newest known state."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


Subscriber = Callable[[InformerEvent[T]], None]


def _controller_uid(obj: Object) -> tuple[str, ...]:
    for reference in obj.metadata.owner_references:
        if reference.controller:
            return (reference.uid,)
    return ()


def _namespace(obj: Object) -> tuple[str]:
    return (obj.metadata.namespace,)


BUILT_IN_INDEXES: dict[str, IndexFunction[Any]] = {"owner": _controller_uid, "namespace": _namespace}
"""Indexes of every store, built at the first use. ``owner`` is the UID of the controller owner."""


class _Index(Generic[T]):
    """One index. It keeps the values of each key, so that an update does not recompute them for the old object."""

    __slots__ = ("_function", "_name", "_values", "keys")

    def __init__(self, name: str, function: IndexFunction[T]) -> None:
        self._name = name
        self._function = function
        self._values: dict[ObjectKey, tuple[str, ...]] = {}
        # Dicts as ordered sets: the order of results is the same in every run.
        self.keys: dict[str, dict[ObjectKey, None]] = {}

    def put(self, key: ObjectKey, obj: T) -> None:
        values = self._compute(obj)
        previous = self._values.get(key, ())
        if values == previous:
            return
        for value in previous:
            if value not in values:
                self._discard(value, key)
        for value in values:
            self.keys.setdefault(value, {})[key] = None
        self._values[key] = values

    def remove(self, key: ObjectKey) -> None:
        for value in self._values.pop(key, ()):
            self._discard(value, key)

    def _discard(self, value: str, key: ObjectKey) -> None:
        keys = self.keys[value]
        del keys[key]
        if not keys:
            del self.keys[value]

    def _compute(self, obj: T) -> tuple[str, ...]:
        try:
            values = tuple(self._function(obj))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            # An object that the function does not expect must still reach the store and its subscribers.
            log.exception("index function failed", index=self._name, object=str(obj.key))
            return ()
        return values if len(values) < 2 else tuple(dict.fromkeys(values))


class IndexedStore(Generic[T]):
    """Holds the latest known objects, and notifies subscribers of changes.

    Objects are immutable, so reads copy nothing.

    Args:
        name: the kind, for logs.

    Attributes:
        size_bytes: bytes of JSON of all objects whose size is known.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._objects: dict[ObjectKey, T] = {}
        self._sizes: dict[ObjectKey, int] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._interner = Interner()
        self._subscribers: list[Subscriber[T]] = []
        self.size_bytes = 0
        # The method of the dict: it is on the path of every read and event.
        self.get: Callable[[ObjectKey], T | None] = self._objects.get
        """Return the object of a key, or None."""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Index present and future objects by the values that ``function`` returns.

        An object on which ``function`` fails is stored without index values, and the error is logged.

        Raises:
            ValueError: an index of that name exists.
        """
        if name in self._indexes or name in BUILT_IN_INDEXES:
            raise ValueError(f"index {name!r} exists")
        self._build_index(name, function)

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """Return the objects whose index values contain ``value``.

        Two indexes are built in: ``by_index("owner", uid)`` returns the objects that the object ``uid`` controls, and
        ``by_index("namespace", name)`` those of one namespace.

        Raises:
            KeyError: no index has that name.
        """
        index = self._indexes.get(name)
        if index is None:
            index = self._build_index(name, BUILT_IN_INDEXES[name])
        objects = self._objects
        return tuple([objects[key] for key in index.keys.get(value, ())])

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Call ``subscriber`` for each change, in order, on the event loop.

        It is called for the stored objects immediately.

        Our own writes are reported when the response arrives, and not again when their watch event arrives.
        """
        self._subscribers.append(subscriber)
        for obj in self:
            subscriber(InformerEvent(None, obj, is_initial_list=True))

    def put(
        self,
        obj: T,
        size: int = 0,
        key: ObjectKey | None = None,
        *,
        is_initial_list: bool = False,
        from_own_write: bool = False,
    ) -> T | None:
        """Store ``obj``, and return the object that it replaces.

        Subscribers are notified if the two differ.

        Args:
            obj: the object.
            size: bytes of JSON; 0 if unknown.
            key: the key of ``obj``, if the caller has it.
            is_initial_list: see ``InformerEvent``.
            from_own_write: see ``InformerEvent``.
        """
        if key is None:
            key = obj.key
        previous = self._objects.get(key)
        if size:
            if size >= _INTERN_MIN_BYTES:
                key = self._interner.intern(obj, previous).key
            self.size_bytes += size if previous is None else size - self._sizes.get(key, 0)
            self._sizes[key] = size
        self._objects[key] = obj
        if self._indexes:
            for index in self._indexes.values():
                index.put(key, obj)
        old = previous
        if old is not None:
            if old.metadata.uid != obj.metadata.uid:
                # Deleted and recreated between two events: subscribers must see both changes.
                self.notify(InformerEvent(old, None))
                old = None
            elif old.metadata.resource_version == obj.metadata.resource_version:
                return previous
        self.notify(InformerEvent(old, obj, is_initial_list and old is None, False, from_own_write))
        return previous

    def remove(self, key: ObjectKey) -> T | None:
        """Remove and return the object ``key``; None if it is absent.

        Subscribers are notified.
        """
        previous = self._objects.pop(key, None)
        if previous is not None:
            self.size_bytes -= self._sizes.pop(key, 0)
            for index in self._indexes.values():
                index.remove(key)
            self.notify(InformerEvent(previous, None))
        return previous

    def notify(self, event: InformerEvent[T], *subscribers: Subscriber[T]) -> None:
        """Call ``subscribers`` with ``event``. Defaults to all."""
        for subscriber in subscribers or self._subscribers:
            try:
                subscriber(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                # A failing subscriber must not affect the others or later events.
                log.exception("subscriber failed", kind=self._name, object=str(event.object.key))

    def _build_index(self, name: str, function: IndexFunction[T]) -> _Index[T]:
        index = self._indexes[name] = _Index[T](name, function)
        for key, obj in self._objects.items():
            index.put(key, obj)
        return index
