"""What is new in an object: what was wrong before is told by its conditions, and keeps nobody from mending it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from steersman.meta import Object
from steersman.webhook import AdmissionWarning, FieldError

T = TypeVar("T", bound=Object)

Check = Callable[[T], Iterable[FieldError | AdmissionWarning]]
"""From an object to all that is to be said of it."""


def news(check: Check[T]) -> Callable[[T, T | None], list[FieldError | AdmissionWarning]]:
    """A validating handler that says of an object what was not to be said of it before."""

    def found(obj: T, former: T | None) -> list[FieldError | AdmissionWarning]:
        known = set(check(former)) if former is not None else set[FieldError | AdmissionWarning]()
        return [each for each in check(obj) if each not in known]

    return found
