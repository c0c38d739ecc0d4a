"""From a configuration to an open way to the server."""

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
    """An open transport to ``config``'s server, closed at the end of the block.

    Args:
        config: from ``load_config()``.
        retry: how requests are tried again where that can do no harm (see ``RetryPolicy``); None: never.
        rate_limit: the most requests that are sent; None: as many as are made.
        runtime: clock and jitter of both.
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
