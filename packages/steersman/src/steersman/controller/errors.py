"""Classifies errors of reconciles: retry or not, and which of several counts."""

from __future__ import annotations

from enum import Enum
from typing import Any, cast

from steersman.errors import Conflict, NotFound, TerminalError
from steersman.meta import ApiResource, ObjectKey

# Bugs of the reconciler, for which a Go program would panic.
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
    """The meaning of an error for the object, from the least severe."""

    DELETED = 1
    """The object does not exist: nothing is left to do."""
    TERMINAL = 2
    """A retry cannot succeed."""
    CONFLICT = 3
    """The object was read in an old state: retry on fresh data. This is normal."""
    RETRYABLE = 4
    """Retry with back-off."""


def classify(error: BaseException, resource: ApiResource, request: ObjectKey, *, exists: bool) -> ErrorClass:
    """Return the class of ``error``, raised by a reconcile of ``request``.

    Args:
        error: an exception or a group of them. The most severe class of a group counts, so a ``TerminalError``
            together with a lost connection is retried.
        resource: the API resource of the reconciled kind.
        request: the reconciled object.
        exists: True if the cache has the object.
    """
    return max((_classify_one(e, resource, request, exists) for e in flatten(error)), key=lambda each: each.value)


def _classify_one(error: BaseException, resource: ApiResource, request: ObjectKey, exists: bool) -> ErrorClass:
    if is_terminal(error):
        return ErrorClass.TERMINAL
    if isinstance(error, NotFound) and _refers_to(error, resource, request):
        # The response does not contain the namespace: it may refer to an object of the same name in another one.
        # The object is certainly deleted only if the cache agrees.
        return ErrorClass.CONFLICT if exists else ErrorClass.DELETED
    return ErrorClass.CONFLICT if isinstance(error, Conflict) else ErrorClass.RETRYABLE


def _refers_to(error: NotFound, resource: ApiResource, request: ObjectKey) -> bool:
    """Return True if ``error`` is about the reconciled object, not another one."""
    details = error.status.details
    if details is None or details.name != request.name or details.group != resource.group:
        return False
    return details.kind in (resource.plural, resource.kind)


def is_terminal(error: BaseException) -> bool:
    """Return True if ``error`` is a ``TerminalError`` or caused by one.

    A group is terminal if all its members are.
    """
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
    """Return True if ``error`` is a bug, for which Go would panic."""
    return any(isinstance(e, _PROGRAMMING_ERRORS) or not isinstance(e, Exception) for e in flatten(error))


def flatten(error: BaseException) -> tuple[BaseException, ...]:
    """Return the errors in a nested group, or ``error`` itself."""
    members = _members(error)
    return (error,) if members is None else tuple(leaf for each in members for leaf in flatten(each))


def _members(error: BaseException) -> tuple[BaseException, ...] | None:
    return cast("Any", error).exceptions if isinstance(error, BaseExceptionGroup) else None


def combine(reconcile: BaseException | None, status: BaseException | None) -> BaseException | None:
    """Combine the errors of a reconcile and its status update into one."""
    if reconcile is None or status is None:
        return reconcile or status
    return BaseExceptionGroup("the reconcile and its status update failed", (reconcile, status))
