"""Writes stop when leadership may have passed to somebody else.

Kubernetes has no fencing token: the API server does not refuse the writes of a former leader. What a leader can do
is to start none after the moment from which another may have taken over, and that is what a ``Fence`` sees to.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from steersman.client import HttpRequest, HttpResponse, Transport
from steersman.errors import LeadershipLost

MonotonicClock = Callable[[], float]
"""Seconds since some fixed point; may be called from any thread."""

_CLOSED = float("-inf")


def suspend_aware_clock() -> float:
    """Seconds since the machine started, the time that it was suspended included.

    A lease runs out while the machine sleeps, and Linux' CLOCK_MONOTONIC does not know that.
    Source: clock_gettime(2).
    """
    return time.clock_gettime(_SUSPEND_AWARE_CLOCK_ID) if _SUSPEND_AWARE_CLOCK_ID is not None else time.monotonic()


_SUSPEND_AWARE_CLOCK_ID: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Fence:
    """Knows until when this process is sure to be the leader.

    One number, written by the elector and read by whoever writes: reading takes no lock, so ``guard`` costs next to
    nothing and may be called from any thread.

    Args:
        clock: what the deadline is measured by.
    """

    def __init__(self, clock: MonotonicClock = suspend_aware_clock) -> None:
        self._clock = clock
        self._deadline = _CLOSED

    @property
    def is_leader(self) -> bool:
        """Whether writes may start at this moment."""
        return self._clock() < self._deadline

    def open_until(self, deadline: float) -> None:
        """Lets writes start before ``deadline``, in seconds of the clock."""
        self._deadline = deadline

    def close(self) -> None:
        """Lets no write start from now on."""
        self._deadline = _CLOSED

    def check(self) -> None:
        """Raises LeadershipLost unless a write may start at this moment; for ``HttpRequest.guard``."""
        seconds_late = self._clock() - self._deadline
        if seconds_late >= 0:
            detail = (
                "" if self._deadline == _CLOSED else f": its lease could have been taken {seconds_late:.1f} s ago"
            )
            raise LeadershipLost(f"this process is not the leader{detail}; the request was not sent")


class FencedTransport(Transport):
    """Lets reads pass and has every other request, each of its tries, ask ``guard`` at the last moment.

    Events are guarded too, since what they tell was not done by this process if it leads no more.
    """

    def __init__(self, inner: Transport, check: Callable[[], None]) -> None:
        self._inner = inner
        self._check = check

    async def request(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            return await self._inner.request(request)
        # Here too, for transports that know of no guard, such as those in memory.
        self._check()
        return await self._inner.request(_with_check(request, self._check))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


def _with_check(request: HttpRequest, check: Callable[[], None]) -> HttpRequest:
    existing = request.before_send
    if existing is None:
        return replace(request, before_send=check)

    def run_both() -> None:
        existing()
        check()

    return replace(request, before_send=run_both)
