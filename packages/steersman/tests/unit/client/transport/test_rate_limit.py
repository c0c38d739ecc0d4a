"""Client-side rate limit, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from framework_support.transports import ScriptedTransport, json_response
from steersman.client import HttpRequest, RateLimit, RateLimitedTransport
from steersman.observability import metrics
from steersman_testing import virtual_runtime, virtual_time


def limited_transport(qps: float, burst: int, host: str = "") -> tuple[RateLimitedTransport, ScriptedTransport]:
    inner = ScriptedTransport(responses=[json_response({})] * 1000)
    limit = RateLimit(qps=qps, burst=burst)
    return RateLimitedTransport(inner, limit, runtime=virtual_runtime(), host=host), inner


def get(number: int = 0) -> HttpRequest:
    return HttpRequest(method="GET", path=f"/{number}")


def send_times(inner: ScriptedTransport) -> list[float]:
    return [round(at, 6) for at, _ in inner.requests]


@virtual_time
async def test_rate_limit_allows_burst_then_rate_in_fifo_order() -> None:
    transport, inner = limited_transport(qps=10, burst=3)
    await asyncio.gather(*(transport.request(get(n)) for n in range(7)))
    assert send_times(inner) == [0, 0, 0, 0.1, 0.2, 0.3, 0.4]
    assert [r.path for _, r in inner.requests] == [f"/{n}" for n in range(7)]


@virtual_time
async def test_rate_limit_idle_time_refills_up_to_burst() -> None:
    transport, inner = limited_transport(qps=2, burst=2)
    await asyncio.gather(*(transport.request(get()) for _ in range(2)))
    await asyncio.sleep(100)
    await asyncio.gather(*(transport.request(get()) for _ in range(4)))
    assert send_times(inner) == [0, 0, 100, 100, 100.5, 101]


@virtual_time
async def test_rate_limit_holds_over_long_time() -> None:
    transport, inner = limited_transport(qps=5, burst=10)
    await asyncio.gather(*(transport.request(get()) for _ in range(510)))
    assert send_times(inner)[-1] == 100


@virtual_time
async def test_rate_limit_cancelled_waiter_frees_its_slot() -> None:
    transport, inner = limited_transport(qps=1, burst=1)
    await transport.request(get())
    impatient = asyncio.create_task(transport.request(get(1)))
    patient = asyncio.create_task(transport.request(get(2)))
    await asyncio.sleep(0.5)
    impatient.cancel()
    await patient
    assert send_times(inner) == [0, 1]
    assert inner.requests[1][1].path == "/2"


@virtual_time
async def test_watches_do_not_wait() -> None:
    transport, inner = limited_transport(qps=0.001, burst=1)
    await transport.request(get())
    async with transport.stream(get()):
        assert inner.open_streams == 1
    assert send_times(inner) == [0, 0]


@virtual_time
async def test_waiting_is_measured() -> None:
    transport, _ = limited_transport(qps=1, burst=1, host="limited.example.com")
    await asyncio.gather(*(transport.request(get()) for _ in range(3)))
    labels = {"verb": "GET", "host": "limited.example.com"}
    assert metrics.registry.get_sample_value("rest_client_rate_limiter_duration_seconds_sum", labels) == 3
    assert metrics.registry.get_sample_value("rest_client_rate_limiter_duration_seconds_count", labels) == 3


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_rate_limit_invalid_parameters_are_rejected(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="qps must be above 0"):
        RateLimit(qps=qps, burst=burst)
