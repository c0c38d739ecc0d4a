"""The informers of a manager, one a kind, shared by its controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from steersman.cache.catch_up import catch_up
from steersman.cache.informer import Informer
from steersman.cache.options import InformerOptions, scopes_of
from steersman.cache.part import Part
from steersman.client import Client
from steersman.client.reading import read_object
from steersman.errors import CacheNotSynced, ConfigurationError, Forbidden, NotFound
from steersman.meta import Object, ObjectKey, ObjectMetadata
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

_DEFAULTS = InformerOptions()
# Of all kinds and namespaces: as many lists as the client has connections would keep the loop from all else.
_CATCH_UPS = 32

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
        self._by_resource: dict[tuple[str, str], list[Informer[Any]]] = {}
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
            self._by_resource.setdefault(_resource(kind), []).append(informer)
            if self._started:
                self._run(informer)
        return self._informers[kind]

    def holds(self, kind: type[Object]) -> bool:
        """Whether an informer of ``kind`` exists."""
        return kind in self._informers

    def transforms(self, kind: type[Object]) -> bool:
        """Whether objects of ``kind`` are held in another form than they were read in."""
        informer = self._informers.get(kind)
        return informer is not None and any(part.scope.selection.transform is not None for part in informer.parts)

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
            self._run(informer)

    async def wait_for_sync(self, timeout: float = 120.0, *, kind: type[Object] | None = None) -> None:
        """Returns once every informer, or the one of ``kind``, has its first lists.

        Raises:
            CacheNotSynced: no list became complete for ``timeout`` seconds; names the kinds and why: a CRD that is
                not installed, a right that RBAC does not give, or whatever else the server answered.
        """
        informers = self.informers if kind is None else (self._informers[kind],)
        try:
            # Those of hundreds of namespaces take their time, and that is no reason to begin anew.
            async with asyncio.timeout(timeout) as patience:
                await asyncio.gather(*(_synced(informer, patience, timeout) for informer in informers))
        except TimeoutError:
            laggards = "; ".join(_lag(part) for each in informers for part in each.parts if not part.has_synced)
            raise CacheNotSynced(f"not synced after {timeout:g} s: {laggards}") from None

    async def catch_up(self, timeout: float = 30.0) -> None:
        """Returns when every informer is at least as new as the server was at the call.

        A standby's watches may lag behind what the former leader has just done; a new leader calls this before it
        acts. Where nothing is late it costs one list of metadata a kind and namespace.

        Raises:
            CacheNotSynced: none of them caught up for ``timeout`` seconds; names the kinds.
            ApiError, ConnectionFailed: a kind could not be listed.
        """
        late = {part: part for part in self._parts()}
        turns = asyncio.Semaphore(_CATCH_UPS)

        async def follow(part: Part[Any], patience: asyncio.Timeout) -> None:
            # Without a turn: a kind that cannot be listed must not keep the others from theirs, or be taken for them.
            await part.informer.wait_for_sync()
            async with turns:
                await catch_up(part, self._client)
            del late[part]
            _extend(patience, timeout)

        try:
            async with asyncio.timeout(timeout) as patience:
                await asyncio.gather(*(follow(part, patience) for part in tuple(late)))
        except TimeoutError:
            names = "; ".join(_title(p.kind, p.scope.namespace) for p in late)
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
        return any(part.doubts and (key is None or key in part.doubts) for part in informer.parts)

    async def settle(self, kind: type[Object], key: ObjectKey | None = None) -> None:
        """Reads from the server what is uncertain of ``key`` (None: of all of ``kind``), and stores it.

        Raises:
            ApiError, ConnectionFailed: it could not be read; it stays uncertain.
        """
        for part in self._informers[kind].parts:
            await part.settle_all([doubted for doubted in part.doubts if key in (None, doubted)])

    # What the client tells of its writes: see ``WriteObserver``.

    def begun(self, kind: type[Object], key: ObjectKey) -> None:
        """A write of ``key`` is about to be sent."""
        for part in self._concerned(kind, key):
            part.begun(key)

    def written(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        """The server answered with ``obj``: every informer that it belongs to has it from now on."""
        key = obj.key
        content: dict[str, Any] = {}

        def parsed() -> Mapping[str, Any]:
            if not content:
                content.update(msgspec.json.decode(raw))
            return content

        for part in self._concerned(kind, key):
            own = self._in_form_of(part.kind, kind, obj, raw)
            if own is not None:
                part.written(own, len(raw), parsed)
            else:
                part.doubt(key)
                part.ended(key)

    def deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        """The object ``uid`` is gone for good: no informer shows it again."""
        for part in self._concerned(kind, key):
            part.deleted(key, uid)

    def uncertain(self, kind: type[Object], key: ObjectKey) -> None:
        """Nobody knows what became of a write: the next read of ``key`` asks the server."""
        for part in self._concerned(kind, key):
            part.doubt(key)
            part.ended(key)

    def refused(self, kind: type[Object], key: ObjectKey) -> None:
        """Nothing has changed."""
        for part in self._concerned(kind, key):
            part.ended(key)

    def _concerned(self, kind: type[Object], key: ObjectKey) -> Iterator[Part[Any]]:
        for informer in self._by_resource.get(_resource(kind), ()):
            part = informer.part_of(key)
            if part is not None:
                yield part

    def _in_form_of(self, held: type[Object], kind: type[Object], obj: Object, raw: bytes) -> Object | None:
        """``obj`` as a ``held``; None where the answer does not say enough for that."""
        if held is kind:
            return obj
        metadata = issubclass(held, ObjectMetadata)
        if not metadata and (
            issubclass(kind, ObjectMetadata) or held.api_resource.version != kind.api_resource.version
        ):
            return None
        try:
            return read_object(raw, held, self._client.field_manager)
        except msgspec.ValidationError:
            return None

    def _parts(self) -> Iterator[Part[Any]]:
        for informer in self._informers.values():
            yield from informer.parts

    def _run(self, informer: Informer[Any]) -> None:
        tasks = [(f"reflector {informer.name}", r.run()) for r in informer.reflectors]
        period = self._options.get(informer.kind, _DEFAULTS).resync
        if period > 0:
            tasks.append((f"resync {informer.name}", informer.resync(period)))
        self._tasks.extend(self._runtime.spawn(coroutine, name) for name, coroutine in tasks)


async def _synced(informer: Informer[Any], patience: asyncio.Timeout, seconds: float) -> None:
    """Returns once ``informer`` is; each list that becomes complete meanwhile gives ``patience`` so much more."""
    complete = 0
    while not informer.has_synced:
        await informer.progress()
        before, complete = complete, sum(part.has_synced for part in informer.parts)
        if complete > before:
            _extend(patience, seconds)


def _extend(patience: asyncio.Timeout, seconds: float) -> None:
    if not patience.expired():
        patience.reschedule(asyncio.get_running_loop().time() + seconds)


def _lag(part: Part[Any]) -> str:
    return f"{_title(part.kind, part.scope.namespace)} ({_reason(part.reflector.last_error)})"


def _reason(error: Exception | None) -> str:
    if error is None:
        return "no answer yet"
    if isinstance(error, NotFound):
        return f"its CustomResourceDefinition is not installed, or of another version: {error}"
    if isinstance(error, Forbidden):
        return f"RBAC must allow get, list and watch: {error}"
    return str(error) or type(error).__name__


def _resource(kind: type[Object]) -> tuple[str, str]:
    return kind.api_resource.group, kind.api_resource.plural


def _title(kind: type[Object], namespace: str) -> str:
    resource = kind.api_resource
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{name} in {namespace}" if namespace else name
