"""A limit on the requests that this process sends, for servers whose administrators ask for one.

Off unless asked for: since priority and fairness (KEP-1040) the server protects itself, and turns away by 429 what is
too much. Source: client-go, package ``util/flowcontrol``.
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
    """A token bucket: every request takes a token.

    Attributes:
        qps: tokens that are added each second.
        burst: tokens that the bucket holds; so many requests may be sent at once after a quiet time.

    Raises:
        ValueError: no request could ever be sent.
    """

    qps: float
    burst: int

    def __post_init__(self) -> None:
        if self.qps <= 0 or self.burst < 1:
            raise ValueError(
                f"a rate limit needs qps above 0 and burst of 1 or more, not {self.qps} and {self.burst}"
            )


class RateLimitedTransport(Transport):
    """Lets requests wait for their token, first come, first served; each try of a request takes one.

    Watches take none, as in client-go: there are few, and what waits for them is the cache. Leases of leader election
    must never wait behind other requests: they have a transport of their own, without a limit.

    Args:
        inner: carries the requests.
        limit: how many.
        runtime: its clock fills the bucket.
        host: of the server, for the metric.
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
        """What carries the requests: leader election goes past this one, so that it waits for nobody."""
        return self._inner

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Sends ``request`` when its turn has come: see ``Transport.request``."""
        started_at = self._clock.monotonic()
        await self._acquire_token()
        waited = self._clock.monotonic() - started_at
        metrics.rate_limiter_duration.labels(request.method, self._host).observe(waited)
        return await self._inner.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Sends a watch, which does not count: see ``Transport.stream``."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """Closes the transport below."""
        await self._inner.close()

    async def _acquire_token(self) -> None:
        # The lock hands out turns in order, and who is cancelled while waiting leaves his token to the next.
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
