"""How commands end: 0 all is well, 1 something is wrong, 2 they were asked for what cannot be."""

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
    """Nothing is wrong with what was asked for, but with what is there: exit code 1."""


@contextmanager
def report_errors() -> Generator[None]:
    """What a user can mend is one line, and the exit code: 2 for what was asked, 1 for what a server said."""
    try:
        yield
    except SteersmanError as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(
            EXIT_CHECK_FAILED if isinstance(error, ApiError | ConnectionFailed | CheckFailed) else EXIT_USAGE_ERROR
        ) from None


class GoFlags(TyperCommand):
    """A command whose switches may also be written as in Go: ``--namespaced=false``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrites them, and reads on as usual."""
        switches = {o for p in self.params for o in getattr(p, "opts", ()) if getattr(p, "secondary_opts", ())}
        return super().parse_args(ctx, [_normalize_switch(a, switches) for a in args])


_BOOLEAN_PREFIXES = {"true": "--", "false": "--no-"}


def _normalize_switch(argument: str, switches: set[str]) -> str:
    name, equals, value = argument.partition("=")
    if not equals or name not in switches or value.lower() not in _BOOLEAN_PREFIXES:
        return argument
    return f"{_BOOLEAN_PREFIXES[value.lower()]}{name.removeprefix('--')}"


def prompt_if_missing(value: str | None, option: str, question: str, check: Callable[[str], str | None]) -> str:
    """``value``, or what somebody at a terminal answers.

    Raises:
        ConfigurationError: nobody can be asked, or ``check`` says what is wrong with it.
    """
    if value is None:
        if not sys.stdin.isatty():
            raise ConfigurationError(f"{option} is missing, and there is no terminal to ask at")
        value = str(typer.prompt(question))
    if problem := check(value):
        raise ConfigurationError(f"{option} {value!r}: {problem}")
    return value
