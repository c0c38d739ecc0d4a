"""Requests and what becomes of them: refusals become exceptions, and the observer hears of each write."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from steersman.client.decode import ObjectDecoder, decode_object, decode_response
from steersman.client.transport.http import error_from_body
from steersman.client.transport.interface import HttpRequest, Transport
from steersman.client.write_observer import WriteObserver
from steersman.errors import ApiError, ConnectionFailed
from steersman.meta import Object, ObjectKey, decode
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)


class _StatusDetails(FrozenStruct):
    uid: str = ""


class _StatusProbe(FrozenStruct):
    """What tells a ``metav1.Status`` from an object, whatever the kind."""

    api_version: str = ""
    kind: str = ""
    details: _StatusDetails | None = None


class _NamespaceSpec(FrozenStruct):
    finalizers: tuple[str, ...] | None = None


class _Namespace(FrozenStruct):
    spec: _NamespaceSpec | None = None


class RequestSender:
    """One client's way to the server.

    Args:
        observer: is told of each write that is no dry run; None where nobody wants to know.
    """

    def __init__(self, transport: Transport, field_manager: str, observer: WriteObserver | None) -> None:
        self.transport = transport
        self.field_manager = field_manager
        self._observer = observer

    async def send(self, request: HttpRequest) -> bytes:
        """The answer's body. Raises ApiError where the server refuses."""
        response = await self.transport.request(request)
        if response.status >= 300:
            error = error_from_body(response.status, response.body, response.retry_after)
            error.uncertain = response.uncertain
            raise error
        return response.body

    async def write(self, request: HttpRequest, kind: type[T], key: ObjectKey) -> T:
        """Sends a write of ``key`` that is answered by the object, and returns that."""
        observer = self._observer
        if observer is None or "dryRun" in request.query:
            return self.decode_object(await self.send(request), kind)
        key = _scoped(kind, key)
        # A name that the server generates is known to nobody yet, so that nobody can read an older state of it.
        if key.name:
            observer.on_write_started(kind, key)
        try:
            raw = await self.send(request)
            obj = self.decode_object(raw, kind)
        except BaseException as error:
            if key.name:
                _notify_failure(observer, kind, key, error)
            raise
        self._notify_success(observer, kind, key, obj, raw)
        return obj

    async def delete(self, request: HttpRequest, kind: type[T], key: ObjectKey) -> T | None:
        """Sends a DELETE of ``key`` and returns the object that is still there, if something holds it."""
        observer = None if "dryRun" in request.query else self._observer
        key = _scoped(kind, key)
        if observer is not None:
            observer.on_write_started(kind, key)
        try:
            raw = await self.send(request)
            probe = decode_response(raw, _StatusProbe)
            is_status = probe.kind == "Status" and probe.api_version in ("v1", "")
            obj = None if is_status else self.decode_object(raw, kind)
        except BaseException as error:
            if observer is not None:
                _notify_failure(observer, kind, key, error)
            raise
        # Some kinds, Services and pods among them, are answered by their last state when they are gone.
        if (
            obj is not None
            and obj.metadata.deletion_timestamp is not None
            and not _is_deleted_by_write(kind, obj, raw)
        ):
            if observer is not None:
                observer.on_write_succeeded(kind, obj, raw)
            return obj
        if observer is not None:
            uid = obj.metadata.uid if obj is not None else probe.details.uid if probe.details else ""
            observer.on_deleted(kind, key, uid)
        return None

    async def delete_collection(self, request: HttpRequest, kind: type[T]) -> tuple[T, ...]:
        """Sends a DELETE of a collection and returns what it names."""
        observer = None if "dryRun" in request.query else self._observer
        page, _ = ObjectDecoder(kind, self.field_manager, None).decode_page(await self.send(request))
        if observer is not None:
            for obj in page.items:
                # They are told as they were; whether something holds one is not.
                observer.on_write_started(kind, obj.key)
                observer.on_write_unknown(kind, obj.key)
        return page.items

    async def write_subresource(self, request: HttpRequest, kind: type[Object], key: ObjectKey) -> bytes:
        """Sends a write that changes ``key`` and is answered by something else; returns the answer's body."""
        observer = self._observer
        if observer is None or "dryRun" in request.query:
            return await self.send(request)
        key = _scoped(kind, key)
        observer.on_write_started(kind, key)
        try:
            body = await self.send(request)
        except BaseException as error:
            _notify_failure(observer, kind, key, error)
            raise
        observer.on_write_unknown(kind, key)
        return body

    def decode_object(self, raw: bytes | msgspec.Raw, kind: type[T]) -> T:
        """``raw`` as an object. Raises ``msgspec.ValidationError``."""
        return decode_object(raw, kind, self.field_manager)

    def _notify_success(
        self, observer: WriteObserver, kind: type[Object], key: ObjectKey, obj: Object, raw: bytes
    ) -> None:
        if not obj.metadata.uid:
            # Reviews, such as a TokenReview, are answered and not stored.
            if key.name:
                observer.on_write_rejected(kind, key)
            return
        if obj.metadata.deletion_timestamp is not None and _is_deleted_by_write(kind, obj, raw):
            observer.on_deleted(kind, obj.key, obj.metadata.uid)
        else:
            observer.on_write_succeeded(kind, obj, raw)


def _scoped(kind: type[Object], key: ObjectKey) -> ObjectKey:
    return key if kind.api_resource.namespaced or not key.namespace else ObjectKey("", key.name)


def _is_deleted_by_write(kind: type[Object], obj: Object, raw: bytes) -> bool:
    """Whether the server removes ``obj``, which is marked for deletion, with this very write.

    Source: ``ShouldDeleteDuringUpdate`` in ``k8s.io/apiserver/pkg/registry/generic/registry``.
    """
    meta = obj.metadata
    if meta.finalizers or meta.deletion_grace_period_seconds:
        return False
    if (kind.api_resource.group, kind.api_resource.plural) == ("", "namespaces"):
        # Namespaces have finalizers of their own in the spec; where that is not shown, they are taken for held.
        spec = decode(raw, _Namespace).spec
        return spec is not None and not spec.finalizers
    return True


def _notify_failure(observer: WriteObserver, kind: type[Object], key: ObjectKey, error: BaseException) -> None:
    # A server's 5xx may come after the write, as may a lost answer and a cancellation.
    is_rejected = isinstance(error, ApiError) and 400 <= error.code < 500 and not error.uncertain
    is_unsent = isinstance(error, ConnectionFailed) and not error.sent
    if is_rejected or is_unsent:
        observer.on_write_rejected(kind, key)
    else:
        observer.on_write_unknown(kind, key)
