"""Records Events for ``kubectl describe``. Source: ``events.k8s.io/v1``, KEP-383."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal
from zlib import crc32

from msgspec import Struct

from steersman.api.apply import meta
from steersman.client import Client, FieldValidation, MergePatch
from steersman.errors import Forbidden, NotFound, error_text
from steersman.meta import ApiResource, ApplyConfiguration, Object, ObjectKey
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman.observability.supervisor import Supervisor

EventType = Literal["Normal", "Warning"]

# Repeats within this time increase the count of one Event, as in client-go.
_SERIES_WINDOW_SECONDS = 360.0
_MAX_SERIES = 4096
_QUEUE_SIZE = 1000
# Concurrent writers, so that Events keep up with many workers. Events of one object keep their order.
_WRITER_COUNT = 8
# The API server rejects longer values. Notes are measured in bytes of UTF-8.
_MAX_NOTE_BYTES = 1024
_MAX_INSTANCE_LENGTH = 128
_MAX_REASON_LENGTH = 128
# The limits of client-go's spam filter. Here they apply to each reason, so that a rare one is not lost.
_SPAM_BURST = 25
_SPAM_REFILL_SECONDS = 300.0
_MAX_SPAM_BUCKETS = 4096
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
# All fields are known: strict validation would cost the API server more than the rest of the decoding.
_FIELD_VALIDATION: FieldValidation = "Ignore"

log = get_logger("events")

EVENT_RESOURCE = ApiResource("events.k8s.io", "v1", "Event", "events")


class _Event(Object):
    """An Event without fields. Importing the generated type would be a third of an operator's imports."""

    api_resource = EVENT_RESOURCE


class _EventApply(ApplyConfiguration[_Event]):
    read_type = _Event

    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    note: str
    type: EventType
    regarding: Mapping[str, str]


class _Series(Struct):
    key: ObjectKey
    count: int
    last: float


class _SpamFilter:
    """Limits the Events of one reason of one object."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def allows(self, uid: str, reason: str, now: float) -> bool:
        """Count an Event at ``now``. Return False if it exceeds the limit."""
        tokens, filled_at = self._buckets.pop((uid, reason), (float(_SPAM_BURST), now))
        tokens = min(tokens + (now - filled_at) / _SPAM_REFILL_SECONDS, _SPAM_BURST)
        allowed = tokens >= 1
        self._buckets[uid, reason] = (tokens - 1 if allowed else tokens), now
        if len(self._buckets) > _MAX_SPAM_BUCKETS:
            self._buckets.popitem(last=False)
        return allowed


class _PendingEvent(Struct, frozen=True):
    obj: Object
    type: EventType
    reason: str
    action: str
    note: str
    timestamp: datetime


class EventRecorder:
    """Records what a controller did to an object, and why.

    ``emit`` never waits. Events are written in the background. If the API server is too slow, the newest Events are
    dropped, and each is logged. One object has at most 25 Events of a reason at once, and then one in 5 minutes.

    Args:
        client: creates and patches Events.
        source: the reporting controller: a DNS name and a name, such as ``steersman-databases/database``.
        instance: the reporting replica, such as the pod's name.
        runtime: clock, randomness and tasks.
    """

    def __init__(self, client: Client, source: str, instance: str, *, runtime: Runtime) -> None:
        self._client = client
        self._source = source
        self._instance = instance[:_MAX_INSTANCE_LENGTH]
        self._runtime = runtime
        self._queues: tuple[asyncio.Queue[_PendingEvent], ...] = tuple(
            asyncio.Queue(_QUEUE_SIZE) for _ in range(_WRITER_COUNT)
        )
        self._spam_filter = _SpamFilter()
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()

    def normal(self, obj: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Record a Normal Event: ``reason`` in CamelCase, ``note`` for users."""
        self.emit(obj, "Normal", reason, note, action=action)

    def warning(self, obj: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Record a Warning Event; ``note`` says what to do."""
        self.emit(obj, "Warning", reason, note, action=action)

    def emit(self, obj: Object, event_type: EventType, reason: str, note: str, *, action: str) -> None:
        """Record an Event of ``obj``. Never put a secret into ``note``.

        Raises:
            ValueError: the API server would reject ``reason`` or ``action``: they have 1 to 128 characters.
        """
        for name, value in (("reason", reason), ("action", action)):
            if not 0 < len(value) <= _MAX_REASON_LENGTH:
                raise ValueError(f"the {name} of an Event has 1 to {_MAX_REASON_LENGTH} characters: {value!r}")
        if not self._spam_filter.allows(obj.metadata.uid, reason, self._runtime.clock.monotonic()):
            log.debug("event dropped: too many of this object and reason", reason=reason, note=note)
            return
        now = self._runtime.clock.now()
        queue = self._queues[crc32(obj.metadata.uid.encode()) % _WRITER_COUNT]
        try:
            queue.put_nowait(_PendingEvent(obj, event_type, reason, action, _truncate(note), now))
        except asyncio.QueueFull:
            log.warning("event dropped: the queue is full", reason=reason, note=note)

    async def run(self) -> None:
        """Write Events until cancelled."""
        writers = Supervisor(self._runtime)
        for queue in self._queues:
            writers.start(partial(self._run_writer, queue), "event writer")
        try:
            await asyncio.Event().wait()
        finally:
            await writers.stop()

    async def _run_writer(self, queue: asyncio.Queue[_PendingEvent]) -> None:
        while True:
            pending = await queue.get()
            try:
                await self._write(pending)
            except Exception as error:
                # The next Event may succeed.
                expected = isinstance(error, Forbidden) and error.namespace_terminating
                level = logging.DEBUG if expected else logging.WARNING
                log.log(level, "event not written", reason=pending.reason, note=pending.note, error=error_text(error))
            finally:
                queue.task_done()

    async def flush(self) -> None:
        """Wait until all recorded Events are written."""
        for queue in self._queues:
            await queue.join()

    async def _write(self, pending: _PendingEvent) -> None:
        series_key = (
            pending.obj.metadata.uid,
            pending.type,
            pending.reason,
            pending.action,
            pending.note,
        )
        now = self._runtime.clock.monotonic()
        series = self._series.get(series_key)
        if (
            series is not None
            and now - series.last < _SERIES_WINDOW_SECONDS
            and await self._update_series(series, pending)
        ):
            series.count, series.last = series.count + 1, now
            self._series.move_to_end(series_key)
            return
        self._series[series_key] = _Series(await self._create(pending), 1, now)
        if len(self._series) > _MAX_SERIES:
            self._series.popitem(last=False)

    async def _update_series(self, series: _Series, pending: _PendingEvent) -> bool:
        body: dict[str, Any] = {
            "series": {"count": series.count + 1, "lastObservedTime": _micro_time(pending.timestamp)}
        }
        try:
            await self._client.patch(_Event, series.key, MergePatch(body), field_validation=_FIELD_VALIDATION)
        except NotFound:
            # Events expire after an hour.
            return False
        return True

    async def _create(self, pending: _PendingEvent) -> ObjectKey:
        obj, resource = pending.obj, type(pending.obj).api_resource
        suffix = f"{self._runtime.random.getrandbits(64):016x}"
        prefix = obj.metadata.name[:236].rstrip("-.")
        # Some kinds, such as ClusterRole, allow names that an Event cannot have.
        name = f"{prefix if _DNS_SUBDOMAIN.fullmatch(prefix) else resource.kind.lower()}.{suffix}"
        namespace = obj.metadata.namespace or "default"
        event = _EventApply(
            metadata=meta.ObjectMeta(name=name, namespace=namespace),
            event_time=_micro_time(pending.timestamp),
            reporting_controller=self._source,
            reporting_instance=self._instance,
            action=pending.action,
            reason=pending.reason,
            note=pending.note,
            type=pending.type,
            regarding={
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "name": obj.metadata.name,
                "namespace": obj.metadata.namespace,
                "uid": obj.metadata.uid,
                "resourceVersion": obj.metadata.resource_version,
            },
        )
        await self._client.create(event, field_validation=_FIELD_VALIDATION)
        return ObjectKey(namespace, name)


def _truncate(note: str) -> str:
    # A lone surrogate has no encoding.
    encoded = note.encode(errors="replace")
    if len(encoded) <= _MAX_NOTE_BYTES:
        return encoded.decode()
    return f"{encoded[: _MAX_NOTE_BYTES - len('…'.encode())].decode(errors='ignore')}…"


def _micro_time(timestamp: datetime) -> str:
    return timestamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
