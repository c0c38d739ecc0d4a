"""Ratcheting validation: only new problems are refused.

Conditions report older problems, which must not prevent their correction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from steersman.meta import Object
from steersman.webhook import AdmissionWarning, FieldError

T = TypeVar("T", bound=Object)

ValidationCheck = Callable[[T], Iterable[FieldError | AdmissionWarning]]
"""Returns all errors and warnings of an object."""


def ratcheting(check: ValidationCheck[T]) -> Callable[[T, T | None], list[FieldError | AdmissionWarning]]:
    """Return a validating handler that reports only new errors."""

    def handler(obj: T, previous: T | None) -> list[FieldError | AdmissionWarning]:
        previous_findings = set(check(previous)) if previous is not None else set[FieldError | AdmissionWarning]()
        return [each for each in check(obj) if each not in previous_findings]

    return handler
