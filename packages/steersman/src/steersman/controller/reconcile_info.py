"""The reconcile that runs here: which object, why, and for the how manieth time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from steersman.controller.queue import QueueItem
from steersman.controller.triggers import Trigger
from steersman.meta import ObjectKey
from steersman.observability.logging import log_context
from steersman.observability.runtime import Clock


class ReconcileInfo:
    """One run of a reconciler, while it runs and afterwards.

    Attributes:
        controller: the controller's name.
        attempt: 1, or 1 more than the failures in a row before this run.
        duration: seconds that it took; None while it runs.
        result: ``success``, ``requeue``, ``requeue_after`` or ``error``; empty while it runs.
        requeue_after: seconds after which it asked to run again; None if it did not.
        errors: the classes of what went wrong, the reconcile's before that of its status update.
        trace_id: thirty-two hexadecimal digits, where this run is traced; each log line has them.
    """

    __slots__ = (
        "_clock",
        "_id",
        "_item",
        "_random",
        "attempt",
        "controller",
        "duration",
        "errors",
        "requeue_after",
        "result",
        "trace_id",
    )

    def __init__(
        self, controller: str, item: QueueItem[ObjectKey], attempt: int, clock: Clock, id_random: random.Random
    ) -> None:
        self.controller = controller
        self.attempt = attempt
        self.duration: float | None = None
        self.result = self.trace_id = ""
        self.requeue_after: float | None = None
        self.errors: tuple[str, ...] = ()
        self._item = item
        self._clock = clock
        self._random = id_random
        self._id = ""

    @property
    def request(self) -> ObjectKey:
        """The object's key."""
        return self._item.key

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that name this run in each log line and trace."""
        if not self._id:
            # Made when somebody asks: most reconciles log nothing.
            self._id = f"{self._random.getrandbits(64):016x}"
        return self._id

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """What it runs for, oldest first. A few at most are kept; ``omitted`` counts the others."""
        return tuple(self._item.triggers)

    @property
    def omitted(self) -> int:
        """How many triggers were not kept."""
        return self._item.omitted

    @property
    def priority(self) -> int:
        """With which it was taken from the queue."""
        return self._item.priority

    @property
    def waited(self) -> float:
        """Seconds in the queue, since it was due."""
        return self._item.waited

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return self._clock.monotonic() - self._item.since

    def log_fields(self) -> Mapping[str, object]:
        """What each log line of this run carries."""
        fields = {
            "controller": self.controller,
            "namespace": self.request.namespace,
            "name": self.request.name,
            "reconcile_id": self.id,
        }
        return {**fields, "trace_id": self.trace_id} if self.trace_id else fields

    def to_builtins(self) -> dict[str, Any]:
        """As JSON has it, for debug endpoints. Names objects and fields, never values."""
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
            "triggers": [trigger.to_builtins() for trigger in self.triggers],
            "omitted_triggers": self.omitted,
        }

    def __repr__(self) -> str:
        return f"<ReconcileInfo {self.controller} {self.request} attempt {self.attempt}: {list(self.triggers)}>"


def current_reconcile() -> ReconcileInfo | None:
    """The reconcile that runs here, in tasks that it started too; None outside of one.

    Example:
        ``info = current_reconcile(); span.set_attribute("reconcile.id", info.id)``
    """
    context = log_context.get()
    return context if isinstance(context, ReconcileInfo) else None
