"""History of a real server, with the clock of a test."""

from __future__ import annotations

from collections.abc import Mapping

from steersman_instance.metrics.exporter import Exporter
from steersman_instance.metrics.history.recorder import STEP_SECONDS, History
from steersman_instance.metrics.snapshot import Snapshot


class HistorySteps:
    """Collects from the server and records, as often as a test says."""

    def __init__(self, exporter: Exporter) -> None:
        self._now = 0.0
        self._collectors = exporter.groups[0].collectors
        self._session = exporter.groups[0].connect()
        self._snapshot = Snapshot(self._collectors, up={}, labels={}, clock=lambda: self._now)
        self._history = History(exporter.series, self._snapshot.readings, lambda: self._now)

    def record(self) -> Mapping[str, float | None]:
        """Record a point, and return it by series."""
        for one in self._collectors:
            self._snapshot.store(one.name, one.collect(self._session), 0)
        self._history.record()
        self._now += STEP_SECONDS
        return {one["name"]: one["values"][-1] for one in self._history.to_json("10s")["series"]}

    def close(self) -> None:
        """Close the session."""
        self._session.close()
