"""Client for reads and writes of objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
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
from steersman.client.encode import kind_of, require_applicable, status_document, with_owner, with_type_meta
from steersman.client.patch import Patch
from steersman.client.request_sender import RequestSender
from steersman.client.subresources import SubresourceClient
from steersman.client.transport.interface import HttpRequest, Transport
from steersman.client.write_log import WriteLog
from steersman.client.write_observer import WriteObserver
from steersman.client.write_options import FieldValidation, Propagation, delete_options, uid_conflict, write_query
from steersman.errors import Expired, Invalid
from steersman.meta import ApplyConfiguration, Object, ObjectKey, ObjectMetadata, Unstructured, encode
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)
UnstructuredT = TypeVar("UnstructuredT", bound=Unstructured)


class Client(SubresourceClient):
    """Client for the objects of one cluster, without a cache.

    All methods raise a subclass of ``ApiError`` if the server refuses the request, and ``ConnectionFailed`` if no
    response arrives. All writes take ``dry_run``, which validates and admits the request without storing the result,
    and ``field_validation``, the handling of unknown fields. Defaults to ``Strict``, which rejects them.

    Args:
        transport: result of ``connect(load_config())``, or an in-memory API server in tests.
        field_manager: name under which writes own their fields.
        observer: receives the outcome of each write except dry runs. A ``Cache`` uses it to show own writes at once.
        write_log: logs the writes that the observer receives. Defaults to no log.
        previous_field_managers: see ``ManagerOptions``. Only the client of a manager moves their fields.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = "steersman",
        observer: WriteObserver | None = None,
        write_log: WriteLog | None = None,
        previous_field_managers: Sequence[str] = (),
    ) -> None:
        super().__init__(RequestSender(transport, field_manager, observer, write_log, previous_field_managers))
        self._transport = transport
        self.previous_field_managers = frozenset(previous_field_managers)

    @property
    def transport(self) -> Transport:
        """Transport of all requests."""
        return self._transport

    async def raw(
        self, path: str, *, accept: str = "application/json", query: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the body of a GET request, like ``kubectl get --raw /version``."""
        return await self._sender.send(HttpRequest(method="GET", path=path, query=query or {}, accept=accept))

    async def get(self, kind: type[T], key: ObjectKey) -> T:
        """Return the object ``key`` of ``kind``. Raises NotFound."""
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
        """Return a consistent list of the objects that the selectors match.

        Args:
            namespace: namespace to list. Defaults to all.
            resource_version: resourceVersion for ``resource_version_match``. Defaults to the most recent state.
            resource_version_match: ``NotOlderThan``, which the server may serve from its cache, or ``Exact``.
            page_size: objects per request, 0 for all in one. If the pages expire, the list is read in one request.
            on_decode_error: receives the key of each object that does not match ``kind``, which is left out. Without
                a handler, such an object raises ``msgspec.ValidationError``.

        Raises:
            Expired: ``resource_version`` is too old.
        """
        query = list_query(label_selector, field_selector, resource_version, resource_version_match)
        decoder = ObjectDecoder(kind, self._sender.decoded_managers, on_decode_error)
        pages: list[ObjectPage[T]] = []
        try:
            async for page in self._pages(kind, namespace, query, page_size, decoder):
                pages.append(page)  # noqa: PERF401 - the except block needs the pages before the error
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
        """Yield the pages of a list that may be larger than memory.

        The other arguments are those of ``list``. ``Expired`` can also be raised between two pages.

        Args:
            page_size: objects per page, 0 for all in one.
        """
        query = list_query(label_selector, field_selector, resource_version, resource_version_match)
        decoder = ObjectDecoder(kind, self._sender.decoded_managers, on_decode_error)
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
        """Create ``obj`` and return it as stored.

        Args:
            owner: controller owner. The object is deleted together with it.

        Raises:
            AlreadyExists: an object with this name exists.
            TypeError: ``obj`` has metadata only.
            ValueError: ``owner`` is in another namespace.
        """
        if isinstance(obj, ObjectMetadata):
            raise TypeError(f"{obj.key} has metadata only: create() would create an object without content")
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
        """Replace an object that has not changed since it was read.

        Args:
            obj: the whole object, created by ``of`` from the changed ``to_dict()`` of the object that was read.
            subresource: empty, or ``status``.

        Raises:
            Conflict: the object has changed. See ``retry_on_conflict``.
            TypeError: ``obj`` is typed. Its type drops unknown fields, so an update would delete them.
            ValueError: ``obj`` has no resourceVersion, so an update could revert changes of other clients.
        """
        kind = type(obj)
        if not isinstance(obj, Unstructured):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"update() would delete the fields that {kind.__name__} does not declare: "
                "use apply() or patch(), or read the object as unstructured(resource)"
            )
        if not obj.metadata.resource_version:
            raise ValueError(f"update() of {obj.key} needs a resourceVersion: pass the one that was read")
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
        """Patch the object ``key`` and return it as stored.

        A ``resourceVersion`` in the metadata of a merge patch is a precondition.

        Args:
            subresource: subresource that responds with the object itself, such as ``status``.

        Raises:
            Conflict: a precondition failed.
            UnsupportedMediaType: a custom resource does not support strategic merge patches.
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
        """Create or change an object by server-side apply.

        Returns the object as stored. A missing object is created, unless the call has a ``uid``.

        Args:
            config: apply type (``apps.Deployment``, …), or ``Unstructured`` created by ``of``, with only the fields
                to own.
            owner: controller owner. The object is deleted together with it.
            uid: UID that the object must have. Otherwise Conflict is raised and nothing is created.
            force: take over fields that another manager owns, as controllers do. Defaults to True.

        Raises:
            Conflict: another manager owns a field and ``force`` is False (see ``Conflict.conflicts``), or the object
                does not have ``uid``.
            TypeError: ``config`` was read from the server. It has all fields, and applying it would take them over.
            ValueError: ``config`` has no namespace, and its kind is namespaced.
        """
        require_applicable(config)
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
        """Send an encoded apply configuration. ``apply`` and ``apply_status`` call it.

        Args:
            kind: type of the result.
            key: object to apply to.
            body: JSON with apiVersion, kind and metadata.name.
            subresource: empty, or ``status``.
            force: take over fields that another manager owns. Defaults to True.

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
        """Apply the ``status`` of ``obj``, or our part of it.

        Fields that an earlier apply set and ``status`` omits are removed. The API server ignores UIDs here, so an
        object recreated under the same name has this status until its own reconcile.

        Args:
            status: typed status, whose fields except None are sent, or JSON as a dict.
            resource_version: resourceVersion that the object must have. Pass it if the status is the only record of
                a fact, since a write of the previous leader may arrive late.
            force: take over fields that another manager owns. Defaults to True.

        Raises:
            Conflict: the object has another resourceVersion.
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
        """Delete ``key``. Finalizers or a grace period can delay the deletion.

        Returns the object if it still exists, marked for deletion, and None otherwise.

        Args:
            uid: UID that the object must have. Otherwise Conflict is raised.
            resource_version: resourceVersion that the object must have. Otherwise Conflict is raised.
            propagation: handling of the objects that it owns.
            grace_period_seconds: seconds for a pod to end. Defaults to that of the pod. 0 deletes the object even if
                its containers still run on a lost node.
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
        """Delete the matching objects, not atomically, and return their previous state.

        Args:
            namespace: required for namespaced kinds.
            propagation: handling of the objects that they own.
            grace_period_seconds: seconds for pods to end. Defaults to that of each pod.

        Raises:
            ValueError: ``namespace`` is missing.
        """
        if kind.api_resource.namespaced and not namespace:
            raise ValueError(f"delete_collection() of {kind.api_resource.plural} requires a namespace")
        options = delete_options(propagation, "", "", grace_period_seconds, dry_run)
        path, accept = kind.api_resource.path(namespace=namespace), accept_header(kind, is_list=True)
        request = self._delete_request(path, options, accept, list_query(label_selector, field_selector))
        return await self._sender.delete_collection(request, kind, namespace)

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
        """Yield the changes after ``resource_version``, including bookmarks.

        The server ends the watch after ``timeout`` seconds.

        Args:
            send_initial_events: begin with the existing objects as ADDED, then a bookmark with ``initial_events_end``
                (streaming list). They are at least as new as ``resource_version``, or as this call without one.
                Servers without this feature, such as those before Kubernetes 1.32, raise Invalid.
            skip_decode: called with the JSON of an ADDED or MODIFIED object. True leaves the event without an object.
            on_open: called when the response begins.
            on_decode_error: receives the key of each object that does not match ``kind``. Its event has no object.
                Without a handler, such an object raises ``msgspec.ValidationError``.

        Raises:
            Expired: ``resource_version`` is too old. List again.
            ConnectionFailed: the stream broke, or was silent for ``timeout`` and 30 seconds.
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
        # A healthy server ends the watch itself. A server that is silent for longer is unreachable.
        request = HttpRequest(
            method="GET", path=path, query=query, timeout=timeout + 30.0, accept=accept_header(kind)
        )
        decoder = EventDecoder(ObjectDecoder(kind, self._sender.decoded_managers, on_decode_error), skip_decode)
        async with self._transport.stream(request) as lines:
            if on_open is not None:
                on_open()
            async for line in lines:
                if (event := decoder.decode(line)) is not None:
                    yield event

    def _delete_request(self, path: str, options: dict[str, Any], accept: str, query: dict[str, str]) -> HttpRequest:
        # The server reads dryRun from the body. The query marks the request for retries and the write observer.
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
            # The token contains the resourceVersion.
            remaining = {k: v for k, v in page_query.items() if k not in ("resourceVersion", "resourceVersionMatch")}
            page_query = {**remaining, "continue": token}

    async def _get_raw(self, path: str, query: Mapping[str, str] | None = None, *, accept: str) -> bytes:
        return await self._sender.send(HttpRequest(method="GET", path=path, query=query or {}, accept=accept))
