"""Defaults of ``Runtime``, which tests replace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from steersman.observability.runtime import Runtime


async def test_default_runtime_uses_system_clock() -> None:
    runtime = Runtime()
    before = runtime.clock.monotonic()
    await runtime.clock.sleep(0)
    assert runtime.clock.monotonic() >= before
    assert abs(runtime.clock.now() - datetime.now(UTC)) < timedelta(seconds=10)
    assert runtime.clock.now().tzinfo is UTC


async def test_spawned_tasks_have_names() -> None:
    async def work() -> str:
        task = asyncio.current_task()
        return task.get_name() if task else ""

    assert await Runtime().spawn(work(), "worker 7") == "worker 7"
