"""Exposition, limits and staleness of the exporter's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from steersman_instance.metrics.catalog import CollectFailed, Metric, Reading, Sample, SessionLost, counter
from steersman_instance.metrics.query import Query, number, samples_of
from steersman_instance.metrics.schedule import RECONNECT_SECONDS, CollectorThread
from steersman_instance.metrics.snapshot import Snapshot

ROWS = Metric("steersman_test_rows", "Rows.", ("table",))
COMMITS = counter("steersman_test_commits_total", "Commits.")
UP = Metric("steersman_test_up", "1 if it responds.")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Session:
    """A server that responds as the test says."""

    def __init__(self) -> None:
        self.result: Sequence[Mapping[str, object]] | Exception = ()
        self.queries: list[str] = []
        self.closed = 0

    def rows(self, sql: str) -> Sequence[Mapping[str, object]]:
        self.queries.append(sql)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def close(self) -> None:
        self.closed += 1


@dataclass
class Fixed:
    """A collector with fixed values."""

    name: str
    samples: Sequence[Sample]
    interval_seconds: float = 10.0
    metrics: Sequence[Metric] = (ROWS, COMMITS)

    def collect(self, session: Session) -> Reading:
        return Reading(self.samples)


def page(snapshot: Snapshot) -> dict[str, float]:
    """Values by series, as Prometheus parses them."""
    registry = CollectorRegistry()
    registry.register(snapshot)
    text = generate_latest(registry).decode()
    return {
        sample.name + "".join(f"/{value}" for key, value in sample.labels.items() if key != "dbcluster"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def snapshot_of(*collectors: Fixed | Query, clock: Clock, limit: int = 2000) -> Snapshot:
    return Snapshot(collectors, up={collectors[0].name: UP}, labels={"dbcluster": "orders"}, limit=limit, clock=clock)


def test_snapshot_fresh_values_are_served() -> None:
    clock = Clock()
    first = Fixed("first", [Sample(ROWS, ("a",), 3), Sample(COMMITS, (), 7)])
    snapshot = snapshot_of(first, clock=clock)
    snapshot.store("first", first.collect(Session()), 0.25)
    clock.now += 4
    found = page(snapshot)
    assert found["steersman_test_rows/a"] == 3
    assert found["steersman_test_commits_total"] == 7
    assert found["steersman_test_up"] == 1
    assert found["steersman_exporter_collector_success/first"] == 1
    assert found["steersman_exporter_collector_age_seconds/first"] == 4
    assert found["steersman_exporter_collector_duration_seconds/first"] == 0.25


def test_snapshot_values_stale_after_three_intervals() -> None:
    clock = Clock()
    first = Fixed("first", [Sample(ROWS, ("a",), 3)])
    snapshot = snapshot_of(first, clock=clock)
    snapshot.store("first", first.collect(Session()), 0)
    clock.now += 30
    assert "steersman_test_rows/a" in page(snapshot)
    clock.now += 1
    found = page(snapshot)
    assert "steersman_test_rows/a" not in found
    assert found["steersman_test_up"] == 0
    assert found["steersman_exporter_collector_success/first"] == 0
    assert found["steersman_exporter_collector_age_seconds/first"] == 31


def test_snapshot_before_first_run_is_down() -> None:
    found = page(snapshot_of(Fixed("first", []), clock=Clock()))
    assert found["steersman_test_up"] == 0
    assert found["steersman_exporter_collector_success/first"] == 0
    assert "steersman_exporter_collector_age_seconds/first" not in found


def test_snapshot_over_limit_drops_last_collector() -> None:
    clock = Clock()
    first = Fixed("first", [Sample(ROWS, (f"a{n}",), n) for n in range(3)])
    last = Fixed("last", [Sample(ROWS, (f"b{n}",), n) for n in range(3)])
    snapshot = snapshot_of(first, last, clock=clock, limit=4)
    # The order of the runs does not matter.
    for one in (last, first):
        snapshot.store(one.name, one.collect(Session()), 0)
    found = page(snapshot)
    assert {name for name in found if name.startswith("steersman_test_rows")} == {
        f"steersman_test_rows/{name}" for name in ("a0", "a1", "a2", "b0")
    }
    assert found["steersman_exporter_dropped_series"] == 2


def test_snapshot_duplicate_series_drops_one() -> None:
    clock = Clock()
    first = Fixed("first", [Sample(ROWS, ("a",), 1), Sample(ROWS, ("a",), 2)])
    snapshot = snapshot_of(first, clock=clock)
    snapshot.store("first", first.collect(Session()), 0)
    found = page(snapshot)
    assert found["steersman_test_rows/a"] == 1
    assert found["steersman_exporter_dropped_series"] == 1


def test_snapshot_labels_are_escaped() -> None:
    clock = Clock()
    name = 'my "table"\n\\x'
    first = Fixed("first", [Sample(ROWS, (name,), 1)])
    snapshot = snapshot_of(first, clock=clock)
    snapshot.store("first", first.collect(Session()), 0)
    assert page(snapshot)[f"steersman_test_rows/{name}"] == 1


def test_samples_row_limit_counts_dropped_series() -> None:
    rows = [{"table": f"t{n}", "rows": n} for n in range(5)]
    reading = samples_of(rows, {"rows": ROWS}, limit=3)
    assert [sample.labels for sample in reading.samples] == [("t0",), ("t1",), ("t2",)]
    assert reading.dropped == 2


def test_samples_null_value_has_no_series() -> None:
    assert samples_of([{"table": "a", "rows": None}], {"rows": ROWS}, 9).samples == []


@pytest.mark.parametrize(("value", "expected"), [(True, 1.0), ("12", 12.0), ("ON", None), (None, None)])
def test_number_converts_driver_values(value: object, expected: float | None) -> None:
    assert number(value) == expected


def test_metric_counter_without_total_is_refused() -> None:
    with pytest.raises(ValueError, match="_total"):
        Metric("steersman_test_commits", "Commits.", (), "counter")


QUERY = Query(name="query", sql="SELECT 1", values={"rows": ROWS}, interval_seconds=10)
SLOW = Query(name="slow", sql="SELECT 2", values={"rows": ROWS}, interval_seconds=25)


def test_thread_runs_collectors_at_their_intervals() -> None:
    clock, session = Clock(), Session()
    thread = CollectorThread(lambda: session, [QUERY, SLOW], snapshot_of(QUERY, SLOW, clock=clock), clock)
    delays: list[float] = []
    while clock.now < 150:
        delays.append(thread.run_due())
        clock.now += delays[-1]
    assert session.queries.count("SELECT 1") == 5
    assert session.queries.count("SELECT 2") == 2
    assert max(delays) <= 10


def test_thread_refused_query_keeps_session() -> None:
    clock, session = Clock(), Session()
    snapshot = snapshot_of(QUERY, SLOW, clock=clock)
    thread = CollectorThread(lambda: session, [QUERY, SLOW], snapshot, clock)
    session.result = CollectFailed("permission denied")
    thread.run_due()
    assert session.closed == 0
    found = page(snapshot)
    assert found["steersman_exporter_collector_failures_total/query"] == 1
    session.result = [{"table": "a", "rows": 1}]
    clock.now += 10
    thread.run_due()
    assert page(snapshot)["steersman_exporter_collector_success/query"] == 1


def test_thread_lost_session_reconnects_after_pause(capsys: pytest.CaptureFixture[str]) -> None:
    clock, session = Clock(), Session()
    attempts: list[float] = []

    def connect() -> Session:
        attempts.append(clock.now)
        if len(attempts) < 3:
            raise SessionLost("the server does not run")
        return session

    snapshot = snapshot_of(QUERY, SLOW, clock=clock)
    thread = CollectorThread(connect, [QUERY, SLOW], snapshot, clock)
    for _ in range(2):
        assert thread.run_due() == RECONNECT_SECONDS
        clock.now += 10
    assert page(snapshot)["steersman_test_up"] == 0
    # The message of a server that stays down is logged once for each collector.
    assert capsys.readouterr().err.count("the server does not run") <= 2
    thread.run_due()
    assert page(snapshot)["steersman_test_up"] == 1


def test_thread_session_lost_in_query_is_closed() -> None:
    clock, session = Clock(), Session()
    snapshot = snapshot_of(QUERY, clock=clock)
    thread = CollectorThread(lambda: session, [QUERY], snapshot, clock)
    thread.run_due()
    session.result = SessionLost("connection reset")
    clock.now += 10
    thread.run_due()
    assert session.closed == 1
    found = page(snapshot)
    assert found["steersman_test_up"] == 1, "values are served until they are stale"
    assert found["steersman_exporter_collector_success/query"] == 0
