"""Errors of declarations."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from steersman.errors import SteersmanError


class SchemaError(SteersmanError, TypeError):
    """A Python type has no structural schema.

    The message names the class and the field, and a remedy.
    """


class RecursiveTypeError(SchemaError):
    """A type contains itself. A schema without references cannot express it."""


@contextmanager
def error_context(location: str) -> Generator[None]:
    """Prefix the message of a SchemaError with ``location``."""
    try:
        yield
    except SchemaError as error:
        raise type(error)(f"{location}: {error}") from None
