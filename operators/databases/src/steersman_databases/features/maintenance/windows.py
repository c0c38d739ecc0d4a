"""Arithmetic of maintenance windows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

from steersman_databases.api.autopilot.maintenance import Day, MaintenanceSettings, MaintenanceWindow
from steersman_databases.core.time_zones import load_time_zone

_DAYS = get_args(Day)
# A window lasts at most 24 hours, and a local date differs from that of UTC by at most one day.
_DAYS_BACK = 2
# A time zone may skip a day that the only window of the week is on.
_DAYS_AHEAD = 15


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """One occurrence of a window, in UTC. ``end`` is the first moment after it."""

    start: datetime
    end: datetime


def is_open(settings: MaintenanceSettings, now: datetime) -> bool:
    """Return True if ``now`` is in a window.

    Raises:
        InvalidTimeZone: ``timeZone`` is not known.
    """
    return any(times.start <= now < times.end for times in occurrences(settings, now))


def next_start(settings: MaintenanceSettings, now: datetime) -> datetime | None:
    """Start of the first window after ``now``, in UTC. None without windows.

    Raises:
        InvalidTimeZone: ``timeZone`` is not known.
    """
    return min((times.start for times in occurrences(settings, now) if times.start > now), default=None)


def occurrences(settings: MaintenanceSettings, now: datetime) -> Iterator[WindowTimes]:
    """Yield the open windows and those of the next two weeks.

    Raises:
        InvalidTimeZone: ``timeZone`` is not known.
    """
    zone = load_time_zone(settings.time_zone)
    today = now.astimezone(zone).date()
    for offset in range(-_DAYS_BACK, _DAYS_AHEAD + 1):
        day = today + timedelta(days=offset)
        for window in settings.windows:
            if not window.days or _DAYS[day.weekday()] in window.days:
                start = _start(window, day, zone)
                yield WindowTimes(start, start + window.duration.timedelta)


def _start(window: MaintenanceWindow, day: date, zone: ZoneInfo) -> datetime:
    hour, minute = map(int, window.start.split(":"))
    # fold=0: the first of two occurrences, and a skipped time with the offset before the change. Source: PEP 495.
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).astimezone(UTC)
