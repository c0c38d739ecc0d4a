"""Keeps a sink in step with the API server: list, then watch, for ever.

The states, and how each is left:

    LISTING   everything that exists is read: as the beginning of the watch where the server streams lists (KEP-3157),
              page by page where it does not. A list is always a consistent one, true at the moment it was asked for.
              done → WATCHING
              older than what is known already: the server went back in time → LISTING, and what it says then counts
              streaming is refused, or does not end → LISTING by pages from now on
              a page expired → BACKING_OFF, then LISTING in one piece
              any other error → BACKING_OFF, then LISTING
    WATCHING  changes are handed over one by one, from the version that was reached.
              the server ends the stream (it does so every few minutes) → WATCHING
              nothing comes, not even a bookmark → CHECKING
              an event from before the version that was reached → BACKING_OFF, then LISTING
              refused (410 Expired, since the version was compacted, above all) → BACKING_OFF, then LISTING
              "Too large resource version": this server is behind → BACKING_OFF, then WATCHING; after some such
              answers in a row → LISTING
              connection lost, ended at once, 401, 403, 429, 503 → BACKING_OFF, then WATCHING from where it was
    CHECKING  the server is asked for its present version, since it lets a watch from the future wait for ever.
              it is no older than the version that was reached → WATCHING from there, on a new connection
              it is older → BACKING_OFF, then LISTING
              versions that cannot be compared → LISTING
              any error → as in WATCHING
    BACKING_OFF  waits, longer after each failure in a row, with jitter, or as long as the server asked.

It ends only by cancellation. An object that does not fit its type is reported and skipped; the rest goes on.

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
# A server, or a proxy, that ends watches sooner than this without an event is failing; as client-go sees it.
_MIN_WATCH_SECONDS = 1.0
_PAGE_SIZE = 500
# Bookmarks come once a minute, the first of a quiet kind after two: one more that fails to come is a sign.
WATCH_IDLE_TIMEOUT_SECONDS = 150.0
_LIST_IDLE_TIMEOUT_SECONDS = 60.0
# Answers of "Too large resource version" in a row until this server is believed rather than waited for.
_MAX_TOO_LARGE_VERSION_ERRORS = 5
# How many unreadable objects of a list are named in the log; the metric counts all.
_MAX_LOGGED_DECODE_ERRORS = 5
_DEFAULT_SCOPE = WatchScope()

log = get_logger("cache")


class ReflectorState(Enum):
    """See the module's text."""

    LISTING = "listing"
    WATCHING = "watching"
    CHECKING = "checking"
    BACKING_OFF = "backing off"


class ResourceVersionRegression(SteersmanError):
    """The server speaks of a time before one that it told of earlier, as after etcd was restored from a backup."""


class Sink(Protocol[T_contra]):
    """Where a reflector puts what it learns."""

    def init(self, *, replace_all: bool) -> None:
        """The objects of a list follow. ``whole``: they count even where something newer is held."""
        ...

    def init_apply(self, obj: T_contra, size: int) -> None:
        """``obj``, of ``size`` bytes of JSON, belongs to the list."""
        ...

    def decode_failed(self, key: ObjectKey) -> None:
        """``key`` exists, and does not fit its type."""
        ...

    def init_done(self, version: str) -> bool:
        """The list was complete, at ``version``. False: that was over when it was asked for; list again, whole."""
        ...

    def apply(self, obj: T_contra, size: int) -> None:
        """``obj`` is new or changed. Raises WentBack."""
        ...

    def delete(self, key: ObjectKey, uid: str, version: str) -> None:
        """The object ``uid`` is gone, or left the selection, at ``version``. Raises WentBack."""
        ...

    def bookmark(self, version: str) -> None:
        """The watch has come to ``version``, without an object to hand over. Raises WentBack."""
        ...

    def skip_decode(self, raw: bytes | msgspec.Raw) -> bool:
        """Whether the object whose JSON ``raw`` is need not be read."""
        ...


class Reflector(Generic[T]):
    """Lists and watches one kind in one scope.

    Args:
        semaphore: taken by who lists or opens a watch, until that is done; shared by the reflectors of a kind.

    Attributes:
        state: where it is.
        resource_version: up to where it has come; empty: it lists.
        last_error: why it is backing off, or did so last; None when it goes well.
        heard: when it last heard from the server, by the clock's ``monotonic``; None before that.
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
        """Runs until cancelled."""
        while True:
            try:
                await self._list_or_watch()
            except Exception as error:
                # Whatever it is: a reflector that ended would leave its controllers with a past that looks present.
                await self._back_off(error)

    def relist(self) -> None:
        """Asks for a new list, at once."""
        self._relist_requested = True
        if self._watch_timeout is not None:
            self._watch_timeout.reschedule(asyncio.get_running_loop().time())

    async def _list_or_watch(self) -> None:
        """Takes its turn, and gives it to the next once the rest is only waiting for news."""
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
            self._on_regression(f"a list is of version {version or 'nothing'}, and newer ones were known before")
            return
        self._replace_all = False
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
            # A quiet watch may have nothing to say for minutes; that it lasts is enough.
            self._recovery_timer = asyncio.get_running_loop().call_later(_MIN_WATCH_SECONDS, self._reset_backoff)

    def _handle_event(self, event: WatchEvent[T]) -> bool:
        """Hands ``event`` over; False: the stream has to end."""
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
        """Waits for the next event for as long as is reasonable from ``now`` on."""
        idle_timeout = WATCH_IDLE_TIMEOUT_SECONDS if self.resource_version else _LIST_IDLE_TIMEOUT_SECONDS
        # To set a timer for each event would cost more than the event; so it is set a little too early.
        self._next_timeout_reset = now + idle_timeout / 10
        if self._watch_timeout is not None:
            self._watch_timeout.reschedule(asyncio.get_running_loop().time() + idle_timeout)

    def _handle_initial_event(self, event: WatchEvent[T]) -> bool:
        """Hands over what existed when the stream began."""
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
        # A kind on which nothing happens may be silent with good reason, so this is not worth a line in the log.
        log.debug("watch idle timeout", kind=self._name, seconds=WATCH_IDLE_TIMEOUT_SECONDS)
        self.state = ReflectorState.CHECKING
        observed = parse_resource_version(self.resource_version)
        if observed is None:
            # Nobody can tell whether such a version is old, so that the list has to.
            self.resource_version = ""
            return
        async with aclosing(self._pages(1, lambda key, error: None)) as pages:
            async for page in pages:
                current = parse_resource_version(page.resource_version)
                if current is not None and current < observed:
                    raise ResourceVersionRegression(
                        f"the server is at version {current}, and the watch had come to {observed}"
                    )
                return

    # Recoveries

    def _reset_backoff(self) -> None:
        # Not after a list: where lists succeed and watches fail, the pauses must grow all the same.
        self._failures = 0
        self._too_large_version_errors = 0
        self.last_error = None
        self._watch_errors.recovered(self)

    def _on_decode_error(self, key: ObjectKey, error: Exception) -> None:
        metrics.decode_errors.labels(self._name).inc()
        self._sink.decode_failed(key)
        self._decode_error_count += 1
        if self.resource_version or self._decode_error_count <= _MAX_LOGGED_DECODE_ERRORS:
            log.error("object skipped: it does not fit its type", kind=self._name, object=str(key), error=str(error))

    def _on_regression(self, detail: str) -> None:
        self._replace_all = True
        self.resource_version = ""
        metrics.resource_version_regressions.labels(self._name).inc()
        log.error("resourceVersion regression: was etcd restored from a backup?", kind=self._name, detail=detail)

    async def _back_off(self, error: Exception) -> None:
        self.last_error = error
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
        # A server that is not there is not burdened by a try, and dearly missed once it is back.
        unreachable = isinstance(error, ConnectionFailed) and not error.sent
        self._failures = min(self._failures + 1, _MAX_DOUBLINGS_WHILE_UNREACHABLE if unreachable else 16)
        self._watch_errors.interrupted(self, error, delay)
        await self._runtime.clock.sleep(delay)

    def _can_resume(self, error: Exception) -> bool:
        """Whether the watch can go on from where it was."""
        if _is_too_large_version(error):
            self._too_large_version_errors += 1
            return self._too_large_version_errors < _MAX_TOO_LARGE_VERSION_ERRORS
        if isinstance(error, ApiError):
            # Whatever else the server holds against this version, a list mends it.
            return isinstance(error, TooManyRequests | ServiceUnavailable | Unauthorized | Forbidden)
        return not isinstance(error, ResourceVersionRegression)


def _is_too_large_version(error: Exception) -> bool:
    """Whether a server that is behind was asked for a version that it has not heard of yet."""
    return isinstance(error, ApiError) and any(c.reason == "ResourceVersionTooLarge" for c in error.causes)
