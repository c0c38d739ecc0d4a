"""Verbs on typed objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from steersman.client.documents import apply_document, kind_of, status_document, with_type
from steersman.client.exchange import Exchange
from steersman.client.observer import WriteObserver
from steersman.client.patch import Patch
from steersman.client.reading import accepted, read_object
from steersman.client.transport import HttpRequest, Transport
from steersman.errors import Status as ApiStatus
from steersman.errors import error_from_status
from steersman.meta import ApplyConfiguration, Object, ObjectKey, Status, decode, encode
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)

Propagation = Literal["Background", "Foreground", "Orphan"]
DecodeErrorHandler = Callable[[ObjectKey, msgspec.ValidationError], None]


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """All objects of a list, whatever number of pages it took, and the version to start a watch from."""

    items: tuple[T, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change. A ``BOOKMARK`` carries no object, only how far the watch has come.

    Nor is there an ``object`` where it did not fit its type and an ``on_decode_error`` was given; ``key`` says which
    one it is.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    key: ObjectKey
    resource_version: str


class _Metadata(FrozenStruct):
    """What lists, and objects that do not fit their type, can always be asked."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class _Page(FrozenStruct):
    metadata: _Metadata = _Metadata()
    items: list[msgspec.Raw] | None = None


class _Identity(FrozenStruct):
    metadata: _Metadata = _Metadata()


class _RawEvent(FrozenStruct):
    type: str
    object: msgspec.Raw


class Client:
    """Reads and writes objects of one cluster, straight at the API server.

    Every method raises ``ApiError`` (by reason: ``NotFound``, ``Conflict``, …) when the server refuses, and
    ``ConnectionFailed`` when no answer came.

    Args:
        transport: from ``connect(load_config())``, or an in-memory server in tests.
        field_manager: the name under which writes own their fields.
        observer: told of every write that is no dry run: a ``Cache``, which then knows them before its watch does.
    """

    def __init__(
        self, transport: Transport, *, field_manager: str = "steersman", observer: WriteObserver | None = None
    ) -> None:
        self._transport = transport
        self._exchange = Exchange(transport, field_manager, observer)
        self.field_manager = field_manager

    @property
    def transport(self) -> Transport:
        """What carries the requests."""
        return self._transport

    async def raw(
        self, path: str, *, accept: str = "application/json", query: Mapping[str, str] | None = None
    ) -> bytes:
        """The body of a GET of ``path``, for what is no object, such as ``/version``: ``kubectl get --raw``."""
        return await self._exchange.call(HttpRequest(method="GET", path=path, query=query or {}, accept=accept))

    async def get(self, kind: type[T], key: ObjectKey) -> T:
        """The object ``key`` of ``kind``. Raises NotFound."""
        return self._exchange.read(await self._call(kind.api_resource.path(key), accept=accepted(kind)), kind)

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> ObjectList[T]:
        """All objects of ``kind`` in ``namespace`` (empty: in all) that the selectors match.

        Args:
            page_size: objects a request.
            on_decode_error: called with the key of an object that does not fit ``kind``, which is then left out;
                without it, such an object raises ``msgspec.ValidationError``.
        """
        items: list[T] = []
        query = {"limit": str(page_size), **_selectors(label_selector, field_selector)}
        while True:
            path = kind.api_resource.path(namespace=namespace)
            body = await self._call(path, query, accept=accepted(kind, listed=True))
            page = decode(body, _Page)
            read = (self._read_or_report(raw, kind, on_decode_error) for raw in page.items or ())
            items.extend(obj for obj in read if obj is not None)
            if not page.metadata.continue_:
                return ObjectList(tuple(items), page.metadata.resource_version)
            query = {**query, "continue": page.metadata.continue_}

    async def create(self, obj: T | ApplyConfiguration[T]) -> T:
        """Creates ``obj`` and returns it as stored. Raises AlreadyExists, Invalid."""
        kind = kind_of(obj)
        path = kind.api_resource.path(namespace=obj.key.namespace)
        query = {"fieldManager": self.field_manager, "fieldValidation": "Strict"}
        request = HttpRequest(
            method="POST", path=path, query=query, body=encode(with_type(obj)), accept=accepted(kind)
        )
        return await self._exchange.write(request, kind, obj.key)

    async def patch(self, kind: type[T], key: ObjectKey, patch: Patch, *, subresource: str = "") -> T:
        """Changes ``key`` by a JSON or merge patch and returns it as stored. Raises NotFound, Conflict, Invalid."""
        path = kind.api_resource.path(key, subresource=subresource)
        body, query = encode(patch.body), {"fieldManager": self.field_manager, "fieldValidation": "Strict"}
        request = HttpRequest(
            method="PATCH",
            path=path,
            query=query,
            body=body,
            content_type=patch.content_type,
            accept=accepted(kind),
        )
        return await self._exchange.write(request, kind, key)

    async def apply(self, config: ApplyConfiguration[T], *, owner: Object | None = None, force: bool = True) -> T:
        """Creates or changes an object by server-side apply and returns it as stored.

        Args:
            config: an apply type (``DeploymentApply``, …), with just the fields that we decide.
            owner: becomes the controller owner: the object is deleted with it.
            force: take over fields that another manager owns, as controllers do; otherwise they raise Conflict.

        Raises:
            TypeError: ``config`` is not an apply type. An object that was read from the server carries every
                field, and applying it would seize them all.
        """
        if not isinstance(config, ApplyConfiguration):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"apply() takes an apply type such as {type(config).__name__}Apply, not an object that was read"
            )
        return await self._apply(kind_of(config), config.key, apply_document(config, owner), force=force)

    async def apply_status(self, obj: T, status: Status) -> T:
        """Declares the whole ``status`` of ``obj``; what it no longer says is removed. Raises NotFound.

        It conflicts with no other change. The API server ignores a UID here, so a namesake created in the meantime
        is told the same, until its own reconcile, which its creation triggers, says better.
        """
        return await self._apply(type(obj), obj.key, status_document(obj, status), force=True, subresource="status")

    async def delete(
        self,
        kind: type[T],
        key: ObjectKey,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
    ) -> T | None:
        """Deletes ``key``, or marks it for deletion while finalizers or a grace period hold it.

        Returns the object that is still there, or None when it is gone.

        Args:
            uid: only if the object still is this one; otherwise Conflict.
            resource_version: only if the object is unchanged since; otherwise Conflict.
            propagation: what becomes of the objects that it owns.
        """
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
        options: dict[str, Any] = {"propagationPolicy": propagation}
        if preconditions:
            options["preconditions"] = preconditions
        path = kind.api_resource.path(key)
        request = HttpRequest(method="DELETE", path=path, body=encode(options), accept=accepted(kind))
        return await self._exchange.delete(request, kind, key)

    async def watch(
        self,
        kind: type[T],
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout: float = 300.0,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after ``resource_version``, in order, until the server ends the watch after ``timeout`` seconds.

        Bookmarks are asked for. Raises Expired when the version is too old: list again.

        Args:
            on_decode_error: called with the key of an object that does not fit ``kind``; its event comes without it;
                without it, such an object raises ``msgspec.ValidationError``.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout)),
            **_selectors(label_selector, field_selector),
        }
        # A healthy server ends the stream itself; one that has said nothing for this long is gone.
        path = kind.api_resource.path(namespace=namespace)
        request = HttpRequest(method="GET", path=path, query=query, timeout=timeout + 30.0, accept=accepted(kind))
        async with self._transport.stream(request) as lines:
            async for event in self._events(lines, kind, on_decode_error):
                yield event

    async def _apply(
        self, kind: type[T], key: ObjectKey, document: dict[str, Any], *, force: bool, subresource: str = ""
    ) -> T:
        query = {"fieldManager": self.field_manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        path = kind.api_resource.path(key, subresource=subresource)
        request = HttpRequest(
            method="PATCH",
            path=path,
            query=query,
            body=encode(document),
            content_type="application/apply-patch+yaml",
            accept=accepted(kind),
        )
        return await self._exchange.write(request, kind, key)

    def _read_or_report(self, raw: msgspec.Raw, kind: type[T], on_error: DecodeErrorHandler | None) -> T | None:
        try:
            return read_object(raw, kind, self.field_manager)
        except msgspec.ValidationError as error:
            if on_error is None:
                raise
            on_error(decode(raw, _Identity).metadata.key, error)
            return None

    async def _events(
        self, lines: AsyncIterator[bytes], kind: type[T], on_error: DecodeErrorHandler | None
    ) -> AsyncGenerator[WatchEvent[T], None]:
        async for line in lines:
            event = decode(line, _RawEvent)
            match event.type:
                case "ERROR":
                    raise error_from_status(msgspec.json.decode(event.object, type=ApiStatus))
                case "BOOKMARK":
                    version = decode(event.object, _Identity).metadata.resource_version
                    yield WatchEvent("BOOKMARK", None, ObjectKey("", ""), version)
                case "ADDED" | "MODIFIED" | "DELETED":
                    obj = self._read_or_report(event.object, kind, on_error)
                    if obj is not None:
                        yield WatchEvent(event.type, obj, obj.key, obj.metadata.resource_version)
                    else:
                        skipped = decode(event.object, _Identity).metadata
                        yield WatchEvent(event.type, None, skipped.key, skipped.resource_version)
                case _:
                    continue

    async def _call(self, path: str, query: dict[str, str] | None = None, *, accept: str) -> bytes:
        return await self._exchange.call(HttpRequest(method="GET", path=path, query=query or {}, accept=accept))


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}
