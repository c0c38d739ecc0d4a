"""A restart that the spec does not ask for waits for the maintenance window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient

pytestmark = pytest.mark.xdist_group("maintenance")

PARAMETERS: dict[str, str] = SMALL_SPEC["postgresql"]["parameters"]


def later(**time: float) -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(**time)


def test_unrequested_restart_waits_and_begins_on_request(shared: NamespaceClient) -> None:
    start = later(hours=12)
    maintenance = {"windows": [{"start": f"{start:%H:%M}", "duration": "1h"}]}
    declared = {"parameters": {**PARAMETERS, "max_files_per_process": "900"}}
    spec = {**SMALL_SPEC, "instances": 2, "postgresql": declared, "maintenance": maintenance}
    orders = ClusterUnderTest(shared, name="maintained", spec=spec)
    orders.apply()
    orders.wait_ready()
    processes = orders.processes()
    orders.apply(postgresql={"parameters": PARAMETERS})
    orders.wait_reason("WaitingForWindow", "ParametersApplied")
    assert datetime.fromisoformat(orders.status["nextWindow"]) == start
    waiting = {one["instance"]: one["type"] for one in orders.status["pendingDisruptions"]}
    assert waiting == dict.fromkeys(processes, "Restart")
    orders.wait_ready()
    assert orders.processes() == processes and orders.server_values("max_files_per_process") == {"900"}
    orders.annotate("maintenance-until", f"{later(hours=1):%Y-%m-%dT%H:%M:%SZ}")
    orders.until("restarted", lambda: orders.server_values("max_files_per_process") == {"1000"}, 240)
    orders.wait_reason("Applied", "ParametersApplied")
    orders.wait_ready()
    assert not orders.status.get("pendingDisruptions")
