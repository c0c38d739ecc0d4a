"""Verbs on objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar, overload

from steersman.client.decode import (
    DecodeErrorHandler,
    EventDecoder,
    ObjectDecoder,
    ObjectList,
    ObjectPage,
    ResourceVersionMatch,
    SkipDecode,
    WatchEvent,
    accept_header,
    list_query,
)
from steersman.client.encode import kind_of, status_document, with_owner, with_type_meta
from steersman.client.patch import Patch
from steersman.client.request_sender import RequestSender
from steersman.client.subresources import SubresourceClient
from steersman.client.transport.interface import HttpRequest, Transport
from steersman.client.write_observer import WriteObserver
from steersman.client.write_options import FieldValidation, Propagation, delete_options, uid_conflict, write_query
from steersman.errors import Expired, Invalid
from steersman.meta import ApplyConfiguration, Object, ObjectKey, ObjectMetadata, Unstructured, encode
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)
UnstructuredT = TypeVar("UnstructuredT", bound=Unstructured)


class Client(SubresourceClient):
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
        super().__init__(RequestSender(transport, field_manager, observer))
        self._transport = transport
        self.field_manager = field_manager

    @property
    def transport(self) -> Transport:
        """What carries the requests."""
        return self._transport

    async def raw(
        self, path: str, *, accept: str = "application/json", query: Mapping[str, str] | None = None
    ) -> bytes:
        """The body of a GET of ``path``, for what is no object, such as ``/version``: ``kubectl get --raw``."""
        return await self._sender.send(HttpRequest(method="GET", path=path, query=query or {}, accept=accept))

    async def get(self, kind: type[T], key: ObjectKey) -> T:
        """The object ``key`` of ``kind``. Raises NotFound."""
        return self._sender.decode_object(
            await self._get_raw(kind.api_resource.path(key), accept=accept_header(kind)), kind
        )

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        resource_version_match: ResourceVersionMatch = "",
        page_size: int = 500,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> ObjectList[T]:
        """All objects of ``kind`` in ``namespace`` (empty: in all) that the selectors match, as of one moment.

        Args:
            resource_version: empty for what is true now; otherwise see ``resource_version_match``.
            resource_version_match: ``NotOlderThan``, which the server may answer from its cache, or ``Exact``.
            page_size: objects a request; 0 for all in one, which is also how a list is read whose pages expired.
            on_decode_error: called with the key of an object that does not fit ``kind``, which is then left out;
                without it, such an object raises ``msgspec.ValidationError``.

        Raises:
            Expired: the server no longer knows ``resource_version``.
        """
        query = list_query(label_selector, field_selector, resource_version, resource_version_match)
        decoder = ObjectDecoder(kind, self.field_manager, on_decode_error)
        pages: list[ObjectPage[T]] = []
        try:
            async for page in self._pages(kind, namespace, query, page_size, decoder):
                pages.append(page)  # noqa: PERF401 - those that came before an error are to be known
        except Expired:
            if not pages:
                raise
            pages = [p async for p in self._pages(kind, namespace, query, 0, decoder)]
        return ObjectList(tuple(i for p in pages for i in p.items), pages[-1].resource_version)

    async def pages(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        resource_version_match: ResourceVersionMatch = "",
        page_size: int = 500,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> AsyncGenerator[ObjectPage[T], None]:
        """As ``list``, page by page, so that a large collection need not be held as a whole.

        Raises:
            Expired: also between two pages, some minutes after the first: what came so far is not the whole list.
        """
        query = list_query(label_selector, field_selector, resource_version, resource_version_match)
        decoder = ObjectDecoder(kind, self.field_manager, on_decode_error)
        async for page in self._pages(kind, namespace, query, page_size, decoder):
            yield page

    async def create(
        self,
        obj: T | ApplyConfiguration[T],
        *,
        owner: Object | None = None,
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> T:
        """Creates ``obj`` and returns it as stored.

        Args:
            owner: becomes its controller: the object dies with it.
            dry_run: do all but store it.
            field_validation: what becomes of fields that the server does not know.

        Raises:
            AlreadyExists, Invalid: the server refuses it.
            TypeError: ``obj`` is metadata alone.
            ValueError: ``owner`` lives in another namespace.
        """
        if isinstance(obj, ObjectMetadata):
            raise TypeError(f"{obj.key} is metadata alone: create() would make an object without content")
        kind = kind_of(obj)
        request = HttpRequest(
            method="POST",
            path=kind.api_resource.path(namespace=obj.key.namespace),
            query=write_query(self.field_manager, field_validation, dry_run),
            body=encode(with_owner(obj, owner)),
        )
        return await self._sender.write(request, kind, obj.key)

    async def update(
        self,
        obj: UnstructuredT,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> UnstructuredT:
        """Replaces an object by ``obj``, if it has not changed since ``obj`` was read, and returns it as stored.

        Args:
            obj: the whole object, made by ``of`` from the ``to_dict()`` of what was read.
            subresource: empty, or ``status``.
            dry_run: do all but store it.
            field_validation: what becomes of fields that the server does not know.

        Raises:
            Conflict: the object has changed. Read it again: see ``retry_on_conflict``.
            TypeError: ``obj`` is typed. Its type drops the fields that it does not know, and this would delete them.
            ValueError: ``obj`` has no resourceVersion, so that what others changed meanwhile would be undone.
        """
        kind = type(obj)
        if not isinstance(obj, Unstructured):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"update() replaces the whole object, and would delete what {kind.__name__} has no field for: "
                "use apply() or patch(), or read it as unstructured(resource)"
            )
        if not obj.metadata.resource_version:
            raise ValueError(f"update() of {obj.key} needs the resourceVersion that was read")
        request = HttpRequest(
            method="PUT",
            path=kind.api_resource.path(obj.key, subresource=subresource),
            query=write_query(self.field_manager, field_validation, dry_run),
            body=encode(with_type_meta(obj)),
        )
        return await self._sender.write(request, kind, obj.key)

    async def patch(
        self,
        kind: type[T],
        key: ObjectKey,
        patch: Patch,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> T:
        """Changes ``key`` by a JSON, merge or strategic merge patch and returns it as stored.

        A ``resourceVersion`` in the metadata of a merge patch is a precondition.

        Args:
            subresource: of which the answer is the object itself, such as ``status``.
            dry_run: do all but store it.
            field_validation: what becomes of fields that the server does not know.

        Raises:
            NotFound, Conflict, Invalid: the server refuses it.
            UnsupportedMediaType: a strategic merge patch of a custom resource.
        """
        request = HttpRequest(
            method="PATCH",
            path=kind.api_resource.path(key, subresource=subresource),
            query=write_query(self.field_manager, field_validation, dry_run),
            body=encode(patch.body),
            content_type=patch.content_type,
            accept=accept_header(kind),
        )
        return await self._sender.write(request, kind, key)

    @overload
    async def apply(
        self,
        config: ApplyConfiguration[T],
        *,
        owner: Object | None = None,
        uid: str = "",
        force: bool = True,
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> T: ...
    @overload
    async def apply(
        self,
        config: UnstructuredT,
        *,
        owner: Object | None = None,
        uid: str = "",
        force: bool = True,
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> UnstructuredT: ...
    async def apply(
        self,
        config: Any,
        *,
        owner: Object | None = None,
        uid: str = "",
        force: bool = True,
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> Any:
        """Creates or changes an object by server-side apply and returns it as stored.

        It conflicts with no other change, and what it meets under the name is changed, what is gone made again: give
        ``uid`` where it follows from an object that was read, and may arrive when that one is gone.

        Args:
            config: an apply type (``DeploymentApply``, …), or an ``Unstructured`` made by ``of``, with just the
                fields that we decide.
            owner: becomes the controller owner: the object is deleted with it.
            uid: only if the object still is this one; otherwise Conflict, and nothing is created.
            force: take over fields that another manager owns, as controllers do.
            dry_run: do all but store it.
            field_validation: what becomes of fields that the server does not know.

        Raises:
            Conflict: without ``force``, when another manager owns a field: see its ``conflicts``; with ``uid``, when
                the object is gone or another one.
            TypeError: ``config`` was read from the server. It carries every field, and applying it would seize
                them all.
        """
        _check_applicable(config)
        document = with_owner(config, owner)
        if uid:
            document["metadata"]["uid"] = uid
        return await self.apply_encoded(
            kind_of(config),
            config.key,
            encode(document),
            force=force,
            dry_run=dry_run,
            field_validation=field_validation,
        )

    async def apply_encoded(
        self,
        kind: type[T],
        key: ObjectKey,
        body: bytes,
        *,
        subresource: str = "",
        force: bool = True,
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> T:
        """Sends an apply configuration that is already encoded. ``apply`` and ``apply_status`` encode and call it.

        Args:
            kind: the type of the result.
            key: the object to apply to.
            body: JSON with apiVersion, kind and metadata.name.
            subresource: empty, or ``status``.
            force: take over fields that another manager owns.
            dry_run: validate and admit the request, but do not store the result.
            field_validation: handling of fields that the server does not know.

        Raises:
            Conflict: another manager owns a field, or the object does not match the body's UID or resourceVersion.
        """
        request = HttpRequest(
            method="PATCH",
            path=kind.api_resource.path(key, subresource=subresource),
            query=write_query(self.field_manager, field_validation, dry_run, force),
            body=body,
            content_type="application/apply-patch+yaml",
        )
        try:
            return await self._sender.write(request, kind, key)
        except Invalid as error:
            if (conflict := uid_conflict(error)) is not None:
                raise conflict from error
            raise

    async def apply_status(
        self,
        obj: T,
        status: FrozenStruct | Mapping[str, Any],
        *,
        resource_version: str = "",
        force: bool = True,
        dry_run: bool = False,
        field_validation: FieldValidation = "Strict",
    ) -> T:
        """Declares the whole ``status`` of ``obj``, or our part of it; what it no longer says is removed.

        Without ``resource_version`` it conflicts with no other change. The API server ignores a UID here, so a
        namesake created in the meantime is told the same, until its own reconcile, which its creation triggers, says
        better.

        Args:
            status: typed, then every field that is not None is sent; or in wire form.
            resource_version: write only if the object has not changed since. Give it where the status remembers
                what nothing else tells: what a former leader wrote may arrive late.
            force: take over fields that another manager owns.
            dry_run: do all but store it.
            field_validation: what becomes of fields that the server does not know.

        Raises:
            Conflict: it has another resource version.
            NotFound: ``obj`` is gone.
        """
        return await self.apply_encoded(
            type(obj),
            obj.key,
            encode(status_document(obj, status, resource_version)),
            subresource="status",
            force=force,
            dry_run=dry_run,
            field_validation=field_validation,
        )

    async def delete(
        self,
        kind: type[T],
        key: ObjectKey,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> T | None:
        """Deletes ``key``, or marks it for deletion while finalizers or a grace period hold it.

        Returns the object that is still there, or None when it is gone.

        Args:
            uid: only if the object still is this one; otherwise Conflict.
            resource_version: only if the object is unchanged since; otherwise Conflict.
            propagation: what becomes of the objects that it owns.
            grace_period_seconds: that a pod has to end; None for what it says itself, 0 for at once, which on a lost
                node does not mean that it has ended.
            dry_run: do all but delete it.
        """
        options = delete_options(propagation, uid, resource_version, grace_period_seconds, dry_run)
        request = self._delete_request(kind.api_resource.path(key), options, accept_header(kind), {})
        return await self._sender.delete(request, kind, key)

    async def delete_collection(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation = "Background",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> tuple[T, ...]:
        """Deletes the objects of ``kind`` that the selectors match; returns them as they were before.

        It is not one transaction: others may be created meanwhile, and after an error some are deleted.

        Args:
            namespace: required for kinds that live in namespaces.
            propagation: what becomes of the objects that they own.
            grace_period_seconds: that pods have to end; None for what they say themselves.
            dry_run: do all but delete them.

        Raises:
            ValueError: there is no namespace. Nothing deletes a kind in all of them.
        """
        if kind.api_resource.namespaced and not namespace:
            raise ValueError(f"delete_collection() of {kind.api_resource.plural} needs a namespace")
        options = delete_options(propagation, "", "", grace_period_seconds, dry_run)
        path, accept = kind.api_resource.path(namespace=namespace), accept_header(kind, is_list=True)
        query = list_query(label_selector, field_selector)
        return await self._sender.delete_collection(self._delete_request(path, options, accept, query), kind)

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
        skip_decode: SkipDecode | None = None,
        on_open: Callable[[], None] | None = None,
        on_decode_error: DecodeErrorHandler | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after ``resource_version``, in order, until the server ends the watch after ``timeout`` seconds.

        Bookmarks are asked for.

        Args:
            send_initial_events: what exists comes first, as ADDED, then a bookmark with ``initial_events_end``
                ("streaming list"); it is at least as new as ``resource_version``, or, where that is empty, as this
                call. Servers without it, among them those before Kubernetes 1.32, raise Invalid: list instead.
            skip_decode: called with the JSON of each ADDED or MODIFIED object. If it returns True, the object is not
                decoded, and its event comes without it.
            on_open: called when the server has begun to answer, which may be long before the first event.
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
        request = HttpRequest(
            method="GET", path=path, query=query, timeout=timeout + 30.0, accept=accept_header(kind)
        )
        decoder = EventDecoder(ObjectDecoder(kind, self.field_manager, on_decode_error), skip_decode)
        async with self._transport.stream(request) as lines:
            if on_open is not None:
                on_open()
            async for line in lines:
                if (event := decoder.decode(line)) is not None:
                    yield event

    def _delete_request(self, path: str, options: dict[str, Any], accept: str, query: dict[str, str]) -> HttpRequest:
        # Beside a body the query's dryRun does not count for the server, but for all who handle the request.
        query = query | ({"dryRun": "All"} if "dryRun" in options else {})
        return HttpRequest(method="DELETE", path=path, query=query, body=encode(options), accept=accept)

    async def _pages(
        self, kind: type[T], namespace: str, query: Mapping[str, str], page_size: int, decoder: ObjectDecoder[T]
    ) -> AsyncGenerator[ObjectPage[T], None]:
        path, accept = kind.api_resource.path(namespace=namespace), accept_header(kind, is_list=True)
        page_query = {**query, "limit": str(page_size)} if page_size else query
        while True:
            page, token = decoder.decode_page(await self._get_raw(path, page_query, accept=accept))
            yield page
            if not token:
                return
            # The token says the version.
            remaining = {k: v for k, v in page_query.items() if k not in ("resourceVersion", "resourceVersionMatch")}
            page_query = {**remaining, "continue": token}

    async def _get_raw(self, path: str, query: Mapping[str, str] | None = None, *, accept: str) -> bytes:
        return await self._sender.send(HttpRequest(method="GET", path=path, query=query or {}, accept=accept))


def _check_applicable(config: Any) -> None:
    if isinstance(config, ApplyConfiguration):
        return
    if not isinstance(config, Unstructured):
        raise TypeError(
            f"apply() takes an apply type such as {type(config).__name__}Apply, not an object that was read"
        )
    if config.metadata.creation_timestamp is not None or config.metadata.managed_fields:
        raise TypeError(f"{config.key} was read from the server: apply() takes just the fields that we decide")
