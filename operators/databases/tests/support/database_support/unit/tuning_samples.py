"""Samples of a primary for rules and trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from steersman_databases.features.tuning.window import Sample, TableRows, Window, periods_of

START = datetime(2030, 1, 1, tzinfo=UTC)
GIB, MIB = 1 << 30, 1 << 20
Figures = Mapping[str, float]


def samples(
    number: int,
    rates: Callable[[int], Figures] | Figures,
    gauges: Callable[[int], Figures] | Figures,
    *,
    tables: Callable[[int], Mapping[str, TableRows]] | None = None,
    minutes: float = 5,
    start: datetime = START,
) -> list[Sample]:
    """Samples at one interval. The counters rise by the rates of each period."""
    totals, found = dict[str, float](), list[Sample]()
    for index in range(number):
        for name, rate in (rates(index) if callable(rates) else rates).items():
            totals[name] = totals.get(name, 0.0) + rate
        found.append(
            Sample(
                at=start + timedelta(minutes=minutes * index),
                server="pod-1 0",
                counters=dict(totals),
                gauges=dict(gauges(index) if callable(gauges) else gauges),
                tables={} if tables is None else tables(index),
            )
        )
    return found


def window(found: list[Sample]) -> Window:
    """The periods of samples."""
    return Window(periods_of(found))
