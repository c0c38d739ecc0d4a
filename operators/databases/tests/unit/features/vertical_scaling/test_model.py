"""Decisions about CPU and memory, and the resources that follow."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict, Quantity
from steersman_databases.api.autopilot.automation import ComputeAmounts, VerticalScalingSettings
from steersman_databases.features.vertical_scaling.model import (
    QUIET_TIME,
    ScalingSituation,
    decide,
    needed_requests,
)
from steersman_databases.features.vertical_scaling.record import AppliedResources, UsageRecord
from steersman_databases.features.vertical_scaling.reports import HourlyUse
from steersman_databases.features.vertical_scaling.resources import (
    base_of,
    format_amount,
    requested,
    scaled,
)

NOW = datetime(2030, 1, 15, tzinfo=UTC)
MIB = 1 << 20


def amounts(cpu: str, memory: str) -> ComputeAmounts:
    return ComputeAmounts(cpu=Quantity(cpu), memory=Quantity(memory))


SETTINGS = VerticalScalingSettings(
    mode="Automatic", min_allowed=amounts("100m", "256Mi"), max_allowed=amounts("4", "8Gi")
)


def resources(requests: dict[str, str], limits: dict[str, str] | None = None) -> ResourceRequirements:
    return ResourceRequirements(requests=FrozenDict(requests), limits=FrozenDict(limits or {}))


def recorded(days: int = 8, cores: float = 0.5, memory: int = 700 * MIB, **fields: Any) -> UsageRecord:
    """A record of equal hours."""
    hours = [HourlyUse(hour=hour, cpu={cores: 60}, memory=memory) for hour in range(1, 24 * days + 1)]
    record = UsageRecord(primary="shop-0", primary_since=NOW - 2 * QUIET_TIME)
    return replace(record.with_hours(hours, before=1 << 30), **fields)


def situation(cpu: str = "500m", memory: str = "1Gi", **fields: Any) -> ScalingSituation:
    found = resources({"cpu": cpu, "memory": memory})
    return replace(ScalingSituation(mode="Automatic", resources=found, now=NOW), **fields)


def test_needed_requests_have_margins() -> None:
    needed = needed_requests(recorded(cores=1.0, memory=1000 * MIB), situation().resources)
    assert 1.15 <= needed["cpu"] <= 1.28
    assert 1300 * MIB <= needed["memory"] <= 1.05 * 1300 * MIB + 16 * MIB


def test_needed_memory_covers_a_single_peak_of_two_weeks() -> None:
    found = situation().resources
    record = recorded(days=2).with_hours([HourlyUse(hour=49, memory=4000 * MIB)], before=1 << 30)
    assert needed_requests(record, found)["memory"] >= 4000 * MIB * 1.3
    later = record.with_hours([HourlyUse(hour=h, memory=MIB) for h in range(50, 50 + 13 * 24)], before=1 << 30)
    assert needed_requests(later, found)["memory"] >= 4000 * MIB * 1.3
    forgotten = later.with_hours([HourlyUse(hour=h, memory=MIB) for h in range(400, 500)], before=1 << 30)
    assert needed_requests(forgotten, found)["memory"] < 1000 * MIB


@pytest.mark.parametrize(
    ("record", "now", "reason", "message"),
    [
        (recorded(days=0), situation(), "CollectingData", "a recommendation needs 1 day of recorded use"),
        (recorded(), situation("600m", "1Gi"), "Suitable", "the requests suit the recorded use"),
        (recorded(), situation("500m", "1Gi"), "Scaling", "CPU request from 500m to 630m"),
        (recorded(), situation("3", "1Gi"), "Scaling", "CPU request from 3000m to 630m"),
        (recorded(days=6), situation("3", "1Gi"), "Waiting", "needs 7 days of recorded use"),
        (recorded(days=1), situation("300m", "4Gi"), "Scaling", "CPU request from 300m to 630m"),
        (recorded(), situation(mode="Recommend"), "Recommended", "recommended: CPU request from 500m to 630m"),
        (recorded(cores=9), situation("4", "1Gi"), "AtMaxAllowed", "more than maxAllowed"),
        (recorded(cores=9), situation("2", "1Gi"), "Scaling", "CPU request from 2000m to 4000m"),
        (recorded(cores=0.01), situation("100m", "1Gi"), "Suitable", ""),
        (recorded(), situation(obstacle="the cluster is not Ready"), "Waiting", "the cluster is not Ready"),
        (recorded(), situation(waits_for_window=True), "Waiting", "no maintenance window is open"),
        (recorded(primary_since=NOW), situation(), "Waiting", "the primary changed in the last 24 hours"),
        (recorded(primary_since=None), situation(), "Waiting", "the primary changed"),
    ],
)  # fmt: skip
def test_decide_table(record: UsageRecord, now: ScalingSituation, reason: str, message: str) -> None:
    decision = decide(SETTINGS, record, now)
    assert decision.reason == reason
    assert message in decision.message
    assert (decision.requests is not None) == (reason == "Scaling")
    assert bool(decision.evidence) == (reason != "CollectingData")


@pytest.mark.parametrize("since", [timedelta(0), timedelta(hours=1), timedelta(hours=23, minutes=59)])
def test_decide_within_a_day_of_failover_changes_nothing(since: timedelta) -> None:
    decision = decide(SETTINGS, recorded(primary_since=NOW - since), situation())
    assert decision.requests is None
    assert decision.next_time == NOW - since + timedelta(hours=24)


def test_decide_a_day_after_failover_changes() -> None:
    assert decide(SETTINGS, recorded(primary_since=NOW - timedelta(hours=24)), situation()).requests is not None


def test_decide_change_of_resources_waits_a_day() -> None:
    applied = AppliedResources(requests={}, base="", at=NOW - timedelta(hours=1))
    decision = decide(SETTINGS, recorded(applied=applied), situation())
    assert "the resources changed in the last 24 hours" in decision.message
    assert decision.next_time == NOW + timedelta(hours=23)


def test_decide_keeps_requests_that_suit() -> None:
    decision = decide(SETTINGS, recorded(), situation("300m", "900Mi"))
    assert decision.requests == {"cpu": Quantity("630m").value, "memory": Quantity("900Mi").value}


def test_decide_evidence_names_its_days() -> None:
    evidence = decide(SETTINGS, recorded(days=9), situation()).evidence
    assert evidence.startswith("in 9 days: at most 0.5")
    assert "of memory" in evidence


def test_decide_undeclared_resource_is_left_alone() -> None:
    found = situation(resources=resources({"memory": "1Gi"}))
    assert decide(SETTINGS, recorded(cores=3), found).reason == "Suitable"


@pytest.mark.parametrize(
    ("declared", "requests", "limits"),
    [
        (resources({"cpu": "1", "memory": "1Gi"}), {"cpu": "2000m", "memory": "2048Mi"}, {}),
        (resources({"memory": "1Gi"}, {"memory": "2Gi"}), {"memory": "2048Mi"}, {"memory": "4096Mi"}),
        (resources({}, {"cpu": "1", "memory": "1Gi"}), {}, {"cpu": "2000m", "memory": "2048Mi"}),
        (resources({"memory": "512Mi"}, {"cpu": "3"}), {"memory": "2048Mi"}, {"cpu": "2000m"}),
        (resources({"cpu": "1", "hugepages-2Mi": "4Mi"}), {"cpu": "2000m", "hugepages-2Mi": "4Mi"}, {}),
        (resources({}), {}, {}),
    ],
)  # fmt: skip
def test_scaled_limits_keep_their_ratio(
    declared: ResourceRequirements, requests: dict[str, str], limits: dict[str, str]
) -> None:
    applied = AppliedResources(requests={"cpu": "2", "memory": "2Gi"}, base=base_of(declared), at=NOW)
    found = scaled(declared, applied, SETTINGS)
    assert (dict(found.requests), dict(found.limits)) == (requests, limits)


def test_scaled_changed_declaration_supersedes_record() -> None:
    declared = resources({"cpu": "1"})
    applied = AppliedResources(requests={"cpu": "2"}, base=base_of(resources({"cpu": "3"})), at=NOW)
    assert scaled(declared, applied, SETTINGS) is declared


def test_scaled_stays_within_present_bounds() -> None:
    declared = resources({"cpu": "1", "memory": "1Gi"})
    applied = AppliedResources(requests={"cpu": "9", "memory": "1Mi"}, base=base_of(declared), at=NOW)
    found = requested(scaled(declared, applied, SETTINGS))
    assert found == {"cpu": Quantity("4").value, "memory": Quantity("256Mi").value}


@pytest.mark.parametrize("cache", [0.0, 0.25, 0.55])
@pytest.mark.parametrize("ratio", [1, 2, 3])
@pytest.mark.parametrize("memory", [256, 1024, 16384])
def test_decide_cache_that_follows_limit_converges(cache: float, ratio: int, memory: int) -> None:
    """Each engine sizes its cache by the limit, which the recommendation follows in turn."""
    settings = VerticalScalingSettings(
        mode="Automatic", min_allowed=amounts("10m", "64Mi"), max_allowed=amounts("1", "1Ti")
    )
    found = resources({"memory": f"{memory}Mi"}, {"memory": f"{memory * ratio}Mi"})
    sizes, reason = [memory * ratio], ""
    for _ in range(30):
        limit = int(Quantity(str(found.limits["memory"])).value)
        record = recorded(memory=int(cache * limit) + 400 * MIB)
        decision = decide(settings, record, situation(resources=found))
        reason = decision.reason
        if decision.requests is None:
            break
        requests = {name: format_amount(name, amount) for name, amount in decision.requests.items()}
        found = scaled(found, AppliedResources(requests=requests, base=base_of(found), at=NOW), settings)
        sizes.append(int(Quantity(str(found.limits["memory"])).value) >> 20)
    assert reason == "Suitable"
    assert sizes in (sorted(sizes), sorted(sizes, reverse=True)), "it does not swing"
    assert len(sizes) <= 12
    assert 500 <= sizes[-1] <= 11000, "within the least change of the fixed point"
