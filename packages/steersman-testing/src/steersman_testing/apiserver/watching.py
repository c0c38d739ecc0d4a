"""Watches: the changes of a collection as they come. Source: "Efficient detection of changes", KEP-956, KEP-3157."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.definitions.conversion import Conversion
from steersman_testing.apiserver.listing import selection, version_of
from steersman_testing.apiserver.printing.tables import Tables
from steersman_testing.apiserver.requests.negotiation import PARTIAL, negotiate
from steersman_testing.apiserver.requests.parameters import flag, number
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import Event, Storage, Stored, Subscription
from steersman_testing.apiserver.values import JsonObject, map_at

_BOOKMARK_INTERVAL = 60.0
_SHORTEST_DEFAULT = 1800.0
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Watch:
    """One watch: what the query asks for. Raises ApiError where the real server refuses before it answers 200."""

    def __init__(
        self, storage: Storage, route: Route, request: HttpRequest, runtime: Runtime, conversion: Conversion
    ) -> None:
        query = request.query
        self._storage = storage
        self._route = route
        self._runtime = runtime
        self._conversion = conversion
        form = negotiate(request)
        self._partial = form == "metadata"
        self._tables = Tables.of(route.kind, request) if form == "table" else None
        self._headed = False
        self._matches = selection(route, query)
        self._since = version_of(query.get("resourceVersion", ""))
        self._bookmarks = flag(query, "allowWatchBookmarks")
        self._initial = _initial_events(query)
        timeout = number(query, "timeoutSeconds")
        number(query, "limit")
        self._timeout = float(timeout) if timeout else _SHORTEST_DEFAULT * (1 + runtime.random.random())

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events, encoded, until the watch times out. Raises Broken where the stream is to break."""
        try:
            subscription = self._subscribe()
        except ApiError as error:
            # The real server has answered 200 by then: the refusal is an event.
            yield _line("ERROR", encode_status(error))
            return
        try:
            if self._replays:
                for stored in self._storage.list(self._route.kind.collection, self._route.namespace):
                    seen = await self._read(stored)
                    if self._selects(seen):
                        yield self._encode("ADDED", seen)
            if self._initial and self._bookmarks:
                yield self._bookmark(_INITIAL_EVENTS_END)
            async for line in self._follow(subscription):
                yield line
        finally:
            self._storage.unsubscribe(subscription)

    @property
    def _replays(self) -> bool:
        """Whether the present state comes first: asked for, or implied by no version at all."""
        return self._initial is True or (self._initial is None and self._since == 0)

    def _subscribe(self) -> Subscription:
        since = self._storage.version if self._replays else self._since
        return self._storage.subscribe(self._route.kind.collection, since or self._storage.version)

    async def _follow(self, subscription: Subscription) -> AsyncGenerator[bytes, None]:
        clock = self._runtime.clock
        deadline = clock.monotonic() + self._timeout
        while (left := deadline - clock.monotonic()) > 0:
            event = await subscription.next(min(left, _BOOKMARK_INTERVAL))
            if event is None:
                if self._bookmarks:
                    yield self._bookmark()
                continue
            line = await self._translate(event)
            if line is not None:
                yield line

    async def _read(self, stored: Stored) -> Stored:
        """``stored`` in the version of this watch, which a webhook may have to tell."""
        kind = self._route.kind
        if kind.versions is None and kind.kept_in is None:
            return stored
        return await self._conversion.callouts.complete(lambda: self._conversion.read(kind, stored))

    async def _translate(self, event: Event) -> bytes | None:
        """What this watch sees of a change: objects enter and leave its selection."""
        if event.version <= self._since:
            return None
        before = await self._read(event.before) if event.before is not None else None
        after = await self._read(event.after) if event.after is not None else None
        was = before is not None and self._selects(before)
        now = after is not None and self._selects(after)
        if now and after is not None:
            return self._encode("MODIFIED" if was else "ADDED", after)
        if was and before is not None:
            return self._encode("DELETED", before.at(event.version))
        return None

    def _selects(self, stored: Stored) -> bool:
        namespace = self._route.namespace
        if namespace and stored.key.namespace != namespace:
            return False
        return self._matches is None or self._matches(stored.object)

    def _encode(self, kind: str, stored: Stored) -> bytes:
        if self._tables is not None:
            return _line(kind, self._table(self._tables, stored))
        return _line(kind, stored.encoded(self._route.kind.resource.api_version, partial=self._partial))

    def _table(self, tables: Tables, stored: Stored) -> bytes:
        """Only the first one has headers."""
        meta = {"resourceVersion": str(stored.version)}
        table = tables.encode([stored], meta, self._runtime.clock.now(), headers=not self._headed)
        self._headed = True
        return table

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        return _line("BOOKMARK", self._bookmark_object(annotations))

    def _bookmark_object(self, annotations: dict[str, str] | None) -> bytes:
        resource = self._route.kind.resource
        meta: JsonObject = {"resourceVersion": str(self._storage.version)}
        if annotations:
            meta["annotations"] = annotations
        named = (PARTIAL, "meta.k8s.io/v1") if self._partial else (resource.kind, resource.api_version)
        bookmark = {"kind": named[0], "apiVersion": named[1], "metadata": meta}
        if self._tables is not None:
            place = Stored(self._route.kind.collection, ObjectKey("", ""), bookmark, {}, self._storage.version)
            return self._table(self._tables, place)
        return msgspec.json.encode(bookmark)


def _initial_events(query: Mapping[str, str]) -> bool | None:
    match = query.get("resourceVersionMatch", "")
    if query.get("continue"):
        detail = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
        raise failures.invalid_options("ListOptions", "resourceVersionMatch", detail, "FieldValueForbidden")
    if "sendInitialEvents" not in query:
        if match:
            detail = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise failures.invalid_options("ListOptions", "resourceVersionMatch", detail, "FieldValueForbidden")
        return None
    if match != "NotOlderThan":
        detail = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise failures.invalid_options("ListOptions", "resourceVersionMatch", detail, "FieldValueForbidden")
    return flag(query, "sendInitialEvents")


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}"


def encode_status(error: ApiError) -> bytes:
    """A refusal as ``metav1.Status``."""
    status: JsonObject = msgspec.to_builtins(error.status)
    details = {k: v for k, v in map_at(status, "details").items() if v}
    if causes := details.get("causes"):
        details["causes"] = [{k: v for k, v in cause.items() if v} for cause in causes]
    del status["details"]
    wire: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, **status}
    if error.status.details is not None:
        wire["details"] = details
    if not wire["reason"]:
        del wire["reason"]
    return msgspec.json.encode(wire)
