"""History of an instance: ring, resolutions, rates, and what the exporter serves."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

import pytest

from steersman_instance.metrics.catalog import Metric, Reading, Sample, TimedSamples
from steersman_instance.metrics.exporter import Exporter, mysql_exporter, postgresql_exporter
from steersman_instance.metrics.history.recorder import History
from steersman_instance.metrics.history.ring import Ring, mean
from steersman_instance.metrics.history.sources import HitRatio, Level, Rate, Series, Used
from steersman_instance.metrics.snapshot import Snapshot
from steersman_instance.paths import PATHS

NAN = math.nan
NOON = 1_900_000_800.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Recorded:
    """A history with a level `a`, and the clock of a test."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.value: float | None = 0.0
        series = [Series("a", "count", Level(metrics=("a",)))]
        self.history = History(series, self._readings, self.clock, lambda: NOON + self.clock.now - 100)

    def _readings(self) -> Mapping[str, TimedSamples]:
        return {} if self.value is None else readings(self.clock.now, a={"": self.value})

    def record(self, *values: float | None) -> None:
        for value in values:
            self.value = value
            self.history.record()
            self.clock.now += 10

    def values(self, resolution: str) -> Sequence[float | None]:
        return self.history.to_json(resolution)["series"][0]["values"]


def readings(at: float, **metrics: Mapping[str, float]) -> Mapping[str, TimedSamples]:
    """Samples by metric and label."""
    return {
        name: TimedSamples(at, [Sample(Metric(name, "A."), (label,), value) for label, value in samples.items()])
        for name, samples in metrics.items()
    }


def test_ring_full_replaces_oldest_point() -> None:
    ring = Ring(2, 3)
    assert ring.last(0, 9) == []
    for number in range(5):
        ring.append([number, -number])
    assert (ring.last(0, 9), ring.last(1, 2), ring.count) == ([2, 3, 4], [-3, -4], 5)


def test_mean_leaves_missing_values_out() -> None:
    assert mean([NAN, 1, 3]) == 2
    assert math.isnan(mean([NAN, NAN])) and math.isnan(mean([]))


def test_history_missing_value_is_null() -> None:
    recorded = Recorded()
    recorded.record(1, None, 3)
    assert recorded.values("10s") == [1, None, 3]


def test_history_coarse_points_are_means_of_fine_ones() -> None:
    recorded = Recorded()
    recorded.record(*[1.0] * 15, *[3.0] * 15, *[None] * 20, *[7.0] * 10, *[9.0] * 29)
    assert recorded.values("5m") == [2, 7]


def test_history_points_have_wall_time() -> None:
    recorded = Recorded()
    recorded.record(*[1.0] * 31)
    recorded.clock.now += 4
    assert recorded.history.to_json("10s")["end"] == "2030-03-17T18:05:00Z"
    assert recorded.history.to_json("5m")["end"] == "2030-03-17T18:04:50Z"


def test_history_missed_steps_have_no_values() -> None:
    recorded = Recorded()
    recorded.record(1)
    recorded.clock.now += 20
    recorded.record(2)
    assert recorded.values("10s") == [1, None, None, 2]


def test_history_early_wake_records_no_point() -> None:
    recorded = Recorded()
    recorded.record(1)
    recorded.clock.now -= 0.001
    recorded.history.record()
    assert recorded.values("10s") == [1]


def test_history_keeps_an_hour_and_a_day() -> None:
    recorded = Recorded()
    recorded.record(*[1.0] * 9000)
    assert (len(recorded.values("10s")), len(recorded.values("5m"))) == (360, 288)


def test_history_failure_is_logged_once_and_recorded_later(capsys: pytest.CaptureFixture[str]) -> None:
    clock, attempts = Clock(), list[int]()

    def fail() -> Mapping[str, TimedSamples]:
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError("broken")
        return readings(clock.now, a={"": 5})

    history = History([Series("a", "count", Level(metrics=("a",)))], fail, clock)
    history.run(Stop(4, clock))
    assert history.to_json("10s")["series"][0]["values"] == [None, None, 5, 5]
    assert capsys.readouterr().err.count("broken") == 1


class Stop(threading.Event):
    """Set after some waits, which only advance the clock."""

    def __init__(self, waits: int, clock: Clock) -> None:
        super().__init__()
        self._waits = waits
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0
        self._waits -= 1
        if self._waits == 0:
            self.set()
        return self.is_set()


def rates(*states: Mapping[str, TimedSamples]) -> list[float | None]:
    rate = Rate(metrics=("a", "b"))
    return [None if math.isnan(value) else value for value in map(rate.value, states)]


def test_rate_sums_counters_and_labels() -> None:
    first = readings(0, a={"x": 5, "y": 0}, b={"x": 100})
    second = readings(10, a={"x": 15, "y": 20}, b={"x": 120})
    assert rates(first, second) == [None, 5]


def test_rate_between_runs_of_collector_stays() -> None:
    first, second, third = (readings(at, a={"": value}) for at, value in ((0, 0), (15, 30), (30, 30)))
    assert rates(first, second, second, third) == [None, 2, 2, 0]


def test_rate_after_reset_is_missing_once() -> None:
    states = [readings(at, a={"": value}) for at, value in ((0, 900), (10, 4), (20, 24))]
    assert rates(*states) == [None, None, 2]


def test_rate_of_dropped_or_new_label_is_not_counted() -> None:
    states = [readings(0, a={"x": 5, "old": 9000}), readings(10, a={"x": 15, "new": 7000})]
    assert rates(*states) == [None, 1]


def test_rate_after_gap_starts_again() -> None:
    nothing: Mapping[str, TimedSamples] = {}
    states = [readings(0, a={"": 5}), nothing, readings(600, a={"": 9000}), readings(610, a={"": 9010})]
    assert rates(*states) == [None, None, None, 1]


def test_hit_ratio_without_requests_is_missing() -> None:
    ratio = HitRatio(misses=Rate(metrics=("miss",)), requests=Rate(metrics=("miss", "hit")))
    counts = [(0, 0, 0), (10, 1, 3), (20, 1, 3)]
    found = [ratio.value(readings(at, miss={"": misses}, hit={"": hits})) for at, misses, hits in counts]
    assert found[1] == 0.75 and math.isnan(found[0]) and math.isnan(found[2])


def test_level_selects_labels_and_combines() -> None:
    state = readings(0, a={"x": 1, "y": 2, "z": 4})
    assert Level(metrics=("a",), label=("x", "z")).value(state) == 5
    assert Level(metrics=("a", "absent"), combine="max").value(state) == 4
    assert math.isnan(Level(metrics=("absent",)).value(state))


def test_used_volume_is_size_without_available() -> None:
    state = readings(
        0, steersman_volume_size_bytes={"data": 9, "wal": 5}, steersman_volume_available_bytes={"data": 2}
    )
    assert Used(volume="data").value(state) == 7
    assert math.isnan(Used(volume="wal").value(state))


EXPORTERS = {"postgresql": postgresql_exporter(170000, PATHS), "mysql": mysql_exporter(PATHS)}


@pytest.mark.parametrize("exporter", EXPORTERS.values(), ids=EXPORTERS.keys())
def test_series_derive_from_exported_metrics(exporter: Exporter) -> None:
    """Each has a value two steps after all metrics have one."""
    clock = Clock()
    snapshot = exporter.snapshot({})
    history = History(exporter.series, snapshot.readings, clock)
    labels = {"steersman_volume_size_bytes": "data", "steersman_volume_available_bytes": "data"}
    for total in (1.0, 2.0):
        for group in exporter.groups:
            for one in group.collectors:
                samples = [
                    Sample(metric, (labels.get(metric.name, label), *metric.labels[1:])[: len(metric.labels)], total)
                    for metric in one.metrics
                    for label in ("active", "idle in transaction")
                ]
                snapshot.store(one.name, Reading(samples), 0)
        history.record()
        clock.now += 10
    assert {
        one["name"]: one["values"][1] for one in history.to_json("10s")["series"] if one["values"][1] is None
    } == {}


@pytest.mark.parametrize("exporter", EXPORTERS.values(), ids=EXPORTERS.keys())
def test_series_names_are_unique_and_fit_in_memory(exporter: Exporter) -> None:
    names = [one.name for one in exporter.series]
    assert len(names) == len(set(names))
    assert len(names) * (360 + 288) * 4 <= 1 << 20


def test_snapshot_readings_are_fresh_ones() -> None:
    clock = Clock()
    exporter = postgresql_exporter(170000, PATHS)
    collectors = [one for group in exporter.groups for one in group.collectors]
    snapshot = Snapshot(collectors, up={}, labels={}, clock=clock)
    metric = collectors[0].metrics[0]
    snapshot.store(collectors[0].name, Reading([Sample(metric, (), 3)]), 0)
    assert snapshot.readings() == {metric.name: TimedSamples(100, [Sample(metric, (), 3)])}
    clock.now += 31
    assert snapshot.readings() == {}
