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
from steersman.cache.options import Scope
from steersman.cache.outage import Outage
from steersman.cache.versions import version_number
from steersman.client import Client, ObjectPage, WatchEvent
from steersman.client.listing import DecodeErrorHandler
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

_FIRST_DELAY = 0.8
_LONGEST_DELAY = 30.0
# Doublings of the first delay while connections are refused: pauses of up to six seconds.
_MOST_WHILE_ABSENT = 3
# A server, or a proxy, that ends watches sooner than this without an event is failing; as client-go sees it.
_SHORTEST_WATCH = 1.0
_PAGE = 500
# Bookmarks come once a minute, the first of a quiet kind after two: one more that fails to come is a sign.
SILENCE = 150.0
_INITIAL_SILENCE = 60.0
# Answers of "Too large resource version" in a row until this server is believed rather than waited for.
_PATIENCE_WITH_THE_PAST = 5
# How many unreadable objects of a list are named in the log; the metric counts all.
_NAMED = 5
_EVERYTHING = Scope()

log = get_logger("cache")


class ReflectorState(Enum):
    """See the module's text."""

    LISTING = "listing"
    WATCHING = "watching"
    CHECKING = "checking"
    BACKING_OFF = "backing off"


class WentBack(SteersmanError):
    """The server speaks of a time before one that it told of earlier, as after etcd was restored from a backup."""


class Sink(Protocol[T_contra]):
    """Where a reflector puts what it learns."""

    def list_begins(self, *, whole: bool) -> None:
        """The objects of a list follow. ``whole``: they count even where something newer is held."""
        ...

    def listed(self, obj: T_contra, size: int) -> None:
        """``obj``, of ``size`` bytes of JSON, belongs to the list."""
        ...

    def unreadable(self, key: ObjectKey) -> None:
        """``key`` exists, and does not fit its type."""
        ...

    def list_ends(self, version: str) -> bool:
        """The list was complete, at ``version``. False: that was over when it was asked for; list again, whole."""
        ...

    def upsert(self, obj: T_contra, size: int) -> None:
        """``obj`` is new or changed. Raises WentBack."""
        ...

    def delete(self, key: ObjectKey, uid: str, version: str) -> None:
        """The object ``uid`` is gone, or left the selection, at ``version``. Raises WentBack."""
        ...

    def passed(self, version: str) -> None:
        """The watch has come to ``version``, without an object to hand over. Raises WentBack."""
        ...

    def knows(self, raw: bytes | msgspec.Raw) -> bool:
        """Whether the object whose JSON ``raw`` is need not be read."""
        ...


class Reflector(Generic[T]):
    """Lists and watches one kind in one scope.

    Args:
        turns: taken by who lists or opens a watch, until that is done; shared by the reflectors of a kind.

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
        scope: Scope = _EVERYTHING,
        outage: Outage | None = None,
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._sink = sink
        self._runtime = runtime
        self._scope = scope
        self._outage = outage or Outage(kind.api_resource.kind, runtime.clock)
        self._turns = turns or asyncio.Semaphore(1)
        self._has_turn = False
        self._failures = 0
        self._from_the_future = 0
        self._streams = True
        self._page_size = _PAGE
        self._whole = False
        self._relisting = False
        self._unreadable = 0
        self._name = kind.api_resource.kind
        self._patience: asyncio.Timeout | None = None
        self._patient_until = 0.0
        self._recovery: asyncio.TimerHandle | None = None
        self.state = ReflectorState.LISTING
        self.resource_version = ""
        self.last_error: Exception | None = None
        self.heard: float | None = None

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._go_on()
            except Exception as error:
                # Whatever it is: a reflector that ended would leave its controllers with a past that looks present.
                await self._recover(error)

    def relist(self) -> None:
        """Asks for a new list, at once."""
        self._relisting = True
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def _go_on(self) -> None:
        """Takes its turn, and gives it to the next once the rest is only waiting for news."""
        await self._turns.acquire()
        self._has_turn = True
        if self._relisting:
            self._relisting, self.resource_version = False, ""
        try:
            if self.resource_version or self._streams:
                await self._watch()
            else:
                await self._list()
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.release()

    # Lists

    async def _list(self) -> None:
        self.state = ReflectorState.LISTING
        self._begin_list()
        version = ""
        async with aclosing(self._pages(self._page_size, self._report)) as pages:
            async for page in pages:
                for obj, size in zip(page.items, page.sizes, strict=True):
                    self._sink.listed(obj, size)
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
        self._unreadable = 0
        self._sink.list_begins(whole=self._whole)

    def _end_list(self, version: str) -> None:
        if self._unreadable > _NAMED:
            log.error("more objects were skipped", kind=self._name, objects=self._unreadable - _NAMED)
        if not self._sink.list_ends(version):
            self._went_back(f"a list is of version {version or 'nothing'}, and newer ones were known before")
            return
        self._whole = False
        self._page_size = _PAGE
        self.resource_version = version
        self.heard = self._runtime.clock.monotonic()
        self.last_error = None
        self._end_turn()

    # Watches

    async def _watch(self) -> None:
        listing = not self.resource_version
        self.state = ReflectorState.LISTING if listing else ReflectorState.WATCHING
        if listing:
            self._begin_list()
        began, version = self._runtime.clock.monotonic(), self.resource_version
        patience = self._patience = asyncio.timeout(_INITIAL_SILENCE if listing else SILENCE)
        self._patient_until = began
        try:
            async with patience, aclosing(self._stream(listing)) as stream:
                async for event in stream:
                    if not self._take(event):
                        return
        except TimeoutError:
            if not patience.expired():
                raise
            await self._silence_is_over()
            return
        except (Invalid, BadRequest) as error:
            if not self.resource_version:
                self._stop_streaming(error)
                return
            raise
        finally:
            self._patience = None
            if self._recovery is not None:
                self._recovery.cancel()
        lived = self._runtime.clock.monotonic() - began
        if self.resource_version == version and lived < _SHORTEST_WATCH:
            raise ConnectionFailed(f"the watch ended at once ({lived:.3f} s)")
        if self.resource_version:
            self._recovered()

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
            skip=self._sink.knows,
            on_open=None if listing else self._opened,
            on_decode_error=self._report,
        )

    def _opened(self) -> None:
        self._end_turn()
        if self.last_error is not None:
            # A quiet watch may have nothing to say for minutes; that it lasts is enough.
            self._recovery = asyncio.get_running_loop().call_later(_SHORTEST_WATCH, self._recovered)

    def _take(self, event: WatchEvent[T]) -> bool:
        """Hands ``event`` over; False: the stream has to end."""
        now = self.heard = self._runtime.clock.monotonic()
        if now >= self._patient_until:
            self._be_patient(now)
        if not self.resource_version:
            return self._take_initial(event)
        if event.type == "DELETED":
            self._sink.delete(event.key, event.uid, event.resource_version)
        elif event.object is not None:
            self._sink.upsert(event.object, event.size)
        else:
            self._sink.passed(event.resource_version)
        self.resource_version = event.resource_version
        if self.last_error is not None or self._failures:
            self._recovered()
        return not self._relisting

    def _be_patient(self, now: float) -> None:
        """Waits for the next event for as long as is reasonable from ``now`` on."""
        silence = SILENCE if self.resource_version else _INITIAL_SILENCE
        # To set a timer for each event would cost more than the event; so it is set a little too early.
        self._patient_until = now + silence / 10
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + silence)

    def _take_initial(self, event: WatchEvent[T]) -> bool:
        """Hands over what existed when the stream began."""
        if event.object is not None:
            self._sink.listed(event.object, event.size)
        elif event.initial_events_end:
            self._end_list(event.resource_version)
            self.state = ReflectorState.WATCHING
            self._be_patient(self._runtime.clock.monotonic())
            return bool(self.resource_version)
        elif event.type == "BOOKMARK":
            self._stop_streaming(None)
            return False
        return True

    def _stop_streaming(self, error: Exception | None) -> None:
        self._streams = False
        log.debug("the server streams no lists", kind=self._name, error=str(error or "the list does not end"))

    async def _silence_is_over(self) -> None:
        if self._relisting:
            return
        if not self.resource_version:
            self._stop_streaming(None)
            return
        shared_metrics.watch_restarts.labels(self._name, "Silent").inc()
        # A kind on which nothing happens may be silent with good reason, so this is not worth a line in the log.
        log.debug("the watch was silent", kind=self._name, seconds=SILENCE)
        self.state = ReflectorState.CHECKING
        reached = version_number(self.resource_version)
        if reached is None:
            # Nobody can tell whether such a version is old, so that the list has to.
            self.resource_version = ""
            return
        async with aclosing(self._pages(1, lambda key, error: None)) as pages:
            async for page in pages:
                present = version_number(page.resource_version)
                if present is not None and present < reached:
                    raise WentBack(f"the server is at version {present}, and the watch had come to {reached}")
                return

    # Recoveries

    def _recovered(self) -> None:
        # Not after a list: where lists succeed and watches fail, the pauses must grow all the same.
        self._failures = 0
        self._from_the_future = 0
        self.last_error = None
        self._outage.over(self)

    def _report(self, key: ObjectKey, error: Exception) -> None:
        metrics.decode_errors.labels(self._name).inc()
        self._sink.unreadable(key)
        self._unreadable += 1
        if self.resource_version or self._unreadable <= _NAMED:
            log.error("object skipped: it does not fit its type", kind=self._name, object=str(key), error=str(error))

    def _went_back(self, what: str) -> None:
        self._whole = True
        self.resource_version = ""
        metrics.rollbacks.labels(self._name).inc()
        log.error("the API server went back in time; was etcd restored from a backup?", kind=self._name, detail=what)

    async def _recover(self, error: Exception) -> None:
        self.last_error = error
        if not self._resumes(error):
            self.resource_version = ""
        if isinstance(error, Expired) and self.state is ReflectorState.LISTING:
            self._page_size = 0
        self.state = ReflectorState.BACKING_OFF
        shared_metrics.watch_restarts.labels(self._name, type(error).__name__).inc()
        delay = min(_FIRST_DELAY * 2**self._failures, _LONGEST_DELAY) * (0.5 + self._runtime.random.random() / 2)
        if isinstance(error, ApiError) and error.retry_after:
            delay = max(delay, error.retry_after)
        # A server that is not there is not burdened by a try, and dearly missed once it is back.
        absent = isinstance(error, ConnectionFailed) and not error.sent
        self._failures = min(self._failures + 1, _MOST_WHILE_ABSENT if absent else 16)
        self._outage.goes_on(self, error, delay)
        await self._runtime.clock.sleep(delay)

    def _resumes(self, error: Exception) -> bool:
        """Whether the watch can go on from where it was."""
        if _is_from_the_future(error):
            self._from_the_future += 1
            return self._from_the_future < _PATIENCE_WITH_THE_PAST
        if isinstance(error, ApiError):
            # Whatever else the server holds against this version, a list mends it.
            return isinstance(error, TooManyRequests | ServiceUnavailable | Unauthorized | Forbidden)
        return not isinstance(error, WentBack)


def _is_from_the_future(error: Exception) -> bool:
    """Whether a server that is behind was asked for a version that it has not heard of yet."""
    return isinstance(error, ApiError) and any(c.reason == "ResourceVersionTooLarge" for c in error.causes)
