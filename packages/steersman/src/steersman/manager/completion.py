"""Waits of a shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def complete(task: asyncio.Task[None]) -> None:
    """Wait for ``task``, also while the caller is cancelled again and again."""
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
    task.result()


async def finish_within(work: Coroutine[Any, Any, object] | asyncio.Future[Any], seconds: float) -> bool:
    """Return True if ``work`` completes within ``seconds``. Otherwise it is cancelled."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
