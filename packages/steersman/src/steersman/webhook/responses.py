"""Results of validating handlers: errors, warnings and denials."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from steersman.errors import StatusCause, SteersmanError

_MAX_WARNING_LENGTH = 256
_MAX_TOTAL_WARNING_LENGTH = 4096
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")


class FieldError(Struct, frozen=True):
    """A validation error of an object.

    Attributes:
        field: path in wire names, such as ``spec.replicas`` or ``spec.ports[0].name``; empty for the whole object.
        message: text for the user: the problem, and what to do.
        reason: ``FieldValueInvalid``, ``FieldValueRequired``, ``FieldValueForbidden``, ``FieldValueDuplicate``, …
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class AdmissionWarning(Struct, frozen=True):
    """A warning about an allowed write, which kubectl prints.

    Texts over 256 characters are truncated.
    """

    message: str


class Denied(SteersmanError):
    """Raised by a handler to deny a write.

    Use ``FieldError`` for a reason that is about a field.

    Attributes:
        code: HTTP status code of the response to the user.
        reason: machine-readable, such as ``Forbidden``.
    """

    def __init__(self, message: str, *, code: int = 403, reason: str = "Forbidden") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


def format_warnings(warnings: Iterable[AdmissionWarning]) -> list[str]:
    """Texts of ``warnings``, within the limits of the API server.

    It drops warnings with control characters and truncates long ones. Source: ``net.NewWarningHeader`` and
    ``warning.AddWarning`` of Kubernetes 1.36.
    """
    texts: list[str] = []
    remaining = _MAX_TOTAL_WARNING_LENGTH
    for warning in warnings:
        text = _UNPRINTABLE.sub(" ", warning.message).strip()
        if len(text) > _MAX_WARNING_LENGTH:
            text = f"{text[: _MAX_WARNING_LENGTH - 1]}…"
        if not text or len(text) > remaining:
            continue
        remaining -= len(text)
        texts.append(text)
    return texts


def status_causes(causes: Iterable[FieldError]) -> tuple[StatusCause, ...]:
    """``causes`` as details of a ``Status``."""
    return tuple(StatusCause(field=c.field, message=c.message, reason=c.reason) for c in causes)
