"""What a writing client's log says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Row(NamedTuple):
    """One that was acknowledged: its number, when, in seconds of the epoch, and by which server."""

    number: int
    moment: float
    server: str


Rows = Sequence[Row]
"""As they came."""


def parse_acknowledged(lines: Iterable[str]) -> list[Row]:
    """The rows in the writer's output; what else there is are its errors."""
    words = [line.split() for line in lines]
    return [Row(int(w[0]), float(w[1]), w[2]) for w in words if len(w) == 3 and w[0].isdecimal()]


def longest_gap(rows: Rows) -> float:
    """The longest time between two acknowledgements."""
    return max((later.moment - sooner.moment for sooner, later in pairwise(rows)), default=0.0)


def rows_of_first_server(rows: Rows) -> Rows:
    """Those that were acknowledged by the server that acknowledged the first."""
    return [row for row in rows if row.server == rows[0].server]


def first_row_of_other_servers(rows: Rows, servers: Collection[str], since: float) -> float:
    """When a row was first acknowledged after a moment by none of these; infinity where none was."""
    return min((r.moment for r in rows if r.moment > since and r.server not in servers), default=float("inf"))


def dual_primary_seconds(previous_primary: Rows, through: Rows, since: float, names: Collection[str] = ()) -> float:
    """For how many seconds after a moment two servers acknowledged rows.

    Args:
        former: of a client that reaches nothing but the former primary.
        through: of one that is led to who is primary.
        known_as: what the former primary is to other clients, if that is not what it is to this one.
    """
    last = max((row.moment for row in previous_primary), default=since)
    return max(
        0.0, last - first_row_of_other_servers(through, {*names, *(row.server for row in previous_primary)}, since)
    )
