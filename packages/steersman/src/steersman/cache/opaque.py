"""The overlay for servers whose resource versions are no numbers, so that nobody can tell which of two is newer.

etcd's always are; an aggregated API server may do as it likes. Then only equality helps. What the answer to our own
write says is *held* in the store against whatever else is told of the object, until the watch tells that very
version; what it told while the write was on its way is remembered, since by then the watch may be past it. A hold
that is not released in time was a mistake, and ends with a new list.
"""

from __future__ import annotations

from msgspec import Struct

from steersman.cache.overlay import Overlay
from steersman.meta import Object, ObjectKey

# How long an answer stands against the watch.
_HOLD_SECONDS = 60.0


class Hold(Struct, frozen=True):
    """An answer that stands against the watch: its version, and when it came, by our own count and by the clock."""

    version: str
    tick: int
    since: float


class Opaque(Overlay):
    """Versions that can only be told apart."""

    holds: dict[ObjectKey, Hold]

    def take_over(self, other: Overlay) -> None:
        super().take_over(other)
        self.holds = {}

    def accepts(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        if self.is_buried(uid) or (held is not None and held.metadata.resource_version == version):
            return False
        flight = self.in_flight.get(key)
        if flight is not None and (version in flight.versions or _is_version(flight.held, version)):
            return False  # The watch has told of it, and perhaps of what came after.
        self._hold(key, version)
        return True

    def is_ambiguous(self, key: ObjectKey) -> bool:
        """Whether an answer of ``key`` has no order, since another, or a list, was on its way at the same time."""
        flight = self.in_flight.get(key)
        return flight is not None and (flight.overlapping or self.list_tick > flight.tick)

    def expire(self) -> bool:
        """Drops what was held for too long. True: there was such; only a list can tell what is true."""
        if not self.holds:
            return False
        limit = self.clock.monotonic() - _HOLD_SECONDS
        old = [key for key, hold in self.holds.items() if hold.since < limit]
        for key in old:
            del self.holds[key]
        return bool(old)

    def left(self, key: ObjectKey, version: str) -> None:
        self._hold(key, version)

    def admits(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        self.note(key, version)
        if self.is_buried(uid):
            return False
        hold = self.holds.get(key)
        if hold is not None:
            if hold.version == version:
                del self.holds[key]
                return False
            if hold.tick > self.list_tick or not self._listing:
                return False
            del self.holds[key]
        return held is None or held.metadata.resource_version != version

    def removes(self, key: ObjectKey, uid: str, version: str, held: Object | None) -> bool:
        self.note(key, version)
        self.note_deletion(key, uid)
        hold = self.holds.get(key)
        if hold is None:
            return held is not None
        if hold.version == version:
            # What left the selection by our own write is told of under the version of that write.
            del self.holds[key]
            return held is not None
        return False

    def advance(self, version: str) -> bool:
        return True

    def expects(self, version: str) -> bool:
        return False

    def list_begins(self) -> None:
        super().list_begins()
        self._listing = True

    def is_rollback(self, version: str) -> bool:
        return False

    def lacks(self, held: Object, version: str) -> bool:
        hold = self.holds.get(held.key)
        return hold is None or hold.tick < self.list_tick

    def list_ends(self, version: str) -> None:
        super().list_ends(version)
        self._listing = False
        self.holds = {k: h for k, h in self.holds.items() if h.tick > self.list_tick}

    def clear(self) -> None:
        super().clear()
        self.holds.clear()

    _listing = False

    def _hold(self, key: ObjectKey, version: str) -> None:
        self.ticks += 1
        self.holds[key] = Hold(version, self.ticks, self.clock.monotonic())


def _is_version(held: Object | None, version: str) -> bool:
    return held is not None and held.metadata.resource_version == version
