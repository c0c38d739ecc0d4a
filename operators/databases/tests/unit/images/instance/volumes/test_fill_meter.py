"""Rates of volumes: bursts predict seconds, five minutes predict an hour, and a day ignores outliers."""

from __future__ import annotations

import pytest

from steersman_instance.volumes.fill_meter import LEAST_LONG_SAMPLES, LONG_INTERVAL_SECONDS, FillMeter

GIB = 1 << 30
SIZE = 10 * GIB


def filled(percent_per_second: float, seconds: int, start: float = 50) -> tuple[FillMeter, int]:
    """A volume that was unchanged for ten minutes, then filled. Returns the available bytes, too."""
    meter, used = FillMeter(), int(start / 100 * SIZE)
    for second in range(600):
        meter.add(second, used)
    for second in range(seconds):
        used += int(percent_per_second / 100 * SIZE)
        meter.add(600 + second, used)
    return meter, SIZE - used


@pytest.mark.parametrize(
    ("percent_per_second", "seconds", "start", "is_urgent"),
    [
        (0, 100, 50, False),
        (2, 5, 50, True),  # 40 % are full in 20 s
        (2, 5, 10, True),  # within an hour
        (0.5, 1, 50, False),
        (0.5, 5, 90, True),  # full in 15 s
        (0.005, 10, 50, False),
        (0.005, 300, 50, False),  # full in 2.7 h
        (0.02, 300, 50, True),  # full in 40 min
        (-1, 30, 50, False),
    ],
)
def test_fill_rate_is_known_if_soon_full(
    percent_per_second: float, seconds: int, start: float, *, is_urgent: bool
) -> None:
    meter, available = filled(percent_per_second, seconds, start)
    assert (meter.fill_rate(available) is not None) is is_urgent


def test_fill_rate_of_two_percent_is_measured_in_five_seconds() -> None:
    meter, available = filled(2, 5, 60)
    assert meter.fill_rate(available) == pytest.approx(0.02 * SIZE, rel=0.01)


def test_fill_rate_ends_after_burst() -> None:
    meter, available = filled(1, 10, 50)
    assert meter.fill_rate(available) is not None
    for second in range(610, 920):
        meter.add(second, SIZE - available)
    assert meter.fill_rate(available) is None


def days(*used: int) -> float | None:
    meter = FillMeter()
    for number, each in enumerate(used):
        meter.add(number * LONG_INTERVAL_SECONDS, each)
    return meter.daily_growth()


def test_daily_growth_needs_an_hour() -> None:
    assert days(*range(LEAST_LONG_SAMPLES)) is None
    assert days(*range(LEAST_LONG_SAMPLES + 1)) is not None


def test_daily_growth_ignores_temporary_files_and_single_loads() -> None:
    steady = [number * GIB // 288 for number in range(288)]
    assert days(*steady) == pytest.approx(GIB, rel=0.01)
    spikes = [each + (5 * GIB if number % 20 == 0 else 0) for number, each in enumerate(steady)]
    assert days(*spikes) == pytest.approx(GIB, rel=0.05)
    loaded = [GIB if number < 280 else 6 * GIB for number in range(288)]
    assert days(*loaded) == 0


def test_daily_growth_forgets_what_is_older_than_a_day() -> None:
    grew = [number * GIB for number in range(200)]
    assert days(*grew, *[grew[-1]] * 288) == 0
