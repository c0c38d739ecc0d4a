"""Watches: streams of the changes of a collection.

Source: "Efficient detection of changes", KEP-956 and KEP-3157.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.definitions.conversion import VersionConverter
from steersman_testing.apiserver.lists import parse_watch_version, selector_matcher
from steersman_testing.apiserver.requests.negotiation import PARTIAL_OBJECT_METADATA, negotiate
from steersman_testing.apiserver.requests.parameters import bool_parameter, int_parameter
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.responses import encode_status
from steersman_testing.apiserver.storage import Storage, StorageEvent, StoredObject, Subscription
from steersman_testing.apiserver.tables import TableEncoder, table_encoder
from steersman_testing.apiserver.values import JsonObject

_BOOKMARK_INTERVAL_SECONDS = 60.0
_MIN_DEFAULT_TIMEOUT_SECONDS = 1800.0
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Watch:
    """One watch with the options of its query.

    Raises:
        ApiError: the server rejects the watch before it responds with 200.
    """

    def __init__(
        self, storage: Storage, route: Route, request: HttpRequest, runtime: Runtime, conversion: VersionConverter
    ) -> None:
        query = request.query
        self._storage = storage
        self._route = route
        self._runtime = runtime
        self._converter = conversion
        representation = negotiate(request)
        self._partial = representation == "metadata"
        self._tables = table_encoder(route.kind, request) if representation == "table" else None
        self._sent_headers = False
        self._matches = selector_matcher(route, query)
        self._since = parse_watch_version(query.get("resourceVersion", ""))
        self._allow_bookmarks = bool_parameter(query, "allowWatchBookmarks")
        self._send_initial_events = _initial_events(query)
        timeout = int_parameter(query, "timeoutSeconds")
        int_parameter(query, "limit")
        self._timeout = float(timeout) if timeout else _MIN_DEFAULT_TIMEOUT_SECONDS * (1 + runtime.random.random())

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield encoded watch events until the timeout.

        Raises:
            WatchBroken: the stream breaks here.
        """
        try:
            subscription = self._subscribe()
        except ApiError as error:
            # The real server has already responded with 200, so the error is an event.
            yield _event_line("ERROR", encode_status(error))
            return
        try:
            if self._sends_initial_state:
                for stored in self._storage.list(self._route.kind.collection, self._route.namespace):
                    converted = await self._convert(stored)
                    if self._matches_selection(converted):
                        yield self._encode("ADDED", converted)
            if self._send_initial_events and self._allow_bookmarks:
                yield self._bookmark(_INITIAL_EVENTS_END)
            async for line in self._watch_events(subscription):
                yield line
        finally:
            self._storage.unsubscribe(subscription)

    @property
    def _sends_initial_state(self) -> bool:
        """ADDED events for all objects come first.

        The client requests them, or sends no resourceVersion.
        """
        return self._send_initial_events is True or (self._send_initial_events is None and self._since == 0)

    def _subscribe(self) -> Subscription:
        since = self._storage.version if self._sends_initial_state else self._since
        return self._storage.subscribe(self._route.kind.collection, since or self._storage.version)

    async def _watch_events(self, subscription: Subscription) -> AsyncGenerator[bytes, None]:
        clock = self._runtime.clock
        deadline = clock.monotonic() + self._timeout
        while (remaining := deadline - clock.monotonic()) > 0:
            event = await subscription.next(min(remaining, _BOOKMARK_INTERVAL_SECONDS))
            if event is None:
                if self._allow_bookmarks:
                    yield self._bookmark()
                continue
            line = await self._encode_event(event)
            if line is not None:
                yield line

    async def _convert(self, stored: StoredObject) -> StoredObject:
        """Return ``stored`` in the version of this watch, possibly by a webhook."""
        kind = self._route.kind
        if kind.versions is None and kind.storage_collection is None:
            return stored
        return await self._converter.webhook_caller.run(lambda: self._converter.from_storage(kind, stored))

    async def _encode_event(self, event: StorageEvent) -> bytes | None:
        """Encode a change as an event of this watch.

        An object that enters or leaves the selection becomes ADDED or DELETED.
        """
        if event.version <= self._since:
            return None
        before = await self._convert(event.before) if event.before is not None else None
        after = await self._convert(event.after) if event.after is not None else None
        matched_before = before is not None and self._matches_selection(before)
        matches_now = after is not None and self._matches_selection(after)
        if matches_now and after is not None:
            return self._encode("MODIFIED" if matched_before else "ADDED", after)
        if matched_before and before is not None:
            return self._encode("DELETED", before.with_version(event.version))
        return None

    def _matches_selection(self, stored: StoredObject) -> bool:
        namespace = self._route.namespace
        if namespace and stored.key.namespace != namespace:
            return False
        return self._matches is None or self._matches(stored.object)

    def _encode(self, kind: str, stored: StoredObject) -> bytes:
        if self._tables is not None:
            return _event_line(kind, self._table(self._tables, stored))
        return _event_line(kind, stored.to_json(self._route.kind.resource.api_version, partial=self._partial))

    def _table(self, tables: TableEncoder, stored: StoredObject) -> bytes:
        """Encode a Table. Only the first one has column definitions."""
        meta = {"resourceVersion": str(stored.version)}
        table = tables.encode([stored], meta, self._runtime.clock.now(), headers=not self._sent_headers)
        self._sent_headers = True
        return table

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        return _event_line("BOOKMARK", self._bookmark_object(annotations))

    def _bookmark_object(self, annotations: dict[str, str] | None) -> bytes:
        resource = self._route.kind.resource
        meta: JsonObject = {"resourceVersion": str(self._storage.version)}
        if annotations:
            meta["annotations"] = annotations
        named = (
            (PARTIAL_OBJECT_METADATA, "meta.k8s.io/v1") if self._partial else (resource.kind, resource.api_version)
        )
        bookmark = {"kind": named[0], "apiVersion": named[1], "metadata": meta}
        if self._tables is not None:
            placeholder = StoredObject(
                self._route.kind.collection, ObjectKey("", ""), bookmark, {}, self._storage.version
            )
            return self._table(self._tables, placeholder)
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
    return bool_parameter(query, "sendInitialEvents")


def _event_line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}"
