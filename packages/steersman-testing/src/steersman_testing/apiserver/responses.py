"""Responses for errors.

Source: ``k8s.io/apimachinery/pkg/apis/meta/v1``, type ``Status``.
"""

from __future__ import annotations

import msgspec

from steersman.client.transport import HttpResponse
from steersman.errors import ApiError, ApiStatus, error_from_status
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.values import JsonObject, get_object


def error_response(error: ApiError) -> HttpResponse:
    """Return the response that the real server sends for ``error``."""
    if error.status == failures.unknown_path().status:
        return HttpResponse(404, b"404 page not found\n")
    return HttpResponse(error.code, encode_status(error), error.retry_after)


def raise_for_status(response: HttpResponse) -> None:
    """Raise the error of a response.

    Raises:
        ApiError: the status code is 400 or more.
    """
    if response.status >= 400:
        raise error_from_status(msgspec.json.decode(response.body, type=ApiStatus))


def encode_status(error: ApiError) -> bytes:
    """Encode an error as ``metav1.Status``."""
    status: JsonObject = msgspec.to_builtins(error.status)
    details = {k: v for k, v in get_object(status, "details").items() if v}
    if causes := details.get("causes"):
        details["causes"] = [{k: v for k, v in cause.items() if v} for cause in causes]
    del status["details"]
    wire: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, **status}
    if error.status.details is not None:
        wire["details"] = details
    if not wire["reason"]:
        del wire["reason"]
    return msgspec.json.encode(wire)
