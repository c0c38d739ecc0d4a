"""What is known of objects beyond what the watch has told: decides which news is news.

An informer hears of one object from several sides: its watch, its lists, the answers to our own writes, reads that
settle a doubt. They come in any order. An overlay admits only what is newer than what is held, so that a cached read
never goes back in time and never shows less than the last write that the server acknowledged to us:

- Resource versions of a kind are compared as numbers. Kubernetes 1.35 promises that they can be (KEP-5504), and of
  all servers on etcd it was always true. Where a server's are no numbers, see ``opaque``.
- A watch that has come to version P has told all changes up to P. An answer to a write that is no newer than P is
  therefore no news, whatever the store holds: the object may have been deleted since.
- A list at version L says nothing of what is newer than L: the answer to a write that came while the list was on
  its way stays.
- A *floor* keeps older events from bringing back an object that our own write moved out of the informer's selection.
- A *tombstone* is the UID of an object that we deleted: it never comes back, whichever list or event says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from msgspec import Struct

from steersman.meta import Object, ObjectKey
from steersman.observability.runtime import Clock

# A watch that is silent for longer than 150 seconds is begun anew, so nothing that it still tells is older than this.
_TOMBSTONE_TTL_SECONDS = 900.0
_MAX_TOMBSTONES = 20_000


_EMPTY: frozenset[str] = frozenset()


class _InFlightWrites(Struct):
    """A key to which writes are on their way.

    Attributes:
        tick: when the first of them was sent, by our own count.
        overlapping: whether there were two at once.
        held: what was held when the first of them was sent.
        versions, deleted: what the watch told of it since.
    """

    tick: int
    count: int = 0
    overlapping: bool = False
    cached: Object | None = None
    observed_versions: frozenset[str] = _EMPTY
    deleted_uids: frozenset[str] = _EMPTY


class WriteThrough(ABC):
    """What both kinds of versions have in common: tombstones, and the writes that are on their way.

    ``held`` always is what the store has under the key, or None.

    Args:
        selective: the informer leaves out objects, so that a DELETED event may only mean that one left.
    """

    def __init__(self, clock: Clock, *, has_selector: bool) -> None:
        self.clock = clock
        self.has_selector = has_selector
        self.in_flight: dict[ObjectKey, _InFlightWrites] = {}
        self.ticks = 0
        self.list_tick = 0
        # UID → when, by our own count and by the clock; the oldest first.
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
        """It was answered, or never will be."""
        writes = self.in_flight.get(key)
        if writes is not None:
            writes.count -= 1
            if writes.count <= 0:
                del self.in_flight[key]

    def observed_delete(self, key: ObjectKey, uid: str) -> bool:
        """Whether the watch told of the end of ``uid`` while a write of ``key`` was on its way."""
        writes = self.in_flight.get(key)
        return writes is not None and uid in writes.deleted_uids

    def was_deleted_by(self, key: ObjectKey, cached: Object | None, uid: str) -> bool:
        """Whether ``held`` is gone too, given that a deletion of ``key`` that is still in flight removed ``uid``.

        Two objects of one name never live at once: what was held when the deletion was sent, and still is, is either
        that object or one before it. What came since may be one after it.
        """
        if cached is None:
            return False
        if cached.metadata.uid == uid:
            return True
        writes = self.in_flight.get(key)
        return writes is not None and writes.cached is not None and writes.cached.metadata.uid == cached.metadata.uid

    def add_tombstone(self, key: ObjectKey, uid: str) -> None:
        """The server told us that the object ``uid`` is gone for good."""
        if self.observed_delete(key, uid) and not self.has_selector:
            return  # The watch was faster than the answer.
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
        """How many deleted objects may still be told of."""
        return len(self._tombstones)

    @abstractmethod
    def is_newer_response(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        """Whether the answer to our own write is newer than all that is known."""

    @abstractmethod
    def left_selection(self, key: ObjectKey, version: str) -> None:
        """The object is not of the informer's selection, or not at all, at ``version``: nothing older counts."""

    # The watch

    @abstractmethod
    def is_newer_event(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        """Whether an object that a watch or a list told of is newer than all that is known."""

    @abstractmethod
    def is_newer_delete(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        """Whether a DELETED event ends what is held."""

    @abstractmethod
    def advance(self, version: str) -> bool:
        """The watch has come to ``version``. False: that is before where it was, which no healthy server says."""

    @abstractmethod
    def is_own_write(self, version: str) -> bool:
        """Whether ``version`` is that of an own write that is in the store already."""

    # Lists

    def begin_list(self) -> None:
        """A consistent list is about to be asked for."""
        self.ticks += 1
        self.list_tick = self.ticks

    @abstractmethod
    def is_regression(self, version: str) -> bool:
        """Whether a list at ``version`` shows a past that was over when it was asked for."""

    @abstractmethod
    def missing_from_list(self, cached: Object, version: str) -> bool:
        """Whether ``held`` is gone, given that a list at ``version`` is complete without it."""

    def end_list(self, version: str) -> None:
        """The list at ``version`` is in the store."""
        self._tombstones = {u: t for u, t in self._tombstones.items() if t[0] > self.list_tick}

    def clear(self) -> None:
        """Forgets everything: the server itself went back in time."""
        self._tombstones.clear()
        self.in_flight.clear()

    def has_tombstone(self, uid: str) -> bool:
        """Whether we deleted the object ``uid``."""
        return uid in self._tombstones

    def record_event(self, key: ObjectKey, version: str) -> None:
        """The watch, or a list, told of ``key``."""
        if self.in_flight and key in self.in_flight:
            self.in_flight[key].observed_versions |= {version}

    def record_delete(self, key: ObjectKey, uid: str) -> None:
        """The watch told of the deletion of ``uid``."""
        if self.in_flight and key in self.in_flight:
            self.in_flight[key].deleted_uids |= {uid}
        if not self.has_selector:
            self._tombstones.pop(uid, None)

    def copy_state_from(self, other: WriteThrough) -> None:
        """Goes on from where ``other`` was."""
        self.in_flight, self.ticks = other.in_flight, other.ticks
        self.list_tick, self._tombstones = other.list_tick, other._tombstones


class ComparableVersions(WriteThrough):
    """Versions that are numbers. Every method raises ValueError for one that is not: go on with ``Opaque`` then.

    Attributes:
        progress: up to where the watch has told everything.
        newest: the highest version that anybody told us.
    """

    def __init__(self, clock: Clock, *, has_selector: bool) -> None:
        super().__init__(clock, has_selector=has_selector)
        self.observed_version = 0
        self.highest_version = 0
        self._highest_version_at_list = 0
        self._min_versions: dict[ObjectKey, int] = {}
        self._unconfirmed_versions: set[str] = set()

    def is_newer_response(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        number = int(version)
        self.highest_version = max(self.highest_version, number)
        if number <= self.observed_version or self.has_tombstone(uid) or self._min_versions.get(key, 0) >= number:
            return False
        if cached is not None and int(cached.metadata.resource_version) >= number:
            return False
        self._min_versions.pop(key, None)
        self._unconfirmed_versions.add(version)
        return True

    def left_selection(self, key: ObjectKey, version: str) -> None:
        if int(version) > self.observed_version:
            self._min_versions[key] = max(int(version), self._min_versions.get(key, 0))
        self._unconfirmed_versions.discard(version)

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
        if self._unconfirmed_versions:
            self._unconfirmed_versions.discard(version)
        return True

    def is_own_write(self, version: str) -> bool:
        return version in self._unconfirmed_versions

    @property
    def has_unconfirmed_writes(self) -> bool:
        """Whether own writes are in the store of which the watch has not told yet."""
        return bool(self._unconfirmed_versions)

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
        """Drops what the watch has passed."""
        if self._min_versions:
            self._min_versions = {k: v for k, v in self._min_versions.items() if v > self.observed_version}
        if self._unconfirmed_versions:
            self._unconfirmed_versions = {v for v in self._unconfirmed_versions if int(v) > self.observed_version}

    def clear(self) -> None:
        super().clear()
        self.observed_version = self.highest_version = self._highest_version_at_list = 0
        self._min_versions.clear()
        self._unconfirmed_versions.clear()
