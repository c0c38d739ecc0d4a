"""What follows from an error: which of several decides, and whether a retry can mend it."""

from __future__ import annotations

from enum import Enum
from typing import Any, cast

from steersman.errors import Conflict, NotFound, TerminalError
from steersman.meta import ApiResource, ObjectKey

# What a Go program panics on: errors of the reconciler's author, whatever the cluster is like.
_PROGRAMMING_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
_MAX_CAUSE_DEPTH = 32


class ErrorClass(Enum):
    """What an error means for the object. Of several errors the one that needs most decides."""

    DELETED = 1
    """The object itself does not exist: nothing is left to do."""
    TERMINAL = 2
    """No retry can mend it."""
    CONFLICT = 3
    """What was read is old news: try again on fresh data. No reason for alarm."""
    RETRYABLE = 4
    """Try again."""


def classify(error: BaseException, resource: ApiResource, request: ObjectKey, *, exists: bool) -> ErrorClass:
    """The verdict on ``error``, raised by a reconcile of ``request``.

    Args:
        error: an exception or a group of them; of a group the gravest verdict counts, so that a ``TerminalError``
            beside a lost connection is tried again.
        resource: where the reconciled kind lives.
        request: the reconciled object.
        exists: whether the cache holds the object.
    """
    return max(
        (_classify_one(e, resource, request, exists) for e in flatten(error)), key=lambda verdict: verdict.value
    )


def _classify_one(error: BaseException, resource: ApiResource, request: ObjectKey, exists: bool) -> ErrorClass:
    if is_terminal(error):
        return ErrorClass.TERMINAL
    if isinstance(error, NotFound) and _refers_to(error, resource, request):
        # The server's answer is newer than the cache; that it is the same object and not its namesake in another
        # namespace is certain only when both agree.
        return ErrorClass.CONFLICT if exists else ErrorClass.DELETED
    return ErrorClass.CONFLICT if isinstance(error, Conflict) else ErrorClass.RETRYABLE


def _refers_to(error: NotFound, resource: ApiResource, request: ObjectKey) -> bool:
    """Whether what was not found is the object itself: another one that is missing is an error."""
    details = error.status.details
    if details is None or details.name != request.name or details.group != resource.group:
        return False
    return details.kind in (resource.plural, resource.kind)


def is_terminal(error: BaseException) -> bool:
    """Whether ``error`` is a ``TerminalError`` or was raised ``from`` one; a group is if all in it are."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSE_DEPTH):
        if cause is None:
            return False
        if isinstance(cause, TerminalError):
            return True
        if (members := _members(cause)) is not None:
            return all(is_terminal(each) for each in members)
        cause = cause.__cause__
    return False


def is_panic(error: BaseException) -> bool:
    """Whether ``error`` shows a bug of the reconciler: what Go would panic on, or what should end a process."""
    return any(isinstance(e, _PROGRAMMING_ERRORS) or not isinstance(e, Exception) for e in flatten(error))


def flatten(error: BaseException) -> tuple[BaseException, ...]:
    """The errors in ``error``, however deeply grouped; itself if it is no group."""
    members = _members(error)
    return (error,) if members is None else tuple(leaf for each in members for leaf in flatten(each))


def _members(error: BaseException) -> tuple[BaseException, ...] | None:
    return cast("Any", error).exceptions if isinstance(error, BaseExceptionGroup) else None


def combine(reconcile: BaseException | None, status: BaseException | None) -> BaseException | None:
    """The error of a reconcile and that of its status update as one, so that neither hides the other."""
    if reconcile is None or status is None:
        return reconcile or status
    return BaseExceptionGroup("the reconcile and its status update failed", (reconcile, status))
