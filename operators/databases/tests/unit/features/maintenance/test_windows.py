"""Arithmetic of maintenance windows: days, midnight, time zones, daylight saving time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.meta import Duration
from steersman_databases.api.autopilot.maintenance import Day, MaintenanceSettings, MaintenanceWindow
from steersman_databases.core.time_zones import InvalidTimeZone
from steersman_databases.features.maintenance.windows import is_open, next_start, occurrences

MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def windows(start: str, duration: str, *days: Day, zone: str = "UTC") -> MaintenanceSettings:
    window = MaintenanceWindow(days=days, start=start, duration=Duration(duration))
    return MaintenanceSettings(windows=(window,), time_zone=zone)


def test_without_windows_none_is_open_or_next() -> None:
    assert not is_open(MaintenanceSettings(), at("2026-11-29T02:00"))
    assert next_start(MaintenanceSettings(), at("2026-11-29T02:00")) is None


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-11-29T01:59:59", False),
        ("2026-11-29T02:00", True),
        ("2026-11-29T03:59:59", True),
        ("2026-11-29T04:00", False),
        ("2026-11-30T02:30", False),
    ],
)
def test_window_includes_its_start_and_excludes_its_end(now: str, opens: bool) -> None:
    # 29 November 2026 is a Sunday.
    assert is_open(windows("02:00", "2h", "Sun"), at(now)) is opens


@pytest.mark.parametrize(
    ("now", "start"),
    [
        ("2026-11-29T01:59:59", "2026-11-29T02:00"),
        ("2026-11-29T02:00", "2026-12-06T02:00"),
        ("2026-11-30T00:00", "2026-12-06T02:00"),
    ],
)
def test_next_start_is_after_now(now: str, start: str) -> None:
    assert next_start(windows("02:00", "2h", "Sun"), at(now)) == at(start)


def test_window_without_days_is_daily() -> None:
    daily = windows("02:00", "1h")
    assert [next_start(daily, at(f"2026-11-{day}T12:00")) for day in (28, 29)] == [
        at("2026-11-29T02:00"),
        at("2026-11-30T02:00"),
    ]


def test_window_continues_after_midnight() -> None:
    saturday = windows("23:00", "4h", "Sat")
    assert is_open(saturday, at("2026-11-29T02:59"))
    assert not is_open(saturday, at("2026-11-29T03:00"))
    assert not is_open(saturday, at("2026-11-29T23:30"))


def test_day_is_that_of_the_time_zone() -> None:
    auckland = windows("02:00", "1h", "Mon", zone="Pacific/Auckland")
    assert next_start(auckland, at("2026-11-28T00:00")) == at("2026-11-29T13:00")
    assert is_open(auckland, at("2026-11-29T13:30"))


def test_skipped_start_is_later_by_the_gap() -> None:
    """Berlin skips 02:00 to 03:00 on 29 March 2026, a Sunday."""
    berlin = windows("02:30", "1h", "Sun", zone="Europe/Berlin")
    assert next_start(berlin, at("2026-03-28T00:00")) == at("2026-03-29T01:30")
    assert is_open(berlin, at("2026-03-29T02:29"))
    assert not is_open(berlin, at("2026-03-29T02:30"))


def test_repeated_start_counts_once() -> None:
    """Berlin has 02:00 to 03:00 twice on 25 October 2026, a Sunday."""
    berlin = windows("02:30", "1h", "Sun", zone="Europe/Berlin")
    assert next_start(berlin, at("2026-10-24T12:00")) == at("2026-10-25T00:30")
    assert is_open(berlin, at("2026-10-25T01:29"))
    assert not is_open(berlin, at("2026-10-25T01:30"))


def test_next_start_follows_a_day_that_was_skipped() -> None:
    """Samoa had no 30 December 2011, a Friday."""
    samoa = windows("12:00", "1h", "Fri", zone="Pacific/Apia")
    found = next_start(samoa, at("2011-12-24T00:00"))
    assert found is not None and found - at("2011-12-24T00:00") < timedelta(days=14)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "Europe", "../etc/passwd"])
def test_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidTimeZone, match="is not a time zone"):
        is_open(windows("02:00", "1h", zone=zone), at("2026-11-29T02:00"))


moments = st.datetimes(
    datetime(2020, 1, 1),
    datetime(2037, 12, 31),
    timezones=st.just(UTC),
)
settings = st.builds(
    MaintenanceSettings,
    windows=st.lists(
        st.builds(
            MaintenanceWindow,
            days=st.lists(st.sampled_from(get_args(Day)), unique=True, max_size=7).map(tuple),
            start=st.times().map(lambda time: f"{time:%H:%M}"),
            duration=st.integers(10, 24 * 60).map(lambda minutes: Duration(f"{minutes}m")),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    time_zone=st.sampled_from(
        ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kiritimati"]
    ),
)


@given(settings, moments)
def test_window_opens_at_next_start(declared: MaintenanceSettings, now: datetime) -> None:
    start = next_start(declared, now)
    assert start is not None and now < start <= now + timedelta(days=8)
    assert is_open(declared, start)


@given(settings, moments)
def test_window_is_closed_between_windows(declared: MaintenanceSettings, now: datetime) -> None:
    """A closed window opens at the next start and not before."""
    start = next_start(declared, now)
    assert start is not None
    if not is_open(declared, now):
        assert not is_open(declared, start - timedelta(microseconds=1))


@given(settings, moments)
def test_occurrences_have_their_declared_length(declared: MaintenanceSettings, now: datetime) -> None:
    lengths = {window.duration.timedelta for window in declared.windows}
    assert {times.end - times.start for times in occurrences(declared, now)} <= lengths
    assert all(times.start.tzinfo is UTC for times in occurrences(declared, now))
