"""Keeps a sink current by list and watch.

It recovers from every error.

The states and their transitions::

    LISTING   reads all objects: as the initial events of the watch if the server supports streaming lists (KEP-3157),
              page by page otherwise. Lists are consistent: they show the state at the time of the request.
              complete → WATCHING
              older than a known version (resourceVersion regression) → LISTING, and that list replaces everything
              streaming is rejected, does not end, or breaks off thrice → LISTING by pages from now on
              a page expired → BACKING_OFF, then LISTING in one page
              any other error → BACKING_OFF, then LISTING
    WATCHING  passes on changes one by one, from the version that was reached.
              the server ends the stream, as it does every few minutes → WATCHING
              no event arrives, not even a bookmark → CHECKING
              an event with a lower version than before → BACKING_OFF, then LISTING
              rejected, most often with 410 Expired after compaction → BACKING_OFF, then LISTING
              "Too large resource version", as this server lags → BACKING_OFF, then WATCHING; after several such
              responses in a row → LISTING
              connection lost, stream ended immediately, 401, 403, 429, 503 → BACKING_OFF, then WATCHING
    CHECKING  requests the current version, since the server lets a watch from a future version wait without end.
              no lower than the version that was reached → WATCHING from there, on a new connection
              lower → BACKING_OFF, then LISTING
              versions cannot be compared → LISTING
              any error → as in WATCHING
    BACKING_OFF  waits with jitter, longer after each failure in a row, or as long as the server requests.

The reflector ends only by cancellation: ``Cache`` restarts one that ends otherwise. Objects that do not fit their
type are logged and skipped.

Source: "Kubernetes API Concepts", section "Efficient detection of changes".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from steersman.cache import metrics
from steersman.cache.options import WatchScope
from steersman.cache.resource_version import parse_resource_version
from steersman.cache.watch_errors import WatchErrorLogger
from steersman.client import Client, ObjectPage, WatchEvent
from steersman.client.decode import DecodeErrorHandler
from steersman.errors import (
    ApiError,
    BadRequest,
    ConnectionFailed,
    Expired,
    Forbidden,
    Invalid,
    ServiceUnavailable,
    SteersmanError,
    TooManyRequests,
    Unauthorized,
    error_text,
)
from steersman.meta import Object, ObjectKey
from steersman.observability import metrics as shared_metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)

_INITIAL_BACKOFF_SECONDS = 0.8
_MAX_BACKOFF_SECONDS = 30.0
# Doublings of the first delay while connections are refused: pauses of up to six seconds.
_MAX_DOUBLINGS_WHILE_UNREACHABLE = 3
# A server or proxy that ends a watch sooner than this, without an event, is failing. client-go has the same limit.
_MIN_WATCH_SECONDS = 1.0
_PAGE_SIZE = 500
# Bookmarks arrive once a minute, the first of a quiet kind after two minutes.
WATCH_IDLE_TIMEOUT_SECONDS = 150.0
_LIST_IDLE_TIMEOUT_SECONDS = 60.0
# Responses "Too large resource version" in a row until the reflector lists instead of waiting for the server.
_MAX_TOO_LARGE_VERSION_ERRORS = 5
# Streaming lists in a row that break off before their end. Some servers and proxies never complete one.
_MAX_BROKEN_STREAMING_LISTS = 3
# Undecodable objects of a list that are logged by name; the metric counts all.
_MAX_LOGGED_DECODE_ERRORS = 5
_DEFAULT_SCOPE = WatchScope()

log = get_logger("cache")


class ReflectorState(Enum):
    """The state of a reflector: see the module's docstring."""

    LISTING = "listing"
    WATCHING = "watching"
    CHECKING = "checking"
    BACKING_OFF = "backing off"


class ResourceVersionRegression(SteersmanError):
    """The server returned a lower resourceVersion than before.

    This happens after a restore of etcd from a backup.
    """


class Sink(Protocol[T_contra]):
    """Receives lists and watch events from a reflector. The methods follow the events of kube-rs' watcher."""

    def init(self, *, replace_all: bool) -> None:
        """A list begins. ``replace_all``: its objects replace newer ones as well."""
        ...

    def init_apply(self, obj: T_contra, size: int) -> None:
        """``obj``, of ``size`` bytes of JSON, is an item of the list."""
        ...

    def decode_failed(self, key: ObjectKey) -> None:
        """``key`` exists, but does not fit its type."""
        ...

    def init_done(self, version: str) -> bool:
        """The list is complete at ``version``. Return False on a regression: list again with ``replace_all``."""
        ...

    def apply(self, obj: T_contra, size: int) -> None:
        """Handle a watch event that creates or changes an object. Raises ResourceVersionRegression.

        ``obj`` is the new state, of ``size`` bytes of JSON.
        """
        ...

    def delete(self, key: ObjectKey, uid: str, version: str) -> None:
        """``uid`` was deleted or left the selection at ``version``. Raises ResourceVersionRegression."""
        ...

    def bookmark(self, version: str) -> None:
        """The watch has reached ``version`` without an object. Raises ResourceVersionRegression."""
        ...

    def skip_decode(self, raw: bytes | msgspec.Raw) -> bool:
        """Return True if the JSON ``raw`` need not be decoded."""
        ...


class Reflector(Generic[T]):
    """Lists and watches one kind in one scope.

    Args:
        client: sends the requests.
        kind: the kind.
        sink: receives lists and events.
        runtime: clock, randomness and tasks.
        scope: the namespace and the selectors.
        watch_errors: logs interruptions; shared by the reflectors of a kind.
        semaphore: limits concurrent lists and watch requests; shared by the reflectors of a kind.

    Attributes:
        state: the current state.
        resource_version: the version that was reached; empty while listing.
        last_error: the error of the last back-off; None once the watch has recovered.
        last_event_at: time of the last event, by the clock's ``monotonic``; None before the first.
    """

    def __init__(
        self,
        client: Client,
        kind: type[T],
        sink: Sink[T],
        *,
        runtime: Runtime,
        scope: WatchScope = _DEFAULT_SCOPE,
        watch_errors: WatchErrorLogger | None = None,
        semaphore: asyncio.Semaphore | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._sink = sink
        self._runtime = runtime
        self._scope = scope
        self._watch_errors = watch_errors or WatchErrorLogger(kind.api_resource.kind, runtime.clock)
        self._semaphore = semaphore or asyncio.Semaphore(1)
        self._holds_semaphore = False
        self._failures = 0
        self._too_large_version_errors = 0
        self._use_watch_list = True
        self._broken_streaming_lists = 0
        self._page_size = _PAGE_SIZE
        self._replace_all = False
        self._relist_requested = False
        self._decode_error_count = 0
        self._name = kind.api_resource.kind
        self._watch_timeout: asyncio.Timeout | None = None
        self._next_timeout_reset = 0.0
        self._recovery_timer: asyncio.TimerHandle | None = None
        self.state = ReflectorState.LISTING
        self.resource_version = ""
        self.last_error: Exception | None = None
        self.last_event_at: float | None = None

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                await self._list_or_watch()
            except Exception as error:
                # Any error: after the end of a reflector the cache would be outdated without notice.
                await self._back_off(error)

    def relist(self) -> None:
        """Interrupt the watch and list again."""
        self._relist_requested = True
        if self._watch_timeout is not None:
            self._watch_timeout.reschedule(asyncio.get_running_loop().time())

    async def _list_or_watch(self) -> None:
        """Run one list or watch.

        The semaphore is released as soon as the watch only waits for events.
        """
        await self._semaphore.acquire()
        self._holds_semaphore = True
        if self._relist_requested:
            self._relist_requested, self.resource_version = False, ""
        try:
            if self.resource_version or self._use_watch_list:
                await self._watch()
            else:
                await self._list()
        finally:
            self._release_semaphore()

    def _release_semaphore(self) -> None:
        if self._holds_semaphore:
            self._holds_semaphore = False
            self._semaphore.release()

    # Lists

    async def _list(self) -> None:
        self.state = ReflectorState.LISTING
        self._begin_list()
        version = ""
        async with aclosing(self._pages(self._page_size, self._on_decode_error)) as pages:
            async for page in pages:
                for obj, size in zip(page.items, page.sizes, strict=True):
                    self._sink.init_apply(obj, size)
                version = page.resource_version
        self._end_list(version)

    def _pages(self, page_size: int, on_decode_error: DecodeErrorHandler) -> AsyncGenerator[ObjectPage[T], None]:
        selection = self._scope.selection
        return self._client.pages(
            self._kind,
            namespace=self._scope.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            page_size=page_size,
            on_decode_error=on_decode_error,
        )

    def _begin_list(self) -> None:
        self._decode_error_count = 0
        self._sink.init(replace_all=self._replace_all)

    def _end_list(self, version: str) -> None:
        if self._decode_error_count > _MAX_LOGGED_DECODE_ERRORS:
            log.error(
                "more objects were skipped",
                kind=self._name,
                objects=self._decode_error_count - _MAX_LOGGED_DECODE_ERRORS,
            )
        if not self._sink.init_done(version):
            self._on_regression(f"a list has version {version or '(none)'}, and newer versions were known before")
            return
        self._replace_all = False
        self._broken_streaming_lists = 0
        self._page_size = _PAGE_SIZE
        self.resource_version = version
        self.last_event_at = self._runtime.clock.monotonic()
        self.last_error = None
        self._release_semaphore()

    # Watches

    async def _watch(self) -> None:
        listing = not self.resource_version
        self.state = ReflectorState.LISTING if listing else ReflectorState.WATCHING
        if listing:
            self._begin_list()
        started_at, version = self._runtime.clock.monotonic(), self.resource_version
        watch_timeout = self._watch_timeout = asyncio.timeout(
            _LIST_IDLE_TIMEOUT_SECONDS if listing else WATCH_IDLE_TIMEOUT_SECONDS
        )
        self._next_timeout_reset = started_at
        try:
            async with watch_timeout, aclosing(self._stream(listing)) as stream:
                async for event in stream:
                    if not self._handle_event(event):
                        return
        except TimeoutError:
            if not watch_timeout.expired():
                raise
            await self._on_watch_timeout()
            return
        except (Invalid, BadRequest) as error:
            if not self.resource_version:
                self._disable_watch_list(error)
                return
            raise
        finally:
            self._watch_timeout = None
            if self._recovery_timer is not None:
                self._recovery_timer.cancel()
        if not self.resource_version and not self._relist_requested:
            raise ConnectionFailed("the streaming list ended before it was complete")
        duration = self._runtime.clock.monotonic() - started_at
        if self.resource_version == version and duration < _MIN_WATCH_SECONDS:
            raise ConnectionFailed(f"the watch ended at once ({duration:.3f} s)")
        if self.resource_version:
            self._reset_backoff()

    def _stream(self, listing: bool) -> AsyncGenerator[WatchEvent[T], None]:
        selection = self._scope.selection
        return self._client.watch(
            self._kind,
            resource_version=self.resource_version,
            namespace=self._scope.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            # Spread over five to ten minutes, as client-go does, so that watches do not all end together.
            timeout=300.0 * (1 + self._runtime.random.random()),
            send_initial_events=listing,
            skip_decode=self._sink.skip_decode,
            on_open=None if listing else self._on_watch_open,
            on_decode_error=self._on_decode_error,
        )

    def _on_watch_open(self) -> None:
        self._release_semaphore()
        if self.last_error is not None:
            # A quiet kind may have no event for minutes. A watch that stays open has recovered.
            self._recovery_timer = asyncio.get_running_loop().call_later(_MIN_WATCH_SECONDS, self._reset_backoff)

    def _handle_event(self, event: WatchEvent[T]) -> bool:
        """Pass ``event`` to the sink. Return False if the stream must be closed."""
        now = self.last_event_at = self._runtime.clock.monotonic()
        if now >= self._next_timeout_reset:
            self._reset_watch_timeout(now)
        if not self.resource_version:
            return self._handle_initial_event(event)
        if event.type == "DELETED":
            self._sink.delete(event.key, event.uid, event.resource_version)
        elif event.object is not None:
            self._sink.apply(event.object, event.size)
        else:
            self._sink.bookmark(event.resource_version)
        self.resource_version = event.resource_version
        if self.last_error is not None or self._failures:
            self._reset_backoff()
        return not self._relist_requested

    def _reset_watch_timeout(self, now: float) -> None:
        """Restart the idle timeout at ``now``."""
        idle_timeout = WATCH_IDLE_TIMEOUT_SECONDS if self.resource_version else _LIST_IDLE_TIMEOUT_SECONDS
        # A timer for each event would cost more than the event itself: reset it at most ten times per timeout.
        self._next_timeout_reset = now + idle_timeout / 10
        if self._watch_timeout is not None:
            self._watch_timeout.reschedule(asyncio.get_running_loop().time() + idle_timeout)

    def _handle_initial_event(self, event: WatchEvent[T]) -> bool:
        """Pass on an object that existed when the stream began. Return False if the stream must be closed."""
        if event.object is not None:
            self._sink.init_apply(event.object, event.size)
        elif event.initial_events_end:
            self._end_list(event.resource_version)
            self.state = ReflectorState.WATCHING
            self._reset_watch_timeout(self._runtime.clock.monotonic())
            return bool(self.resource_version)
        elif event.type == "BOOKMARK":
            self._disable_watch_list(None)
            return False
        return True

    def _disable_watch_list(self, error: Exception | None) -> None:
        self._use_watch_list = False
        log.debug(
            "server does not support streaming lists", kind=self._name, error=str(error or "the list does not end")
        )

    async def _on_watch_timeout(self) -> None:
        if self._relist_requested:
            return
        if not self.resource_version:
            self._disable_watch_list(None)
            return
        shared_metrics.watch_restarts.labels(self._name, "Silent").inc()
        # Normal for a kind without changes, so not logged at a higher level.
        log.debug("watch idle timeout", kind=self._name, seconds=WATCH_IDLE_TIMEOUT_SECONDS)
        self.state = ReflectorState.CHECKING
        observed = parse_resource_version(self.resource_version)
        if observed is None:
            # Versions that cannot be compared: only a list shows whether the watch is outdated.
            self.resource_version = ""
            return
        async with aclosing(self._pages(1, lambda key, error: None)) as pages:
            async for page in pages:
                current = parse_resource_version(page.resource_version)
                if current is not None and current < observed:
                    raise ResourceVersionRegression(
                        f"the server is at version {current}, and the watch had reached {observed}"
                    )
                return

    # Recoveries

    def _reset_backoff(self) -> None:
        # Not called after a list: if lists succeed and watches fail, the delays must grow.
        self._failures = 0
        self._too_large_version_errors = 0
        self.last_error = None
        self._watch_errors.recovered(self)

    def _on_decode_error(self, key: ObjectKey, error: Exception) -> None:
        metrics.decode_errors.labels(self._name).inc()
        self._sink.decode_failed(key)
        self._decode_error_count += 1
        if self.resource_version or self._decode_error_count <= _MAX_LOGGED_DECODE_ERRORS:
            text = error_text(error)
            log.error("object skipped: it does not fit its type", kind=self._name, object=str(key), error=text)

    def _on_regression(self, detail: str) -> None:
        self._replace_all = True
        self.resource_version = ""
        metrics.resource_version_regressions.labels(self._name).inc()
        log.error("resourceVersion regression: was etcd restored from a backup?", kind=self._name, detail=detail)

    async def _back_off(self, error: Exception) -> None:
        self.last_error = error
        is_streaming = self.state is ReflectorState.LISTING and self._use_watch_list
        if is_streaming and isinstance(error, ConnectionFailed) and error.sent:
            self._broken_streaming_lists += 1
            if self._broken_streaming_lists >= _MAX_BROKEN_STREAMING_LISTS:
                self._disable_watch_list(error)
        if not self._can_resume(error):
            self.resource_version = ""
        if isinstance(error, Expired) and self.state is ReflectorState.LISTING:
            self._page_size = 0
        self.state = ReflectorState.BACKING_OFF
        shared_metrics.watch_restarts.labels(self._name, type(error).__name__).inc()
        delay = min(_INITIAL_BACKOFF_SECONDS * 2**self._failures, _MAX_BACKOFF_SECONDS) * (
            0.5 + self._runtime.random.random() / 2
        )
        if isinstance(error, ApiError) and error.retry_after:
            delay = max(delay, error.retry_after)
        # A retry costs an unreachable server nothing, and the watch should resume soon after its return.
        unreachable = isinstance(error, ConnectionFailed) and not error.sent
        self._failures = min(self._failures + 1, _MAX_DOUBLINGS_WHILE_UNREACHABLE if unreachable else 16)
        self._watch_errors.interrupted(self, error, delay)
        await self._runtime.clock.sleep(delay)

    def _can_resume(self, error: Exception) -> bool:
        """Return True if the watch can continue from its version."""
        if _is_too_large_version(error):
            self._too_large_version_errors += 1
            return self._too_large_version_errors < _MAX_TOO_LARGE_VERSION_ERRORS
        if isinstance(error, ApiError):
            # After any other error about this version, a list is the remedy.
            return isinstance(error, TooManyRequests | ServiceUnavailable | Unauthorized | Forbidden)
        return not isinstance(error, ResourceVersionRegression)


def _is_too_large_version(error: Exception) -> bool:
    """Return True if the server does not know the version yet.

    A lagging API server responds so.
    """
    return isinstance(error, ApiError) and any(c.reason == "ResourceVersionTooLarge" for c in error.causes)
