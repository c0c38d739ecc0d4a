"""The interface that the author of an operator implements."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

import structlog

from steersman.cache.cached_client import CachedClient
from steersman.controller.events import EventRecorder
from steersman.dependents import Dependents
from steersman.meta import Object, ObjectKey
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

Request = ObjectKey
"""The key of the object to reconcile. It does not say what happened: reconcilers act on the current state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a reconcile.

    Attributes:
        requeue_after: time until the next reconcile, even without a change: seconds or a timedelta. Defaults to none.
        priority: priority of the next reconcile. Defaults to that of this one.

    Raises:
        ValueError: ``requeue_after`` is not positive, not finite, a bool or a str.
    """

    requeue_after: float | timedelta | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is not None:
            _require_delay(self.requeue_after)


def _require_delay(delay: object) -> None:
    """Raise ValueError unless ``delay`` is a positive and finite time."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds < math.inf:
        raise ValueError(
            f"requeue_after must be a timedelta or a number of seconds above 0, not {delay!r}. "
            "Raise an exception to retry with back-off."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOutcome:
    """The outcome of ``reconcile`` for ``update_status``: a result or an error.

    Attributes:
        result: the returned ``Result``, or an empty one for None; a subclass may carry data for the status.
        error: the raised exception.
    """

    result: Result | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerContext:
    """The dependencies that a controller passes to its reconciler."""

    client: CachedClient
    events: EventRecorder
    runtime: Runtime
    log: structlog.typing.FilteringBoundLogger
    dependents: Dependents | None = None


class RequestReconciler(ABC, Generic[T]):
    """Moves the cluster to the desired state of one object.

    ``reconcile`` may be cancelled at any await and runs again, so every step must read the current state first. An
    exception is logged, counted and retried with back-off. ``TerminalError`` is not retried. ``NotFound`` of the
    object itself is not an error: a deleted object needs no reconcile.
    """

    def __init__(self, context: ReconcilerContext) -> None:
        self.client = context.client
        self.events = context.events
        self.runtime = context.runtime
        self.log = context.log
        self.dependents = context.dependents or Dependents(context.client)

    @abstractmethod
    async def reconcile(self, request: Request) -> Result | None:
        """Reconcile the object ``request``. None is the same as ``Result()``."""

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Write the outcome to the object's status; runs after every reconcile.

        Override it instead of catching errors in ``reconcile`` to report them. If both raise, both errors are logged
        and counted, and the more severe one decides about the retry. It does not run if the object does not exist
        or the controller stops.
        """
