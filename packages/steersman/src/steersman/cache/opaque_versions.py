"""Write-through for servers whose resourceVersions are not numbers and cannot be ordered.

Versions from etcd are always numbers; an aggregated API server may use others. Only equality can be tested then. The
response to our own write is an *unconfirmed write*: it stays in the store against every event of the object, until
the watch delivers that very version. The versions that arrive while the write is in flight are recorded, since the
watch may have passed the write's version before the response arrives. An unconfirmed write that is not confirmed in
time was a mistake and ends with a new list.
"""

from __future__ import annotations

from msgspec import Struct

from steersman.cache.write_through import WriteThrough
from steersman.meta import Object, ObjectKey

_UNCONFIRMED_TIMEOUT_SECONDS = 60.0


class UnconfirmedWrite(Struct, frozen=True):
    """A response that the watch has not confirmed.

    It consists of the version, and the tick and the time of its arrival.
    """

    version: str
    tick: int
    since: float


class OpaqueVersions(WriteThrough):
    """Write-through for versions that can only be compared for equality."""

    unconfirmed_writes: dict[ObjectKey, UnconfirmedWrite]

    def copy_state_from(self, other: WriteThrough) -> None:
        super().copy_state_from(other)
        self.unconfirmed_writes = {}

    def is_newer_response(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        if self.has_tombstone(uid) or (cached is not None and cached.metadata.resource_version == version):
            return False
        writes = self.in_flight.get(key)
        if writes is not None and (version in writes.observed_versions or _has_version(writes.cached, version)):
            return False  # The watch has delivered this version, and perhaps later ones.
        self._add_unconfirmed_write(key, version)
        return True

    def is_ambiguous(self, key: ObjectKey) -> bool:
        """Return True if a response of ``key`` has no order.

        That is so if another write or a list was in flight at the same time.
        """
        writes = self.in_flight.get(key)
        return writes is not None and (writes.overlapping or self.list_tick > writes.tick)

    def expire(self) -> bool:
        """Drop unconfirmed writes older than 60 seconds. Return True if there were any: a new list is needed."""
        if not self.unconfirmed_writes:
            return False
        cutoff = self.clock.monotonic() - _UNCONFIRMED_TIMEOUT_SECONDS
        expired = [key for key, unconfirmed in self.unconfirmed_writes.items() if unconfirmed.since < cutoff]
        for key in expired:
            del self.unconfirmed_writes[key]
        return bool(expired)

    def left_selection(self, key: ObjectKey, version: str) -> None:
        self._add_unconfirmed_write(key, version)

    def is_newer_event(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        self.record_event(key, version)
        if self.has_tombstone(uid):
            return False
        unconfirmed = self.unconfirmed_writes.get(key)
        if unconfirmed is not None:
            if unconfirmed.version == version:
                del self.unconfirmed_writes[key]
                return False
            if unconfirmed.tick > self.list_tick or not self._listing:
                return False
            del self.unconfirmed_writes[key]
        return cached is None or cached.metadata.resource_version != version

    def is_newer_delete(self, key: ObjectKey, uid: str, version: str, cached: Object | None) -> bool:
        self.record_event(key, version)
        self.record_delete(key, uid)
        unconfirmed = self.unconfirmed_writes.get(key)
        if unconfirmed is None:
            return cached is not None
        if unconfirmed.version == version:
            # The DELETED event of an object that left the selection has the version of our write.
            del self.unconfirmed_writes[key]
            return cached is not None
        return False

    def advance(self, version: str) -> bool:
        return True

    def is_own_write(self, version: str) -> bool:
        return False

    def begin_list(self) -> None:
        super().begin_list()
        self._listing = True

    def is_regression(self, version: str) -> bool:
        return False

    def missing_from_list(self, cached: Object, version: str) -> bool:
        unconfirmed = self.unconfirmed_writes.get(cached.key)
        return unconfirmed is None or unconfirmed.tick < self.list_tick

    def end_list(self, version: str) -> None:
        super().end_list(version)
        self._listing = False
        self.unconfirmed_writes = {k: h for k, h in self.unconfirmed_writes.items() if h.tick > self.list_tick}

    def clear(self) -> None:
        super().clear()
        self.unconfirmed_writes.clear()

    _listing = False

    def _add_unconfirmed_write(self, key: ObjectKey, version: str) -> None:
        self.ticks += 1
        self.unconfirmed_writes[key] = UnconfirmedWrite(version, self.ticks, self.clock.monotonic())


def _has_version(cached: Object | None, version: str) -> bool:
    return cached is not None and cached.metadata.resource_version == version
