"""Handles AdmissionReviews.

Source: "Dynamic Admission Control", ``admission.k8s.io/v1``.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from steersman.errors import StatusCause
from steersman.meta import FrozenStruct, Object, decode, encode
from steersman.meta.json_equality import equal_json
from steersman.meta.json_patch import diff
from steersman.observability.logging import get_logger
from steersman.webhook import metrics
from steersman.webhook.bounds import size_violations
from steersman.webhook.declaration import MUTATE_VERB, VALIDATE_VERB, Webhook
from steersman.webhook.merge import merge_changes
from steersman.webhook.request import AdmissionRequest
from steersman.webhook.responses import AdmissionWarning, Denied, FieldError, format_warnings, status_causes

T = TypeVar("T", bound=Object)

_TYPE_META = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
_IMMUTABLE_METADATA = ("name", "namespace", "uid", "generateName")

log = get_logger("webhook")


class ReviewResponse(NamedTuple):
    """HTTP response to a review.

    The body is JSON if the status is 200, otherwise a line of text.
    """

    status: int
    body: bytes


class _AdmissionReview(FrozenStruct):
    api_version: str
    kind: str
    request: msgspec.Raw


class _RequestObjects(FrozenStruct):
    """Objects of a request.

    They are not part of AdmissionRequest: handlers may log it, and objects may contain secrets.
    """

    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


class _AdmissionDenied(Exception):
    """A write is denied."""

    def __init__(self, code: int, reason: str, message: str, causes: Sequence[StatusCause] = ()) -> None:
        super().__init__(message)
        self.code, self.reason, self.causes = code, reason, causes


class AdmissionHandler(Generic[T]):
    """Handles the reviews of one path of a webhook."""

    def __init__(self, webhook: Webhook[T], verb: str) -> None:
        self._webhook = webhook
        self._handler = {MUTATE_VERB: self._mutate, VALIDATE_VERB: self._validate}[verb]

    async def handle(self, body: bytes, seconds: float) -> ReviewResponse:
        """Respond to a review within ``seconds``."""
        try:
            review = decode(body, _AdmissionReview)
            request, objects = decode(review.request, AdmissionRequest), decode(review.request, _RequestObjects)
        except msgspec.DecodeError as error:
            return ReviewResponse(400, f"request body is not an AdmissionReview: {error}\n".encode())
        if (review.api_version, review.kind) != (_TYPE_META["apiVersion"], _TYPE_META["kind"]):
            return ReviewResponse(400, f"unsupported review {review.api_version} {review.kind}\n".encode())
        if request.sub_resource != self._webhook.options.subresource:
            return ReviewResponse(400, f"unsupported subresource {request.sub_resource!r}\n".encode())
        warnings: list[AdmissionWarning] = []
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                response = await self._handler(request, objects, warnings)
        except _AdmissionDenied as denial:
            response = _denied_response(request, denial)
        except Denied as denied:
            response = _denied_response(request, _AdmissionDenied(denied.code, denied.reason, str(denied)))
        except Exception as error:
            if limit.expired():
                log.error("admission handler timed out", webhook=self._webhook.slug, uid=request.uid, seconds=seconds)
                return ReviewResponse(
                    500, f"admission handler timed out after {seconds:.3g} s (review {request.uid})\n".encode()
                )
            metrics.panics.inc()
            log.error("admission handler failed", webhook=self._webhook.slug, uid=request.uid, exc_info=error)
            # The error may contain data that the user must not see.
            return ReviewResponse(
                500, f"admission handler failed; see the logs of the operator (review {request.uid})\n".encode()
            )
        warning_texts = format_warnings(warnings)
        response = {"uid": request.uid, **response, **({"warnings": warning_texts} if warning_texts else {})}
        return ReviewResponse(200, encode({**_TYPE_META, "response": response}))

    async def _mutate(
        self, request: AdmissionRequest, objects: _RequestObjects, warnings: list[AdmissionWarning]
    ) -> dict[str, Any]:
        raw = _require_object(objects.object)
        before = self._decode_sized(raw, objects)
        after = before
        for defaulter in self._webhook.defaulters:
            after = await _maybe_await(defaulter(after, request))
            if not isinstance(after, self._webhook.kind):
                raise TypeError(
                    f"defaulting handler returned {type(after).__name__} instead of {self._webhook.kind.__name__}"
                )
        if equal_json(after, before):
            return {"allowed": True}
        document = msgspec.json.decode(raw)
        patched = merge_changes(document, before, after)
        _check_mutation(document, patched, request.sub_resource)
        operations = diff(document, patched)
        if not operations:
            return {"allowed": True}
        patch = base64.b64encode(encode(operations)).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}

    async def _validate(
        self, request: AdmissionRequest, objects: _RequestObjects, warnings: list[AdmissionWarning]
    ) -> dict[str, Any]:
        if request.operation == "DELETE":
            deletion_handlers = self._webhook.deletion_validators
            if not deletion_handlers:
                return {"allowed": True}
            stored = self._decode_deleted(objects)
            findings = [await _collect_findings(handler(stored, request)) for handler in deletion_handlers]
        else:
            obj = self._decode_sized(_require_object(objects.object), objects)
            old = self._decode_old(objects)
            findings = [await _collect_findings(handler(obj, old, request)) for handler in self._webhook.validators]
        causes = [f for found in findings for f in found if isinstance(f, FieldError)]
        warnings += [f for found in findings for f in found if isinstance(f, AdmissionWarning)]
        if causes:
            message = "; ".join(f"{c.field}: {c.message}" if c.field else c.message for c in causes)
            raise _AdmissionDenied(422, "Invalid", message, status_causes(causes))
        return {"allowed": True}

    def _decode(self, raw: msgspec.Raw) -> T:
        try:
            return decode(raw, self._webhook.kind)
        except msgspec.ValidationError as error:
            raise _AdmissionDenied(
                422, "Invalid", f"object does not match {self._webhook.kind.__name__}: {error}"
            ) from error

    def _decode_sized(self, raw: msgspec.Raw, objects: _RequestObjects) -> T:
        """Decode the new object. Sizes over the limits of the schema are denied, unless the old object has them."""
        obj = self._decode(raw)
        stored: set[str] | None = None
        for violation in size_violations(obj, self._webhook.kind):
            if stored is None:
                stored = set(size_violations(self._decode_old(objects), self._webhook.kind))
            if violation not in stored:
                raise _AdmissionDenied(422, "Invalid", f"object exceeds a limit of its schema: {violation}")
        return obj

    def _decode_deleted(self, objects: _RequestObjects) -> T:
        """The object that a delete removes.

        If no handler can check it, the delete is denied. An update can correct the object.
        """
        if _is_empty(objects.old_object):
            raise _AdmissionDenied(400, "BadRequest", "AdmissionReview has no oldObject")
        try:
            return decode(objects.old_object, self._webhook.kind)
        except msgspec.ValidationError as error:
            raise _AdmissionDenied(
                422,
                "Invalid",
                f"deletion cannot be checked: the stored object does not match {self._webhook.kind.__name__}. "
                f"Correct it first: {error}",
            ) from error

    def _decode_old(self, objects: _RequestObjects) -> T | None:
        """The stored object, or None if it does not match its type.

        An invalid object must not prevent the update that repairs it.
        """
        if _is_empty(objects.old_object):
            return None
        try:
            return decode(objects.old_object, self._webhook.kind)
        except msgspec.ValidationError as error:
            log.warning("stored object does not match its type", webhook=self._webhook.slug, error=str(error))
            return None


def admission_handlers(webhook: Webhook[Any]) -> dict[str, Callable[[bytes, float], Any]]:
    """Handlers by path."""
    return {path: AdmissionHandler(webhook, path[1:].partition("-")[0]).handle for path in webhook.paths}


def _is_empty(raw: msgspec.Raw) -> bool:
    return bytes(raw) in (b"", b"null")


def _require_object(raw: msgspec.Raw) -> msgspec.Raw:
    if _is_empty(raw):
        raise _AdmissionDenied(400, "BadRequest", "AdmissionReview has no object")
    return raw


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _collect_findings(result: Any) -> list[FieldError | AdmissionWarning]:
    if isinstance(result, AsyncIterable):
        return [finding async for finding in cast("AsyncIterable[FieldError | AdmissionWarning]", result)]
    findings: list[Any] = list(await _maybe_await(result) or ())
    for finding in findings:
        if not isinstance(finding, FieldError | AdmissionWarning):
            raise TypeError(
                f"validating handler returned {type(finding).__name__}; return FieldError or AdmissionWarning"
            )
    return findings


def _check_mutation(before: dict[str, Any], after: dict[str, Any], subresource: str) -> None:
    """Raise ValueError if a handler changed fields that the request cannot change."""
    old: dict[str, Any] = before.get("metadata") or {}
    new: dict[str, Any] = after.get("metadata") or {}
    changed = [f"metadata.{name}" for name in _IMMUTABLE_METADATA if old.get(name) != new.get(name)]
    changed += [name for name in ("apiVersion", "kind") if before.get(name) != after.get(name)]
    if subresource == "status":
        changed += [name for name in after if name not in ("status", "metadata") and before.get(name) != after[name]]
    elif before.get("status") != after.get("status"):
        changed.append("status")
    if changed:
        raise ValueError(f"defaulting handler changed {', '.join(changed)}, which is immutable in this request")


def _denied_response(request: AdmissionRequest, denial: _AdmissionDenied) -> dict[str, Any]:
    status: dict[str, Any] = {
        "status": "Failure",
        "code": denial.code,
        "reason": denial.reason,
        "message": str(denial),
    }
    if denial.causes:
        # kubectl prints "The Shop "till" is invalid" from the details.
        status["details"] = {
            "name": request.name,
            "group": request.kind.group,
            "kind": request.kind.kind,
            "causes": [{"field": c.field, "message": c.message, "reason": c.reason} for c in denial.causes],
        }
    return {"allowed": False, "status": status}
