"""Histograms of use, and their record."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman.api.core_v1 import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from steersman.meta import FrozenDict, ObjectMeta
from steersman_databases.features.vertical_scaling.histogram import HALF_LIFE_HOURS, Histogram, Scale
from steersman_databases.features.vertical_scaling.record import (
    CPU_SCALE,
    DISK_SCALE,
    LIMIT_BYTES,
    MEMORY_SCALE,
    MOST_HOURS,
    AppliedResources,
    UsageRecord,
    parse_record,
)
from steersman_databases.features.vertical_scaling.reports import (
    RESOURCE_USAGE,
    HourlyUse,
    out_of_memory,
    reported_hours,
)

SCALE = Scale(1.0, 2.0, 8)
NOW = datetime(2030, 1, 1, 12, 30, tzinfo=UTC)
NOON = int(NOW.timestamp() // 3600)
GIB = 1 << 30


def use(hour: int, cores: float = 0.5, memory: float = GIB, disk: float = GIB) -> HourlyUse:
    return HourlyUse(hour=hour, cpu={cores: 60}, memory=memory, disk=disk)


def histogram(*values: float) -> Histogram:
    found = Histogram(SCALE)
    for value in values:
        found = found.with_sample(value)
    return found


@pytest.mark.parametrize(
    ("value", "bucket"), [(0, 0), (1, 0), (1.01, 1), (2, 1), (4, 2), (4.1, 3), (128, 7), (1e9, 7)]
)
def test_scale_value_is_in_bucket_of_next_bound(value: float, bucket: int) -> None:
    assert SCALE.bucket(value) == bucket
    assert SCALE.bucket(SCALE.bound(bucket)) == bucket


@pytest.mark.parametrize("scale", [CPU_SCALE, MEMORY_SCALE, DISK_SCALE])
def test_scale_bounds_are_in_their_own_buckets(scale: Scale) -> None:
    assert [scale.bucket(scale.bound(bucket)) for bucket in range(scale.buckets)] == list(range(scale.buckets))


@pytest.mark.parametrize(
    ("values", "part", "bound"),
    [
        ((), 0.5, None),
        ((1, 2, 4, 8), 0.5, 2),
        ((1, 2, 4, 8), 0.75, 4),
        ((1, 8), 0.95, 8),
        ((1,) * 19 + (8,), 0.95, 1),
    ],
)
def test_percentile_covers_part_of_samples(values: tuple[float, ...], part: float, bound: float | None) -> None:
    assert histogram(*values).percentile(part) == bound


def test_sample_loses_half_of_its_weight_in_a_week() -> None:
    later = histogram(8).decayed(HALF_LIFE_HOURS).with_sample(2)
    assert later.weights == {3: 0.5, 1: 1.0}
    assert (later.highest(1), later.highest(0.5)) == (8, 2)


def test_weights_decay_through_their_stored_form() -> None:
    found = histogram(8)
    for _ in range(50 * 24):
        found = Histogram(SCALE, {int(b): w for b, w in found.decayed(1).to_json().items()})
    assert not found.weights


def test_record_counts_each_hour_once() -> None:
    record = UsageRecord().with_hours([use(10), use(11), use(12)], before=12)
    assert (record.hour, record.hours) == (11, 2)
    assert record.with_hours([use(10), use(11)], before=12) == record


def test_record_takes_busiest_server() -> None:
    reports = [use(10, cores=0.2, memory=3 * GIB), use(10, cores=2.0, memory=GIB, disk=5 * GIB)]
    record = UsageRecord().with_hours(reports, before=11)
    assert record.cpu.percentile(1.0) == pytest.approx(2.0, rel=0.1)
    assert record.memory.highest(2) == pytest.approx(3 * GIB, rel=0.05)
    assert record.disk.highest(2) == pytest.approx(5 * GIB, rel=0.1)


def test_record_missing_hours_count_against_its_days() -> None:
    record = UsageRecord().with_hours([use(hour) for hour in range(1, 49)], before=100)
    assert (record.hours, record.days) == (48, 2)
    assert record.with_hours([use(72)], before=100).hours == 26
    assert record.with_hours([use(1000)], before=1001).hours == 1


def test_record_hours_are_limited() -> None:
    record = UsageRecord().with_hours([use(hour) for hour in range(1, MOST_HOURS + 100)], before=10000)
    assert record.hours == MOST_HOURS


def test_stored_record_is_restored() -> None:
    applied = AppliedResources(requests={"cpu": "2"}, base="abc", at=NOW, description="why")
    record = UsageRecord(primary="shop-0", primary_since=NOW, applied=applied).with_hours([use(5)], before=6)
    restored = parse_record(record.to_json())
    assert restored == record


def test_full_record_fits_the_limit() -> None:
    def full(scale: Scale) -> Histogram:
        return Histogram(scale, dict.fromkeys(range(scale.buckets), 123.456789))

    applied = AppliedResources(
        requests={"cpu": "9" * 32, "memory": "9" * 32}, base="f" * 64, at=NOW, description="x" * 1024
    )
    record = UsageRecord(
        hour=999_999,
        hours=MOST_HOURS,
        cpu=full(CPU_SCALE),
        memory=full(MEMORY_SCALE),
        disk=full(DISK_SCALE),
        primary="x" * 52,
        primary_since=NOW,
        applied=applied,
    )
    assert len(record.to_json()) < LIMIT_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"hour": "x"}',
        '{"hours": -1}',
        '{"cpu": {"a": 1}}',
        '{"cpu": {"1": -1}}',
        '{"hour": 1, "padding": "' + "x" * LIMIT_BYTES + '"}',
        "[" * 5000,
    ],
)
def test_malformed_record_is_empty(text: str) -> None:
    assert parse_record(text) == UsageRecord()


def test_record_ignores_unknown_buckets() -> None:
    assert parse_record('{"hour": 5, "cpu": {"-1": 1, "3": 2, "9999": 1}}').cpu.weights == {3: 2}


def test_primary_without_change_keeps_its_time() -> None:
    record = UsageRecord().with_primary("shop-0", NOW).with_primary("", NOW)
    later = record.with_primary("shop-0", NOW + timedelta(hours=1))
    assert (later.primary, later.primary_since) == ("shop-0", NOW)
    assert later.with_primary("shop-1", NOW + timedelta(hours=2)).primary_since == NOW + timedelta(hours=2)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ({"hours": [{"hour": 7, "cpu": {"0.5": 60}, "memory": 5}]}, [HourlyUse(hour=7, cpu={0.5: 60}, memory=5)]),
        ({"hours": [{"hour": 7, "disk": 6}, {"hour": 8}]}, [HourlyUse(hour=7, disk=6), HourlyUse(hour=8)]),
        ({"hours": [{"hour": 7}]}, [HourlyUse(hour=7)]),
        ({"hours": [{"hour": True}, {"hour": -1}, {"hour": "7"}, 5, None]}, []),
        ({"hours": [{"hour": 7, "cpu": {"x": 1, "nan": 1, "inf": 1, "1": -1, "2": "3"}}]}, [HourlyUse(hour=7)]),
        ({"hours": [{"hour": 7, "cpu": {"1": 1e9}}]}, [HourlyUse(hour=7, cpu={1.0: 60})]),
        ({"hours": 5}, []),
        ([], []),
        ("x" * 9000, []),
    ],
)  # fmt: skip
def test_reported_hours_ignore_malformed_values(annotation: Any, expected: list[HourlyUse]) -> None:
    metadata = ObjectMeta(name="shop-0-0", annotations=FrozenDict({RESOURCE_USAGE: json.dumps(annotation)}))
    assert list(reported_hours(Pod(metadata=metadata))) == expected


@pytest.mark.parametrize(
    ("reason", "limits", "expected"),
    [
        ("OOMKilled", {"memory": "2Gi"}, [HourlyUse(hour=NOON, memory=2 * GIB)]),
        ("OOMKilled", {"cpu": "1"}, []),
        ("Error", {"memory": "2Gi"}, []),
    ],
)
def test_out_of_memory_counts_as_use_of_limit(reason: str, limits: dict[str, str], expected: list[HourlyUse]) -> None:
    ended = ContainerStateTerminated(reason=reason, exit_code=137, finished_at=NOW)
    status = ContainerStatus(name="server", last_state=ContainerState(terminated=ended))
    server = Container(name="server", resources=ResourceRequirements(limits=FrozenDict(limits)))
    pod = Pod(spec=PodSpec(containers=(server,)), status=PodStatus(container_statuses=(status,)))
    assert list(out_of_memory(pod)) == expected
