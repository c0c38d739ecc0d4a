"""What a webhook answers, as Go's types read it: ``admission.k8s.io/v1``. Wording of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.errors import ApiStatus
from steersman.meta import FrozenDict
from steersman_testing.apiserver.builtin.types import decode_as_struct
from steersman_testing.apiserver.go_values import UnmarshalTypeError
from steersman_testing.apiserver.requests.bodies import SCHEME, type_meta_error
from steersman_testing.apiserver.values import JsonObject

REVIEW = ("admission.k8s.io/v1", "AdmissionReview")
_VERSIONS = (REVIEW[0], "admission.k8s.io/v1beta1")


class CallingWebhookError(Exception):
    """A webhook's answer is none; the failure policy decides what becomes of that. Its text is the real server's."""


class AdmissionResponse(msgspec.Struct, rename="camel"):
    """The part of an answer that counts; by the Go type's name, which refusals tell."""

    uid: str = ""
    allowed: bool = False
    status: ApiStatus | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    audit_annotations: FrozenDict[str, str] = msgspec.field(default_factory=FrozenDict[str, str])
    warnings: tuple[str, ...] = ()


class AdmissionReview(msgspec.Struct):
    """An answer."""

    request: Any = None
    response: AdmissionResponse | None = None


def decode_review(body: Any) -> JsonObject:
    """An answer in wire form, without what is unknown.

    Raises:
        CallError: a value is of the wrong type, or the answer is something else.
    """
    if problem := type_meta_error(body):
        raise CallingWebhookError(f"failed to call webhook: couldn't get version/kind; json parse error: {problem}")
    head = {n: body.get(n) or "" for n in ("apiVersion", "kind")}
    version, kind = head["apiVersion"] or REVIEW[0], head["kind"] or REVIEW[1]
    if version.count("/") > 1:
        raise CallingWebhookError(f"failed to call webhook: unexpected GroupVersion string: {version}")
    if (version, kind) != REVIEW:
        reason = f'no kind "{kind}" is registered for version "{version}" in {SCHEME}'
        if version in _VERSIONS and kind in (REVIEW[1], "Status"):
            reason = f"converting ({version.rpartition('/')[2]}.{kind}) to (v1.{REVIEW[1]}): unknown conversion"
        raise CallingWebhookError(f"failed to call webhook: {reason}")
    try:
        return {**head, **decode_as_struct(AdmissionReview, body)[0]}
    except UnmarshalTypeError as error:
        raise CallingWebhookError(f"failed to call webhook: {error}") from None
