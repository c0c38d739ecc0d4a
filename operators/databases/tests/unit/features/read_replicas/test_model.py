"""The number of read replicas by load: windows, limits, and series of observations."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import pytest

from steersman.meta import Duration
from steersman_databases.api.read_replicas import (
    ReadReplicaReason,
    ReadReplicaSettings,
    ReadReplicasStatus,
    ReadReplicaStabilization,
    ReadReplicaTarget,
)
from steersman_databases.features.read_replicas.model import (
    Changes,
    ObservedLoad,
    ReadReplica,
    ReadReplicaReport,
    next_changes,
    next_status,
    observed_load,
)

WHOLE = os.environ.get("SIMULATE") == "whole"
SEEDS = range(50 if WHOLE else 12)
START = datetime(2030, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=10)
SETTINGS = ReadReplicaSettings(
    min=1,
    max=5,
    target=ReadReplicaTarget(connections=100),
    stabilization=ReadReplicaStabilization(scale_out=Duration("3m"), scale_in=Duration("30m")),
)


def load(*values: float, ready: Iterable[int] = ()) -> ObservedLoad:
    """Load of these read replicas, by default those from 0."""
    numbers = frozenset(ready) or frozenset(range(len(values)))
    return ObservedLoad(ready=numbers, values=values, target=100, unit=" connections")


def decide(
    desired: int, observed: ObservedLoad | None, *, since: timedelta | None = None, settling: bool = False
) -> tuple[int | None, ReadReplicaReason | None]:
    """Decide with a load that has lasted for a time."""
    began = None if since is None else START - since
    previous = ReadReplicasStatus(desired=desired, scale_out_since=began, scale_in_since=began)
    status = next_status(SETTINGS, previous, observed, settling=settling, now=START)
    return status.desired, status.reason


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("desired", "observed", "since", "settling", "expected"),
    [
        (1, load(100), None, False, (1, "AtTarget")),
        (1, load(101), None, False, (1, "Stabilizing")),
        (1, load(101), 2 * MINUTE, False, (1, "Stabilizing")),
        (1, load(101), 3 * MINUTE, False, (2, "ScaledOut")),
        (1, load(900), 3 * MINUTE, False, (2, "ScaledOut")),  # one at a time, however high
        (1, load(101), 3 * MINUTE, True, (1, "WaitingForCopy")),
        (5, load(*[200] * 5), 3 * MINUTE, False, (5, "AtMaximum")),
        (2, load(40, 40), 29 * MINUTE, False, (2, "Stabilizing")),
        (2, load(40, 40), 30 * MINUTE, False, (1, "ScaledDown")),
        (2, load(50, 50), 30 * MINUTE, False, (2, "AtTarget")),  # one alone would be at the target
        (2, load(40, ready=[1]), 30 * MINUTE, False, (2, "AtTarget")),  # the only ready one would be removed
        (2, load(40, ready=[0]), 30 * MINUTE, False, (1, "ScaledDown")),  # the one that is removed need not be ready
        (3, load(10, 10, ready=[0, 2]), 30 * MINUTE, False, (3, "AtTarget")),  # another one is not ready
        (2, load(95, ready=[0]), 30 * MINUTE, False, (2, "AtTarget")),
        (2, load(10, ready=(0, 1)), 30 * MINUTE, False, (2, "AtTarget")),  # the other counts as loaded
        (2, load(150, ready=(0, 1)), 30 * MINUTE, False, (2, "AtTarget")),  # and as idle
        (1, load(10), 30 * MINUTE, False, (1, "AtMinimum")),
        (2, load(ready=(0, 1)), 30 * MINUTE, False, (2, "LoadUnknown")),
        (2, load(), 30 * MINUTE, False, (2, "LoadUnknown")),
        (9, load(*[95] * 9), None, False, (5, "AtTarget")),
        (2, None, 30 * MINUTE, False, (2, "Fixed")),
    ],
)
def test_number_by_load_and_window(
    desired: int,
    observed: ObservedLoad | None,
    since: timedelta | None,
    settling: bool,
    expected: tuple[int, ReadReplicaReason],
) -> None:
    assert decide(desired, observed, since=since, settling=settling) == expected


def test_number_fixed_without_range() -> None:
    status = next_status(
        ReadReplicaSettings(min=3), ReadReplicasStatus(desired=1), load(900), settling=False, now=START
    )
    assert (status.desired, status.reason) == (3, "Fixed")


def test_message_stays_while_the_reason_does() -> None:
    previous = ReadReplicasStatus(desired=1)
    first = next_status(SETTINGS, previous, load(50), settling=False, now=START)
    assert next_status(SETTINGS, first, load(55), settling=False, now=START + STEP) == first
    assert first.message == "the average of 1 read replica is 50 connections, and the target is 100 connections"


def test_cpu_load_in_percent_of_the_request() -> None:
    settings = ReadReplicaSettings(min=1, max=2, target=ReadReplicaTarget(cpu_percent=70))
    report = ReadReplicaReport(state="Streaming", cpu_cores=0.2)
    replicas = [ReadReplica(number=0, ready=True, report=report), ReadReplica(number=1, report=report)]
    found = observed_load(settings, replicas, {"cpu": "250m"})
    assert found is not None and list(found.values) == [80.0]
    unknown = observed_load(settings, replicas, {"memory": "1Gi"})
    assert unknown is not None and not unknown.is_known
    assert "needs a CPU request" in unknown.description


class World:
    """Clients whose total load is given over time, and read replicas that take a while to be ready."""

    def __init__(self, total: Callable[[float], float], *, copy_minutes: float) -> None:
        self.total, self.copy = total, timedelta(minutes=copy_minutes)
        self.status = ReadReplicasStatus(desired=1)
        self.ready_at = [START]
        self.numbers = list[int]()

    def run(self, hours: float) -> None:
        now = START
        while now < START + timedelta(hours=hours):
            ready = sum(moment <= now for moment in self.ready_at)
            share = self.total((now - START) / timedelta(hours=1)) / max(ready, 1)
            before = self.status.desired or 0
            # The object is all that is remembered.
            self.status = next_status(
                SETTINGS, self.status, load(*[share] * ready), settling=ready < len(self.ready_at), now=now
            )
            desired = self.status.desired or 0
            assert abs(desired - before) <= 1
            assert SETTINGS.min <= desired <= SETTINGS.largest
            if desired > before:
                assert ready == len(self.ready_at), "a copy was running"
                self.ready_at.append(now + self.copy)
            elif desired < before:
                self.ready_at.pop()
            if not self.numbers or self.numbers[-1] != desired:
                self.numbers.append(desired)
            now += STEP


@pytest.mark.parametrize("seed", SEEDS)
def test_constant_load_settles_without_oscillation(seed: int) -> None:
    generator = random.Random(seed)
    total = generator.uniform(10, 600)
    world = World(lambda _hour: total, copy_minutes=generator.uniform(0, 20))
    world.run(12)
    assert world.numbers == sorted(world.numbers), f"load {total}: {world.numbers}"
    last = world.numbers[-1]
    assert total / last <= 100 or last == 5


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_around_the_target_changes_nothing(seed: int) -> None:
    generator = random.Random(seed)
    world = World(lambda _hour: generator.uniform(60, 118), copy_minutes=1)
    world.run(24)
    assert world.numbers == [1]


@pytest.mark.parametrize("seed", SEEDS)
def test_short_spike_changes_nothing(seed: int) -> None:
    generator = random.Random(seed)
    at, lasts = generator.uniform(1, 5), generator.uniform(10, 170) / 3600
    world = World(lambda hour: 1000 if at <= hour < at + lasts else 50, copy_minutes=1)
    world.run(6)
    assert world.numbers == [1]


@pytest.mark.parametrize("seed", SEEDS)
def test_day_and_night_change_once_each_way(seed: int) -> None:
    generator = random.Random(seed)
    day, night = generator.uniform(200, 500), generator.uniform(10, 80)
    world = World(lambda hour: day if 8 <= hour % 24 < 18 else night, copy_minutes=generator.uniform(0, 10))
    world.run(48)
    turns = sum(
        (a < b) != (b < c) for a, b, c in zip(world.numbers, world.numbers[1:], world.numbers[2:], strict=False)
    )
    assert turns == 3, world.numbers
    assert min(world.numbers) == 1


def replica(number: int, **changed: object) -> ReadReplica:
    return ReadReplica(**{"number": number, "ready": True, "age": timedelta(hours=1), **changed})  # type: ignore[arg-type]


COPYING = ReadReplicaReport(state="Copying")
NEW = timedelta(seconds=10)


@pytest.mark.parametrize(
    ("desired", "replicas", "expected"),
    [
        (2, [], Changes(create=0)),
        (2, [replica(0)], Changes(create=1)),
        (2, [replica(0, ready=False, age=NEW)], Changes()),
        (2, [replica(0, ready=False, report=COPYING)], Changes()),
        (2, [replica(0, ready=False)], Changes(create=1)),  # it is lost, and blocks no other
        (2, [replica(0), replica(1, exists=False)], Changes(create=1)),  # its volume is left
        (1, [replica(0), replica(1), replica(2)], Changes(remove=(1, 2))),
        (2, [replica(0, outdated=True), replica(1, outdated=True)], Changes(recreate=0)),
        (2, [replica(0), replica(1, outdated=True, ready=False)], Changes(recreate=1)),
        (2, [replica(0, outdated=True), replica(1, ready=False, age=NEW)], Changes()),
        (3, [replica(0, outdated=True), replica(1)], Changes(create=2)),
        (1, [replica(0, ready=False, unscheduled=timedelta(minutes=14))], Changes()),
        (1, [replica(0, ready=False, unscheduled=timedelta(minutes=15))], Changes(replace=0)),
    ],
)
def test_changes_one_at_a_time(desired: int, replicas: list[ReadReplica], expected: Changes) -> None:
    assert next_changes(desired, replicas) == expected


def test_changes_remove_after_the_number_is_stored() -> None:
    replicas = [replica(0), replica(1), replica(2, outdated=True)]
    assert next_changes(1, replicas, stored=2) == Changes(remove=(2,))
    assert next_changes(1, replicas, stored=1) == Changes(remove=(1, 2))
    assert next_changes(1, replicas[:2], stored=2) == Changes()
