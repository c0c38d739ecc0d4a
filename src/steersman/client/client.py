"""Verbs on typed objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal, TypeVar

from steersman.client.documents import apply_document, kind_of, status_document, with_type
from steersman.client.exchange import Exchange
from steersman.client.listing import (
    DecodeErrorHandler,
    ObjectList,
    ObjectPage,
    ObjectReader,
    VersionMatch,
    list_query,
)
from steersman.client.observer import WriteObserver
from steersman.client.patch import Patch
from steersman.client.reading import accepted
from steersman.client.transport import HttpRequest, Transport
from steersman.client.watching import EventReader, Skip, WatchEvent
from steersman.errors import Expired
from steersman.meta import ApplyConfiguration, Object, ObjectKey, Status, encode

T = TypeVar("T", bound=Object)

Propagation = Literal["Background", "Foreground", "Orphan"]


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
        resource_version: str = "",
        match: VersionMatch = "",
        page_size: int = 500,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> ObjectList[T]:
        """All objects of ``kind`` in ``namespace`` (empty: in all) that the selectors match, as of one moment.

        Args:
            resource_version: empty for what is true now; otherwise see ``match``.
            match: ``NotOlderThan``, which the server may answer from its cache, or ``Exact``.
            page_size: objects a request; 0 for all in one, which is also how a list is read whose pages expired.
            on_decode_error: called with the key of an object that does not fit ``kind``, which is then left out;
                without it, such an object raises ``msgspec.ValidationError``.

        Raises:
            Expired: the server no longer knows ``resource_version``.
        """
        query = list_query(label_selector, field_selector, resource_version, match)
        reader = ObjectReader(kind, self.field_manager, on_decode_error)
        pages: list[ObjectPage[T]] = []
        try:
            async for page in self._pages(kind, namespace, query, page_size, reader):
                pages.append(page)  # noqa: PERF401 - those that came before an error are to be known
        except Expired:
            if not pages:
                raise
            pages = [p async for p in self._pages(kind, namespace, query, 0, reader)]
        return ObjectList(tuple(i for p in pages for i in p.items), pages[-1].resource_version)

    async def pages(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        match: VersionMatch = "",
        page_size: int = 500,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> AsyncGenerator[ObjectPage[T], None]:
        """As ``list``, page by page, so that a large collection need not be held as a whole.

        Raises:
            Expired: also between two pages, some minutes after the first: what came so far is not the whole list.
        """
        query = list_query(label_selector, field_selector, resource_version, match)
        reader = ObjectReader(kind, self.field_manager, on_decode_error)
        async for page in self._pages(kind, namespace, query, page_size, reader):
            yield page

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
        resource_version: str = "",
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout: float = 300.0,
        send_initial_events: bool = False,
        skip: Skip | None = None,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after ``resource_version``, in order, until the server ends the watch after ``timeout`` seconds.

        Bookmarks are asked for.

        Args:
            send_initial_events: what exists comes first, as ADDED, then a bookmark with ``initial_events_end``
                ("streaming list"); it is at least as new as ``resource_version``, or, where that is empty, as this
                call. Servers without it, among them those before Kubernetes 1.32, raise Invalid: list instead.
            skip: asked with the JSON of each ADDED or MODIFIED object; where it says yes, the object is not read,
                and its event comes without it.
            on_decode_error: called with the key of an object that does not fit ``kind``; its event comes without it;
                without it, such an object raises ``msgspec.ValidationError``.

        Raises:
            Expired: ``resource_version`` is too old: list again.
            ConnectionFailed: the stream broke, or fell silent for longer than the server lets a watch run.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout)),
            **list_query(label_selector, field_selector),
        }
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        path = kind.api_resource.path(namespace=namespace)
        # A healthy server ends the stream itself; one that has said nothing for this long is gone.
        request = HttpRequest(method="GET", path=path, query=query, timeout=timeout + 30.0, accept=accepted(kind))
        reader = EventReader(ObjectReader(kind, self.field_manager, on_decode_error), skip)
        async with self._transport.stream(request) as lines:
            async for line in lines:
                if (event := reader.read(line)) is not None:
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

    async def _pages(
        self, kind: type[T], namespace: str, query: Mapping[str, str], page_size: int, reader: ObjectReader[T]
    ) -> AsyncGenerator[ObjectPage[T], None]:
        path, accept = kind.api_resource.path(namespace=namespace), accepted(kind, listed=True)
        asked = {**query, "limit": str(page_size)} if page_size else query
        while True:
            page, token = reader.page(await self._call(path, asked, accept=accept))
            yield page
            if not token:
                return
            # The token says the version.
            kept = {k: v for k, v in asked.items() if k not in ("resourceVersion", "resourceVersionMatch")}
            asked = {**kept, "continue": token}

    async def _call(self, path: str, query: Mapping[str, str] | None = None, *, accept: str) -> bytes:
        return await self._exchange.call(HttpRequest(method="GET", path=path, query=query or {}, accept=accept))
