"""Retries: conditions, delays, limits and resulting errors. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from typing import Any

import pytest

from framework_support.transports import ScriptedTransport, error_response, json_response
from steersman.client import HttpRequest, HttpResponse, RetryingTransport, RetryPolicy
from steersman.client.transport.retry import is_idempotent
from steersman.errors import ConnectionFailed, LeadershipLost
from steersman.observability import metrics
from steersman.observability.runtime import Runtime
from steersman_testing import virtual_runtime, virtual_time

OK = json_response({})
RESET = ConnectionFailed("reset")
REFUSED = ConnectionFailed("refused", sent=False)
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class MaxJitter(random.Random):
    """Jitter that is always maximal, so that delays are predictable."""

    def uniform(self, a: float, b: float) -> float:
        return b


def request(
    method: str = "GET", body: Any = None, content_type: str = "application/json", **rest: Any
) -> HttpRequest:
    fields: dict[str, Any] = {"path": "/api/v1/pods/a", "content_type": content_type, **rest}
    if body is not None:
        fields["body"] = json.dumps(body).encode()
    return HttpRequest(method=method, **fields)


GET = request()
POST = request("POST", {"metadata": {"name": "a"}})
VERSIONED = {"metadata": {"resourceVersion": "7"}}
UNVERSIONED = {"metadata": {"labels": {"a": "b"}}}

IDEMPOTENT: dict[str, HttpRequest] = {
    "get": GET,
    "put with version": request("PUT", VERSIONED),
    "merge patch with version": request("PATCH", VERSIONED, MERGE),
    "strategic patch with version": request("PATCH", VERSIONED, STRATEGIC),
    "apply": request("PATCH", {"metadata": {"name": "a"}}, APPLY),
    "delete with uid": request("DELETE", {"preconditions": {"uid": "u"}}),
    "delete with version": request("DELETE", {"preconditions": {"resourceVersion": "7"}}),
    "dry run": request("POST", {}, query={"dryRun": "All"}),
    "token review": request("POST", {}, path="/apis/authentication.k8s.io/v1/tokenreviews"),
    "access review": request("POST", {}, path="/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews"),
}
NOT_IDEMPOTENT: dict[str, HttpRequest] = {
    "create": POST,
    "create with a generated name": request("POST", {"metadata": {"generateName": "a-"}}),
    "put without version": request("PUT", UNVERSIONED),
    "merge patch": request("PATCH", UNVERSIONED, MERGE),
    "strategic patch": request("PATCH", UNVERSIONED, STRATEGIC),
    "json patch": request("PATCH", [{"op": "add", "path": "/x", "value": 1}], JSON_PATCH),
    "bare delete": request("DELETE", {"propagationPolicy": "Background"}),
    "delete without a body": request("DELETE"),
    "delete collection": request("DELETE", {}, path="/api/v1/pods"),
    "eviction": request("POST", {}, path="/api/v1/namespaces/a/pods/b/eviction"),
    "token": request("POST", {}, path="/api/v1/namespaces/a/serviceaccounts/b/token"),
    "what is no JSON": request("PUT", content_type="text/plain"),
}
ALL = {**IDEMPOTENT, **NOT_IDEMPOTENT}


def retrying(
    *outcomes: HttpResponse | Exception, policy: RetryPolicy | None = None, host: str = ""
) -> tuple[RetryingTransport, ScriptedTransport]:
    inner = ScriptedTransport(responses=outcomes)
    runtime = Runtime(clock=virtual_runtime().clock, random=MaxJitter())
    return RetryingTransport(inner, policy, runtime=runtime, host=host), inner


async def count_attempts(http_request: HttpRequest, *outcomes: HttpResponse | Exception) -> int:
    """Count the attempts with these outcomes, followed by a success."""
    transport, inner = retrying(*outcomes, OK)
    with contextlib.suppress(ConnectionFailed):
        await transport.request(http_request)
    return len(inner.requests)


@pytest.mark.parametrize("name", ALL)
def test_is_repeatable_for_each_request(name: str) -> None:
    assert is_idempotent(ALL[name]) == (name in IDEMPOTENT)


@pytest.mark.parametrize("name", ALL)
@virtual_time
async def test_retry_unsent_request_is_repeated(name: str) -> None:
    assert await count_attempts(ALL[name], REFUSED) == 2


@pytest.mark.parametrize("name", ALL)
@virtual_time
async def test_retry_after_lost_response_only_if_repeatable(name: str) -> None:
    assert await count_attempts(ALL[name], RESET) == (2 if name in IDEMPOTENT else 1)


@pytest.mark.parametrize("name", ALL)
@virtual_time
async def test_throttled(name: str) -> None:
    assert await count_attempts(ALL[name], error_response(429, "TooManyRequests", retry_after=1)) == 2
    # Without Retry-After, a PodDisruptionBudget rejected the eviction.
    assert await count_attempts(ALL[name], error_response(429, "TooManyRequests")) == (1 if name == "eviction" else 2)


@pytest.mark.parametrize("code", [500, 502, 503, 504, 507])
@pytest.mark.parametrize("advised", [True, False])
@virtual_time
async def test_server_errors(code: int, advised: bool) -> None:
    failure = error_response(code, "", retry_after=1 if advised else None)
    read, write = await count_attempts(GET, failure), await count_attempts(POST, failure)
    assert read == (2 if advised or code in (502, 503, 504) else 1)
    assert write == (2 if advised and code == 503 else 1)


@pytest.mark.parametrize("code", [200, 201, 400, 401, 403, 404, 409, 410, 422])
@virtual_time
async def test_retry_other_status_codes_are_returned(code: int) -> None:
    assert await count_attempts(GET, json_response({}, code)) == 1
    assert await count_attempts(GET, json_response({}, code, 1.0)) == 1


@virtual_time
async def test_delays_double_up_to_the_longest() -> None:
    policy = RetryPolicy(attempts=6, initial_delay=0.1, max_delay=0.5)
    transport, inner = retrying(*[RESET] * 9, policy=policy)
    with pytest.raises(ConnectionFailed):
        await transport.request(GET)
    times = [round(at, 6) for at, _ in inner.requests]
    assert times == [0, 0.1, 0.3, 0.7, 1.2, 1.7]


@virtual_time
async def test_retry_delays_have_full_jitter() -> None:
    delays: list[float] = []
    for seed in range(200):
        inner = ScriptedTransport(responses=[RESET, OK])
        policy = RetryPolicy(initial_delay=1.0)
        began = asyncio.get_running_loop().time()
        await RetryingTransport(inner, policy, runtime=virtual_runtime(seed)).request(GET)
        delays.append(asyncio.get_running_loop().time() - began)
    assert min(delays) < 0.05 < 0.95 < max(delays) <= 1.0
    assert 0.4 < sum(delays) / len(delays) < 0.6


@virtual_time
async def test_retry_honours_retry_after() -> None:
    transport, inner = retrying(error_response(429, "", retry_after=5), error_response(503, "", retry_after=2), OK)
    assert (await transport.request(POST)).status == 200
    # Jitter is added, so that rejected clients do not retry at the same time.
    assert [round(at, 6) for at, _ in inner.requests] == [0, 5.1, 7.3]


@virtual_time
async def test_retry_after_beyond_timeout_returns_at_once() -> None:
    transport, inner = retrying(error_response(429, "", retry_after=60))
    response = await transport.request(GET)
    assert (response.status, response.retry_after) == (429, 60)
    assert (asyncio.get_running_loop().time(), len(inner.requests)) == (0, 1)


@virtual_time
async def test_retry_stops_at_time_limit() -> None:
    transport, inner = retrying(
        *[error_response(429, "", retry_after=4)] * 99, policy=RetryPolicy(attempts=99, max_elapsed=30)
    )
    assert (await transport.request(GET)).status == 429
    assert 20 < max(at for at, _ in inner.requests) <= 30


@virtual_time
async def test_retry_attempts_are_limited() -> None:
    transport, inner = retrying(*[error_response(503, "")] * 99, policy=RetryPolicy(attempts=4))
    assert (await transport.request(GET)).status == 503
    assert len(inner.requests) == 4


@virtual_time
async def test_retry_rejection_after_lost_response_is_uncertain() -> None:
    """The second PUT may conflict with the first one.

    The cache must not conclude that nothing has changed.
    """
    put = IDEMPOTENT["put with version"]
    for lost in (RESET, error_response(504, "Timeout")):
        transport, _ = retrying(lost, error_response(409, "Conflict"))
        response = await transport.request(put)
        assert (response.status, response.uncertain) == (409, True)
    for harmless in (REFUSED, error_response(429, "", retry_after=1), error_response(503, "", retry_after=1)):
        transport, _ = retrying(harmless, error_response(409, "Conflict"))
        assert not (await transport.request(put)).uncertain


@virtual_time
async def test_retry_keeps_outcome_of_sent_attempt_uncertain() -> None:
    transport, _ = retrying(RESET, *[ConnectionFailed("refused", sent=False) for _ in range(9)])
    with pytest.raises(ConnectionFailed) as caught:
        await transport.request(IDEMPOTENT["put with version"])
    assert caught.value.sent
    transport, _ = retrying(*[ConnectionFailed("refused", sent=False) for _ in range(9)])
    with pytest.raises(ConnectionFailed) as caught:
        await transport.request(POST)
    assert not caught.value.sent


@virtual_time
async def test_retry_untrusted_certificate_is_not_repeated() -> None:
    stranger = ConnectionFailed("certificate verify failed", sent=False)
    stranger.__cause__ = ssl.SSLCertVerificationError("certificate verify failed")
    assert await count_attempts(GET, stranger) == 1


@virtual_time
async def test_each_retry_runs_before_send() -> None:
    """A leader whose Lease expires during a back-off sends no further attempt."""
    ends_at = 1.0

    def guard() -> None:
        if asyncio.get_running_loop().time() >= ends_at:
            raise LeadershipLost("no lease")

    class Guarded(ScriptedTransport):
        async def request(self, request: HttpRequest) -> HttpResponse:
            assert request.before_send is not None
            request.before_send()
            return await super().request(request)

    inner = Guarded(responses=[error_response(429, "", retry_after=2), OK])
    with pytest.raises(LeadershipLost):
        await RetryingTransport(inner, runtime=virtual_runtime()).request(request("POST", {}, before_send=guard))
    assert len(inner.requests) == 1


@virtual_time
async def test_streams_are_opened_once() -> None:
    inner = ScriptedTransport(streams=[[RESET]])
    transport = RetryingTransport(inner, runtime=virtual_runtime())
    with pytest.raises(ConnectionFailed):
        async with transport.stream(request(query={"watch": "true"})):
            raise AssertionError("must not open")
    assert len(inner.requests) == 1


@virtual_time
async def test_retry_metric_counts_by_cause() -> None:
    transport, _ = retrying(RESET, error_response(503, ""), OK, host="retries.example.com")
    await transport.request(GET)
    for code in ("<error>", "503"):
        labels = {"code": code, "verb": "GET", "host": "retries.example.com"}
        assert metrics.registry.get_sample_value("rest_client_request_retries_total", labels) == 1


@virtual_time
async def test_retry_cancelled_wait_sends_no_request() -> None:
    transport, inner = retrying(error_response(429, "", retry_after=5), OK)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await transport.request(GET)
    await asyncio.sleep(60)
    assert len(inner.requests) == 1
