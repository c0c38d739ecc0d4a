"""What the API server refuses, or fails to do: when it is told, and by which reason."""

from __future__ import annotations

from types import TracebackType

from steersman.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.controllers.outcome import Blocked

_REFUSALS = (BadRequest, Forbidden, Invalid)
_FAILED = "RequestFailed"
REASONS = frozenset({_FAILED, *(kind.__name__ for kind in _REFUSALS)})
"""Those that are told. The message has the server's words: there is no better advice."""

# An API server that restarts is through sooner.
_LASTING_SECONDS = 10.0


def is_refusal(error: ApiError) -> bool:
    """Whether it was refused for good: by a quota, an admission policy, our own RBAC."""
    return isinstance(error, _REFUSALS)


def is_of_its_end(error: ApiError) -> bool:
    """Whether it was refused since the namespace goes: there is nothing to tell, and nothing left to do."""
    return isinstance(error, Forbidden) and error.namespace_terminating


class Aside:
    """Sets aside what is refused of objects that a cluster's instances do without: nobody is left alone for a port.

    By the API server, or since a stranger's has the name.

    A context manager for each of these objects; one for a reconcile, at whose end the first of them is told.
    """

    def __init__(self) -> None:
        self._first: ApiError | Blocked | None = None

    def __enter__(self) -> None:
        return

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        return error is not None and self.takes(error)

    def takes(self, error: BaseException) -> bool:
        """Whether it is one of these; then it is set aside."""
        if not isinstance(error, Blocked) and not (
            isinstance(error, ApiError) and is_refusal(error) and not is_of_its_end(error)
        ):
            return False
        self._first = self._first or error
        return True

    def tell(self) -> None:
        """Raises what was refused first, if anything was."""
        if self._first is not None:
            raise self._first


class Failures:
    """Of the objects of one controller. Forgotten with the process: they are told some seconds later then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[ObjectKey, float] = {}

    def note(self, key: ObjectKey, error: BaseException | None) -> None:
        """How a reconcile ended. Where the server did not answer at all, it may be about to restart."""
        if isinstance(error, Conflict):
            return
        if isinstance(error, ApiError):
            self._since.setdefault(key, self._clock.monotonic())
        else:
            self._since.pop(key, None)

    def reason(self, key: ObjectKey, error: ApiError) -> str:
        """The reason by which ``error`` is to be told; empty where it may pass by itself."""
        for kind in _REFUSALS:
            # Not the reason of its own, which may be anything where a webhook wrote it.
            if isinstance(error, kind):
                return kind.__name__
        now = self._clock.monotonic()
        lasts = now - self._since.get(key, now) >= _LASTING_SECONDS
        return _FAILED if lasts and not isinstance(error, Conflict) else ""
