"""Exit codes and error messages of commands.

0 is success, 1 a failed check or an error of the server, 2 invalid input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand

from steersman.errors import ApiError, ConfigurationError, ConnectionFailed, SteersmanError

EXIT_CHECK_FAILED, EXIT_USAGE_ERROR = 1, 2


class CheckFailed(SteersmanError):
    """The check found a problem (exit code 1)."""


@contextmanager
def report_errors() -> Generator[None]:
    """Print an error as one line, and set the exit code."""
    try:
        yield
    except SteersmanError as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(
            EXIT_CHECK_FAILED if isinstance(error, ApiError | ConnectionFailed | CheckFailed) else EXIT_USAGE_ERROR
        ) from None


class GoFlags(TyperCommand):
    """Command that also accepts switches in Go's form: ``--namespaced=false``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments after rewriting the switches."""
        switches = {o for p in self.params for o in getattr(p, "opts", ()) if getattr(p, "secondary_opts", ())}
        return super().parse_args(ctx, [_normalize_switch(a, switches) for a in args])


_BOOLEAN_PREFIXES = {"true": "--", "false": "--no-"}


def _normalize_switch(argument: str, switches: set[str]) -> str:
    name, equals, value = argument.partition("=")
    if not equals or name not in switches or value.lower() not in _BOOLEAN_PREFIXES:
        return argument
    return f"{_BOOLEAN_PREFIXES[value.lower()]}{name.removeprefix('--')}"


def prompt_if_missing(value: str | None, option: str, question: str, check: Callable[[str], str | None]) -> str:
    """Return ``value``, or prompt for it on a terminal.

    Args:
        value: value of the option, if given.
        option: name of the option, for messages.
        question: text of the prompt.
        check: returns the problem of a value, or None.

    Raises:
        ConfigurationError: there is no terminal, or ``check`` rejects the value.
    """
    if value is None:
        if not sys.stdin.isatty():
            raise ConfigurationError(f"{option} is required without a terminal")
        value = str(typer.prompt(question))
    if problem := check(value):
        raise ConfigurationError(f"{option} {value!r}: {problem}")
    return value
