"""Answers reviews of admission. Source: "Dynamic Admission Control", ``admission.k8s.io/v1``."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from steersman.errors import StatusCause
from steersman.meta import FrozenStruct, Object, decode, encode
from steersman.meta.difference import difference
from steersman.observability.logging import get_logger
from steersman.webhook import metrics
from steersman.webhook.declaration import MUTATE, VALIDATE, Webhook
from steersman.webhook.findings import Cause, Denied, Warn, status_causes, told
from steersman.webhook.merging import merged
from steersman.webhook.request import AdmissionRequest

T = TypeVar("T", bound=Object)

_NAMES = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
_IDENTITY = ("name", "namespace", "uid", "generateName")

log = get_logger("webhook")


class Answer(NamedTuple):
    """What goes back over HTTP; JSON, unless ``status`` is not 200: then a line of text."""

    status: int
    body: bytes


class _Review(FrozenStruct):
    api_version: str
    kind: str
    request: msgspec.Raw


class _Objects(FrozenStruct):
    """Apart from the request, which handlers may log: objects have secrets."""

    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


class _Refusal(Exception):
    """The write is refused."""

    def __init__(self, code: int, reason: str, message: str, causes: Sequence[StatusCause] = ()) -> None:
        super().__init__(message)
        self.code, self.reason, self.causes = code, reason, causes


class AdmissionHandler(Generic[T]):
    """Answers the reviews of one webhook, by one of its two paths."""

    def __init__(self, webhook: Webhook[T], verb: str) -> None:
        self._webhook = webhook
        self._work = {MUTATE: self._mutate, VALIDATE: self._validate}[verb]

    async def answer(self, body: bytes, seconds: float) -> Answer:
        """What to answer to the review ``body``, within ``seconds``."""
        try:
            review = decode(body, _Review)
            asked, objects = decode(review.request, AdmissionRequest), decode(review.request, _Objects)
        except msgspec.DecodeError as error:
            return Answer(400, f"no AdmissionReview: {error}\n".encode())
        if (review.api_version, review.kind) != (_NAMES["apiVersion"], _NAMES["kind"]):
            return Answer(400, f"{review.api_version} {review.kind} is not answered here\n".encode())
        if asked.sub_resource != self._webhook.options.subresource:
            return Answer(400, f"subresource {asked.sub_resource!r} is not answered here\n".encode())
        warnings: list[Warn] = []
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                response = await self._work(asked, objects, warnings)
        except _Refusal as refusal:
            response = _denied(asked, refusal)
        except Denied as denied:
            response = _denied(asked, _Refusal(denied.code, denied.reason, str(denied)))
        except Exception as error:
            if limit.expired():
                log.error("a handler took too long", webhook=self._webhook.slug, uid=asked.uid, seconds=seconds)
                return Answer(500, f"the handler took longer than {seconds:.3g} s (review {asked.uid})\n".encode())
            metrics.panics.inc()
            log.error("a handler failed", webhook=self._webhook.slug, uid=asked.uid, exc_info=error)
            # No word of the error: it may hold what the user must not see.
            return Answer(500, f"the handler failed; the operator's log has more (review {asked.uid})\n".encode())
        shown = told(warnings)
        response = {"uid": asked.uid, **response, **({"warnings": shown} if shown else {})}
        return Answer(200, encode({**_NAMES, "response": response}))

    async def _mutate(self, asked: AdmissionRequest, objects: _Objects, warnings: list[Warn]) -> dict[str, Any]:
        raw = _present(objects.object)
        before = self._read(raw)
        after = before
        for defaulter in self._webhook.defaulters:
            after = await _awaited(defaulter(after, asked))
            if not isinstance(after, self._webhook.kind):
                raise TypeError(
                    f"a defaulting handler gave {type(after).__name__}, not {self._webhook.kind.__name__}"
                )
        if after == before:
            return {"allowed": True}
        document = msgspec.json.decode(raw)
        wanted = merged(document, before, after)
        _check_allowed(document, wanted, asked.sub_resource)
        operations = difference(document, wanted)
        if not operations:
            return {"allowed": True}
        patch = base64.b64encode(encode(operations)).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}

    async def _validate(self, asked: AdmissionRequest, objects: _Objects, warnings: list[Warn]) -> dict[str, Any]:
        if asked.operation == "DELETE":
            former = self._read_former(objects)
            handlers = self._webhook.deletion_validators if former is not None else ()
            findings = [await _gathered(handler(former, asked)) for handler in cast("Sequence[Any]", handlers)]
        else:
            obj, former = self._read(_present(objects.object)), self._read_former(objects)
            findings = [await _gathered(handler(obj, former, asked)) for handler in self._webhook.validators]
        causes = [f for found in findings for f in found if isinstance(f, Cause)]
        warnings += [f for found in findings for f in found if isinstance(f, Warn)]
        if causes:
            told_of = "; ".join(f"{c.field}: {c.message}" if c.field else c.message for c in causes)
            raise _Refusal(422, "Invalid", told_of, status_causes(causes))
        return {"allowed": True}

    def _read(self, raw: msgspec.Raw) -> T:
        try:
            return decode(raw, self._webhook.kind)
        except msgspec.ValidationError as error:
            raise _Refusal(
                422, "Invalid", f"the object does not fit {self._webhook.kind.__name__}: {error}"
            ) from error

    def _read_former(self, objects: _Objects) -> T | None:
        """The object as it is stored; None where that does not fit its type, since it must be possible to mend it."""
        if _is_absent(objects.old_object):
            return None
        try:
            return decode(objects.old_object, self._webhook.kind)
        except msgspec.ValidationError as error:
            log.warning("a stored object does not fit its type", webhook=self._webhook.slug, error=str(error))
            return None


def handlers_of(webhook: Webhook[Any]) -> dict[str, Callable[[bytes, float], Any]]:
    """What answers at each of the webhook's paths."""
    return {path: AdmissionHandler(webhook, path[1:].partition("-")[0]).answer for path in webhook.paths}


def _is_absent(raw: msgspec.Raw) -> bool:
    return bytes(raw) in (b"", b"null")


def _present(raw: msgspec.Raw) -> msgspec.Raw:
    if _is_absent(raw):
        raise _Refusal(400, "BadRequest", "the review has no object")
    return raw


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _gathered(found: Any) -> list[Cause | Warn]:
    if isinstance(found, AsyncIterable):
        return [finding async for finding in cast("AsyncIterable[Cause | Warn]", found)]
    findings: list[Any] = list(await _awaited(found) or ())
    for finding in findings:
        if not isinstance(finding, Cause | Warn):
            raise TypeError(f"a validating handler gave a {type(finding).__name__}: give Cause or Warn")
    return findings


def _check_allowed(before: dict[str, Any], after: dict[str, Any], subresource: str) -> None:
    """Raises ValueError where a handler changed what this request cannot change."""
    old: dict[str, Any] = before.get("metadata") or {}
    new: dict[str, Any] = after.get("metadata") or {}
    changed = [f"metadata.{name}" for name in _IDENTITY if old.get(name) != new.get(name)]
    changed += [name for name in ("apiVersion", "kind") if before.get(name) != after.get(name)]
    if subresource == "status":
        changed += [name for name in after if name not in ("status", "metadata") and before.get(name) != after[name]]
    elif before.get("status") != after.get("status"):
        changed.append("status")
    if changed:
        raise ValueError(f"a defaulting handler changed {', '.join(changed)}, which this request cannot change")


def _denied(asked: AdmissionRequest, refusal: _Refusal) -> dict[str, Any]:
    status: dict[str, Any] = {
        "status": "Failure",
        "code": refusal.code,
        "reason": refusal.reason,
        "message": str(refusal),
    }
    if refusal.causes:
        # What kubectl makes "The Shop "till" is invalid" of.
        status["details"] = {
            "name": asked.name,
            "group": asked.kind.group,
            "kind": asked.kind.kind,
            "causes": [{"field": c.field, "message": c.message, "reason": c.reason} for c in refusal.causes],
        }
    return {"allowed": False, "status": status}
