"""Standard conditions (``metav1.Condition``). Source: KEP-1623."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec

from steersman.meta.frozen import FrozenStruct
from steersman.meta.markers import Field

ConditionStatus = Literal["True", "False", "Unknown"]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED_NAME = rf"^({_LABEL}(\.{_LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"


class Condition(FrozenStruct):
    """One aspect of the current state of an object."""

    type: Annotated[str, Field(max_length=316, pattern=_QUALIFIED_NAME)]
    """Type of the condition in CamelCase."""
    status: ConditionStatus
    """Status of the condition: one of True, False, Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Reason for the last change, in one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)] = msgspec.field(default="")
    """Details for people, with what to do where something is wrong."""
    last_transition_time: datetime | None = None
    """When the status last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that the condition was set upon."""


class _ConditionLike(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...


C = TypeVar("C", bound=Condition)
T = TypeVar("T", bound=_ConditionLike)


def find_condition(conditions: Iterable[T], kind: str) -> T | None:
    """Return the condition of a type, or None.

    Args:
        conditions: conditions of a custom resource or of a built-in kind, such as a pod.
        kind: type of the condition, such as ``Ready``.
    """
    return next((c for c in conditions if c.type == kind), None)


def is_true(conditions: Iterable[_ConditionLike], kind: str) -> bool:
    """Return True if a condition exists and has the status ``True``.

    Args:
        conditions: conditions of a custom resource or of a built-in kind, such as a pod.
        kind: type of the condition, such as ``Ready``.
    """
    found = find_condition(conditions, kind)
    return found is not None and found.status == "True"


def condition_transitions(before: Iterable[T], after: Iterable[T]) -> tuple[T, ...]:
    """Return the conditions that are new or have another status.

    Args:
        before: conditions of the object that was reconciled.
        after: conditions of the result of ``Reconciler.status``.
    """
    previous = {(c.type, c.status) for c in before}
    return tuple([c for c in after if (c.type, c.status) not in previous])


def set_condition(conditions: Iterable[C], condition: C, now: datetime) -> tuple[C, ...]:
    """Return ``conditions`` with ``condition`` replacing the one of its type.

    The transition time is ``now`` if the status changes. Otherwise the previous transition time is kept, so setting
    the same condition twice changes nothing.

    Args:
        conditions: current conditions of the object.
        condition: condition to set. Its transition time is ignored.
        now: current time. Microseconds are dropped.
    """
    current = tuple(conditions)
    previous = find_condition(current, condition.type)
    transition_time = (
        previous.last_transition_time if previous is not None and previous.status == condition.status else None
    )
    updated = msgspec.structs.replace(condition, last_transition_time=transition_time or now.replace(microsecond=0))
    if previous is None:
        return (*current, updated)
    return tuple(updated if c.type == condition.type else c for c in current)
