"""The informers of a manager, shared by its controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from steersman.cache.consistency import catch_up
from steersman.cache.informer import Informer
from steersman.cache.optional_informer import OptionalInformer
from steersman.cache.options import InformerOptions, scopes_of
from steersman.cache.sink import InformerSink
from steersman.client import Client
from steersman.client.decode import decode_object
from steersman.errors import CacheNotSynced, ConfigurationError, Forbidden, NotFound, error_text
from steersman.meta import Object, ObjectKey, ObjectMetadata
from steersman.observability.runtime import Runtime
from steersman.observability.supervisor import Supervisor

T = TypeVar("T", bound=Object)

_DEFAULTS = InformerOptions()
# Lists of all kinds and namespaces at a time. More of them would block the event loop for other tasks.
_MAX_CONCURRENT_CATCH_UPS = 32


_SinksByNamespace = Mapping[str, tuple[InformerSink[Any], ...]]


class _ExistingInformer(Protocol):
    def __call__(self, kind: type[T], /) -> Informer[T] | None: ...


class Cache:
    """Creates and runs informers, and stores responses to our writes.

    The cache is the ``observer`` of each client that writes: ``Client(transport, observer=cache)``. A read of an
    object that we have written then never returns less than the last response.

    Args:
        client: lists and watches.
        runtime: clock, randomness and tasks.
        namespaces: the namespaces to watch. Defaults to all.
    """

    def __init__(self, client: Client, *, runtime: Runtime, namespaces: tuple[str, ...] = ()) -> None:
        self._client = client
        self._decoded_managers = client.previous_field_managers | {client.field_manager}
        self._runtime = runtime
        self._namespaces = namespaces
        self._options: dict[type[Object], InformerOptions] = {}
        self._informers: dict[type[Object], Informer[Any]] = {}
        # A write concerns each informer of the resource, whatever type (typed, metadata only, …) it caches.
        self._sinks_by_written_kind: dict[type[Object], _SinksByNamespace] = {}
        # The method of the dict: it is on the path of every read.
        self.existing_informer: _ExistingInformer = self._informers.get
        """Returns the informer of a kind, or None if not cached."""
        self._supervisor = Supervisor(runtime)
        self._started = False

    def configure(self, kind: type[Object], options: InformerOptions) -> None:
        """Set the options of the informer of ``kind``. Call it before anything that needs this informer.

        Raises:
            ConfigurationError: the informer exists already.
        """
        if kind in self._informers:
            raise ConfigurationError(
                f"informer of {kind.__name__} exists already: call configure() before what needs the informer"
            )
        self._options[kind] = options

    def informer(self, kind: type[T], *, optional: bool | None = None) -> Informer[T]:
        """Return the informer of ``kind``, and create it if needed.

        If the cache runs, a new informer is started.

        Args:
            kind: the kind to cache.
            optional: create an ``OptionalInformer``, for a kind that the server may not serve. Defaults to the
                existing informer or a required one.

        Raises:
            ConfigurationError: the kind's ``InformerOptions`` do not fit it, it would cache all Secrets, or the
                informer exists with another value of ``optional``.
        """
        informer = self._informers.get(kind)
        if informer is None:
            scopes = scopes_of(kind, self._options.get(kind, _DEFAULTS), self._namespaces)
            create: type[Informer[T]] = OptionalInformer[T] if optional else Informer[T]
            informer = self._informers[kind] = create(self._client, kind, runtime=self._runtime, scopes=scopes)
            self._sinks_by_written_kind.clear()
            if self._started:
                self._start_informer(informer)
        elif optional is not None and optional is not isinstance(informer, OptionalInformer):
            raise ConfigurationError(
                f"{kind.api_resource.kind} is watched both with and without optional=True: choose one of them"
            )
        return informer

    def cached_version(self, kind: type[Object], key: ObjectKey) -> str:
        """Return the resourceVersion of a cached object, or an empty string."""
        informer = self._informers.get(kind)
        found = None if informer is None else informer.store.get(key)
        return "" if found is None else found.metadata.resource_version

    def has_transform(self, kind: type[Object]) -> bool:
        """Return True if the informer of ``kind`` has a transform."""
        informer = self._informers.get(kind)
        return informer is not None and any(sink.scope.selection.transform is not None for sink in informer.sinks)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """The informers that exist."""
        return tuple(self._informers.values())

    @property
    def has_synced(self) -> bool:
        """True if all first lists are complete and the cache runs."""
        return self._started and all(i.has_synced for i in self._required_informers())

    def start(self) -> None:
        """Start all informers."""
        self._started = True
        for informer in self._informers.values():
            self._start_informer(informer)

    async def wait_for_sync(self, timeout: float = 120.0, *, kind: type[Object] | None = None) -> None:
        """Wait until every informer has completed its first lists.

        Informers of optional kinds are not waited for, unless ``kind`` names one.

        Args:
            timeout: seconds to wait for the next complete list.
            kind: wait for the informer of this kind only.

        Raises:
            CacheNotSynced: no list completed within ``timeout``. The message names each kind and the reason, such as
                a missing CustomResourceDefinition or missing RBAC rules.
        """
        informers = self._required_informers() if kind is None else (self._informers[kind],)
        try:
            # Each complete list extends the deadline: hundreds of namespaces take longer than one.
            async with asyncio.timeout(timeout) as deadline:
                await asyncio.gather(*(_wait_for_informer(informer, deadline, timeout) for informer in informers))
        except TimeoutError:
            unsynced = "; ".join(
                _describe_unsynced(sink) for each in informers for sink in each.sinks if not sink.has_synced
            )
            raise CacheNotSynced(f"not synced after {timeout:g} s: {unsynced}") from None

    async def catch_up(self, timeout: float = 30.0) -> None:
        """Wait until every informer has reached the server's current state.

        The watches of a standby may lag behind the last writes of the previous leader. A new leader therefore calls
        this method before it acts. If no watch lags, it costs one metadata list for each kind and namespace.

        Args:
            timeout: seconds to wait for the next informer.

        Raises:
            CacheNotSynced: no informer caught up within ``timeout``. The message names the kinds.
            ApiError, ConnectionFailed: a kind could not be listed.
        """
        # An optional kind that has not synced may be absent. Its first list is yet to come.
        required = self._required_informers()
        pending = {s: None for i in self.informers for s in i.sinks if s.has_synced or i in required}
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT_CATCH_UPS)

        async def catch_up_sink(sink: InformerSink[Any], deadline: asyncio.Timeout) -> None:
            # Wait outside the semaphore: a kind that cannot be listed must not block the others.
            await sink.progress.wait_for_sync()
            async with semaphore:
                await catch_up(sink, self._client)
            del pending[sink]
            _extend_deadline(deadline, timeout)

        try:
            async with asyncio.timeout(timeout) as deadline:
                await asyncio.gather(*(catch_up_sink(sink, deadline) for sink in tuple(pending)))
        except TimeoutError:
            names = "; ".join(_describe_resource(sink.kind, sink.scope.namespace) for sink in pending)
            raise CacheNotSynced(f"not caught up after {timeout:g} s: {names}") from None

    async def stop(self) -> None:
        """Stop all informers."""
        await self._supervisor.stop()
        self._started = False

    async def resolve(self, kind: type[Object], key: ObjectKey | None = None) -> None:
        """Read objects whose last write has an unknown outcome.

        Args:
            kind: a cached kind. See ``Informer.is_uncertain``.
            key: an object. Defaults to all objects of ``kind``.

        Raises:
            ApiError, ConnectionFailed: an object could not be read; it stays uncertain.
        """
        for sink in self._informers[kind].sinks:
            await sink.resolve_all([uncertain for uncertain in sink.uncertain_keys if key in (None, uncertain)])

    # Outcomes of our own writes: implements ``WriteObserver``.

    def on_write_started(self, kind: type[Object], key: ObjectKey) -> None:
        """See ``WriteObserver``."""
        for sink in self._sinks_for(kind, key):
            sink.on_write_started(key)

    def on_write_succeeded(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        """See ``WriteObserver``. Each informer of the object's resource stores ``obj``."""
        meta = obj.metadata
        key = ObjectKey(meta.namespace, meta.name)
        content: dict[str, Any] = {}

        def parse_content() -> Mapping[str, Any]:
            if not content:
                content.update(msgspec.json.decode(raw))
            return content

        for sink in self._sinks_for(kind, key):
            converted = obj if sink.kind is kind else self._convert(sink.kind, kind, raw)
            if converted is not None:
                sink.on_write_succeeded(key, converted, len(raw), parse_content)
            else:
                sink.mark_uncertain(key)
                sink.on_write_finished(key)

    def on_deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        """See ``WriteObserver``.

        Informers remove the deleted object. Late lists and watch events do not restore the object ``uid``.
        """
        for sink in self._sinks_for(kind, key):
            sink.on_deleted(key, uid)

    def on_write_unknown(self, kind: type[Object], key: ObjectKey) -> None:
        """See ``WriteObserver``. The next read of ``key`` goes to the server."""
        for sink in self._sinks_for(kind, key):
            sink.mark_uncertain(key)
            sink.on_write_finished(key)

    def on_write_rejected(self, kind: type[Object], key: ObjectKey) -> None:
        """See ``WriteObserver``."""
        for sink in self._sinks_for(kind, key):
            sink.on_write_finished(key)

    def on_collection_delete_failed(self, kind: type[Object], namespace: str) -> None:
        """See ``WriteObserver``. The next read of each object of ``namespace`` goes to the server."""
        for sink in self._sinks_for(kind, ObjectKey(namespace, "")):
            for obj in sink.store:
                if obj.metadata.namespace == namespace:
                    sink.mark_uncertain(obj.key)

    def _sinks_for(self, kind: type[Object], key: ObjectKey) -> tuple[InformerSink[Any], ...]:
        if kind not in self._sinks_by_written_kind:
            self._sinks_by_written_kind[kind] = self._sinks_by_namespace(kind)
        found = self._sinks_by_written_kind[kind]
        return found[key.namespace if key.namespace in found else ""]

    def _sinks_by_namespace(self, kind: type[Object]) -> _SinksByNamespace:
        """Return the sinks of a written kind by namespace. The empty name stands for all other namespaces."""
        resource = kind.api_resource.group_resource
        by_namespace: dict[str, tuple[InformerSink[Any], ...]] = {"": ()}
        for sink in self._sinks():
            if sink.kind.api_resource.group_resource == resource:
                name = sink.scope.namespace
                by_namespace[name] = (*by_namespace.get(name, ()), sink)
        everywhere = by_namespace[""]
        return {name: sinks if not name else (*everywhere, *sinks) for name, sinks in by_namespace.items()}

    def _convert(self, cached_kind: type[Object], kind: type[Object], raw: bytes) -> Object | None:
        """Decode a response of type ``kind`` as ``cached_kind``.

        Return None if it does not contain all fields.
        """
        metadata_only = issubclass(cached_kind, ObjectMetadata)
        if not metadata_only and (
            issubclass(kind, ObjectMetadata) or cached_kind.api_resource.version != kind.api_resource.version
        ):
            return None
        try:
            return decode_object(raw, cached_kind, self._decoded_managers)
        except msgspec.ValidationError:
            return None

    def _sinks(self) -> Iterator[InformerSink[Any]]:
        for informer in self._informers.values():
            yield from informer.sinks

    def _required_informers(self) -> tuple[Informer[Any], ...]:
        return tuple(i for i in self._informers.values() if not isinstance(i, OptionalInformer))

    def _start_informer(self, informer: Informer[Any]) -> None:
        if isinstance(informer, OptionalInformer):
            # New sinks replace the old ones whenever the kind appears.
            informer.on_served_change(self._sinks_by_written_kind.clear)
            self._supervisor.start(informer.run, f"discovery {informer.name}")
        else:
            for reflector in informer.reflectors:
                self._supervisor.start(reflector.run, f"reflector {informer.name}")
        period = self._options.get(informer.kind, _DEFAULTS).resync
        if period > 0:
            self._supervisor.start(partial(informer.resync, period), f"resync {informer.name}")


async def _wait_for_informer(informer: Informer[Any], deadline: asyncio.Timeout, seconds: float) -> None:
    """Wait until ``informer`` has synced; each complete list extends ``deadline`` by ``seconds``."""
    synced_count = 0
    while not informer.has_synced:
        await informer.progress.wait()
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
        return "no response yet"
    if isinstance(error, NotFound):
        return f"its CustomResourceDefinition is not installed, or does not serve this version: {error}"
    if isinstance(error, Forbidden):
        return f"RBAC must allow get, list and watch: {error}"
    return error_text(error)


def _describe_resource(kind: type[Object], namespace: str) -> str:
    resource = kind.api_resource
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{name} in {namespace}" if namespace else name
