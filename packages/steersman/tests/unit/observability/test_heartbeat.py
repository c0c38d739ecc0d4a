"""Heartbeat and watchdog of the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from structlog.testing import capture_logs

from steersman.observability import metrics
from steersman.observability.heartbeat import Heartbeat, Watchdog


def sample(name: str) -> float:
    return metrics.registry.get_sample_value(name) or 0.0


def block_until(condition: Callable[[], bool]) -> None:
    """Blocks the event loop, with a secret in a local variable."""
    password = "hunter2"  # noqa: F841  # pyright: ignore[reportUnusedVariable]
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.01)


async def test_blocked_loop_is_logged_with_stack_and_measured() -> None:
    heartbeat = Heartbeat(period=0.02)
    # Long enough that a process without CPU time does not count as hung. The watchdog checks every 0.25 s.
    watchdog = Watchdog(heartbeat, threshold=0.6)
    blocks, lags = sample("steersman_event_loop_blocks_total"), sample("steersman_event_loop_lag_seconds_count")
    heartbeat_task = asyncio.create_task(heartbeat.run())
    watchdog.start()
    try:
        with capture_logs() as logs:
            for number in (1, 2):
                await asyncio.sleep(0.05)
                block_until(lambda: sum(e["event"] == "event loop blocked" for e in logs) >= number)  # noqa: B023
                # Blocking for the same time again logs nothing.
                block_until(lambda: heartbeat.age() > 1.4)
                async with asyncio.timeout(20):
                    while sum(e["event"] == "event loop resumed" for e in logs) < number:
                        await asyncio.sleep(0.01)
    finally:
        watchdog.stop()
        heartbeat_task.cancel()
        await asyncio.gather(heartbeat_task, return_exceptions=True)
    reports = [e for e in logs if e["event"] == "event loop blocked"]
    assert len(reports) == 2
    assert "block_until" in reports[0]["stack"]
    assert "hunter2" not in str(reports)
    assert sample("steersman_event_loop_blocks_total") == blocks + 2
    assert sample("steersman_event_loop_lag_seconds_count") > lags
    assert sample("steersman_event_loop_longest_lag_seconds") > 0.5


async def test_heartbeat_age_grows_while_loop_is_blocked() -> None:
    heartbeat = Heartbeat(period=0.01)
    heartbeat_task = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0.03)
    heartbeat_task.cancel()
    await asyncio.gather(heartbeat_task, return_exceptions=True)
    before = heartbeat.age()
    block_until(lambda: heartbeat.age() > before + 0.05)
    assert heartbeat.age() > before


def test_watchdog_stop_before_start_returns() -> None:
    Watchdog(Heartbeat(), threshold=1).stop()
