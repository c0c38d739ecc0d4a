"""Tables and lines in the style of kubectl."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_MAX_FILE_LINES = 500
"""Output for programs has no width to wrap at."""


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, shorten_last: bool = False) -> Table:
    """Return a table without lines, and with three spaces between columns. Control characters are replaced.

    Args:
        shorten_last: cut only the last column where the terminal is too narrow, and replace its white space by one
            space.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], no_wrap=not shorten_last)
    for row in rows:
        cells = [Text(printable(cell)) for cell in row]
        if shorten_last:
            cells[-1] = Text(printable(" ".join(row[-1].split())), no_wrap=True, overflow="ellipsis")
        table.add_row(*cells)
    return table


def print_table(what: Table | str) -> None:
    """Print a table or a line without wrapping it in files."""
    width = None if sys.stdout.isatty() else _MAX_FILE_LINES
    console = Console(width=width, soft_wrap=isinstance(what, str), highlight=False, markup=False, emoji=False)
    if isinstance(what, str):
        console.print(what)
        return
    with console.capture() as capture:
        console.print(what)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def printable(text: str) -> str:
    """Replace control characters of clients, which a terminal would interpret."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
