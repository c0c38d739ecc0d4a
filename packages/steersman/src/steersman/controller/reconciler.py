"""The interface that the author of an operator implements."""

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
"""The key of the object to reconcile. It does not say what happened: reconcilers act on the current state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a reconcile.

    Attributes:
        requeue_after: seconds until the next reconcile, even without a change. Defaults to none.
        requeue: reconcile again with back-off, as after an error, but without counting one.
        priority: priority of the next reconcile. Defaults to that of this one.
    """

    requeue_after: float | None = None
    requeue: bool = False
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOutcome:
    """The outcome of ``reconcile`` for ``update_status``: a result or an error.

    Attributes:
        result: the returned ``Result``; a subclass may carry data for the status.
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


class Reconciler(ABC, Generic[T]):
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

    @abstractmethod
    async def reconcile(self, request: Request) -> Result:
        """Reconcile the object ``request``."""

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Write the outcome to the object's status; runs after every reconcile.

        Override it instead of catching errors in ``reconcile`` to report them. If both raise, both errors are logged
        and counted, and the more severe one decides about the retry. It does not run if the object does not exist
        or the controller stops.
        """
