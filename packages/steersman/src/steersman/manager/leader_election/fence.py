"""Rejects writes when another replica could have become the leader.

Kubernetes has no fencing tokens: the API server accepts writes of a previous leader. A leader must therefore not send
a write after the time at which its Lease could have been acquired by another replica. ``Fence`` enforces this.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from steersman.client import HttpRequest, HttpResponse, Transport
from steersman.errors import LeadershipLost

MonotonicClock = Callable[[], float]
"""Returns seconds since a fixed point; thread-safe."""

_CLOSED = float("-inf")


def suspend_aware_clock() -> float:
    """Seconds since boot, including the time that the machine was suspended.

    A Lease expires during a suspend, which CLOCK_MONOTONIC of Linux does not count. Source: clock_gettime(2).
    """
    return time.clock_gettime(_SUSPEND_AWARE_CLOCK_ID) if _SUSPEND_AWARE_CLOCK_ID is not None else time.monotonic()


_SUSPEND_AWARE_CLOCK_ID: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Fence:
    """Deadline until which this process is certainly the leader.

    The elector writes the deadline, and ``check`` reads it without a lock from any thread.

    Args:
        clock: clock of the deadline.
    """

    def __init__(self, clock: MonotonicClock = suspend_aware_clock) -> None:
        self._clock = clock
        self._deadline = _CLOSED

    @property
    def is_leader(self) -> bool:
        """True if writes are allowed now."""
        return self._clock() < self._deadline

    def open_until(self, deadline: float) -> None:
        """Allow writes until ``deadline``, in seconds of the clock."""
        self._deadline = deadline

    def close(self) -> None:
        """Reject all writes from now on."""
        self._deadline = _CLOSED

    def check(self) -> None:
        """Raise LeadershipLost unless writes are allowed now.

        It is set as ``HttpRequest.before_send``.
        """
        seconds_late = self._clock() - self._deadline
        if seconds_late >= 0:
            detail = "" if self._deadline == _CLOSED else f": its lease may have expired {seconds_late:.1f} s ago"
            raise LeadershipLost(f"this process is not the leader{detail}; the request was not sent")


class FencedTransport(Transport):
    """Calls ``check`` before each attempt of a write.

    Writes of Events are checked too, since they would report work that the new leader does.
    """

    def __init__(self, inner: Transport, check: Callable[[], None]) -> None:
        self._inner = inner
        self._check = check

    async def request(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            return await self._inner.request(request)
        # Transports in memory ignore before_send.
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
