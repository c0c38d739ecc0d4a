"""Requests are tried again where that can do no harm.

What makes a request be tried again, and which ones:

    it was not sent (connection refused)     every request
    429                                      every request, since it was turned away at the door; but not an eviction
                                             that a PodDisruptionBudget refuses without saying when to ask again
    503 with Retry-After                     every request: the server says that it has not begun with it
    502, 503, 504, 5xx with Retry-After,     only what may be carried out twice (below): nobody knows whether it was
    connection lost, timed out               carried out

What may be carried out twice:

    GET, dry runs, and reviews               they change nothing; a review (TokenReview, …) is a question in a POST
    PUT and PATCH with a resourceVersion     the second one is refused (Conflict) if the first one changed anything
    DELETE with a UID or resourceVersion     the second one finds the object gone (NotFound) or another one (Conflict)
    server-side apply                        it declares: said twice, it means the same. What somebody deletes in
                                             between is made again, as it is by an apply that comes a little later;
                                             ``uid`` forbids that, which a reconciler's client gives for what is
                                             cached

All other writes end with the try whose outcome is unknown. A second POST could meet its own first one, or, where the
server chooses the name, make a second object; a JSON patch could add an item twice; a merge patch without a version
could undo what somebody else did in between; a bare DELETE could hit a namesake that was created since.

The refusal of a second try is handed on as it is, marked ``uncertain``: a Conflict is to be met by reading again, and
a NotFound after a DELETE says what was wanted, as it always does. Nothing is guessed.

Watches are not tried again here: the reflector does it, which knows from where to go on.

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
    """How often, and for how long.

    Attributes:
        attempts: tries in all, the first one included.
        limit: seconds after the first try within which the last one may begin. A server that asks to wait beyond them
            gets no further try: the caller learns at once.
        first_delay: seconds at most before the second try; the bound doubles with each further one. The delay is
            drawn evenly from 0 to the bound ("full jitter"), on top of what the server asks for by Retry-After.
        longest_delay: seconds, where the doubling ends.
    """

    attempts: int = 6
    max_elapsed: float = 30.0
    initial_delay: float = 0.1
    max_delay: float = 5.0


class RetryingTransport(Transport):
    """Tries requests again, by the rules above.

    Args:
        inner: carries each try. The request's ``guard`` is asked anew each time.
        policy: how often.
        runtime: clock and jitter.
        host: of the server, for the metric.
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
        """What carries the requests: leader election goes past this one, so that it waits for nobody."""
        return self._inner

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Sends ``request``, and again where the policy allows it: see ``Transport.request``."""
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
            log.debug("request tried again", method=request.method, path=request.path, code=code, in_seconds=delay)
            await self._runtime.clock.sleep(delay)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Sends a watch once, since who watches knows better where to go on: see ``Transport.stream``."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """Closes the transport below."""
        await self._inner.close()

    def _next_delay(
        self, request: HttpRequest, outcome: HttpResponse | ConnectionFailed, attempts: int
    ) -> float | None:
        """Seconds until the next try; None where there shall be none."""
        if attempts >= self._policy.attempts or not _is_retryable(request, outcome):
            return None
        max_jitter = min(self._policy.initial_delay * 2 ** min(attempts - 1, 32), self._policy.max_delay)
        server_delay = 0.0 if isinstance(outcome, ConnectionFailed) else outcome.retry_after or 0.0
        return server_delay + self._runtime.random.uniform(0.0, max_jitter)


def _is_retryable(request: HttpRequest, outcome: HttpResponse | ConnectionFailed) -> bool:
    if isinstance(outcome, ConnectionFailed):
        if isinstance(outcome.__cause__, ssl.CertificateError):
            # No later try makes a stranger's certificate ours.
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
    # The last try was not sent, but an earlier one was.
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
    """Whether ``request`` may be carried out twice without harm: see the module's text."""
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
