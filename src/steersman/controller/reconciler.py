"""What an operator's author writes: a reconciler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from steersman.controller.client import CachedClient
from steersman.controller.events import EventRecorder
from steersman.meta import Object, ObjectKey
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

Request = ObjectKey
"""The key of the object to reconcile. It does not say what happened: reconcilers act on what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a reconcile ended. ``requeue_after``: reconcile again in so many seconds even if nothing changes."""

    requeue_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a controller gives its reconciler."""

    client: CachedClient
    events: EventRecorder
    runtime: Runtime
    log: structlog.typing.FilteringBoundLogger


class Reconciler(ABC, Generic[T]):
    """Brings the world in line with one object.

    ``reconcile`` may be cut at any await and is run again, so every step looks before it acts. It returns a
    ``Result``; any exception is logged, counted and retried with back-off, ``TerminalError`` is not retried, and
    ``NotFound`` of the object itself ends quietly, since a deleted object needs nothing.
    """

    def __init__(self, context: Context) -> None:
        self.client = context.client
        self.events = context.events
        self.runtime = context.runtime
        self.log = context.log

    @abstractmethod
    async def reconcile(self, request: Request) -> Result:
        """Reconciles the object ``request``."""
