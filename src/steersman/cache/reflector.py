"""Keeps a sink in step with the API server: list, then watch, for ever.

The states, and how each is left:

    LISTING   the whole collection is read and handed to the sink as its new content.
              done → WATCHING; any error → BACKING_OFF, then LISTING
    WATCHING  changes are handed over one by one, from the version that was reached.
              the server ends the stream (it does so every few minutes) → WATCHING
              refused (410 Expired, since the version was compacted, above all) → BACKING_OFF, then LISTING
              connection lost, silent, ended at once, 429, 503 → BACKING_OFF, then WATCHING from where it was
    BACKING_OFF  waits, longer after each failure in a row, with jitter, or as long as the server asked.

It ends only by cancellation. An object that does not fit its type is reported and skipped; the rest goes on.

Source: "Kubernetes API Concepts", section "Efficient detection of changes".
"""

from __future__ import annotations

from contextlib import aclosing
from enum import Enum
from typing import Generic, Protocol, TypeVar

from steersman.cache.options import Scope
from steersman.client import Client, WatchEvent
from steersman.errors import ApiError, ConnectionFailed, ServiceUnavailable, SteersmanError, TooManyRequests
from steersman.meta import Object, ObjectKey
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)

_FIRST_DELAY = 0.8
_LONGEST_DELAY = 30.0
# A server, or a proxy, that ends watches sooner than this without an event is failing; as client-go sees it.
_SHORTEST_WATCH = 1.0
_EVERYTHING = Scope()

log = get_logger("cache")


class ReflectorState(Enum):
    """See the module's text."""

    LISTING = "listing"
    WATCHING = "watching"
    BACKING_OFF = "backing off"


class Sink(Protocol[T_contra]):
    """Where a reflector puts what it learns."""

    def replace(self, objects: tuple[T_contra, ...]) -> None:
        """The collection consists of exactly these."""
        ...

    def upsert(self, obj: T_contra) -> None:
        """``obj`` is new or changed."""
        ...

    def delete(self, key: ObjectKey) -> None:
        """The object ``key`` is gone."""
        ...


class Reflector(Generic[T]):
    """Lists and watches one kind. ``state`` and ``resource_version`` tell where it is."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        sink: Sink[T],
        *,
        runtime: Runtime,
        scope: Scope = _EVERYTHING,
    ) -> None:
        self._client = client
        self._kind = kind
        self._sink = sink
        self._runtime = runtime
        self._scope = scope
        self._failures = 0
        self._name = kind.api_resource.kind
        self.state = ReflectorState.LISTING
        self.resource_version = ""
        self.last_error: Exception | None = None

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                if not self.resource_version:
                    await self._list()
                await self._watch()
            except Exception as error:
                # Whatever it is: a reflector that ended would leave its controllers with a past that looks present.
                if isinstance(error, ApiError) and not isinstance(error, TooManyRequests | ServiceUnavailable):
                    # Whatever the server holds against this version, a list mends it.
                    self.resource_version = ""
                await self._back_off(error)

    async def _list(self) -> None:
        self.state = ReflectorState.LISTING
        found = await self._client.list(
            self._kind,
            namespace=self._scope.namespace,
            label_selector=self._scope.selection.label_selector,
            field_selector=self._scope.selection.field_selector,
            on_decode_error=self._report,
        )
        self._sink.replace(found.items)
        self.resource_version = found.resource_version
        self.last_error = None

    async def _watch(self) -> None:
        self.state = ReflectorState.WATCHING
        stream = self._client.watch(
            self._kind,
            resource_version=self.resource_version,
            namespace=self._scope.namespace,
            label_selector=self._scope.selection.label_selector,
            field_selector=self._scope.selection.field_selector,
            # Spread over five to ten minutes, as client-go does, so that watches do not all end together.
            timeout=300.0 * (1 + self._runtime.random.random()),
            on_decode_error=self._report,
        )
        began, version = self._runtime.clock.monotonic(), self.resource_version
        async with aclosing(stream):
            async for event in stream:
                self._hand_over(event)
        if self.resource_version == version and self._runtime.clock.monotonic() - began < _SHORTEST_WATCH:
            raise ConnectionFailed(f"the watch ended at once ({self._runtime.clock.monotonic() - began:.3f} s)")
        self._recovered()

    def _hand_over(self, event: WatchEvent[T]) -> None:
        if event.type == "DELETED":
            self._sink.delete(event.key)
        elif event.object is not None:
            self._sink.upsert(event.object)
        self.resource_version = event.resource_version
        self._recovered()

    def _recovered(self) -> None:
        # Not after a list: where lists succeed and watches fail, the pauses must grow all the same.
        self._failures = 0
        self.last_error = None

    def _report(self, key: ObjectKey, error: Exception) -> None:
        metrics.decode_errors.labels(self._name).inc()
        log.error("object skipped: it does not fit its type", kind=self._name, object=str(key), error=str(error))

    async def _back_off(self, error: Exception) -> None:
        self.state, self.last_error = ReflectorState.BACKING_OFF, error
        metrics.watch_restarts.labels(self._name, type(error).__name__).inc()
        delay = min(_FIRST_DELAY * 2**self._failures, _LONGEST_DELAY) * (0.5 + self._runtime.random.random() / 2)
        if isinstance(error, ApiError) and error.retry_after:
            delay = max(delay, error.retry_after)
        self._failures = min(self._failures + 1, 16)
        expected = isinstance(error, SteersmanError)
        log.warning(
            "watch interrupted",
            kind=self._name,
            error=str(error),
            retry_in_seconds=round(delay, 2),
            exc_info=None if expected else error,
        )
        await self._runtime.clock.sleep(delay)
