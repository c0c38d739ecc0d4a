"""Reports of the use of CPU, memory and disk by the server's container."""

from __future__ import annotations

import json
from typing import Any

from steersman_instance.resource_usage.meter import UsageMeter, UsageSample
from steersman_instance.resource_usage.report import UsageReporter

HOUR = 500_000
NOON = HOUR * 3600.0


def measured(*samples: tuple[float, float, int]) -> list[Any]:
    """Report after samples of seconds since noon, CPU seconds and bytes of memory."""
    meter = UsageMeter()
    for at, cpu, memory in samples:
        meter.add(UsageSample(at=NOON + at, cpu_seconds=cpu, memory=memory, disk=7))
    return list(meter.report())


def test_meter_minute_counts_average_cores() -> None:
    (hour,) = measured((0, 10, 5), (10, 10.1, 9), (60, 25, 3), (120, 25, 3), (180, 40, 3))
    assert hour == {"hour": HOUR, "cpu": {"0": 1, "0.25": 2}, "memory": 9, "disk": 7}


def test_meter_keeps_previous_hour() -> None:
    first, second = measured((0, 0, 5), (3590, 0, 8), (3600, 0, 2), (7199, 0, 3))
    assert (first["hour"], first["memory"], second["hour"], second["memory"]) == (HOUR, 8, HOUR + 1, 3)
    assert [hour["hour"] for hour in measured((0, 0, 5), (3600, 0, 2), (7200, 0, 3))] == [HOUR + 1, HOUR + 2]


def test_meter_changed_clock_counts_no_average() -> None:
    (hour,) = measured((60, 100, 5), (0, 200, 5), (50, 200, 5))
    assert hour["cpu"] == {}


def test_meter_unaccounted_values_are_left_out() -> None:
    meter = UsageMeter()
    for at in (0, 60, 120):
        meter.add(UsageSample(at=NOON + at))
    assert meter.report() == [{"hour": HOUR, "cpu": {}}]


def test_meter_report_of_busy_hours_is_small() -> None:
    meter = UsageMeter()
    for minute in range(120):
        meter.add(UsageSample(at=NOON + 60 * minute, cpu_seconds=60.0 * minute**3, memory=1 << 40, disk=1 << 50))
    assert len(json.dumps({"hours": meter.report()})) < 2000


def test_reporter_writes_each_five_minutes() -> None:
    written = list[str]()
    now = [NOON]
    reporter = UsageReporter(write=written.append, sample=lambda: UsageSample(at=now[0], memory=4))
    for _ in range(121):
        reporter.step()
        now[0] += 10
    assert len(written) == 4
    assert json.loads(written[-1])["hours"][0]["memory"] == 4
