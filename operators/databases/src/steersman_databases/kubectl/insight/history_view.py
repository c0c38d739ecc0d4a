"""Table of a history, with a sparkline for each series."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.table import Table

from steersman_databases.core.sizes import format_bytes
from steersman_databases.kubectl.insight.history import HistorySeries, InstanceHistory
from steersman_databases.kubectl.tables import plain_table

_SPARKLINE_WIDTH = 36
_BLOCKS = "▁▂▃▄▅▆▇█"


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


_FORMATS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "bytes": ("", format_bytes),
    "bytes_per_second": ("/s", format_bytes),
    "per_second": ("/s", _amount),
    "seconds": ("", lambda value: f"{_amount(value)} s"),
    "ratio": ("", lambda value: f"{100 * value:.1f} %"),
    "cores": (" cores", lambda value: f"{value:.2f}"),
}
"""Suffix of the series' name, and the cell, by unit."""


def render(found: InstanceHistory) -> Iterator[Table | str]:
    """Yield the parts of the output. Series without a value are left out."""
    history = found.history
    rows = [_row(one) for one in history.series if any(value is not None for value in one.values)]
    if not rows:
        yield f"{found.instance}: no history yet"
        return
    seconds = history.resolution_seconds * max(len(one.values) for one in history.series)
    yield f"{found.instance}: {_span(seconds)} until {history.end:%Y-%m-%d %H:%M:%S} UTC"
    yield ""
    yield plain_table(("SERIES", "MIN", "MEAN", "MAX", "NOW", "OLDEST TO NEWEST"), rows)


def sparkline(values: Sequence[float | None], width: int = _SPARKLINE_WIDTH) -> str:
    """Return a line of blocks from 0 to the largest value. A space stands for a missing value.

    A block is the mean of its values, if there are more of them than blocks.
    """
    count = min(width, len(values))
    means = [
        _mean(values[number * len(values) // count : (number + 1) * len(values) // count]) for number in range(count)
    ]
    top = max((value for value in means if value is not None), default=0)
    steps = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[round(steps * max(value, 0) / top) if top > 0 else 0] for value in means
    )


def _row(series: HistorySeries) -> Sequence[str]:
    suffix, cell = _FORMATS.get(series.unit, ("", _amount))
    known = [value for value in series.values if value is not None]
    figures = (min(known), sum(known) / len(known), max(known), series.values[-1])
    name = series.name.replace("_", " ") + suffix
    return (name, *("" if value is None else cell(value) for value in figures), sparkline(series.values))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
