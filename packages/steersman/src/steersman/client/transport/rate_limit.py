"""Client-side rate limit.

Defaults to off, since priority and fairness (KEP-1040) protects the API server.

Source: client-go, package ``util/flowcontrol``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from steersman.client.transport.interface import HttpRequest, HttpResponse, Transport
from steersman.observability import metrics
from steersman.observability.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket. Each request takes one token.

    Attributes:
        qps: tokens added per second.
        burst: capacity of the bucket, and so the maximum number of requests at once.

    Raises:
        ValueError: ``qps`` is not positive, or ``burst`` is less than 1.
    """

    qps: float
    burst: int

    def __post_init__(self) -> None:
        if self.qps <= 0 or self.burst < 1:
            raise ValueError(
                f"rate limit with qps {self.qps} and burst {self.burst}: qps must be above 0 and burst at least 1"
            )


class RateLimitedTransport(Transport):
    """Delays requests until they get a token, in order of arrival. Each attempt takes a token.

    Watches take none, as in client-go. Leader election uses a transport without a limit, since its lease must not
    wait.

    Args:
        inner: transport that sends the requests.
        limit: rate and burst.
        runtime: clock that refills the bucket.
        host: host of the API server, for the metric.
    """

    def __init__(self, inner: Transport, limit: RateLimit, *, runtime: Runtime | None = None, host: str = "") -> None:
        self._inner = inner
        self._limit = limit
        self._clock = (runtime or Runtime()).clock
        self._host = host
        self._lock = asyncio.Lock()
        self._tokens = float(limit.burst)
        self._refilled_at = float("-inf")

    @property
    def inner(self) -> Transport:
        """The wrapped transport. Leader election uses it directly, without a limit."""
        return self._inner

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send ``request`` once it has a token. See ``Transport.request``."""
        started_at = self._clock.monotonic()
        await self._acquire_token()
        waited = self._clock.monotonic() - started_at
        metrics.rate_limiter_duration.labels(request.method, self._host).observe(waited)
        return await self._inner.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a watch, without a token. See ``Transport.stream``."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()

    async def _acquire_token(self) -> None:
        # The lock keeps the order of arrival. A request that is cancelled while waiting takes no token.
        async with self._lock:
            self._refill()
            if self._tokens < 1:
                await self._clock.sleep((1 - self._tokens) / self._limit.qps)
                self._refill()
            self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._limit.burst, self._tokens + (now - self._refilled_at) * self._limit.qps)
        self._refilled_at = now
