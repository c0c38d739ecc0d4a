"""Lag, messages, CPU use and configuration of a read replica."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman_instance.paths import InstancePaths
from steersman_instance.read_replica.configuration import (
    Declaration,
    InvalidDeclaration,
    Upstream,
    is_below_primary,
    load,
    parameters,
)
from steersman_instance.read_replica.cpu import CpuMeter
from steersman_instance.read_replica.diagnosis import Diagnosis
from steersman_instance.read_replica.lag import LagTracker
from steersman_instance.read_replica.report import Report

REMOVED = (
    "could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 "
    "has already been removed"
)


def test_lag_is_unknown_before_streaming() -> None:
    lag = LagTracker()
    lag.observe(0, heard_at=None, known=None, replayed=5)
    assert lag.seconds(100) is None


def test_lag_of_an_idle_primary_is_zero() -> None:
    lag = LagTracker()
    for now in range(100):
        lag.observe(now, heard_at=now, known=10, replayed=10)
    assert lag.seconds(99) == 0


def test_lag_counts_from_the_first_wal_that_is_not_replayed() -> None:
    lag = LagTracker()
    for now in range(50):
        lag.observe(now, heard_at=now, known=100 + now, replayed=100)
    assert lag.seconds(49) == 49, "the first may be as old as the previous message"
    lag.observe(50, heard_at=50, known=150, replayed=140)
    assert lag.seconds(50) == 10
    lag.observe(51, heard_at=51, known=150, replayed=150)
    assert lag.seconds(51) == 0


def test_lag_grows_without_the_primary() -> None:
    lag = LagTracker()
    lag.observe(0, heard_at=0, known=10, replayed=10)
    lag.observe(30, heard_at=None, known=None, replayed=10)
    assert lag.seconds(30) == 30
    lag.observe(31, heard_at=31, known=10, replayed=10)
    assert lag.seconds(31) == 0


def test_lag_after_an_interruption_counts_from_its_start() -> None:
    lag = LagTracker()
    lag.observe(0, heard_at=0, known=10, replayed=10)
    lag.observe(7200, heard_at=None, known=None, replayed=10)
    lag.observe(7201, heard_at=7201, known=500, replayed=10)
    assert lag.seconds(7201) == 7201
    lag.observe(7202, heard_at=7202, known=510, replayed=499)
    assert lag.seconds(7202) == 7202
    lag.observe(7203, heard_at=7203, known=520, replayed=500)
    assert lag.seconds(7203) == 2, "everything that was written in the interruption is replayed"


def test_lag_after_a_restart_is_unknown_until_caught_up() -> None:
    lag = LagTracker()
    lag.observe(0, heard_at=0, known=500, replayed=10)
    assert lag.seconds(0) is None
    lag.observe(1, heard_at=1, known=510, replayed=499)
    assert lag.seconds(1) is None
    lag.observe(2, heard_at=2, known=520, replayed=500)
    assert lag.seconds(2) == 2
    lag.observe(3, heard_at=3, known=520, replayed=520)
    assert lag.seconds(3) == 0


def test_lag_counts_a_silent_primary_with_an_open_connection() -> None:
    lag = LagTracker()
    lag.observe(5, heard_at=0, known=10, replayed=10)
    assert lag.seconds(5) == 0, "an idle primary"
    lag.observe(9, heard_at=0, known=10, replayed=10)
    assert lag.seconds(9) == 9


def test_lag_remembers_a_bounded_number_of_samples() -> None:
    lag = LagTracker()
    for now in range(20000):
        lag.observe(now, heard_at=now, known=now, replayed=0)
    assert lag.seconds(19999) == 19999


@pytest.mark.parametrize(
    "line",
    [
        REMOVED,
        "FATAL:  requested starting point 0/5000000 on timeline 1 is not in this server's history",
        "LOG:  new timeline 2 forked off current database system timeline 1 before current recovery point 0/3000A28",
        "FATAL:  database system identifier differs between the primary and standby",
        "FATAL:  requested timeline 2 is not a child of this server's history",
        "FATAL:  highest timeline 1 of the primary is behind recovery timeline 2",
        'ERROR:  can no longer access replication slot "steersman_read_0"',
    ],
)
def test_diagnosis_is_confirmed_after_a_while(line: str) -> None:
    diagnosis = Diagnosis()
    diagnosis.read(line, 0)
    diagnosis.read(line, 14)
    assert not diagnosis.verdict
    diagnosis.read(line, 15)
    assert diagnosis.verdict in line


def test_diagnosis_forgets_when_it_streams() -> None:
    diagnosis = Diagnosis()
    diagnosis.read(REMOVED, 0)
    diagnosis.streams()
    diagnosis.read(REMOVED, 20)
    assert not diagnosis.verdict


@pytest.mark.parametrize(
    "line",
    [
        'FATAL:  could not start WAL streaming: ERROR:  replication slot "steersman_read_0" does not exist',
        "FATAL:  could not connect to the primary server: connection refused",
        "LOG:  started streaming WAL from primary at 0/3000000 on timeline 1",
    ],
)
def test_diagnosis_ignores_what_passes(line: str) -> None:
    diagnosis = Diagnosis()
    diagnosis.read(line, 0)
    diagnosis.read(line, 100)
    assert not diagnosis.verdict


def test_parameters_are_at_least_the_primarys() -> None:
    declaration = Declaration(host="orders-rw", parameters={"max_connections": "50", "work_mem": "5MB"})
    control = {"max_connections setting": "100", "max_wal_senders setting": "10"}
    assert parameters(declaration, control) == {"max_connections": "100", "max_wal_senders": "10", "work_mem": "5MB"}
    raised = Declaration(host="orders-rw", parameters={"max_connections": "200"})
    assert parameters(raised, control)["max_connections"] == "200"


def test_settings_below_the_primary_are_recognized() -> None:
    control = {"max_connections setting": "100", "wal_level setting": "replica"}
    assert is_below_primary({"max_connections": "50", "work_mem": "4096"}, control)
    assert not is_below_primary({"max_connections": "100", "work_mem": "4096"}, control)


def test_conninfo_quotes_values() -> None:
    upstream = Upstream(Declaration(host="it's"), InstancePaths(), "orders-read1-0")
    assert upstream.slot == "steersman_read_1"
    assert r"host='it\'s'" in upstream.conninfo()
    assert "application_name='orders-read1-0'" in upstream.conninfo()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"host": "a", "port": "x"}'])
def test_malformed_declaration_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "declaration.json"
    file.write_text(content)
    with pytest.raises(InvalidDeclaration):
        load(file)
    with pytest.raises(InvalidDeclaration):
        load(tmp_path / "missing")


def test_cpu_meter_averages_the_last_minute() -> None:
    used = iter([0.0, 30.0, 90.0, 90.0])
    meter = CpuMeter(read=lambda: next(used))
    meter.sample(0)
    assert meter.cores is None
    meter.sample(60)
    assert meter.cores == 0.5
    meter.sample(120)
    assert meter.cores == 1.0
    meter.sample(180)
    assert meter.cores == 0.0


@pytest.mark.parametrize(
    ("report", "ready"),
    [
        (Report(at=0, state="Streaming", lag_seconds=1, max_lag_seconds=1), True),
        (Report(at=0, state="Disconnected", lag_seconds=1, max_lag_seconds=1), True),
        (Report(at=0, state="Streaming", lag_seconds=1.1, max_lag_seconds=1), False),
        (Report(at=0, state="Streaming", max_lag_seconds=1), False),
        (Report(at=0, state="Copying", lag_seconds=0, max_lag_seconds=1), False),
        (Report(at=0, state="Stopping", lag_seconds=0, max_lag_seconds=1), False),
    ],
)
def test_report_is_ready_within_the_largest_lag(report: Report, ready: bool) -> None:
    assert report.ready is ready
