"""Metadata of a reconcile: object, triggers, attempt number."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog

from steersman.controller.events import EventRecorder
from steersman.controller.queue import QueueItem
from steersman.controller.request import Request
from steersman.controller.triggers import Trigger
from steersman.dependents import BlockingDependent, DependentsState, PrunedObject
from steersman.meta import Object
from steersman.observability.logging import log_context
from steersman.observability.runtime import Clock


class ReconcileInfo:
    """One run of a reconciler, while it runs and afterwards.

    Attributes:
        controller: the controller's name.
        request: the object's key.
        priority: the priority in the queue.
        attempt: 1 plus the number of failures in a row before this run.
        duration: seconds; None while it runs.
        result: ``success``, ``requeue_after`` or ``error``; empty while it runs.
        requeue_after: the ``requeue_after`` of the result, or None.
        errors: classes of the errors of the reconcile and of its status update.
        blocking: the dependents that block the next step: see ``steersman.dependents``.
        unpruned: the undeclared dependents of a stopped prune.
        trace_id: 32 hexadecimal digits if tracing is enabled. Each log line contains them.
    """

    __slots__ = (
        "_clock",
        "_id",
        "_item",
        "_random",
        "attempt",
        "blocking",
        "controller",
        "duration",
        "errors",
        "priority",
        "request",
        "requeue_after",
        "result",
        "trace_id",
        "unpruned",
    )

    def __init__(
        self, controller: str, item: QueueItem[Request], attempt: int, clock: Clock, id_random: random.Random
    ) -> None:
        self.controller = controller
        self.request = item.key
        self.priority = item.priority
        self.attempt = attempt
        self.duration: float | None = None
        self.result = self.trace_id = ""
        self.requeue_after: float | None = None
        self.errors: tuple[str, ...] = ()
        self.blocking: tuple[BlockingDependent, ...] = ()
        self.unpruned: tuple[PrunedObject, ...] = ()
        self._item = item
        self._clock = clock
        self._random = id_random
        self._id = ""

    @property
    def id(self) -> str:
        """16 hexadecimal digits that identify this run in logs and traces."""
        if not self._id:
            # Created on demand: most reconciles log nothing.
            self._id = f"{self._random.getrandbits(64):016x}"
        return self._id

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """The first triggers, oldest first; ``omitted`` counts the others."""
        return tuple(self._item.triggers)

    @property
    def reason(self) -> str:
        """The first change or trigger, and the number of others."""
        triggers = self._item.triggers
        if not triggers:
            return ""
        chosen = next((trigger for trigger in triggers if trigger.kind is not None), triggers[0])
        others = len(triggers) - 1 + self._item.omitted
        return f"{chosen} and {others} more" if others else str(chosen)

    @property
    def omitted(self) -> int:
        """The number of further triggers."""
        return self._item.omitted

    @property
    def waited(self) -> float:
        """Seconds in the queue since the request was due."""
        return self._item.waited

    @property
    def age(self) -> float:
        """Seconds since the start."""
        return self._clock.monotonic() - self._item.since

    def log_fields(self) -> Mapping[str, object]:
        """Return the fields of each log line of this run."""
        fields = {
            "controller": self.controller,
            "namespace": self.request.namespace,
            "name": self.request.name,
            "reconcile_id": self.id,
        }
        if self.request.cluster:
            fields["cluster"] = self.request.cluster
        if self.trace_id:
            fields["trace_id"] = self.trace_id
        return fields

    def to_builtins(self) -> dict[str, Any]:
        """Return JSON for debug endpoints: names of objects and fields, never values.

        The only texts are the messages of blocking dependents, which the status of the owner shows as well.
        """
        clock = self._clock
        return {
            **self.log_fields(),
            "started": (clock.now() - timedelta(seconds=self.age)).isoformat(),
            "waited_seconds": self.waited,
            "duration_seconds": self.duration,
            "attempt": self.attempt,
            "priority": self.priority,
            "result": self.result or None,
            "requeue_after_seconds": self.requeue_after,
            "errors": list(self.errors),
            "blocking_dependents": [
                {"kind": b.kind, "object": str(b.key), "message": b.message, "failed": b.failed}
                for b in self.blocking
            ],
            "unpruned_dependents": [{"kind": each.kind, "object": str(each.key)} for each in self.unpruned],
            "triggers": [trigger.to_builtins() for trigger in self.triggers],
            "omitted_triggers": self.omitted,
        }

    def __repr__(self) -> str:
        return f"<ReconcileInfo {self.controller} {self.request} attempt {self.attempt}: {list(self.triggers)}>"


def report_dependents(
    events: EventRecorder, log: structlog.typing.FilteringBoundLogger, owner: Object, state: DependentsState
) -> None:
    """Record ``state`` in the running reconcile, for debug endpoints.

    A stopped prune is logged and recorded as an Event of ``owner``: reconcilers may ignore the state.
    """
    info = current_reconcile()
    if info is not None:
        info.blocking, info.unpruned = state.blocking, state.unpruned
    if state.unpruned:
        log.warning("prune stopped", reason=state.message)
        events.warning(owner, "PruneStopped", state.message, action="Prune")


def current_reconcile() -> ReconcileInfo | None:
    """Return the running reconcile, or None.

    Tasks that a reconcile starts inherit it.

    Example:
        ``info = current_reconcile(); span.set_attribute("reconcile.id", info.id)``
    """
    context = log_context.get()
    return context if isinstance(context, ReconcileInfo) else None
