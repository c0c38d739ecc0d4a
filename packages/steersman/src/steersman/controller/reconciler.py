"""The interfaces that the author of an operator implements."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

import structlog

from steersman.cache.cached_client import CachedClient
from steersman.controller.events import EventRecorder
from steersman.controller.request import Request
from steersman.controller.status import write_status
from steersman.dependents import Dependents
from steersman.meta import Condition, Object
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)


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
    dependents: Dependents

    async def status(self, obj: T, *, conditions: Iterable[Condition] = (), **fields: Any) -> T:
        """Update the status of ``obj``: see ``Reconciler.status``."""
        now = self.runtime.clock.now()
        return await write_status(self.client, obj, now, conditions=conditions, fields=fields)


class _ContextHolder:
    """The dependencies as attributes."""

    def __init__(self, context: ReconcilerContext) -> None:
        self.context = context
        self.client = context.client
        self.events = context.events
        self.runtime = context.runtime
        self.log = context.log
        self.dependents = context.dependents

    async def wait_closed(self) -> None:
        """Wait for work that outlives a cancelled reconcile, such as threads.

        The manager calls it at shutdown, and releases its leadership afterwards.
        """


class Reconciler(_ContextHolder, ABC, Generic[T]):
    """Moves the cluster to the desired state of one object.

    ``reconcile`` may be cancelled at any await and runs again, so every step must read the current state first. An
    exception is logged, counted and retried with back-off. ``TerminalError`` is not retried.

    An object that does not exist is not reconciled. The cache decides: objects that the selector of the informer
    excludes do not exist for the reconciler.

    If the class has a method ``cleanup``, each object gets a finalizer before its first ``reconcile``. When the
    object is deleted, ``cleanup`` runs instead of ``reconcile``. Without the method, the finalizer that an earlier
    version of the operator added is removed.
    """

    finalizer: ClassVar[str] = ""
    """The finalizer of ``cleanup``. Defaults to ``<plural>.<group>/<operator>.<controller>``.

    Before you change it, release a version without ``cleanup``: it removes the finalizer of the previous name."""

    @abstractmethod
    async def reconcile(self, obj: T, /) -> Result | None:
        """Reconcile ``obj``. None is the same as ``Result()``."""

    async def cleanup(self, obj: T, /) -> Result | None:
        """Remove what ``obj`` leaves behind outside its owned objects.

        It runs for an object that is being deleted and has our finalizer. When it returns, the finalizer is removed.
        With ``requeue_after``, the finalizer stays and ``cleanup`` runs again. It may run several times.
        """

    async def update_status(self, obj: T, /, outcome: ReconcileOutcome) -> None:
        """Write the outcome to the status.

        It runs after every ``reconcile``, and after a ``cleanup`` that has not finished.

        Override it instead of catching errors in ``reconcile`` to report them. If both raise, both errors are logged
        and counted, and the more severe one decides about the retry.

        Args:
            obj: the object that was reconciled, so that its generation is the observed one.
            outcome: the result or the error.
        """

    async def status(self, obj: T, *, conditions: Iterable[Condition] = (), **fields: Any) -> T:
        """Update the status of ``obj`` and return the object.

        ``observed_generation`` of the status and of each condition becomes the generation of ``obj``. Fields that
        are not given keep the value of the newest status, and so do conditions whose type is not given. Nothing is
        written if nothing changes.

        The write declares the given fields and conditions, and those that earlier calls set. It takes over given
        fields that another field manager owns. Other fields of that manager keep their owner.

        Args:
            obj: the reconciled object.
            conditions: conditions to set. The transition time changes only with ``status``.
            fields: values by attribute name. None removes a field that an earlier call set. A field that another
                manager owns, or that a patch set, keeps its value.

        Raises:
            TypeError: the status has no such field.
            NotFound: the object was deleted.
            ConfigurationError: the kind has no status subresource.
            Conflict: the object was recreated, or other clients changed it repeatedly.

        Example:
            ``await self.status(app, ready_replicas=2, conditions=[ready])``. ``condition_transitions`` compares the
            conditions before and after the call.
        """
        return await self.context.status(obj, conditions=conditions, **fields)


class RequestReconciler(_ContextHolder, ABC, Generic[T]):
    """Moves the cluster to the desired state of a requested object.

    It also runs for objects that do not exist. Most operators implement ``Reconciler`` instead.

    ``reconcile`` may be cancelled at any await and runs again, so every step must read the current state first. An
    exception is logged, counted and retried with back-off. ``TerminalError`` is not retried. ``NotFound`` of the
    object itself is not an error: a deleted object needs no reconcile.
    """

    @property
    def has_status_update(self) -> bool:
        """True if the class has ``update_status``."""
        return overrides(self, RequestReconciler, "update_status")

    @abstractmethod
    async def reconcile(self, request: Request) -> Result | None:
        """Reconcile the object ``request``. None is the same as ``Result()``."""

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Write the outcome to the object's status; runs after every reconcile.

        Override it instead of catching errors in ``reconcile`` to report them. If both raise, both errors are logged
        and counted, and the more severe one decides about the retry. It does not run if the object does not exist
        or the controller stops.
        """


def overrides(reconciler: object, base: type, method: str) -> bool:
    """Return True if the class of ``reconciler`` replaces a method of ``base``."""
    return getattr(type(reconciler), method) is not getattr(base, method)
