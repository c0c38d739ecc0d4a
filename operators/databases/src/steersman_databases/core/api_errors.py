"""Refusals and failures of the API server, and when to report them."""

from __future__ import annotations

from types import TracebackType

from steersman.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.core.outcome import ReconcileBlocked

_REJECTIONS = (BadRequest, Forbidden, Invalid)
_FAILED = "RequestFailed"
REASONS = frozenset({_FAILED, *(kind.__name__ for kind in _REJECTIONS)})
"""Reported reasons.

The message is the server's, because there is no better advice.
"""

# A restart of the API server takes less time.
_PERSISTENT_AFTER_SECONDS = 10.0


def is_rejection(error: ApiError) -> bool:
    """Return True if a quota, an admission policy or RBAC refused it.

    A retry without a change would not help.
    """
    return isinstance(error, _REJECTIONS)


def is_namespace_terminating(error: ApiError) -> bool:
    """Return True if it was refused because the namespace terminates.

    Then there is nothing to report and nothing left to do.
    """
    return isinstance(error, Forbidden) and error.namespace_terminating


class DeferredErrors:
    """Defers refusals of objects that instances do not need.

    The API server refuses the object, or a foreign object has the name. Instances must not suffer from a refused
    port.
    This is a context manager for each such object. There is one for each reconcile, which reports the first refusal
    at
    its end.
    """

    def __init__(self) -> None:
        self._first: ApiError | ReconcileBlocked | None = None

    def __enter__(self) -> None:
        return

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        return error is not None and self.defer(error)

    def defer(self, error: BaseException) -> bool:
        """Defer such an error, and return True if it is one."""
        if not isinstance(error, ReconcileBlocked) and not (
            isinstance(error, ApiError) and is_rejection(error) and not is_namespace_terminating(error)
        ):
            return False
        self._first = self._first or error
        return True

    def raise_first(self) -> None:
        """Raise the first deferred error, if any."""
        if self._first is not None:
            raise self._first


class ApiErrorTracker:
    """Failures of the objects of one controller.

    After a restart of the process they are reported some seconds later.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[ObjectKey, float] = {}

    def record(self, key: ObjectKey, error: BaseException | None) -> None:
        """Record the result of a reconcile.

        A server that does not respond may be about to restart.
        """
        if isinstance(error, Conflict):
            return
        if isinstance(error, ApiError):
            self._since.setdefault(key, self._clock.monotonic())
        else:
            self._since.pop(key, None)

    def reason(self, key: ObjectKey, error: ApiError) -> str:
        """Return the reason to report, or "" if the error may be temporary."""
        for kind in _REJECTIONS:
            # Not the error's own reason, which may be arbitrary text of a webhook.
            if isinstance(error, kind):
                return kind.__name__
        now = self._clock.monotonic()
        duration = now - self._since.get(key, now) >= _PERSISTENT_AFTER_SECONDS
        return _FAILED if duration and not isinstance(error, Conflict) else ""
