"""Analysis of a writing client's logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Row(NamedTuple):
    """An acknowledged row: number, Unix timestamp in seconds, and server."""

    number: int
    moment: float
    server: str


Rows = Sequence[Row]
"""Rows in order of acknowledgement."""


def parse_acknowledged(lines: Iterable[str]) -> list[Row]:
    """Parse the acknowledged rows and skip error lines."""
    words = [line.split() for line in lines]
    return [Row(int(w[0]), float(w[1]), w[2]) for w in words if len(w) == 3 and w[0].isdecimal()]


def longest_gap(rows: Rows) -> float:
    """Return the longest time between two acknowledgements in seconds."""
    return max((later.moment - sooner.moment for sooner, later in pairwise(rows)), default=0.0)


def rows_of_first_server(rows: Rows) -> Rows:
    """Return the rows acknowledged by the first row's server."""
    return [row for row in rows if row.server == rows[0].server]


def first_row_of_other_servers(rows: Rows, servers: Collection[str], since: float) -> float:
    """Return when another server first acknowledged a row, or infinity."""
    return min((r.moment for r in rows if r.moment > since and r.server not in servers), default=float("inf"))


def dual_primary_seconds(previous_primary: Rows, through: Rows, since: float, names: Collection[str] = ()) -> float:
    """Return how many seconds two servers both acknowledged rows after ``since``.

    Args:
        previous_primary: rows of a client connected to the previous primary only.
        through: rows of a client that uses the Service of the primary.
        since: Unix timestamp in seconds.
        names: other names of the previous primary in ``through``.
    """
    last = max((row.moment for row in previous_primary), default=since)
    return max(
        0.0, last - first_row_of_other_servers(through, {*names, *(row.server for row in previous_primary)}, since)
    )
