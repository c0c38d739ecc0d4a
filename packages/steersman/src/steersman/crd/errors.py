"""What is wrong with a declaration."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from steersman.errors import SteersmanError


class SchemaError(SteersmanError, TypeError):
    """A Python type has no structural schema; the message names the class and the field, and says what to do."""


class RecursiveTypeError(SchemaError):
    """A type contains itself, which a schema without references cannot express."""


@contextmanager
def error_context(location: str) -> Generator[None]:
    """Puts ``place`` in front of the message of a SchemaError that is raised inside."""
    try:
        yield
    except SchemaError as error:
        raise type(error)(f"{location}: {error}") from None
