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
_TOMBSTONE_SECONDS = 900.0
_MOST_TOMBSTONES = 20_000


_NOTHING: frozenset[str] = frozenset()


class _InFlight(Struct):
    """A key to which writes are on their way.

    Attributes:
        tick: when the first of them was sent, by our own count.
        overlapping: whether there were two at once.
        held: what was held when the first of them was sent.
        versions, deleted: what the watch told of it since.
    """

    tick: int
    writes: int = 0
    overlapping: bool = False
    held: Object | None = None
    versions: frozenset[str] = _NOTHING
    deleted: frozenset[str] = _NOTHING


class Overlay(ABC):
    """What both kinds of versions have in common: tombstones, and the writes that are on their way.

    ``held`` always is what the store has under the key, or None.

    Args:
        selective: the informer leaves out objects, so that a DELETED event may only mean that one left.
    """

    def __init__(self, clock: Clock, *, selective: bool) -> None:
        self.clock = clock
        self.selective = selective
        self.in_flight: dict[ObjectKey, _InFlight] = {}
        self.ticks = 0
        self.list_tick = 0
        # UID → when, by our own count and by the clock; the oldest first.
        self._tombstones: dict[str, tuple[int, float]] = {}

    # Our own writes

    def begun(self, key: ObjectKey, held: Object | None) -> None:
        """A write of ``key`` is about to be sent."""
        flight = self.in_flight.get(key)
        if flight is None:
            self.in_flight[key] = _InFlight(self.ticks, 1, held=held)
        else:
            flight.overlapping = True
            flight.writes += 1

    def ended(self, key: ObjectKey) -> None:
        """It was answered, or never will be."""
        flight = self.in_flight.get(key)
        if flight is not None:
            flight.writes -= 1
            if flight.writes <= 0:
                del self.in_flight[key]

    def saw_end(self, key: ObjectKey, uid: str) -> bool:
        """Whether the watch told of the end of ``uid`` while a write of ``key`` was on its way."""
        flight = self.in_flight.get(key)
        return flight is not None and uid in flight.deleted

    def outlived(self, key: ObjectKey, held: Object | None, uid: str) -> bool:
        """Whether ``held`` is gone too, given that a deletion of ``key`` that is still in flight removed ``uid``.

        Two objects of one name never live at once: what was held when the deletion was sent, and still is, is either
        that object or one before it. What came since may be one after it.
        """
        if held is None:
            return False
        if held.metadata.uid == uid:
            return True
        flight = self.in_flight.get(key)
        return flight is not None and flight.held is not None and flight.held.metadata.uid == held.metadata.uid

    def bury(self, key: ObjectKey, uid: str) -> None:
        """The server told us that the object ``uid`` is gone for good."""
        if self.saw_end(key, uid) and not self.selective:
            return  # The watch was faster than the answer.
        self.ticks += 1
        now = self.clock.monotonic()
        self._tombstones[uid] = (self.ticks, now)
        while self._tombstones:
            oldest, (_, since) = next(iter(self._tombstones.items()))
            if len(self._tombstones) <= _MOST_TOMBSTONES and now - since < _TOMBSTONE_SECONDS:
                break
            del self._tombstones[oldest]

    @property
    def tombstones(self) -> int:
        """How many deleted objects may still be told of."""
        return len(self._tombstones)

    @abstractmethod
    def accepts(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        """Whether the answer to our own write is newer than all that is known."""

    @abstractmethod
    def left(self, key: ObjectKey, version: str) -> None:
        """The object is not of the informer's selection, or not at all, at ``version``: nothing older counts."""

    # The watch

    @abstractmethod
    def admits(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        """Whether an object that a watch or a list told of is newer than all that is known."""

    @abstractmethod
    def removes(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        """Whether a DELETED event ends what is held."""

    @abstractmethod
    def advance(self, version: str) -> bool:
        """The watch has come to ``version``. False: that is before where it was, which no healthy server says."""

    @abstractmethod
    def expects(self, version: str) -> bool:
        """Whether ``version`` is that of an own write that is in the store already."""

    # Lists

    def list_begins(self) -> None:
        """A consistent list is about to be asked for."""
        self.ticks += 1
        self.list_tick = self.ticks

    @abstractmethod
    def is_rollback(self, version: str) -> bool:
        """Whether a list at ``version`` shows a past that was over when it was asked for."""

    @abstractmethod
    def lacks(self, held: Object, version: str) -> bool:
        """Whether ``held`` is gone, given that a list at ``version`` is complete without it."""

    def list_ends(self, version: str) -> None:
        """The list at ``version`` is in the store."""
        self._tombstones = {u: t for u, t in self._tombstones.items() if t[0] > self.list_tick}

    def clear(self) -> None:
        """Forgets everything: the server itself went back in time."""
        self._tombstones.clear()
        self.in_flight.clear()

    def is_buried(self, uid: str) -> bool:
        """Whether we deleted the object ``uid``."""
        return uid in self._tombstones

    def note(self, key: ObjectKey, version: str) -> None:
        """The watch, or a list, told of ``key``."""
        if self.in_flight and key in self.in_flight:
            self.in_flight[key].versions |= {version}

    def note_deletion(self, key: ObjectKey, uid: str) -> None:
        """The watch told of the deletion of ``uid``."""
        if self.in_flight and key in self.in_flight:
            self.in_flight[key].deleted |= {uid}
        if not self.selective:
            self._tombstones.pop(uid, None)

    def take_over(self, other: Overlay) -> None:
        """Goes on from where ``other`` was."""
        self.in_flight, self.ticks = other.in_flight, other.ticks
        self.list_tick, self._tombstones = other.list_tick, other._tombstones


class Ordered(Overlay):
    """Versions that are numbers. Every method raises ValueError for one that is not: go on with ``Opaque`` then.

    Attributes:
        progress: up to where the watch has told everything.
        newest: the highest version that anybody told us.
    """

    def __init__(self, clock: Clock, *, selective: bool) -> None:
        super().__init__(clock, selective=selective)
        self.progress = 0
        self.newest = 0
        self._newest_at_list = 0
        self._floors: dict[ObjectKey, int] = {}
        self._expected: set[str] = set()

    def accepts(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        number = int(version)
        self.newest = max(self.newest, number)
        if number <= self.progress or self.is_buried(uid) or self._floors.get(key, 0) >= number:
            return False
        if held is not None and int(held.metadata.resource_version) >= number:
            return False
        self._floors.pop(key, None)
        self._expected.add(version)
        return True

    def left(self, key: ObjectKey, version: str) -> None:
        if int(version) > self.progress:
            self._floors[key] = max(int(version), self._floors.get(key, 0))
        self._expected.discard(version)

    def admits(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        number = int(version)
        if held is not None and number <= int(held.metadata.resource_version):
            return False
        if self._tombstones and uid in self._tombstones:
            return False
        if self._floors:
            if self._floors.get(key, 0) >= number:
                return False
            self._floors.pop(key, None)
        return True

    def removes(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        self.note_deletion(key, uid)
        number = int(version)
        return held is not None and int(held.metadata.resource_version) <= number

    def advance(self, version: str) -> bool:
        number = int(version)
        if number < self.progress:
            return False
        self.progress = number
        if number > self.newest:
            self.newest = number
        if self._expected:
            self._expected.discard(version)
        return True

    def expects(self, version: str) -> bool:
        return version in self._expected

    @property
    def expects_any(self) -> bool:
        """Whether own writes are in the store of which the watch has not told yet."""
        return bool(self._expected)

    def list_begins(self) -> None:
        super().list_begins()
        self._newest_at_list = self.newest

    def is_rollback(self, version: str) -> bool:
        return int(version) < self._newest_at_list

    def lacks(self, held: Object, version: str) -> bool:
        return int(held.metadata.resource_version) <= int(version)

    def list_ends(self, version: str) -> None:
        super().list_ends(version)
        self.progress = int(version)
        self.newest = max(self.newest, self.progress)
        self.sweep()

    def sweep(self) -> None:
        """Drops what the watch has passed."""
        if self._floors:
            self._floors = {k: v for k, v in self._floors.items() if v > self.progress}
        if self._expected:
            self._expected = {v for v in self._expected if int(v) > self.progress}

    def clear(self) -> None:
        super().clear()
        self.progress = self.newest = self._newest_at_list = 0
        self._floors.clear()
        self._expected.clear()
