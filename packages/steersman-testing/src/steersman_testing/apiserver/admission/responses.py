"""Responses of admission webhooks, decoded as the Go types.

Source: ``admission.k8s.io/v1``; wording of Kubernetes 1.36.
"""

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
    """The webhook call failed, or its response is malformed.

    The failure policy decides about the request. The text is that of the real server.
    """


class AdmissionResponse(msgspec.Struct, rename="camel"):
    """``AdmissionResponse`` with the fields that the server uses.

    The class has the name of the Go type, which appears in errors.
    """

    uid: str = ""
    allowed: bool = False
    status: ApiStatus | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    audit_annotations: FrozenDict[str, str] = msgspec.field(default_factory=FrozenDict[str, str])
    warnings: tuple[str, ...] = ()


class AdmissionReview(msgspec.Struct):
    """``AdmissionReview`` with a response."""

    request: Any = None
    response: AdmissionResponse | None = None


def decode_review(body: Any) -> JsonObject:
    """Return a response in wire form without unknown fields.

    Raises:
        CallingWebhookError: the response is malformed.
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
