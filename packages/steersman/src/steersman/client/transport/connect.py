"""Creation of a transport from a configuration."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from steersman.client.config import ClusterConfig
from steersman.client.transport.http import HttpTransport
from steersman.client.transport.interface import Transport
from steersman.client.transport.rate_limit import RateLimit, RateLimitedTransport
from steersman.client.transport.retry import RetryingTransport, RetryPolicy
from steersman.observability.runtime import Runtime

_DEFAULT_RETRY_POLICY = RetryPolicy()


@asynccontextmanager
async def connect(
    config: ClusterConfig,
    *,
    retry: RetryPolicy | None = _DEFAULT_RETRY_POLICY,
    rate_limit: RateLimit | None = None,
    runtime: Runtime | None = None,
) -> AsyncGenerator[Transport, None]:
    """Context manager that opens and closes a transport to an API server.

    Args:
        config: result of ``load_config()``.
        retry: number and delays of retries of requests that are safe to repeat. None disables retries.
        rate_limit: client-side rate limit. Defaults to none.
        runtime: clock and jitter of retries and rate limit.
    """
    http_transport = HttpTransport(config)
    host = urlsplit(config.server).netloc.rpartition("@")[2]
    transport: Transport = http_transport
    if rate_limit is not None:
        transport = RateLimitedTransport(transport, rate_limit, runtime=runtime, host=host)
    if retry is not None:
        transport = RetryingTransport(transport, retry, runtime=runtime, host=host)
    try:
        yield transport
    finally:
        await http_transport.close()
