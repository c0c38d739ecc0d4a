"""Detects objects that reconcile in a loop because of their own writes."""

from __future__ import annotations

from steersman.controller.request import Request
from steersman.controller.triggers import Trigger

LIMIT = 50
"""Number of reconciles of an object within the window."""

WINDOW_SECONDS = 10.0

# Own writes are detected by a comparison of fields, which is too slow for each reconcile.
_UNCHECKED_RECONCILES = 40
_MAX_REPORTED_OBJECTS = 1000


class OwnWriteLoops:
    """Counts reconciles of each object, and checks the triggers of frequent ones.

    The counts of a window are dropped by the first reconcile after its end.
    """

    __slots__ = ("_counts", "_reported", "_window_end")

    def __init__(self) -> None:
        self._counts: dict[Request, int] = {}
        self._reported: set[Request] = set()
        self._window_end = 0.0

    def record(self, request: Request, triggers: list[Trigger], now: float) -> bool:
        """Record a reconcile. Return True once per object, when it exceeds the limit."""
        counts = self._counts
        if now >= self._window_end:
            counts.clear()
            self._window_end = now + WINDOW_SECONDS
        count = counts[request] = counts[request] + 1 if request in counts else 1
        if count <= _UNCHECKED_RECONCILES or request in self._reported:
            return False
        if not triggers or any(trigger.writer != "own" for trigger in triggers):
            counts[request] = 0
            return False
        if count < LIMIT or len(self._reported) >= _MAX_REPORTED_OBJECTS:
            return False
        self._reported.add(request)
        return True
