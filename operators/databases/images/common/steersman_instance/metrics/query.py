"""A collector that is one SQL query: columns become labels and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from .catalog import Metric, Reading, Sample

ROW_LIMIT = 50


class Session(Protocol):
    """A connection to a database server."""

    def rows(self, sql: str) -> Sequence[Mapping[str, object]]:
        """Run a query.

        Raises:
            CollectFailed: the server refused it, or a timeout ended it.
            SessionLost: the connection is lost.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Query:
    """A collector that runs one query.

    Args:
        name: name of the collector.
        sql: the query. It sorts by importance, since `limit` cuts its result.
        values: metric of each value column. NULL produces no sample.
        interval_seconds: time between two runs.
        limit: most rows that are read.
    """

    name: str
    sql: str
    values: Mapping[str, Metric]
    interval_seconds: float = 15.0
    limit: int = ROW_LIMIT
    metrics: Sequence[Metric] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(self.values.values()))

    def collect(self, session: Session) -> Reading:
        """See `Collector.collect`."""
        return samples_of(session.rows(self.sql), self.values, self.limit)


def samples_of(rows: Sequence[Mapping[str, object]], values: Mapping[str, Metric], limit: int) -> Reading:
    """Return a sample for each value column, for at most `limit` rows."""
    samples: list[Sample] = []
    for row in rows[:limit]:
        for column, metric in values.items():
            if (value := number(row[column])) is not None:
                samples.append(Sample(metric, tuple(_text(row[label]) for label in metric.labels), value))
    return Reading(samples, max(len(rows) - limit, 0) * len(values))


def number(value: object) -> float | None:
    """Convert a value of a driver.

    It supports numbers, booleans, and times in seconds since 1970. NULL and text are None.
    """
    if isinstance(value, (bool, int, float, Decimal)):
        return float(value)
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, (str, bytes)):
        # MySQL's status variables are text.
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
