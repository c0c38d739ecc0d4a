"""Help texts of command lines at 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.main import get_command
from typer.testing import CliRunner

_COLUMNS = 80


def help_problems(app: typer.Typer) -> list[str]:
    """Return the incomplete option names and summaries of all commands."""
    return [problem for path, command in all_commands(get_command(app)) for problem in _problems(app, path, command)]


def subcommands(command: Any) -> dict[str, Any]:
    """Return the subcommands by name, which a group may import now."""
    names: list[str] = command.list_commands(None) if hasattr(command, "list_commands") else []
    return {name: command.get_command(None, name) for name in names}


def all_commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command and all commands below it, with their names."""
    yield path, command
    for name, each in subcommands(command).items():
        yield from all_commands(each, (*path, name))


def _problems(app: typer.Typer, path: Sequence[str], command: Any) -> Iterator[str]:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(_COLUMNS)})
    where, text = " ".join(path) or "(top)", result.output
    words = set(re.findall(r"[^\s,/|]+", text))
    if result.exit_code != 0:
        yield f"{where}: exit code {result.exit_code}"
    yield from (f"{where}: {line!r} is too long" for line in text.splitlines() if len(line) > _COLUMNS)
    yield from (f"{where}: {line!r} is cut" for line in text.splitlines() if re.search(r"…|[a-z]\.\.\.$", line))
    for parameter in command.params:
        names = [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else []
        yield from (f"{where}: {name} is missing" for name in names if name not in words)
    flat = " ".join(text.split())
    for name, each in subcommands(command).items():
        if f"{name} {first_sentence(each)}" not in flat:
            yield f"{where}: summary of {name} is incomplete"


def first_sentence(command: Any) -> str:
    """Return the first sentence of the help of a command."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].rstrip('.')}."
