"""Sending of requests, with exceptions and reports to the write observer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from steersman.client.decode import ObjectDecoder, decode_object, decode_response
from steersman.client.encode import scoped_key
from steersman.client.transport.http import error_from_body
from steersman.client.transport.interface import HttpRequest, Transport
from steersman.client.write_log import WriteLog
from steersman.client.write_observer import WriteObserver
from steersman.errors import ApiError, ConnectionFailed
from steersman.meta import Object, ObjectKey, decode
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)


class _StatusDetails(FrozenStruct):
    uid: str = ""


class _StatusProbe(FrozenStruct):
    """Fields that distinguish a ``metav1.Status`` from an object of any kind."""

    api_version: str = ""
    kind: str = ""
    details: _StatusDetails | None = None


class _NamespaceSpec(FrozenStruct):
    finalizers: tuple[str, ...] | None = None


class _Namespace(FrozenStruct):
    spec: _NamespaceSpec | None = None


class RequestSender:
    """Sends the requests of one client and decodes the responses.

    Args:
        transport: transport that sends the requests.
        field_manager: name under which writes own their fields.
        observer: receives the outcome of each write except dry runs, or None.
        write_log: logs the writes that the observer receives, or None.
        previous_field_managers: further managers whose ``managedFields`` are decoded.
    """

    def __init__(
        self,
        transport: Transport,
        field_manager: str,
        observer: WriteObserver | None,
        write_log: WriteLog | None = None,
        previous_field_managers: Sequence[str] = (),
    ) -> None:
        self.transport = transport
        self.field_manager = field_manager
        self.decoded_managers = frozenset((field_manager, *previous_field_managers))
        self._observer = observer
        self._write_log = write_log

    def with_field_manager(self, name: str) -> RequestSender:
        """Return a sender with another field manager. Responses keep the ``managedFields`` of this one."""
        known = tuple(self.decoded_managers)
        return RequestSender(self.transport, name, self._observer, self._write_log, known)

    async def send(self, request: HttpRequest) -> bytes:
        """Return the body of the response. Raises ApiError if the server refuses the request."""
        response = await self.transport.request(request)
        if response.status >= 300:
            error = error_from_body(response.status, response.body, response.retry_after)
            error.uncertain = response.uncertain
            raise error
        return response.body

    async def write(self, request: HttpRequest, kind: type[T], key: ObjectKey) -> T:
        """Send a write of ``key`` and return the object in the response."""
        observer = self._observer
        if observer is None or "dryRun" in request.query:
            return self.decode_object(await self.send(request), kind)
        key = scoped_key(kind, key)
        before = "" if self._write_log is None else self._version_before(kind, key)
        # Without a name, the server generates one. No reader can have an older state of that object.
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
        if self._write_log is not None and obj.metadata.uid:
            # The response to a write that completes a deletion has the previous resourceVersion.
            is_deleted = obj.metadata.deletion_timestamp is not None and _is_deleted_by_write(kind, obj, raw)
            after = "" if is_deleted else obj.metadata.resource_version
            self._write_log.record(request, kind, obj.key, before, after)
        return obj

    async def delete(self, request: HttpRequest, kind: type[T], key: ObjectKey) -> T | None:
        """Send a DELETE and return the object if it still exists.

        Finalizers or a grace period can delay the deletion.
        """
        observer = None if "dryRun" in request.query else self._observer
        key = scoped_key(kind, key)
        before = "" if self._write_log is None else self._version_before(kind, key)
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
        # For some kinds, such as Service and Pod, the response to a completed deletion is the last state.
        if (
            obj is not None
            and obj.metadata.deletion_timestamp is not None
            and not _is_deleted_by_write(kind, obj, raw)
        ):
            if observer is not None:
                observer.on_write_succeeded(kind, obj, raw)
                self._log_write(request, kind, key, before, obj.metadata.resource_version)
            return obj
        if observer is not None:
            self._log_write(request, kind, key)
            uid = obj.metadata.uid if obj is not None else probe.details.uid if probe.details else ""
            observer.on_deleted(kind, key, uid)
        return None

    async def delete_collection(self, request: HttpRequest, kind: type[T], namespace: str) -> tuple[T, ...]:
        """Send a DELETE of a collection and return the deleted objects."""
        observer = None if "dryRun" in request.query else self._observer
        try:
            page, _ = ObjectDecoder(kind, self.decoded_managers, None).decode_page(await self.send(request))
        except BaseException as error:
            # The server stops at the first object that it cannot delete, so even a refusal may be partial.
            if observer is not None and not _is_unsent(error):
                observer.on_collection_delete_failed(kind, scoped_key(kind, ObjectKey(namespace, "")).namespace)
            raise
        if observer is not None:
            for obj in page.items:
                # The response has the previous state. It does not show which objects still exist.
                observer.on_write_started(kind, obj.key)
                observer.on_write_unknown(kind, obj.key)
                self._log_write(request, kind, obj.key)
        return page.items

    async def write_subresource(self, request: HttpRequest, kind: type[Object], key: ObjectKey) -> bytes:
        """Send a write to a subresource and return the response body.

        The response does not contain the object itself, so the observer receives an unknown outcome.
        """
        observer = self._observer
        if observer is None or "dryRun" in request.query:
            return await self.send(request)
        key = scoped_key(kind, key)
        observer.on_write_started(kind, key)
        try:
            body = await self.send(request)
        except BaseException as error:
            _notify_failure(observer, kind, key, error)
            raise
        observer.on_write_unknown(kind, key)
        self._log_write(request, kind, key)
        return body

    def decode_object(self, raw: bytes | msgspec.Raw, kind: type[T]) -> T:
        """Decode an object from JSON. Raises ``msgspec.ValidationError``."""
        return decode_object(raw, kind, self.decoded_managers)

    def _log_write(
        self, request: HttpRequest, kind: type[Object], key: ObjectKey, before: str = "", after: str = ""
    ) -> None:
        if self._write_log is not None and self._write_log.is_enabled:
            self._write_log.record(request, kind, key, before, after)

    def _version_before(self, kind: type[Object], key: ObjectKey) -> str:
        """Return the resourceVersion before a write, for the write log.

        The first write drops the log if its level is off, so that later writes do not pay for it.
        """
        assert self._write_log is not None
        if self._write_log.is_enabled:
            return self._write_log.version_before(kind, key)
        self._write_log = None
        return ""

    def _notify_success(
        self, observer: WriteObserver, kind: type[Object], key: ObjectKey, obj: Object, raw: bytes
    ) -> None:
        if not obj.metadata.uid:
            # The server does not store reviews, such as a TokenReview.
            if key.name:
                observer.on_write_rejected(kind, key)
            return
        if obj.metadata.deletion_timestamp is not None and _is_deleted_by_write(kind, obj, raw):
            observer.on_deleted(kind, obj.key, obj.metadata.uid)
        else:
            observer.on_write_succeeded(kind, obj, raw)


def _is_deleted_by_write(kind: type[Object], obj: Object, raw: bytes) -> bool:
    """Return True if this write removes ``obj``, which is marked for deletion.

    Source: ``ShouldDeleteDuringUpdate`` in ``k8s.io/apiserver/pkg/registry/generic/registry``.
    """
    meta = obj.metadata
    if meta.finalizers or meta.deletion_grace_period_seconds:
        return False
    if kind.api_resource.group_resource == ("", "namespaces"):
        # Namespaces have further finalizers in their spec. Without a spec in the response, the namespace counts as
        # existing.
        spec = decode(raw, _Namespace).spec
        return spec is not None and not spec.finalizers
    return True


def _notify_failure(observer: WriteObserver, kind: type[Object], key: ObjectKey, error: BaseException) -> None:
    # After a 5xx response, a lost response or a cancellation, the write may have been applied.
    is_rejected = isinstance(error, ApiError) and 400 <= error.code < 500 and not error.uncertain
    if is_rejected or _is_unsent(error):
        observer.on_write_rejected(kind, key)
    else:
        observer.on_write_unknown(kind, key)


def _is_unsent(error: BaseException) -> bool:
    return isinstance(error, ConnectionFailed) and not error.sent
