"""What one reflector, and our own writes, bring into an informer: the objects of one scope."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from steersman.cache.opaque import Opaque
from steersman.cache.options import Scope
from steersman.cache.outage import Outage
from steersman.cache.overlay import Ordered, Overlay
from steersman.cache.reflector import Reflector, WentBack
from steersman.cache.versions import version_number
from steersman.client import Client
from steersman.meta import Object, ObjectKey
from steersman.meta.selectors import fields_fit, label_matcher, parse_field_selector
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

if TYPE_CHECKING:
    from steersman.cache.informer import Informer

T = TypeVar("T", bound=Object)

_VERSION = re.compile(rb'"resourceVersion":"([^"\\]+)"')
_READS_AT_ONCE = 16
_IDENTITY_FIELDS = frozenset(("metadata.name", "metadata.namespace"))

log = get_logger("cache")


class Part(Generic[T]):
    """The objects of one scope, in the store of their informer. ``overlay`` says what of all news is news."""

    def __init__(
        self,
        informer: Informer[T],
        client: Client,
        scope: Scope,
        *,
        runtime: Runtime,
        outage: Outage | None = None,
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        selection = scope.selection
        self.kind = informer.kind
        self.scope = scope
        self.has_synced = False
        self.reflector = Reflector(
            client, informer.kind, self, runtime=runtime, scope=scope, outage=outage, turns=turns
        )
        self.overlay: Overlay = Ordered(runtime.clock, selective=selection.selects)
        self.doubts: dict[ObjectKey, int] = {}
        self._lasting: set[ObjectKey] = set()
        self._client = client
        self.informer = informer
        self._store = informer.store
        self._labels_fit = label_matcher(selection.label_selector)
        self._fields = parse_field_selector(selection.field_selector)
        self._transform = selection.transform
        self._seen: set[ObjectKey] = set()
        self._listing = False
        self._whole = False
        self._claimed = ""
        self._opaque = False

    def has_reached(self, version: str) -> bool:
        """Whether the watch has told everything up to ``version``."""
        number = version_number(version)
        return isinstance(self.overlay, Ordered) and number is not None and self.overlay.progress >= number

    def covers(self, key: ObjectKey) -> bool:
        """Whether ``key`` is in its namespace."""
        return not self.scope.namespace or key.namespace == self.scope.namespace

    # Lists. See ``Sink``.

    def list_begins(self, *, whole: bool) -> None:
        self._listing = True
        self._whole = whole
        self._seen = set()
        if whole:
            self.overlay.clear()
            self.doubts.clear()
            self._lasting.clear()
        self.overlay.list_begins()

    def listed(self, obj: T, size: int) -> None:
        key = obj.key
        self._seen.add(key)
        held = self._store.get(key)
        if self._whole or self._admits(obj, key, held):
            self.informer.put(key, self._form(obj), size, held, initial=True)

    def unreadable(self, key: ObjectKey) -> None:
        # It exists: what was held of it before is the best that is known.
        if self._listing:
            self._seen.add(key)

    def list_ends(self, version: str) -> bool:
        try:
            behind = self.overlay.is_rollback(version)
        except ValueError:
            behind = self._go_opaque().is_rollback(version)
        if behind and not self._whole:
            return False
        for held in self._store:
            key = held.key
            if key not in self._seen and self.covers(key) and self._is_gone(held, version):
                self.informer.remove(key)
        self._seen = set()
        self._listing = self._whole = False
        self.overlay.list_ends(version)
        self.doubts = {key: tick for key, tick in self.doubts.items() if tick > self.overlay.list_tick}
        self._lasting &= set(self.doubts)
        self.has_synced = True
        self.informer.note_list()
        return True

    # The watch. See ``Sink``.

    def upsert(self, obj: T, size: int) -> None:
        meta = obj.metadata
        self._reach(meta.resource_version)
        key = ObjectKey(meta.namespace, meta.name)
        held = self._store.get(key)
        if self._admits(obj, key, held):
            self.informer.put(key, self._form(obj), size, held)
        self._note()

    def delete(self, key: ObjectKey, uid: str, version: str) -> None:
        self._reach(version)
        if self.overlay.removes(key, uid, version, self._store.get(key)):
            self.informer.remove(key)
        self._note()

    def passed(self, version: str) -> None:
        claimed, self._claimed = self._claimed, ""
        if claimed and claimed != version:
            # An annotation of that name came before the version. The event went by unread.
            self.reflector.relist()
            return
        self._reach(version)
        if not claimed and isinstance(self.overlay, Ordered):
            self.overlay.sweep()
        self._note()

    def knows(self, raw: bytes | msgspec.Raw) -> bool:
        overlay = self.overlay
        if self._listing or not (isinstance(overlay, Ordered) and overlay.expects_any):
            return False
        found = _VERSION.search(memoryview(raw))
        version = found[1].decode() if found is not None else ""
        if not overlay.expects(version):
            return False
        self._claimed = version
        return True

    # Our own writes. See ``WriteObserver``.

    def begun(self, key: ObjectKey) -> None:
        """A write of ``key`` is about to be sent."""
        self.overlay.begun(key, self._store.get(key))

    def ended(self, key: ObjectKey) -> None:
        """It was refused, or its outcome is known."""
        self.overlay.ended(key)

    def written(self, obj: T, size: int, content: Callable[[], Mapping[str, Any]]) -> None:
        """It was answered by ``obj``, of ``size`` bytes of JSON; ``content`` gives the wire form."""
        key, version = obj.key, obj.metadata.resource_version
        held = self._store.get(key)
        if isinstance(self.overlay, Opaque) and self.overlay.is_ambiguous(key):
            self.doubt(key, until_list=True)
        elif self._accepts(obj, key, held):
            self.informer.own_writes.inc()
            if self.matches(obj, content):
                self.informer.put(key, self._form(obj), size, held, own=True)
            else:
                self.overlay.left(key, version)
                self.informer.remove(key)
        self.ended(key)

    def deleted(self, key: ObjectKey, uid: str) -> None:
        """It was answered by: the object ``uid`` (empty: not said) is gone for good."""
        held = self._store.get(key)
        overlay = self.overlay
        # Of an object that was held, or whose end was seen, nothing older can come. If it never was, others that bore
        # the name before it may still be told of.
        certain = overlay.saw_end(key, uid) or (held is not None and held.metadata.uid == uid)
        if isinstance(overlay, Opaque):
            certain = certain and not self._listing and key not in overlay.holds
        if uid:
            overlay.bury(key, uid)
        if held is not None and overlay.outlived(key, held, uid):
            overlay.bury(key, held.metadata.uid)
            if isinstance(overlay, Ordered):
                overlay.left(key, held.metadata.resource_version)
            self.informer.remove(key)
        if not certain:
            self.doubt(key, until_list=isinstance(overlay, Opaque))
        self.ended(key)

    def doubt(self, key: ObjectKey, *, until_list: bool = False) -> None:
        """Nobody knows what became of ``key``: it has to be read before it is believed.

        Args:
            until_list: one read does not settle it, since older news may still come that nobody can tell from newer.
        """
        self.overlay.ticks += 1
        self.doubts[key] = self.overlay.ticks
        if until_list:
            self._lasting.add(key)
            self.reflector.relist()

    def matches(self, obj: Object, content: Callable[[], Mapping[str, Any]]) -> bool:
        """Whether ``obj`` is of the informer's selection."""
        if not self._labels_fit(obj.metadata.labels):
            return False
        if not self._fields:
            return True
        if all(f.field in _IDENTITY_FIELDS for f in self._fields):
            meta = obj.metadata
            return fields_fit(self._fields, {"metadata": {"name": meta.name, "namespace": meta.namespace}})
        return fields_fit(self._fields, content())

    # Reads that settle a doubt

    async def settle(self, key: ObjectKey) -> None:
        """Reads ``key`` from the server, and brings the store to that.

        Raises:
            ApiError, ConnectionFailed: it could not be read; the doubt stays.
        """
        tick = self.overlay.ticks
        selection = self.scope.selection
        named = ",".join(s for s in (selection.field_selector, f"metadata.name={key.name}") if s)
        held = self._store.get(key)
        unreadable: list[ObjectKey] = []
        self.begun(key)
        try:
            # A list of one, since the server then also says whether it belongs to the selection, and as of when.
            found = await self._client.list(
                self.kind,
                namespace=key.namespace,
                label_selector=selection.label_selector,
                field_selector=named,
                on_decode_error=lambda key, error: unreadable.append(key),
            )
            if isinstance(self.overlay, Ordered) and version_number(found.resource_version) is None:
                self._go_opaque()
            if isinstance(self.overlay, Opaque) and self.overlay.is_ambiguous(key):
                self.doubt(key, until_list=True)
                return
            if found.items:
                self._take_read(found.items[0], key)
            elif not unreadable:
                self._take_absence(key, held, found.resource_version)
        finally:
            self.ended(key)
        if self.doubts.get(key, 0) <= tick and key not in self._lasting:
            self.doubts.pop(key, None)

    async def settle_all(self, keys: Iterable[ObjectKey]) -> None:
        """``settle`` for each of ``keys``, some at a time."""
        reads = asyncio.Semaphore(_READS_AT_ONCE)

        async def settle(key: ObjectKey) -> None:
            async with reads:
                await self.settle(key)

        await asyncio.gather(*map(settle, keys))

    def _take_read(self, obj: T, key: ObjectKey) -> None:
        held = self._store.get(key)
        if self._accepts(obj, key, held):
            self.informer.put(key, self._form(obj), 0, held)

    def _take_absence(self, key: ObjectKey, before: T | None, version: str) -> None:
        held = self._store.get(key)
        if isinstance(self.overlay, Ordered):
            if held is not None and not self.overlay.lacks(held, version):
                return
            self.overlay.left(key, version)
            self.informer.remove(key)
        elif held is not None and before is not None and held.metadata.uid == before.metadata.uid:
            self.informer.remove(key)
            self.doubt(key, until_list=True)

    # Inside

    def _is_gone(self, held: T, version: str) -> bool:
        """Whether ``held`` is gone, given that a list at ``version`` is complete without it."""
        if self._whole:
            return not self.overlay.expects(held.metadata.resource_version)
        return self.overlay.lacks(held, version)

    def _admits(self, obj: T, key: ObjectKey, held: T | None) -> bool:
        meta = obj.metadata
        try:
            admitted = self.overlay.admits(key, meta.uid, meta.resource_version, held)
        except ValueError:
            admitted = self._go_opaque().admits(key, meta.uid, meta.resource_version, held)
        if not admitted and (held is None or held.metadata.resource_version != meta.resource_version):
            self.informer.stale_news.inc()
        return admitted

    def _accepts(self, obj: T, key: ObjectKey, held: T | None) -> bool:
        meta = obj.metadata
        try:
            return self.overlay.accepts(key, meta.uid, meta.resource_version, held)
        except ValueError:
            return self._go_opaque().accepts(key, meta.uid, meta.resource_version, held)

    def _reach(self, version: str) -> None:
        try:
            onward = self.overlay.advance(version)
        except ValueError:
            onward = self._go_opaque().advance(version)
        if not onward:
            raise WentBack(f"the watch told of version {version}, which it had passed")

    def _go_opaque(self) -> Opaque:
        opaque = Opaque(self.overlay.clock, selective=self.overlay.selective)
        opaque.take_over(self.overlay)
        self.overlay = opaque
        self._opaque = True
        return opaque

    def _note(self) -> None:
        """Something came from the watch."""
        if self._opaque and isinstance(self.overlay, Opaque) and self.overlay.expire():
            # A version never came: it was no news, or the watch was told before we asked. A list will tell.
            self.reflector.relist()
        if self.informer.waiting:
            self.informer.note_progress()

    def _form(self, obj: T) -> T:
        if self._transform is None:
            return obj
        try:
            return self._transform(obj)
        except Exception:
            # To leave it out, or to end the watch, would take it for absent, or cost all others their news.
            log.exception(
                "a transform failed: the object is held whole", kind=self.informer.name, object=str(obj.key)
            )
            return obj
