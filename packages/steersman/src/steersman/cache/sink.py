"""Applies lists, watch events and our own writes to the store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from steersman.cache import metrics
from steersman.cache.opaque_versions import OpaqueVersions
from steersman.cache.options import WatchScope
from steersman.cache.progress import Progress
from steersman.cache.reflector import Reflector, ResourceVersionRegression
from steersman.cache.resource_version import parse_resource_version
from steersman.cache.store import IndexedStore
from steersman.cache.watch_errors import WatchErrorLogger
from steersman.cache.write_through import ComparableVersions, WriteThrough
from steersman.client import Client
from steersman.meta import Object, ObjectKey
from steersman.meta.selectors import label_matcher, matches_fields, parse_field_selector
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

_RESOURCE_VERSION_PATTERN = re.compile(rb'"resourceVersion":"([^"\\]+)"')
_MAX_CONCURRENT_READS = 16
_IDENTITY_FIELDS = frozenset(("metadata.name", "metadata.namespace"))

log = get_logger("cache")


class InformerSink(Generic[T]):
    """Updates the store for one namespace and selector.

    Args:
        store: the store of the informer, shared by its sinks.
        progress: receives completed lists and processed watch events.
        client: lists and watches.
        kind: the cached kind.
        scope: the namespace and the selectors.

    Attributes:
        write_through: decides which updates are newer than the store.
        uncertain_keys: objects whose last write has an unknown outcome; the value is the tick of that write.
        undecoded_keys: objects that exist, but do not fit their type.
    """

    def __init__(
        self,
        store: IndexedStore[T],
        progress: Progress,
        client: Client,
        kind: type[T],
        scope: WatchScope,
        *,
        runtime: Runtime,
        watch_errors: WatchErrorLogger | None = None,
        semaphore: asyncio.Semaphore | None = None,
    ) -> None:
        selection = scope.selection
        self.kind = kind
        self.store = store
        self.progress = progress
        self.scope = scope
        self.has_synced = False
        self.reflector = Reflector(
            client, kind, self, runtime=runtime, scope=scope, watch_errors=watch_errors, semaphore=semaphore
        )
        self.write_through: WriteThrough = ComparableVersions(runtime.clock, has_selector=selection.has_selector)
        self.uncertain_keys: dict[ObjectKey, int] = {}
        self.undecoded_keys: set[ObjectKey] = set()
        self._uncertain_until_list: set[ObjectKey] = set()
        self._client = client
        self._write_throughs = metrics.write_throughs.labels(kind.api_resource.kind)
        self._stale_events_dropped = metrics.stale_events_dropped.labels(kind.api_resource.kind)
        self._matches_labels = label_matcher(selection.label_selector)
        self._field_selector = parse_field_selector(selection.field_selector)
        self._transform = selection.transform
        self._listed_keys: set[ObjectKey] = set()
        self._listing = False
        self._replace_all = False
        self._skipped_version = ""
        self._has_opaque_versions = False

    def has_observed(self, version: str) -> bool:
        """Return True if the watch has delivered all events up to ``version``."""
        number = parse_resource_version(version)
        return (
            isinstance(self.write_through, ComparableVersions)
            and number is not None
            and self.write_through.observed_version >= number
        )

    def cached_objects(self) -> Iterable[T]:
        """Return the stored objects of the scope."""
        namespace = self.scope.namespace
        return self.store.by_index("namespace", namespace) if namespace else self.store

    # Lists: implements ``Sink``.

    def init(self, *, replace_all: bool) -> None:
        self._listing = True
        self._replace_all = replace_all
        self._listed_keys = set()
        if replace_all:
            self.write_through.clear()
            self.uncertain_keys.clear()
            self._uncertain_until_list.clear()
        self.write_through.begin_list()

    def init_apply(self, obj: T, size: int) -> None:
        key = obj.key
        self._listed_keys.add(key)
        if self.undecoded_keys:
            self.undecoded_keys.discard(key)
        cached = self.store.get(key)
        if self._replace_all or self._is_newer_event(obj, key, cached):
            if self._transform is not None:
                obj = self._transformed(obj)
            self.store.put(obj, size, key, is_initial_list=True)

    def decode_failed(self, key: ObjectKey) -> None:
        # The object exists. Its last decoded state stays in the store.
        self.undecoded_keys.add(key)
        if self._listing:
            self._listed_keys.add(key)

    def init_done(self, version: str) -> bool:
        try:
            is_regression = self.write_through.is_regression(version)
        except ValueError:
            is_regression = self._use_opaque_versions().is_regression(version)
        if is_regression and not self._replace_all:
            return False
        for cached in self.cached_objects():
            key = cached.key
            if key not in self._listed_keys and self._is_missing(cached, version):
                self.store.remove(key)
        self.undecoded_keys &= self._listed_keys
        self._listed_keys = set()
        self._listing = self._replace_all = False
        self.write_through.end_list(version)
        self.uncertain_keys = {
            key: tick for key, tick in self.uncertain_keys.items() if tick > self.write_through.list_tick
        }
        self._uncertain_until_list &= set(self.uncertain_keys)
        if not self.has_synced:
            self.has_synced = True
            self.progress.first_list_completed()
        self.progress.notify()
        return True

    # Watch events: implements ``Sink``.

    def apply(self, obj: T, size: int) -> None:
        meta = obj.metadata
        self._advance(meta.resource_version)
        key = ObjectKey(meta.namespace, meta.name)
        if self.undecoded_keys:
            self.undecoded_keys.discard(key)
        cached = self.store.get(key)
        if self._is_newer_event(obj, key, cached):
            if self._transform is not None:
                obj = self._transformed(obj)
            self.store.put(obj, size, key)
        if self._has_opaque_versions or self.progress.waiters:
            self._on_watch_event()

    def delete(self, key: ObjectKey, uid: str, version: str) -> None:
        self._advance(version)
        self.undecoded_keys.discard(key)
        if self.write_through.is_newer_delete(key, uid, version, self.store.get(key)):
            self.store.remove(key)
        self._on_watch_event()

    def bookmark(self, version: str) -> None:
        skipped_version, self._skipped_version = self._skipped_version, ""
        if skipped_version and skipped_version != version:
            # The pattern matched an annotation before the resourceVersion: a foreign event was skipped.
            self.reflector.relist()
            return
        self._advance(version)
        if not skipped_version and isinstance(self.write_through, ComparableVersions):
            self.write_through.prune()
        self._on_watch_event()

    def skip_decode(self, raw: bytes | msgspec.Raw) -> bool:
        write_through = self.write_through
        if self._listing or not write_through.unconfirmed_versions:
            return False
        found = _RESOURCE_VERSION_PATTERN.search(memoryview(raw))
        version = found[1].decode() if found is not None else ""
        if not write_through.is_own_write(version):
            return False
        self._skipped_version = version
        return True

    # Outcomes of our own writes: called by the cache.

    def on_write_started(self, key: ObjectKey) -> None:
        """A write of ``key`` is about to be sent."""
        self.write_through.on_write_started(key, self.store.get(key))

    def on_write_finished(self, key: ObjectKey) -> None:
        """The write was rejected, or its outcome is known."""
        self.write_through.on_write_finished(key)

    def on_write_succeeded(self, key: ObjectKey, obj: T, size: int, content: Callable[[], Mapping[str, Any]]) -> None:
        """Store the response ``obj`` to a write of ``key``.

        Args:
            key: the key of ``obj``.
            obj: the response.
            size: its bytes of JSON.
            content: returns the decoded JSON, for field selectors.
        """
        cached = self.store.get(key)
        if (
            self._has_opaque_versions
            and isinstance(self.write_through, OpaqueVersions)
            and self.write_through.is_ambiguous(key)
        ):
            self.mark_uncertain(key, until_list=True)
        elif self._is_newer_response(obj, key, cached):
            self._write_throughs.inc()
            if self.matches_selector(obj, content):
                stored = obj if self._transform is None else self._transformed(obj)
                self.store.put(stored, size, key, from_own_write=True)
            else:
                self.write_through.left_selection(key, obj.metadata.resource_version)
                self.store.remove(key)
        self.write_through.on_write_finished(key)

    def on_deleted(self, key: ObjectKey, uid: str) -> None:
        """The response says that the object ``uid`` (empty: unknown) no longer exists."""
        cached = self.store.get(key)
        write_through = self.write_through
        # No older event of a cached or observed object can arrive. If the object was never cached, events of earlier
        # objects of the same name may still arrive.
        certain = write_through.observed_delete(key, uid) or (cached is not None and cached.metadata.uid == uid)
        if isinstance(write_through, OpaqueVersions):
            certain = certain and not self._listing and key not in write_through.unconfirmed_writes
        if uid:
            write_through.add_tombstone(key, uid)
        if cached is not None and write_through.was_deleted_by(key, cached, uid):
            write_through.add_tombstone(key, cached.metadata.uid)
            if isinstance(write_through, ComparableVersions):
                write_through.left_selection(key, cached.metadata.resource_version)
            self.store.remove(key)
        if not certain:
            self.mark_uncertain(key, until_list=isinstance(write_through, OpaqueVersions))
        self.on_write_finished(key)

    def mark_uncertain(self, key: ObjectKey, *, until_list: bool = False) -> None:
        """Record that the state of ``key`` is unknown.

        The next cached read reads it from the server.

        Args:
            key: the object.
            until_list: keep the mark until the next list. One read is not enough if older events may still arrive
                and their versions cannot be compared.
        """
        self.write_through.ticks += 1
        self.uncertain_keys[key] = self.write_through.ticks
        if until_list:
            self._uncertain_until_list.add(key)
            self.reflector.relist()

    def matches_selector(self, obj: Object, content: Callable[[], Mapping[str, Any]]) -> bool:
        """Return True if the selectors of the scope match ``obj``."""
        if not self._matches_labels(obj.metadata.labels):
            return False
        if not self._field_selector:
            return True
        if all(f.field in _IDENTITY_FIELDS for f in self._field_selector):
            meta = obj.metadata
            return matches_fields(
                self._field_selector, {"metadata": {"name": meta.name, "namespace": meta.namespace}}
            )
        return matches_fields(self._field_selector, content())

    # Reads of uncertain objects

    async def resolve(self, key: ObjectKey) -> None:
        """Read ``key`` from the server and update the store.

        Raises:
            ApiError, ConnectionFailed: the object could not be read; it stays uncertain.
        """
        tick = self.write_through.ticks
        selection = self.scope.selection
        field_selector = ",".join(s for s in (selection.field_selector, f"metadata.name={key.name}") if s)
        cached = self.store.get(key)
        undecodable: list[ObjectKey] = []
        self.on_write_started(key)
        try:
            # A list of one object: it applies the selectors, and its version says when the object was absent.
            found = await self._client.list(
                self.kind,
                namespace=key.namespace,
                label_selector=selection.label_selector,
                field_selector=field_selector,
                on_decode_error=lambda key, error: undecodable.append(key),
            )
            if (
                isinstance(self.write_through, ComparableVersions)
                and parse_resource_version(found.resource_version) is None
            ):
                self._use_opaque_versions()
            if isinstance(self.write_through, OpaqueVersions) and self.write_through.is_ambiguous(key):
                self.mark_uncertain(key, until_list=True)
                return
            if found.items:
                self._store_read(found.items[0], key)
            elif not undecodable:
                self._store_absence(key, cached, found.resource_version)
        finally:
            self.on_write_finished(key)
        if self.uncertain_keys.get(key, 0) <= tick and key not in self._uncertain_until_list:
            self.uncertain_keys.pop(key, None)

    async def resolve_all(self, keys: Iterable[ObjectKey]) -> None:
        """Call ``resolve`` for each of ``keys``, 16 at a time."""
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT_READS)

        async def resolve(key: ObjectKey) -> None:
            async with semaphore:
                await self.resolve(key)

        await asyncio.gather(*map(resolve, keys))

    def _store_read(self, obj: T, key: ObjectKey) -> None:
        cached = self.store.get(key)
        if self._is_newer_response(obj, key, cached):
            self.store.put(self._transformed(obj), 0, key)

    def _store_absence(self, key: ObjectKey, previous: T | None, version: str) -> None:
        cached = self.store.get(key)
        if isinstance(self.write_through, ComparableVersions):
            if cached is not None and not self.write_through.missing_from_list(cached, version):
                return
            self.write_through.left_selection(key, version)
            self.store.remove(key)
        elif cached is not None and previous is not None and cached.metadata.uid == previous.metadata.uid:
            self.store.remove(key)
            self.mark_uncertain(key, until_list=True)

    def _is_missing(self, cached: T, version: str) -> bool:
        """Return True if ``cached`` was deleted.

        A complete list at ``version`` does not contain it.
        """
        if self._replace_all:
            return not self.write_through.is_own_write(cached.metadata.resource_version)
        return self.write_through.missing_from_list(cached, version)

    def _is_newer_event(self, obj: T, key: ObjectKey, cached: T | None) -> bool:
        meta = obj.metadata
        try:
            is_newer = self.write_through.is_newer_event(key, meta.uid, meta.resource_version, cached)
        except ValueError:
            is_newer = self._use_opaque_versions().is_newer_event(key, meta.uid, meta.resource_version, cached)
        if not is_newer and (cached is None or cached.metadata.resource_version != meta.resource_version):
            self._stale_events_dropped.inc()
        return is_newer

    def _is_newer_response(self, obj: T, key: ObjectKey, cached: T | None) -> bool:
        meta = obj.metadata
        try:
            return self.write_through.is_newer_response(key, meta.uid, meta.resource_version, cached)
        except ValueError:
            return self._use_opaque_versions().is_newer_response(key, meta.uid, meta.resource_version, cached)

    def _advance(self, version: str) -> None:
        try:
            advanced = self.write_through.advance(version)
        except ValueError:
            advanced = self._use_opaque_versions().advance(version)
        if not advanced:
            raise ResourceVersionRegression(f"a watch event has version {version}, which the watch had passed")

    def _use_opaque_versions(self) -> OpaqueVersions:
        opaque = OpaqueVersions(self.write_through.clock, has_selector=self.write_through.has_selector)
        opaque.copy_state_from(self.write_through)
        self.write_through = opaque
        self._has_opaque_versions = True
        return opaque

    def _on_watch_event(self) -> None:
        if (
            self._has_opaque_versions
            and isinstance(self.write_through, OpaqueVersions)
            and self.write_through.expire()
        ):
            # The event of an own write never arrived. A list reads the current state.
            self.reflector.relist()
        self.progress.notify()

    def _transformed(self, obj: T) -> T:
        if self._transform is None:
            return obj
        try:
            return self._transform(obj)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            # Without the object it would appear to be absent; without the watch no event would arrive.
            log.exception(
                "transform failed: the object is cached untransformed",
                kind=self.kind.api_resource.kind,
                object=str(obj.key),
            )
            return obj
