"""Growth of volumes: decisions about single observations, and about volumes that fill up."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from steersman.meta import Duration, Quantity
from steersman_databases.api.autopilot.automation import AutogrowSettings, limited_mode
from steersman_databases.features.storage.autogrow import GrowthDecision, decide, format_size, next_size
from steersman_databases.features.storage.usage import Growth, Volume, VolumeUsage

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MIB, GIB = 1 << 20, 1 << 30
SETTINGS = AutogrowSettings(max_size=Quantity("100Gi"))


def usage(percent: float, size: int = 10 * GIB, **more: object) -> VolumeUsage:
    """Use of a file system."""
    return replace(VolumeUsage(size=size, available=int(size * (1 - percent / 100))), **more)  # pyright: ignore[reportArgumentType]


def volume(found: VolumeUsage | None, *, size: int = 10 * GIB, growth: Growth | None = None) -> Volume:
    """A PVC that has what it requests."""
    return Volume(name="data-orders-0", requested=size, capacity=size, usage=found, growth=growth)


def grown(ago: timedelta, *, file_system: int = 8 * GIB, retained_by: str = "") -> Growth:
    """Record of a growth that is complete."""
    return Growth(at=NOW - ago, description="grew", file_system=file_system, retained_by=retained_by)


def decided(*volumes: Volume, settings: AutogrowSettings = SETTINGS, size: int = 10 * GIB) -> GrowthDecision:
    return decide(settings, volumes, NOW, size=size)


HOUR, DAY = timedelta(hours=1), 86400
FAST = 12 * MIB  # bytes a second
DAILY = GIB  # bytes a day


@pytest.mark.parametrize(
    ("found", "growth", "reason", "target"),
    [
        (None, None, "UsageUnknown", None),
        (usage(50), None, "Idle", None),
        (usage(79.9), None, "Idle", None),
        (usage(80), None, "Growing", "12Gi"),
        (usage(80), grown(HOUR), "CoolingDown", None),
        (usage(80), grown(6 * HOUR), "Growing", "12Gi"),
        (usage(94.9), grown(HOUR), "CoolingDown", None),
        (usage(95), grown(HOUR), "Growing", "12Gi"),
        (usage(100), grown(HOUR), "Growing", "13Gi"),  # 80 % of 12 GiB would be exceeded at once
        # Full within the hour, at a rate that needs more than 20 % in ten minutes.
        (usage(80, fill_rate=1 * MIB), grown(HOUR), "Growing", "12Gi"),
        (usage(85, fill_rate=FAST), grown(HOUR), "Growing", "18Gi"),
        (usage(50, fill_rate=FAST), None, "Idle", None),  # it grows at 80 %
        (usage(50, fill_rate=200 * MIB), None, "Growing", "20Gi"),  # full in 26 s
        # Forecast: 5 GiB are left for less than a week, or for more.
        (usage(50, daily_growth=DAILY), None, "Growing", "12Gi"),
        (usage(20, daily_growth=DAILY), None, "Idle", None),
        (usage(50, daily_growth=DAILY), grown(HOUR), "CoolingDown", None),
        (usage(50, daily_growth=-DAILY), None, "Idle", None),
        (usage(80, daily_growth=-DAILY), None, "Growing", "11Gi"),
        # The growth of an hour ago is not visible in the file system yet.
        (usage(99), grown(HOUR, file_system=10 * GIB), "ResizeIncomplete", None),
        (usage(99), grown(timedelta(seconds=3), file_system=10 * GIB), "Growing", None),
    ],
)
def test_decide_single_volume(
    found: VolumeUsage | None, growth: Growth | None, reason: str, target: str | None
) -> None:
    decision = decided(volume(found, growth=growth))
    assert decision.reason == reason
    assert (None if decision.grow_to is None else format_size(decision.grow_to)) == target


def test_decide_names_volume_and_evidence() -> None:
    decision = decided(volume(usage(85.5, fill_rate=FAST)))
    assert decision.message == "PVC data-orders-0 is 85 % used, full in 2 min at 12.0 MiB/s. Growing to 18Gi"
    waiting = decided(volume(usage(83), growth=grown(HOUR)))
    assert waiting.message == "PVC data-orders-0 is 83 % used. The cooldown ends at 2030-01-01 05:00 UTC"
    assert waiting.next_time == NOW + 5 * HOUR


def test_decide_at_max_size_is_reported() -> None:
    settings = AutogrowSettings(max_size=Quantity("10Gi"))
    decision = decided(volume(usage(99)), settings=settings)
    assert (decision.reason, decision.grow_to) == ("AtMaxSize", None)
    assert "autogrow.maxSize is 10Gi" in decision.message
    last = decided(volume(usage(99)), settings=AutogrowSettings(max_size=Quantity("10500Mi")))
    assert last.grow_to == 10500 * MIB


def test_decide_above_rate_limit_warns_and_grows() -> None:
    at_limit = decided(volume(usage(85, fill_rate=0.02 * 10 * GIB)))
    assert at_limit.reason == "Growing"
    decision = decided(volume(usage(85, fill_rate=0.03 * 10 * GIB)))
    assert (decision.reason, decision.grow_to) == ("FillsTooFast", 20 * GIB)
    assert "writes may be refused" in decision.message


def test_decide_lost_replica_does_not_block_growth() -> None:
    pending = Volume(name="data-orders-1", requested=10 * GIB, capacity=5 * GIB, usage=usage(99, 5 * GIB))
    decision = decided(pending, volume(usage(85)))
    assert (decision.reason, decision.grow_to) == ("Growing", 12 * GIB)
    waiting = decided(pending)
    assert (waiting.reason, waiting.grow_to) == ("Growing", None)


def test_decide_failed_resize_is_reported() -> None:
    failed = Volume(
        name="data-orders-0",
        requested=12 * GIB,
        capacity=10 * GIB,
        usage=usage(90),
        resize_error="the backend has no space",
    )
    decision = decided(failed, size=12 * GIB)
    assert decision.reason == "ResizeIncomplete"
    assert decision.message.endswith("PVC data-orders-0 failed: the backend has no space")


def test_decide_without_expansion_is_reported_in_time() -> None:
    for percent in (10, 99):
        found = decide(SETTINGS, [volume(usage(percent))], NOW, size=10 * GIB, not_expandable="class x refuses")
        assert (found.reason, found.message, found.grow_to) == ("NotExpandable", "class x refuses", None)


def test_decide_recommend_does_not_grow() -> None:
    found = decide(SETTINGS, [volume(usage(85))], NOW, size=10 * GIB, mode="Recommend")
    assert (found.reason, found.grow_to) == ("Recommended", None)
    assert found.message == "PVC data-orders-0 is 85 % used. Recommended size: 12Gi"


def test_decide_retained_wal_grows_once() -> None:
    held = usage(85, retained_by="replication slot x", retained="2.1 GiB WAL")
    first = decided(volume(held))
    assert (first.reason, first.grow_to) == ("WALRetained", 12 * GIB)
    assert "replication slot x retains 2.1 GiB WAL" in first.message
    later = 7 * HOUR
    again = decided(volume(held, growth=grown(later, retained_by="replication slot x")))
    assert (again.reason, again.grow_to) == ("WALRetained", None)
    other = decided(volume(held, growth=grown(later, retained_by="the archive")))
    assert other.grow_to == 12 * GIB
    nearly_full = replace(held, available=held.size // 50)
    emergency = decided(volume(nearly_full, growth=grown(later, retained_by="replication slot x")))
    assert (emergency.reason, emergency.grow_to) == ("WALRetained", 13 * GIB)


def test_limited_mode_is_the_lesser_one() -> None:
    assert limited_mode("Automatic", "Disabled") == "Disabled"
    assert limited_mode("Automatic", "Recommend") == "Recommend"
    assert limited_mode("Recommend", "Automatic") == "Recommend"
    assert limited_mode("Disabled", "Automatic") == "Disabled"


def test_next_size_is_bounded_for_any_input() -> None:
    draw = random.Random(7)
    for _ in range(5000):
        capacity = draw.randrange(64 * MIB, 20_000 * GIB)
        largest = draw.randrange(64 * MIB, 20_000 * GIB)
        settings = AutogrowSettings(
            max_size=Quantity(largest),
            at_percent=draw.randrange(50, 91),
            min_step=Quantity(draw.randrange(1, 100 * GIB)),
            cooldown=Duration(f"{draw.randrange(0, 169)}h"),
        )
        size = draw.randrange(capacity // 2, capacity + 1)
        found = VolumeUsage(
            size=size,
            available=draw.randrange(0, size + 1),
            fill_rate=draw.choice([None, draw.uniform(1, capacity)]),
            daily_growth=draw.choice([None, draw.uniform(-capacity, 10 * capacity)]),
        )
        result = next_size(settings, volume(found, size=capacity), found)
        assert result <= largest
        assert result == largest or result >= capacity + int(settings.min_step)
        doubled = 2 * capacity + int(settings.min_step) + GIB
        assert result <= doubled


@dataclass
class Filling:
    """A volume that fills up, its agent, its driver, and the operator, in steps of a second.

    Attributes:
        rate: bytes a second.
        resize_seconds: time of the driver for a resize.
        delay_seconds: from a measurement to the request.
    """

    rate: float
    settings: AutogrowSettings
    resize_seconds: int = 4
    delay_seconds: int = 2
    size: int = 10 * GIB
    used: float = 0.0
    growth: Growth | None = None
    requested: int = 0
    refused: int = 0
    times: list[int] = field(default_factory=list[int])
    emergencies: list[int] = field(default_factory=list[int])

    def run(self, seconds: int) -> None:
        self.requested = self.size
        history, ends = list[tuple[int, float]](), -1
        for second in range(seconds):
            self.used += self.rate
            if self.used > self.size:
                self.refused += 1
                self.used = self.size
            if second == ends:
                self.size = self.requested
            history.append((self.size, self.used))
            if second < self.delay_seconds:
                continue
            observed, (size, used) = second - self.delay_seconds, history[second - self.delay_seconds]
            now = NOW + timedelta(seconds=second)
            found = VolumeUsage(
                size=size, available=max(int(size - used), 0), fill_rate=self._rate(history, observed)
            )
            pvc = Volume(name="data", requested=self.requested, capacity=self.size, usage=found, growth=self.growth)
            target = decide(self.settings, [pvc], now, size=self.requested).grow_to
            if target is not None:
                self.times.append(second)
                if found.percent >= 95 or found.fill_rate is not None:
                    self.emergencies.append(second)
                self.growth = Growth(at=now, description="x", file_system=size)
                self.requested, ends = target, second + self.resize_seconds

    @staticmethod
    def _rate(history: list[tuple[int, float]], observed: int) -> float | None:
        """Return the rate as an agent measures it."""
        size, used = history[observed]
        rates = list[float]()
        for window, horizon in ((5, 30), (300, 3600)):
            rate = (used - history[max(observed - window, 0)][1]) / window
            if rate > 0 and (size - used) / rate <= horizon:
                rates.append(rate)
        return max(rates, default=None)


LARGE = Quantity("1000Ti")


@pytest.mark.parametrize("percent_per_second", [0.0001, 0.001, 0.01, 0.1, 0.5, 1, 2])
@pytest.mark.parametrize("start", [0, 40, 60, 79])
def test_filling_volume_refuses_no_write_up_to_two_percent(percent_per_second: float, start: int) -> None:
    filling = Filling(rate=percent_per_second / 100 * 10 * GIB, settings=AutogrowSettings(max_size=LARGE))
    filling.used = start / 100 * filling.size
    filling.run(2000 if percent_per_second > 0.01 else 20000)
    assert filling.refused == 0


@pytest.mark.parametrize("at_percent", [50, 70, 80, 85])
def test_filling_volume_grows_in_time_with_slow_driver(at_percent: int) -> None:
    """At 2 % a second, a volume grows as soon as it would be full in 30 s."""
    settings = AutogrowSettings(max_size=LARGE, at_percent=at_percent)
    filling = Filling(rate=0.02 * 10 * GIB, settings=settings, resize_seconds=20)
    filling.run(600)
    assert filling.refused == 0 and filling.times


def test_growth_outside_of_emergencies_keeps_the_cooldown() -> None:
    draw = random.Random(11)
    for _ in range(10):
        settings = AutogrowSettings(max_size=LARGE, min_step=Quantity("1Mi"), cooldown=Duration("1h"))
        filling = Filling(rate=draw.uniform(0.00001, 0.0003) * 10 * GIB, settings=settings)
        filling.run(15000)
        gaps = zip(filling.times, filling.times[1:], strict=False)
        assert all(later - earlier >= 3600 or later in filling.emergencies for earlier, later in gaps)
        assert filling.refused == 0


def test_full_volume_at_max_size_never_grows_beyond() -> None:
    settings = AutogrowSettings(max_size=Quantity("25Gi"))
    filling = Filling(rate=0.02 * 10 * GIB, settings=settings)
    filling.run(1000)
    assert filling.size == 25 * GIB and filling.refused > 0
