"""Model of the history that instances record."""

from __future__ import annotations

from datetime import datetime

from steersman.meta import FrozenStruct


class HistorySeries(FrozenStruct):
    """Values of a series, oldest first. None stands for a missing value."""

    name: str
    unit: str
    values: tuple[float | None, ...]


class RecordedHistory(FrozenStruct):
    """Points that an instance recorded. `end` is the time of the last one."""

    resolution_seconds: int
    end: datetime
    series: tuple[HistorySeries, ...]


class InstanceHistory(FrozenStruct):
    """An instance, and what it recorded."""

    instance: str
    history: RecordedHistory
