"""Status codes, Retry-After and warnings of responses."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from framework_support.loopback_server import get, transport_to
from steersman.client.transport.http import error_from_body, parse_retry_after
from steersman.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    NotFound,
    ServerError,
    ServerTimeout,
    ServiceUnavailable,
    SteersmanError,
    TooManyRequests,
    Unauthorized,
)


@pytest.mark.parametrize(("header", "seconds"), [("3", 3.0), ("0", 0.0), ("tomorrow", None), ("", None), ("²", None)])
async def test_retry_after(header: str, seconds: float | None) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": header})

    async with transport_to(handler) as transport:
        assert (await transport.request(get())).retry_after == seconds


async def test_warnings_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(headers={"Warning": '299 - "v1beta1 Sail is deprecated"'})

    async with transport_to(handler) as transport:
        for _ in range(3):
            await transport.request(get())
    assert caplog.text.count("v1beta1 Sail is deprecated") == 1


@pytest.mark.parametrize(
    ("headers", "texts"),
    [
        (['299 - "careful"', '299 - "very careful"'], ("careful", "very careful")),
        (['299 - "one, two", 299 kube "three"'], ("one, two", "three")),
        ([r'299 - "a \"quoted\" one and a \\"'], ('a "quoted" one and a \\',)),
        (["as nobody writes it"], ("as nobody writes it",)),
    ],
)
async def test_warning_headers_are_parsed(headers: list[str], texts: tuple[str, ...]) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        response = web.Response()
        for header in headers:
            response.headers.add("Warning", header)
        return response

    async with transport_to(handler) as transport:
        assert (await transport.request(get())).warnings == texts


def test_waits_are_counted_from_the_servers_clock() -> None:
    date = "Fri, 31 Dec 1999 23:58:29 GMT"
    assert parse_retry_after("Fri, 31 Dec 1999 23:59:59 GMT", date) == 90
    assert parse_retry_after("Fri, 31 Dec 1999 23:00:00 GMT", date) == 0
    assert parse_retry_after("Fri, 31 Dec 1999 23:59:59 GMT") == 0
    assert parse_retry_after("soon", date) is None


REASONS: list[tuple[int, str, type[ApiError]]] = [
    (400, "", ApiError),
    (401, "Unauthorized", Unauthorized),
    (403, "Forbidden", Forbidden),
    (404, "NotFound", NotFound),
    (409, "Conflict", Conflict),
    (409, "AlreadyExists", AlreadyExists),
    (409, "", Conflict),
    (410, "Gone", Expired),
    (418, "", ApiError),
    (422, "Invalid", Invalid),
    (429, "TooManyRequests", TooManyRequests),
    (500, "InternalError", InternalError),
    (500, "StoreReadError", InternalError),
    (502, "", ServerError),
    (503, "ServiceUnavailable", ServiceUnavailable),
    (504, "Timeout", ServerTimeout),
    (500, "ServerTimeout", ServerTimeout),
]


@pytest.mark.parametrize(("code", "reason", "kind"), REASONS)
def test_error_class_follows_reason_then_code(code: int, reason: str, kind: type[ApiError]) -> None:
    body = json.dumps({"kind": "Status", "reason": reason, "code": code, "message": "why"}).encode()
    error = error_from_body(code, body, None)
    assert isinstance(error, kind)
    assert isinstance(error, SteersmanError)
    assert (error.code, error.reason, str(error)) == (code, reason, "why")


def test_error_causes_contain_fields() -> None:
    cause = {"field": "spec.replicas", "message": "must be positive", "reason": "FieldValueInvalid"}
    details = {"causes": [cause], "retryAfterSeconds": 5, "name": "x"}
    body = json.dumps({"reason": "Invalid", "code": 422, "message": "no", "details": details}).encode()
    error = error_from_body(422, body, None)
    assert [(c.field, c.reason) for c in error.causes] == [("spec.replicas", "FieldValueInvalid")]
    assert error.retry_after == 5
    assert error_from_body(422, body, 1.5).retry_after == 1.5
    assert error_from_body(422, b'{"details":{"causes":null}}', None).causes == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"upstream connect error", "upstream connect error"),
        (b'{"error": "no backend"}', '{"error": "no backend"}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'{"message": "\xff"}', '{"message": "\ufffd"}'),
        (b"", "HTTP 503"),
    ],
)
def test_error_without_status_body_uses_text(body: bytes, message: str) -> None:
    error = error_from_body(503, body, None)
    assert isinstance(error, ServiceUnavailable)
    assert (str(error), error.code) == (message, 503)
