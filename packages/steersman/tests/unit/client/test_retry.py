"""What is tried again, when, how often, and what the caller then learns. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from typing import Any

import pytest

from framework_support.scripted_transport import ScriptedTransport, answer, refusal
from steersman.client import HttpRequest, HttpResponse, RetryingTransport, RetryPolicy
from steersman.client.retry import is_repeatable
from steersman.errors import ConnectionFailed, LeadershipLost
from steersman.observability import metrics
from steersman.observability.runtime import Runtime
from steersman_testing import virtual_runtime, virtual_time

OK = answer({})
RESET = ConnectionFailed("reset")
REFUSED = ConnectionFailed("refused", sent=False)
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Longest(random.Random):
    """Jitter that is always the longest, so that the times of a test are plain."""

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
BARE = {"metadata": {"labels": {"a": "b"}}}

REPEATABLE: dict[str, HttpRequest] = {
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
ONCE: dict[str, HttpRequest] = {
    "create": POST,
    "create with a generated name": request("POST", {"metadata": {"generateName": "a-"}}),
    "put without version": request("PUT", BARE),
    "merge patch": request("PATCH", BARE, MERGE),
    "strategic patch": request("PATCH", BARE, STRATEGIC),
    "json patch": request("PATCH", [{"op": "add", "path": "/x", "value": 1}], JSON_PATCH),
    "bare delete": request("DELETE", {"propagationPolicy": "Background"}),
    "delete without a body": request("DELETE"),
    "delete collection": request("DELETE", {}, path="/api/v1/pods"),
    "eviction": request("POST", {}, path="/api/v1/namespaces/a/pods/b/eviction"),
    "token": request("POST", {}, path="/api/v1/namespaces/a/serviceaccounts/b/token"),
    "what is no JSON": request("PUT", content_type="text/plain"),
}
ALL = {**REPEATABLE, **ONCE}


def retrying(
    *outcomes: HttpResponse | Exception, policy: RetryPolicy | None = None, host: str = ""
) -> tuple[RetryingTransport, ScriptedTransport]:
    inner = ScriptedTransport(answers=outcomes)
    runtime = Runtime(clock=virtual_runtime().clock, random=Longest())
    return RetryingTransport(inner, policy, runtime=runtime, host=host), inner


async def tries(asked: HttpRequest, *outcomes: HttpResponse | Exception) -> int:
    """How often ``asked`` is sent, when ``outcomes`` and then a success come."""
    transport, inner = retrying(*outcomes, OK)
    with contextlib.suppress(ConnectionFailed):
        await transport.request(asked)
    return len(inner.requests)


@pytest.mark.parametrize("name", ALL)
def test_what_may_be_carried_out_twice(name: str) -> None:
    assert is_repeatable(ALL[name]) == (name in REPEATABLE)


@pytest.mark.parametrize("name", ALL)
@virtual_time
async def test_what_was_not_sent_is_sent(name: str) -> None:
    assert await tries(ALL[name], REFUSED) == 2


@pytest.mark.parametrize("name", ALL)
@virtual_time
async def test_after_a_lost_answer(name: str) -> None:
    assert await tries(ALL[name], RESET) == (2 if name in REPEATABLE else 1)


@pytest.mark.parametrize("name", ALL)
@virtual_time
async def test_throttled(name: str) -> None:
    assert await tries(ALL[name], refusal(429, "TooManyRequests", retry_after=1)) == 2
    # Without a time it is the disruption budget that speaks.
    assert await tries(ALL[name], refusal(429, "TooManyRequests")) == (1 if name == "eviction" else 2)


@pytest.mark.parametrize("code", [500, 502, 503, 504, 507])
@pytest.mark.parametrize("advised", [True, False])
@virtual_time
async def test_server_errors(code: int, advised: bool) -> None:
    failure = refusal(code, "", retry_after=1 if advised else None)
    read, write = await tries(GET, failure), await tries(POST, failure)
    assert read == (2 if advised or code in (502, 503, 504) else 1)
    assert write == (2 if advised and code == 503 else 1)


@pytest.mark.parametrize("code", [200, 201, 400, 401, 403, 404, 409, 410, 422])
@virtual_time
async def test_an_answer_is_an_answer(code: int) -> None:
    assert await tries(GET, answer({}, code)) == 1
    assert await tries(GET, answer({}, code, 1.0)) == 1


@virtual_time
async def test_delays_double_up_to_the_longest() -> None:
    policy = RetryPolicy(attempts=6, first_delay=0.1, longest_delay=0.5)
    transport, inner = retrying(*[RESET] * 9, policy=policy)
    with pytest.raises(ConnectionFailed):
        await transport.request(GET)
    times = [round(at, 6) for at, _ in inner.requests]
    assert times == [0, 0.1, 0.3, 0.7, 1.2, 1.7]


@virtual_time
async def test_delays_are_spread_over_the_whole_span() -> None:
    delays: list[float] = []
    for seed in range(200):
        inner = ScriptedTransport(answers=[RESET, OK])
        policy = RetryPolicy(first_delay=1.0)
        began = asyncio.get_running_loop().time()
        await RetryingTransport(inner, policy, runtime=virtual_runtime(seed)).request(GET)
        delays.append(asyncio.get_running_loop().time() - began)
    assert min(delays) < 0.05 < 0.95 < max(delays) <= 1.0
    assert 0.4 < sum(delays) / len(delays) < 0.6


@virtual_time
async def test_the_server_says_when() -> None:
    transport, inner = retrying(refusal(429, "", retry_after=5), refusal(503, "", retry_after=2), OK)
    assert (await transport.request(POST)).status == 200
    # Jitter on top, so that all who were turned away do not come back together.
    assert [round(at, 6) for at, _ in inner.requests] == [0, 5.1, 7.3]


@virtual_time
async def test_who_must_wait_too_long_learns_at_once() -> None:
    transport, inner = retrying(refusal(429, "", retry_after=60))
    response = await transport.request(GET)
    assert (response.status, response.retry_after) == (429, 60)
    assert (asyncio.get_running_loop().time(), len(inner.requests)) == (0, 1)


@virtual_time
async def test_no_try_begins_after_the_limit() -> None:
    transport, inner = retrying(*[refusal(429, "", retry_after=4)] * 99, policy=RetryPolicy(attempts=99, limit=30))
    assert (await transport.request(GET)).status == 429
    assert 20 < max(at for at, _ in inner.requests) <= 30


@virtual_time
async def test_the_number_of_tries_is_bounded() -> None:
    transport, inner = retrying(*[refusal(503, "")] * 99, policy=RetryPolicy(attempts=4))
    assert (await transport.request(GET)).status == 503
    assert len(inner.requests) == 4


@virtual_time
async def test_a_refusal_after_a_lost_answer_is_marked() -> None:
    """The Conflict of a second PUT may be about the first one: a cache must not take it for "nothing has changed"."""
    put = REPEATABLE["put with version"]
    for lost in (RESET, refusal(504, "Timeout")):
        transport, _ = retrying(lost, refusal(409, "Conflict"))
        response = await transport.request(put)
        assert (response.status, response.uncertain) == (409, True)
    for harmless in (REFUSED, refusal(429, "", retry_after=1), refusal(503, "", retry_after=1)):
        transport, _ = retrying(harmless, refusal(409, "Conflict"))
        assert not (await transport.request(put)).uncertain


@virtual_time
async def test_one_try_that_was_sent_leaves_the_outcome_open() -> None:
    transport, _ = retrying(RESET, *[ConnectionFailed("refused", sent=False) for _ in range(9)])
    with pytest.raises(ConnectionFailed) as caught:
        await transport.request(REPEATABLE["put with version"])
    assert caught.value.sent
    transport, _ = retrying(*[ConnectionFailed("refused", sent=False) for _ in range(9)])
    with pytest.raises(ConnectionFailed) as caught:
        await transport.request(POST)
    assert not caught.value.sent


@virtual_time
async def test_a_strangers_certificate_does_not_get_better() -> None:
    stranger = ConnectionFailed("certificate verify failed", sent=False)
    stranger.__cause__ = ssl.SSLCertVerificationError("certificate verify failed")
    assert await tries(GET, stranger) == 1


@virtual_time
async def test_each_try_carries_the_guard() -> None:
    """A leader whose lease ends while it waits for the next try sends no other."""
    ends_at = 1.0

    def guard() -> None:
        if asyncio.get_running_loop().time() >= ends_at:
            raise LeadershipLost("no lease")

    class Guarded(ScriptedTransport):
        async def request(self, request: HttpRequest) -> HttpResponse:
            assert request.guard is not None
            request.guard()
            return await super().request(request)

    inner = Guarded(answers=[refusal(429, "", retry_after=2), OK])
    with pytest.raises(LeadershipLost):
        await RetryingTransport(inner, runtime=virtual_runtime()).request(request("POST", {}, guard=guard))
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
async def test_retries_are_counted_by_what_caused_them() -> None:
    transport, _ = retrying(RESET, refusal(503, ""), OK, host="retries.example.com")
    await transport.request(GET)
    for code in ("<error>", "503"):
        labels = {"code": code, "verb": "GET", "host": "retries.example.com"}
        assert metrics.registry.get_sample_value("rest_client_request_retries_total", labels) == 1


@virtual_time
async def test_who_gives_up_waiting_sends_nothing_more() -> None:
    transport, inner = retrying(refusal(429, "", retry_after=5), OK)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await transport.request(GET)
    await asyncio.sleep(60)
    assert len(inner.requests) == 1
