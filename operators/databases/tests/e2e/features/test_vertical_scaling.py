"""CPU and memory follow the recorded use of running servers, and nothing is restarted."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, EngineCommands
from steersman_databases.features.vertical_scaling.record import UsageRecord
from steersman_databases.features.vertical_scaling.reports import RESOURCE_USAGE, HourlyUse
from steersman_databases.features.vertical_scaling.stage import FILE_NAME

pytestmark = [pytest.mark.xdist_group("vertical-scaling"), pytest.mark.timeout(900)]

Record = Callable[[str, object], None]
MIB = 1 << 20
REQUESTS = {"cpu": "50m", "memory": "256Mi"}
LIMITS = {"memory": "768Mi"}


def scaling(mode: str) -> dict[str, Any]:
    """Settings that a small node bears."""
    return {
        "mode": mode,
        "minAllowed": {"cpu": "10m", "memory": "64Mi"},
        "maxAllowed": {"cpu": "100m", "memory": "320Mi"},
    }


def record_of_a_week(primary: str) -> str:
    """Use that needs more than `maxAllowed` of memory, by a cluster without a failover."""
    now = datetime.now(UTC)
    present = int(now.timestamp() // 3600)
    hours = [HourlyUse(hour=hour, cpu={0.06: 60}, memory=900 * MIB) for hour in range(present - 200, present)]
    record = UsageRecord(primary=primary, primary_since=now - timedelta(days=2))
    return record.with_hours(hours, present).to_json()


def entry(orders: ClusterUnderTest) -> dict[str, Any]:
    """Entry of the status."""
    found = [one for one in orders.status.get("automation", ()) if one["name"] == "Resources"]
    return found[0] if found else dict[str, Any]()


@EACH_ENGINE
def test_recorded_use_resizes_servers_without_restart(
    place: NamespaceClient, of: EngineCommands, record_property: Record
) -> None:
    resources = {"requests": REQUESTS, "limits": LIMITS}
    spec = {**of.small, "instances": 2, "resources": resources, "verticalScaling": scaling("Recommend")}
    orders = ClusterUnderTest(place, spec=spec, engine=of)
    orders.apply()
    orders.wait_ready()
    pods, processes = orders.pods(), orders.processes()
    orders.until("the primary is recorded", lambda: place.get("configmap", "orders-usage"), 60)
    place.patch("configmap", "orders-usage", {"data": {FILE_NAME: record_of_a_week(orders.primary)}})
    orders.wait_reason("Recommended", "VerticalScalingReady")
    record_property("recommendation", entry(orders))
    orders.apply(verticalScaling=scaling("Automatic"))
    orders.until("resized", lambda: len(place.events("orders", "PodResized")) == 2, 120)
    orders.wait_ready()
    orders.wait_reason("AtMaxAllowed", "VerticalScalingReady")
    assert (orders.pods(), orders.processes()) == (pods, processes), "a server was restarted"
    for instance in orders.nodes():
        server = orders.pod(instance)["spec"]["containers"][0]
        assert server["resources"] == {"requests": {"cpu": "80m", "memory": "320Mi"}, "limits": {"memory": "960Mi"}}
    assert orders.found["spec"]["resources"] == resources
    assert "in 8 days" in entry(orders)["lastAction"]
    assert place.events("orders", "ResourcesScaled")


@EACH_ENGINE
def test_servers_report_their_use(place: NamespaceClient, of: EngineCommands, record_property: Record) -> None:
    orders = ClusterUnderTest(place, spec={**of.small, "instances": 1}, engine=of)
    orders.apply()
    orders.wait_ready()

    def reported() -> dict[str, Any] | None:
        found = orders.pod(orders.primary)["metadata"].get("annotations", {}).get(RESOURCE_USAGE, "{}")
        return next(iter(json.loads(found).get("hours", ())), None)

    hour = orders.until("the use of the primary is reported", reported, 420)
    record_property("report", hour)
    assert 10 * MIB < hour["memory"] < 768 * MIB
    assert hour["disk"] > MIB
    assert all(0 <= float(cores) < 16 for cores in hour["cpu"])
