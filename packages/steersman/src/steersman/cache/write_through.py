"""Tracks our own writes until the watch catches up.

It also rejects updates older than what the store already has.

An informer receives the state of one object from its watch, from its lists, from responses to our own writes, and
from reads of uncertain objects, in any order. ``WriteThrough`` accepts only what is newer than the stored object. A
cached read is therefore monotonic, and never returns less than the last response to one of our writes:

- The resourceVersions of a kind are compared as numbers. Kubernetes 1.35 guarantees this order (KEP-5504); every
  server on etcd has always had it. For other servers see ``opaque_versions``.
- A watch that has reached version P has delivered all changes up to P. A response no newer than P is rejected,
  whatever the store contains: the object may have been deleted since.
- A list at version L does not show changes after L. The response to a write that arrived during the list stays.
- A *minimum version* rejects older events of an object that our own write moved out of the informer's selection.
- A *tombstone* is the UID of an object that we deleted. No list and no event stores that object again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from msgspec import Struct

from steersman.meta import Object, ObjectKey
from steersman.observability.runtime import Clock

# A watch without events is restarted after 150 seconds, so no event that it delivers is older than this.
_TOMBSTONE_TTL_SECONDS = 900.0
_MAX_TOMBSTONES = 20_000


_EMPTY: frozenset[str] = frozenset()


class _InFlightWrites(Struct):
    """The writes of one key that have no response yet.

    Attributes:
        tick: the logical time at which the first of them was sent.
        count: number of writes without a response.
        overlapping: True if two of them were in flight at the same time.
        cached: the stored object when the first of them was sent.
        observed_versions: versions of the key that lists and watch events delivered since then.
        deleted_uids: UIDs that DELETED events of the key named since then.
    """

    tick: int
    count: int = 0
    overlapping: bool = False
    cached: Object | None = None
    observed_versions: frozenset[str] = _EMPTY
    deleted_uids: frozenset[str] = _EMPTY


class WriteThrough(ABC):
    """Decides which updates are newer than the store. The base class tracks tombstones and writes in flight.

    ``cached`` is always the stored object of the key, or None. ``ticks`` is a logical clock: it advances with each
    list, tombstone, unconfirmed write and uncertain object.

    Args:
        clock: the clock for the age of tombstones.
        has_selector: True if a DELETED event may only mean that the object left the selection.

    Attributes:
        unconfirmed_versions: versions of our own writes whose watch events have not arrived. Empty if versions
            cannot be compared.
    """

    def __init__(self, clock: Clock, *, has_selector: bool) -> None:
        self.clock = clock
        self.has_selector = has_selector
        self.in_flight: dict[ObjectKey, _InFlightWrites] = {}
        self.ticks = 0
        self.list_tick = 0
        self.unconfirmed_versions: set[str] = set()
        # UID → tick and time, the oldest first.
        self._tombstones: dict[str, tuple[int, float]] = {}

    # Our own writes

    def on_write_started(self, key: ObjectKey, cached: Object | None) -> None:
        """A write of ``key`` is about to be sent."""
        writes = self.in_flight.get(key)
        if writes is None:
            self.in_flight[key] = _InFlightWrites(self.ticks, 1, cached=cached)
        else:
            writes.overlapping = True
            writes.count += 1

    def on_write_finished(self, key: ObjectKey) -> None:
        """The write of ``key`` has a response, or failed."""
        writes = self.in_flight.get(key)
        if writes is not None:
            writes.count -= 1
            if writes.count <= 0:
                del self.in_flight[key]

    def observed_delete(self, key: ObjectKey, uid: str) -> bool:
        """Return True if a DELETED event of ``uid`` arrived meanwhile.

        Meanwhile means: while a write of ``key`` was in flight.
        """
        writes = self.in_flight.get(key)
        return writes is not None and uid in writes.deleted_uids

    def was_deleted_by(self, key: ObjectKey, cached: Object | None, uid: str) -> bool:
        """Return True if our deletion of ``uid`` includes ``cached``.

        Two objects of one name never exist at the same time. If ``cached`` was stored before the deletion was sent,
        it is the deleted object or an earlier one. Otherwise it may be a later one.
        """
        if cached is None:
            return False
        if cached.metadata.uid == uid:
            return True
        writes = self.in_flight.get(key)
        return writes is not None and writes.cached is not None and writes.cached.metadata.uid == cached.metadata.uid

    def add_tombstone(self, key: ObjectKey, uid: str) -> None:
        """Record that the object ``uid`` no longer exists."""
        if self.observed_delete(key, uid) and not self.has_selector:
            return  # The watch event arrived before the response.
        self.ticks += 1
        now = self.clock.monotonic()
        self._tombstones[uid] = (self.ticks, now)
        while self._tombstones:
            oldest, (_, since) = next(iter(self._tombstones.items()))
            if len(self._tombstones) <= _MAX_TOMBSTONES and now - since < _TOMBSTONE_TTL_SECONDS:
                break
            del self._tombstones[oldest]

    @property
    def tombstone_count(self) -> int:
        """The number of tombstones."""
        return len(self._tombstones)

    @abstractmethod
    def is_newer_response(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        """Return True if a response is newer than everything known."""

    @abstractmethod
    def left_selection(self, key: ObjectKey, version: str) -> None:
        """Reject updates older than ``version``.

        At that version the object is absent or outside the selection.
        """

    # The watch

    @abstractmethod
    def is_newer_event(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        """Return True if an event is newer than everything known.

        List items count as events.
        """

    @abstractmethod
    def is_newer_delete(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        """Return True if a DELETED event removes ``cached``."""

    @abstractmethod
    def advance(self, version: str) -> bool:
        """The watch has reached ``version``. Return False if that is a resourceVersion regression."""

    @abstractmethod
    def is_own_write(self, version: str) -> bool:
        """Return True if ``version`` is a stored own write."""

    # Lists

    def begin_list(self) -> None:
        """A consistent list is about to be requested."""
        self.ticks += 1
        self.list_tick = self.ticks

    @abstractmethod
    def is_regression(self, version: str) -> bool:
        """Return True if a list at ``version`` is a regression.

        It is older than what was known when the list was requested.
        """

    @abstractmethod
    def missing_from_list(self, cached: Object, version: str) -> bool:
        """Return True if ``cached`` was deleted.

        A complete list at ``version`` does not contain it.
        """

    def end_list(self, version: str) -> None:
        """A complete list at ``version`` is in the store."""
        self._tombstones = {u: t for u, t in self._tombstones.items() if t[0] > self.list_tick}

    def clear(self) -> None:
        """Clear all state after a resourceVersion regression."""
        self._tombstones.clear()
        self.in_flight.clear()

    def has_tombstone(self, uid: str) -> bool:
        """Return True if we deleted the object ``uid``."""
        return uid in self._tombstones

    def record_event(self, key: ObjectKey, version: str) -> None:
        """A list item or watch event of ``key`` arrived."""
        if self.in_flight and key in self.in_flight:
            self.in_flight[key].observed_versions |= {version}

    def record_delete(self, key: ObjectKey, uid: str) -> None:
        """A DELETED event of ``uid`` arrived."""
        if self.in_flight and key in self.in_flight:
            self.in_flight[key].deleted_uids |= {uid}
        if not self.has_selector:
            self._tombstones.pop(uid, None)

    def copy_state_from(self, other: WriteThrough) -> None:
        """Take over tombstones and writes in flight from ``other``."""
        self.in_flight, self.ticks = other.in_flight, other.ticks
        self.list_tick, self._tombstones = other.list_tick, other._tombstones


class ComparableVersions(WriteThrough):
    """Write-through for versions that are numbers.

    Every method raises ValueError for another version; continue with ``OpaqueVersions`` then.

    Attributes:
        observed_version: the version up to which the watch has delivered all events.
        highest_version: the highest version that any response contained.
    """

    def __init__(self, clock: Clock, *, has_selector: bool) -> None:
        super().__init__(clock, has_selector=has_selector)
        self.observed_version = 0
        self.highest_version = 0
        self._highest_version_at_list = 0
        self._min_versions: dict[ObjectKey, int] = {}

    def is_newer_response(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        number = int(version)
        if number > self.highest_version:
            self.highest_version = number
        if number <= self.observed_version or uid in self._tombstones:
            return False
        if cached is not None and int(cached.metadata.resource_version) >= number:
            return False
        if self._min_versions:
            if self._min_versions.get(key, 0) >= number:
                return False
            self._min_versions.pop(key, None)
        self.unconfirmed_versions.add(version)
        return True

    def left_selection(self, key: ObjectKey, version: str) -> None:
        if int(version) > self.observed_version:
            self._min_versions[key] = max(int(version), self._min_versions.get(key, 0))
        self.unconfirmed_versions.discard(version)

    def is_newer_event(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        number = int(version)
        if cached is not None and number <= int(cached.metadata.resource_version):
            return False
        if self._tombstones and uid in self._tombstones:
            return False
        if self._min_versions:
            if self._min_versions.get(key, 0) >= number:
                return False
            self._min_versions.pop(key, None)
        return True

    def is_newer_delete(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        self.record_delete(key, uid)
        number = int(version)
        return cached is not None and int(cached.metadata.resource_version) <= number

    def advance(self, version: str) -> bool:
        number = int(version)
        if number < self.observed_version:
            return False
        self.observed_version = number
        if number > self.highest_version:
            self.highest_version = number
        if self.unconfirmed_versions:
            self.unconfirmed_versions.discard(version)
        return True

    def is_own_write(self, version: str) -> bool:
        return version in self.unconfirmed_versions

    def begin_list(self) -> None:
        super().begin_list()
        self._highest_version_at_list = self.highest_version

    def is_regression(self, version: str) -> bool:
        return int(version) < self._highest_version_at_list

    def missing_from_list(self, cached: Object, version: str) -> bool:
        return int(cached.metadata.resource_version) <= int(version)

    def end_list(self, version: str) -> None:
        super().end_list(version)
        self.observed_version = int(version)
        self.highest_version = max(self.highest_version, self.observed_version)
        self.prune()

    def prune(self) -> None:
        """Drop minimum versions and unconfirmed versions that the watch has passed."""
        if self._min_versions:
            self._min_versions = {k: v for k, v in self._min_versions.items() if v > self.observed_version}
        if self.unconfirmed_versions:
            self.unconfirmed_versions = {v for v in self.unconfirmed_versions if int(v) > self.observed_version}

    def clear(self) -> None:
        super().clear()
        self.observed_version = self.highest_version = self._highest_version_at_list = 0
        self._min_versions.clear()
        self.unconfirmed_versions.clear()
