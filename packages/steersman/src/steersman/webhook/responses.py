"""What handlers say: what is wrong, what the user should know, and a plain no."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from steersman.errors import StatusCause, SteersmanError

_MAX_WARNING_LENGTH = 256
_MAX_TOTAL_WARNING_LENGTH = 4096
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")


class FieldError(Struct, frozen=True):
    """One thing that is wrong with an object.

    Attributes:
        field: its path in wire names, such as ``spec.replicas`` or ``spec.ports[0].name``; empty for the whole.
        message: what the user reads; says what to do.
        reason: ``FieldValueInvalid``, ``FieldValueRequired``, ``FieldValueForbidden``, ``FieldValueDuplicate``, …
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class AdmissionWarning(Struct, frozen=True):
    """What the user should know although the write is allowed; kubectl prints it. 256 characters are shown."""

    message: str


class Denied(SteersmanError):
    """Raised by a handler that refuses, as a ``Cause`` does, but for a reason that is about no field.

    Attributes:
        code: the HTTP status code that the user's client sees.
        reason: machine-readable, such as ``Forbidden``.
    """

    def __init__(self, message: str, *, code: int = 403, reason: str = "Forbidden") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


def format_warnings(warnings: Iterable[AdmissionWarning]) -> list[str]:
    """The texts of ``warnings`` as the API server passes them on: it drops what has line breaks, and cuts the rest.

    Source: ``net.NewWarningHeader`` and ``warning.AddWarning`` of Kubernetes 1.36.
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
    """``causes`` as a Status tells them."""
    return tuple(StatusCause(field=c.field, message=c.message, reason=c.reason) for c in causes)
