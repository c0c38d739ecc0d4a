"""Clock, randomness and task spawning: the only ways by which Steersman learns the time, rolls dice or forks.

Everything that waits does so on the running event loop's clock, so a loop with virtual time (see
``steersman_testing``) runs hours of back-off in milliseconds, and a seed repeats a run exactly.
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
    """The time, as Steersman asks for it."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def now(self) -> datetime:
        """The wall clock, with time zone UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspends the calling task for ``seconds``."""
        ...


class SystemClock:
    """The machine's monotonic clock and its wall clock.

    Event loops set their timers by the same clock, and some are coarse about it: uvloop's ``time()`` moves a
    millisecond at a time and stands still while a callback runs. So a timer may end that much too early here, and
    whoever waits for a moment looks whether it has come.
    """

    # A method of an instance would be a frame more on each of the queue's steps.
    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Returns after ``seconds``, or a millisecond before."""
        await asyncio.sleep(seconds)


Spawn = Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"]


def spawn_task(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Starts ``coroutine`` as an asyncio task called ``name`` on the running loop."""
    return asyncio.create_task(coroutine, name=name)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The seams, handed from the manager to everything below it.

    Attributes:
        clock: tells the time and sleeps.
        random: source of jitter and generated names; not for secrets.
        spawn: starts a background task, given its coroutine and a name for people.
    """

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.Random)
    spawn: Spawn = spawn_task
