"""What an operator's author writes: a reconciler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from steersman.cache.cached_client import CachedClient
from steersman.controller.events import EventRecorder
from steersman.meta import Object, ObjectKey
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

Request = ObjectKey
"""The key of the object to reconcile. It does not say what happened: reconcilers act on what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a reconcile ended.

    Attributes:
        requeue_after: reconcile again in so many seconds even if nothing changes.
        requeue: reconcile again with growing pauses, as after an error, yet without counting as one.
        priority: of that next time; unless told, the one that this reconcile had.
    """

    requeue_after: float | None = None
    requeue: bool = False
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOutcome:
    """What ``update_status`` has to tell: exactly one of the two is not None.

    Attributes:
        result: what ``reconcile`` returned; a subclass of ``Result`` may carry what it found out.
        error: what it raised.
    """

    result: Result | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerContext:
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

    def __init__(self, context: ReconcilerContext) -> None:
        self.client = context.client
        self.events = context.events
        self.runtime = context.runtime
        self.log = context.log

    @abstractmethod
    async def reconcile(self, request: Request) -> Result:
        """Reconciles the object ``request``."""

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Tells the user how the reconcile ended; runs after each one, whether it returned or raised.

        Override it rather than catch errors in ``reconcile`` to report them. If both fail, neither error hides the
        other: both are logged and counted, and the one that needs a retry decides. It does not run when the object
        is gone or the controller stops.
        """
