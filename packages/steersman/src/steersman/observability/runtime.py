"""Clock, randomness and background tasks, which tests replace.

Steersman uses no other source of time or randomness. All waits use the clock of the running event loop. With virtual
time (see ``steersman_testing``), hours of back-off take milliseconds, and a seed reproduces a run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol


class Clock(Protocol):
    """Source of time."""

    def monotonic(self) -> float:
        """Seconds since a fixed point; never decreases."""
        ...

    def now(self) -> datetime:
        """Current wall-clock time in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for ``seconds``."""
        ...


class SystemClock:
    """The monotonic clock and the wall clock of the system.

    Event loops set timers by the same clock, but may round: uvloop's ``time()`` advances in milliseconds, and not
    during a callback. A timer may thus fire a millisecond early, so callers must check the time afterwards.
    """

    # A method would add a Python frame to each operation of the queue.
    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        """Current wall-clock time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for ``seconds``, or up to a millisecond less."""
        await asyncio.sleep(seconds)


Spawn = Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"]


def spawn_task(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Start ``coroutine`` as an asyncio task on the running loop."""
    return asyncio.create_task(coroutine, name=name)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clock, randomness and task creation, which the manager passes to all components.

    Attributes:
        clock: source of time.
        random: source of jitter and generated names; not for secrets.
        spawn: starts a background task from a coroutine and a name for debugging.
    """

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.Random)
    spawn: Spawn = spawn_task
