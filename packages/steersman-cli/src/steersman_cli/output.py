"""Output of commands: a table, JSON or YAML."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import typer
import yaml

OutputFormat = Literal["table", "json", "yaml"]

_MIN_COLUMN_WIDTH, _UNBOUNDED_WIDTH = 24, 500


def print_output(
    content: Any, output: OutputFormat, *, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """Print ``content`` as JSON or YAML, or ``rows`` as a table."""
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(content)).decode())
    elif output == "yaml":
        typer.echo(yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False), nl=False)
    else:
        _print_table(columns, rows)


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], overflow="fold", min_width=_MIN_COLUMN_WIDTH)
    for row in rows:
        table.add_row(*row)
    # Without a terminal, lines are not wrapped, so that programs can parse them.
    width = None if sys.stdout.isatty() else _UNBOUNDED_WIDTH
    Console(width=width, soft_wrap=False, highlight=False, markup=False).print(table)
