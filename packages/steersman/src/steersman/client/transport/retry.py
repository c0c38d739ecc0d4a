"""Retries of requests that are safe to repeat.

Failures and the requests that they retry:

    not sent (connection refused)            all requests.
    429                                      all requests, since the server rejected them before processing.
                                             Evictions without Retry-After are not retried, since a
                                             PodDisruptionBudget blocks them.
    503 with Retry-After                     all requests, since the server has not processed them.
    502, 503, 504, 5xx with Retry-After,     idempotent requests only, since the server may have applied them.
    connection lost, timeout

Idempotent requests:

    GET, dry runs, and reviews               They change nothing. A TokenReview is a query in a POST.
    PUT and PATCH with a resourceVersion     A second one fails with Conflict if the first one was applied.
    DELETE with a UID or resourceVersion     A second one fails with NotFound or Conflict.
    server-side apply                        It declares state. If the object was deleted meanwhile, it is created
                                             again, unless the request has a ``uid``. CachedClient sends the UID of
                                             cached objects.

Other writes end with the first attempt whose result is unknown. A second POST could create a second object or fail
because of the first one. A JSON patch could add an item twice. A merge patch without a resourceVersion could revert a
change of another client. A DELETE without a UID could delete a new object of the same name.

The error of a later attempt is raised unchanged and marked ``uncertain``. Callers read the object again after a
Conflict, and treat NotFound after a DELETE as success.

Watches are not retried here. The reflector resumes them.

Source: client-go, ``rest.Request`` and its ``withRetry``; "API Conventions", section "HTTP Status codes"; KEP-1040
(priority and fairness), which sends 429 with Retry-After.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import msgspec

from steersman.client.transport.interface import HttpRequest, HttpResponse, Transport
from steersman.errors import ConnectionFailed
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

log = get_logger("client")

_APPLY_PATCH = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_REVIEW_PATHS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
_AMBIGUOUS_STATUSES = (502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number and delays of the attempts of a request.

    Attributes:
        attempts: maximum number of attempts, including the first one.
        max_elapsed: seconds after the start within which the last attempt may begin. If Retry-After exceeds them, the
            error is raised at once.
        initial_delay: upper bound in seconds of the delay before the second attempt. The bound doubles with each
            attempt. The delay is random between 0 and the bound (full jitter), in addition to Retry-After.
        max_delay: seconds at which the bound stops doubling.
    """

    attempts: int = 6
    max_elapsed: float = 30.0
    initial_delay: float = 0.1
    max_delay: float = 5.0


class RetryingTransport(Transport):
    """Retries requests by the rules of this module.

    Args:
        inner: transport that sends each attempt. ``HttpRequest.before_send`` is called for each of them.
        policy: number and delays of attempts.
        runtime: clock and jitter.
        host: host of the API server, for the metric.
    """

    def __init__(
        self, inner: Transport, policy: RetryPolicy | None = None, *, runtime: Runtime | None = None, host: str = ""
    ) -> None:
        self._inner = inner
        self._policy = policy or RetryPolicy()
        self._runtime = runtime or Runtime()
        self._host = host

    @property
    def inner(self) -> Transport:
        """The wrapped transport. Leader election uses it directly, without retries."""
        return self._inner

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send ``request``, with retries. See ``Transport.request``."""
        deadline = self._runtime.clock.monotonic() + self._policy.max_elapsed
        outcome: HttpResponse | ConnectionFailed
        uncertain = False
        attempts = 0
        while True:
            attempts += 1
            try:
                outcome = await self._inner.request(request)
            except ConnectionFailed as error:
                outcome = error
            else:
                if outcome.status < 429:
                    return _finish(outcome, uncertain) if uncertain else outcome
            delay = self._next_delay(request, outcome, attempts)
            if delay is None or self._runtime.clock.monotonic() + delay > deadline:
                return _finish(outcome, uncertain)
            uncertain = uncertain or _may_have_been_applied(outcome)
            code = "<error>" if isinstance(outcome, ConnectionFailed) else str(outcome.status)
            metrics.request_retries.labels(code, request.method, self._host).inc()
            log.debug("request retried", method=request.method, path=request.path, code=code, in_seconds=delay)
            await self._runtime.clock.sleep(delay)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a watch once, since the caller resumes it. See ``Transport.stream``."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()

    def _next_delay(
        self, request: HttpRequest, outcome: HttpResponse | ConnectionFailed, attempts: int
    ) -> float | None:
        """Return the seconds until the next attempt. None means no further attempt."""
        if attempts >= self._policy.attempts or not _is_retryable(request, outcome):
            return None
        max_jitter = min(self._policy.initial_delay * 2 ** min(attempts - 1, 32), self._policy.max_delay)
        server_delay = 0.0 if isinstance(outcome, ConnectionFailed) else outcome.retry_after or 0.0
        return server_delay + self._runtime.random.uniform(0.0, max_jitter)


def _is_retryable(request: HttpRequest, outcome: HttpResponse | ConnectionFailed) -> bool:
    if isinstance(outcome, ConnectionFailed):
        if isinstance(outcome.__cause__, ssl.CertificateError):
            # Another attempt gets the same certificate.
            return False
        return not outcome.sent or is_idempotent(request)
    has_retry_after = outcome.retry_after is not None
    if outcome.status == 429:
        return has_retry_after or not request.path.endswith("/eviction")
    if outcome.status == 503 and has_retry_after:
        return True
    if outcome.status in _AMBIGUOUS_STATUSES or (outcome.status >= 500 and has_retry_after):
        return is_idempotent(request)
    return False


def _may_have_been_applied(outcome: HttpResponse | ConnectionFailed) -> bool:
    if isinstance(outcome, ConnectionFailed):
        return outcome.sent
    return outcome.status >= 500 and not (outcome.status == 503 and outcome.retry_after is not None)


def _finish(outcome: HttpResponse | ConnectionFailed, uncertain: bool) -> HttpResponse:
    if not isinstance(outcome, ConnectionFailed):
        return msgspec.structs.replace(outcome, uncertain=True) if uncertain else outcome
    # The last attempt was not sent, but an earlier one was.
    outcome.sent = outcome.sent or uncertain
    raise outcome


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str | None = None


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _Body(msgspec.Struct):
    metadata: _Metadata | None = None
    preconditions: _Preconditions | None = None


def is_idempotent(request: HttpRequest) -> bool:
    """Return True if ``request`` is safe to repeat. The module describes the rules."""
    if request.method == "GET" or "dryRun" in request.query:
        return True
    if request.method == "POST":
        return request.path.startswith(_REVIEW_PATHS) and request.path.endswith("reviews")
    if request.method == "PATCH" and request.content_type == _APPLY_PATCH:
        return True
    if request.content_type == _JSON_PATCH:
        return False
    try:
        body = msgspec.json.decode(request.body or b"", type=_Body)
    except msgspec.DecodeError:
        return False
    if request.method == "DELETE":
        return body.preconditions is not None and bool(body.preconditions.uid or body.preconditions.resource_version)
    return body.metadata is not None and bool(body.metadata.resource_version)
