"""Output of commands: a table, JSON or YAML."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import typer

from steersman_manifests.yaml_codec import dump_yaml

OutputFormat = Literal["table", "json", "yaml"]

_MIN_COLUMN_WIDTH, _UNBOUNDED_WIDTH = 24, 500


def print_output(
    content: Any,
    output: OutputFormat,
    *,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    piped_width: int = _UNBOUNDED_WIDTH,
) -> None:
    """Print ``content`` as JSON or YAML, or ``rows`` as a table.

    Args:
        content: content for JSON and YAML.
        output: format.
        columns: titles of the table.
        rows: cells of the table.
        piped_width: width of the table without a terminal. Defaults to lines that are not wrapped, so that programs
            can parse them.
    """
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(content)).decode())
    elif output == "yaml":
        typer.echo(dump_yaml(msgspec.to_builtins(content)), nl=False)
    else:
        _print_table(columns, rows, piped_width)


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], piped_width: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=piped_width == _UNBOUNDED_WIDTH, overflow="fold")
    table.add_column(columns[-1], overflow="fold", min_width=_MIN_COLUMN_WIDTH)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else piped_width
    Console(width=width, soft_wrap=False, highlight=False, markup=False).print(table)
