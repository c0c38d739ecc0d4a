"""The informers of a manager, one a kind, shared by its controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from steersman.cache.consistency import catch_up
from steersman.cache.informer import Informer
from steersman.cache.options import InformerOptions, scopes_of
from steersman.cache.sink import InformerSink
from steersman.client import Client
from steersman.client.decode import decode_object
from steersman.errors import CacheNotSynced, ConfigurationError, Forbidden, NotFound
from steersman.meta import Object, ObjectKey, ObjectMetadata
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

_DEFAULTS = InformerOptions()
# Of all kinds and namespaces: as many lists as the client has connections would keep the loop from all else.
_MAX_CONCURRENT_CATCH_UPS = 32

log = get_logger("cache")


class Cache:
    """Makes and runs informers, and tells them of our own writes before their watches do.

    It is the ``observer`` of the client that writes: ``Client(transport, observer=cache)``. Then a read of what we
    have written never shows less than the server's last answer to us.

    Args:
        namespaces: the only namespaces to watch; empty for all.
    """

    def __init__(self, client: Client, *, runtime: Runtime, namespaces: tuple[str, ...] = ()) -> None:
        self._client = client
        self._runtime = runtime
        self._namespaces = namespaces
        self._options: dict[type[Object], InformerOptions] = {}
        self._informers: dict[type[Object], Informer[Any]] = {}
        # Kinds that are held in several forms (typed, as metadata alone, …) are one and the same to a write.
        self._informers_by_resource: dict[tuple[str, str], list[Informer[Any]]] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = False

    def configure(self, kind: type[Object], options: InformerOptions) -> None:
        """Says which objects of ``kind`` are held, and in what form. It comes before what needs the kind's informer.

        Raises:
            ConfigurationError: the informer is there already.
        """
        if kind in self._informers:
            name = kind.__name__
            raise ConfigurationError(f"the informer of {name} is there already: configure it before what needs it")
        self._options[kind] = options

    def informer(self, kind: type[T]) -> Informer[T]:
        """The informer of ``kind``, made at the first call, and started with the cache or at once if that runs.

        Raises:
            ConfigurationError: the kind's ``InformerOptions`` do not fit it, or it is Secret and all would be held.
        """
        if kind not in self._informers:
            scopes = scopes_of(kind, self._options.get(kind, _DEFAULTS), self._namespaces)
            informer: Informer[Any] = Informer(self._client, kind, runtime=self._runtime, scopes=scopes)
            self._informers[kind] = informer
            self._informers_by_resource.setdefault(_group_resource(kind), []).append(informer)
            if self._started:
                self._start_informer(informer)
        return self._informers[kind]

    def has_informer(self, kind: type[Object]) -> bool:
        """Whether an informer of ``kind`` exists."""
        return kind in self._informers

    def has_transform(self, kind: type[Object]) -> bool:
        """Whether objects of ``kind`` are held in another form than they were read in."""
        informer = self._informers.get(kind)
        return informer is not None and any(sink.scope.selection.transform is not None for sink in informer.sinks)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All that were asked for so far."""
        return tuple(self._informers.values())

    @property
    def has_synced(self) -> bool:
        """Whether every informer has its first list."""
        return self._started and all(i.has_synced for i in self._informers.values())

    def start(self) -> None:
        """Starts all informers."""
        self._started = True
        for informer in self._informers.values():
            self._start_informer(informer)

    async def wait_for_sync(self, timeout: float = 120.0, *, kind: type[Object] | None = None) -> None:
        """Returns once every informer, or the one of ``kind``, has its first lists.

        Raises:
            CacheNotSynced: no list became complete for ``timeout`` seconds; names the kinds and why: a CRD that is
                not installed, a right that RBAC does not give, or whatever else the server answered.
        """
        informers = self.informers if kind is None else (self._informers[kind],)
        try:
            # Those of hundreds of namespaces take their time, and that is no reason to begin anew.
            async with asyncio.timeout(timeout) as deadline:
                await asyncio.gather(*(_wait_for_informer(informer, deadline, timeout) for informer in informers))
        except TimeoutError:
            unsynced = "; ".join(
                _describe_unsynced(sink) for each in informers for sink in each.sinks if not sink.has_synced
            )
            raise CacheNotSynced(f"not synced after {timeout:g} s: {unsynced}") from None

    async def catch_up(self, timeout: float = 30.0) -> None:
        """Returns when every informer is at least as new as the server was at the call.

        A standby's watches may lag behind what the former leader has just done; a new leader calls this before it
        acts. Where nothing is late it costs one list of metadata a kind and namespace.

        Raises:
            CacheNotSynced: none of them caught up for ``timeout`` seconds; names the kinds.
            ApiError, ConnectionFailed: a kind could not be listed.
        """
        pending = {sink: sink for sink in self._sinks()}
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT_CATCH_UPS)

        async def catch_up_sink(sink: InformerSink[Any], deadline: asyncio.Timeout) -> None:
            # Without a turn: a kind that cannot be listed must not keep the others from theirs, or be taken for them.
            await sink.informer.wait_for_sync()
            async with semaphore:
                await catch_up(sink, self._client)
            del pending[sink]
            _extend_deadline(deadline, timeout)

        try:
            async with asyncio.timeout(timeout) as deadline:
                await asyncio.gather(*(catch_up_sink(part, deadline) for part in tuple(pending)))
        except TimeoutError:
            names = "; ".join(_describe_resource(p.kind, p.scope.namespace) for p in pending)
            raise CacheNotSynced(f"not caught up after {timeout:g} s: {names}") from None

    async def stop(self) -> None:
        """Ends all informers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._started = False

    # Doubts

    def is_uncertain(self, kind: type[Object], key: ObjectKey | None = None) -> bool:
        """Whether a write of ``key`` (None: of any object of ``kind``) went out whose outcome nobody knows.

        Whoever reads it from the cache calls ``settle`` first.
        """
        informer = self._informers.get(kind)
        if informer is None:
            return False
        return any(sink.uncertain_keys and (key is None or key in sink.uncertain_keys) for sink in informer.sinks)

    async def resolve(self, kind: type[Object], key: ObjectKey | None = None) -> None:
        """Reads from the server what is uncertain of ``key`` (None: of all of ``kind``), and stores it.

        Raises:
            ApiError, ConnectionFailed: it could not be read; it stays uncertain.
        """
        for sink in self._informers[kind].sinks:
            await sink.resolve_all(
                [uncertain_key for uncertain_key in sink.uncertain_keys if key in (None, uncertain_key)]
            )

    # What the client tells of its writes: see ``WriteObserver``.

    def on_write_started(self, kind: type[Object], key: ObjectKey) -> None:
        """A write of ``key`` is about to be sent."""
        for sink in self._sinks_for(kind, key):
            sink.on_write_started(key)

    def on_write_succeeded(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        """The server answered with ``obj``: every informer that it belongs to has it from now on."""
        key = obj.key
        content: dict[str, Any] = {}

        def parse_content() -> Mapping[str, Any]:
            if not content:
                content.update(msgspec.json.decode(raw))
            return content

        for sink in self._sinks_for(kind, key):
            converted = self._convert(sink.kind, kind, obj, raw)
            if converted is not None:
                sink.on_write_succeeded(converted, len(raw), parse_content)
            else:
                sink.mark_uncertain(key)
                sink.on_write_finished(key)

    def on_deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        """The object ``uid`` is gone for good: no informer shows it again."""
        for sink in self._sinks_for(kind, key):
            sink.on_deleted(key, uid)

    def on_write_unknown(self, kind: type[Object], key: ObjectKey) -> None:
        """Nobody knows what became of a write: the next read of ``key`` asks the server."""
        for sink in self._sinks_for(kind, key):
            sink.mark_uncertain(key)
            sink.on_write_finished(key)

    def on_write_rejected(self, kind: type[Object], key: ObjectKey) -> None:
        """Nothing has changed."""
        for sink in self._sinks_for(kind, key):
            sink.on_write_finished(key)

    def _sinks_for(self, kind: type[Object], key: ObjectKey) -> Iterator[InformerSink[Any]]:
        for informer in self._informers_by_resource.get(_group_resource(kind), ()):
            sink = informer.sink_for(key)
            if sink is not None:
                yield sink

    def _convert(self, cached_kind: type[Object], kind: type[Object], obj: Object, raw: bytes) -> Object | None:
        """``obj`` as a ``held``; None where the answer does not say enough for that."""
        if cached_kind is kind:
            return obj
        metadata_only = issubclass(cached_kind, ObjectMetadata)
        if not metadata_only and (
            issubclass(kind, ObjectMetadata) or cached_kind.api_resource.version != kind.api_resource.version
        ):
            return None
        try:
            return decode_object(raw, cached_kind, self._client.field_manager)
        except msgspec.ValidationError:
            return None

    def _sinks(self) -> Iterator[InformerSink[Any]]:
        for informer in self._informers.values():
            yield from informer.sinks

    def _start_informer(self, informer: Informer[Any]) -> None:
        tasks = [(f"reflector {informer.name}", r.run()) for r in informer.reflectors]
        period = self._options.get(informer.kind, _DEFAULTS).resync
        if period > 0:
            tasks.append((f"resync {informer.name}", informer.resync(period)))
        self._tasks.extend(self._runtime.spawn(coroutine, name) for name, coroutine in tasks)


async def _wait_for_informer(informer: Informer[Any], deadline: asyncio.Timeout, seconds: float) -> None:
    """Returns once ``informer`` is; each list that becomes complete meanwhile gives ``patience`` so much more."""
    synced_count = 0
    while not informer.has_synced:
        await informer.wait_for_progress()
        previous_count, synced_count = synced_count, sum(sink.has_synced for sink in informer.sinks)
        if synced_count > previous_count:
            _extend_deadline(deadline, seconds)


def _extend_deadline(deadline: asyncio.Timeout, seconds: float) -> None:
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time() + seconds)


def _describe_unsynced(sink: InformerSink[Any]) -> str:
    return f"{_describe_resource(sink.kind, sink.scope.namespace)} ({_describe_error(sink.reflector.last_error)})"


def _describe_error(error: Exception | None) -> str:
    if error is None:
        return "no answer yet"
    if isinstance(error, NotFound):
        return f"its CustomResourceDefinition is not installed, or of another version: {error}"
    if isinstance(error, Forbidden):
        return f"RBAC must allow get, list and watch: {error}"
    return str(error) or type(error).__name__


def _group_resource(kind: type[Object]) -> tuple[str, str]:
    return kind.api_resource.group, kind.api_resource.plural


def _describe_resource(kind: type[Object], namespace: str) -> str:
    resource = kind.api_resource
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{name} in {namespace}" if namespace else name
