"""Scenarios 7 and 8: parameters are taken at once, with a restart, in the safe order, or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient, writing
from devcluster.errors import CommandFailed

pytestmark = pytest.mark.xdist_group("cluster-parameters")

HEALED_WITHIN = 30.0
PARAMETERS: dict[str, str] = SMALL_SPEC["postgresql"]["parameters"]


def declare(cluster: ClusterUnderTest, **parameters: str) -> None:
    cluster.apply(postgresql={"parameters": {**PARAMETERS, **parameters}})


def applied(cluster: ClusterUnderTest) -> None:
    """Waits until this declaration's parameters are said to be there, and all is well."""
    cluster.wait_ready()

    def said() -> bool:
        found = cluster.found
        condition = cluster.namespace_client.condition("postgresqlcluster", cluster.name, "ParametersApplied")
        return condition["reason"] == "Applied" and condition["observedGeneration"] == found["metadata"]["generation"]

    cluster.until("parameters are applied", said)


def test_reloadable_parameter_applies_without_restart(three: ClusterUnderTest) -> None:
    """Scenario 7, reload."""
    before, started = three.pods(), three.sql("SELECT pg_postmaster_start_time()")
    declare(three, work_mem="5MB")
    three.until("all servers have it", lambda: three.server_values("work_mem") == {"5MB"}, 60)
    applied(three)
    # And what is declared no more is the server's default again.
    declare(three)
    three.until("none has it", lambda: three.server_values("work_mem") == {"4MB"}, 60)
    applied(three)
    assert three.pods() == before
    assert three.sql("SELECT pg_postmaster_start_time()") == started


def restarted(three: ClusterUnderTest, value: str, record: Callable[[str, object], None]) -> dict[str, float]:
    """Declares another ``max_connections`` while somebody writes; gives when each server was started."""
    before = three.pods()
    with writing(three, "shop-app") as seen:
        declare(three, max_connections=value)
        three.until("all servers have it", lambda: three.server_values("max_connections") == {value}, 240)
        applied(three)
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
        record(f"longest gap in writes when it becomes {value}, in seconds", round(seen.longest_gap, 2))
    assert three.pods() == before, "servers restart, pods do not"
    moment = "SELECT extract(epoch FROM pg_postmaster_start_time())"
    return {each: float(three.sql(moment, instance=each)) for each in three.nodes()}


def test_restart_parameter_raised_restarts_in_order(
    three: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    """Scenario 7, restart: replicas first, then the primary hands over, and restarts as the last."""
    former, replicas, timeline = three.primary, three.replicas, three.status["timeline"]
    started = restarted(three, "60", record_property)
    assert max(started[each] for each in replicas) < started[former]
    assert three.primary in replicas and three.status["timeline"] == timeline + 1, "one switchover"


def test_standby_sensitive_parameter_lowered_restarts_in_order(
    three: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    """Scenario 8: the primary restarts first, where it is. Replicas have seen that it needs less when they do."""
    primary, replicas, timeline = three.primary, three.replicas, three.status["timeline"]
    started = restarted(three, "40", record_property)
    assert started[primary] < min(started[each] for each in replicas)
    assert (three.primary, three.status["timeline"]) == (primary, timeline), "nobody took over"


def test_parameters_lowered_and_raised_together_apply(three: ClusterUnderTest) -> None:
    """Each replica starts for what is raised, then the primary with both, then each replica with what is lowered."""
    primary, begun = three.primary, {each: three.execute(each, "date", "+%s").strip() for each in three.nodes()}
    declare(three, max_connections="38", max_worker_processes="12")
    three.until("all servers have the lower one", lambda: three.server_values("max_connections") == {"38"}, 240)
    applied(three)
    assert three.server_values("max_worker_processes") == {"12"}
    assert three.primary == primary
    for each, since in begun.items():
        moment = datetime.fromtimestamp(int(since), UTC).isoformat()
        said = three.namespace_client.kubectl("logs", f"{each}-0", "--container=server", f"--since-time={moment}")
        assert "insufficient parameter settings" not in said, f"{each} paused"
    declare(three, max_connections="40")
    three.until("all servers are as before", lambda: three.server_values("max_worker_processes") == {"8"}, 240)
    applied(three)


@pytest.mark.parametrize(
    ("name", "value"),
    [("wrok_mem", "5MB"), ("work_mem", "a lot"), ("huge_pages", "on"), ("max_connections", "-1")],
    ids=["misspelt", "no-size", "does-not-start", "out-of-bounds"],
)
def test_invalid_parameter_is_reported(three: ClusterUnderTest, name: str, value: str) -> None:
    """Scenario 7, refused."""
    uptime = three.sql("SELECT pg_postmaster_start_time()")
    declare(three, **{name: value})
    said = three.wait_reason("ParameterRejected", "ParametersApplied", 180)
    assert name in said["message"]
    three.wait_degraded("ParametersApplied: ")
    declare(three)
    applied(three)
    assert three.server_values("max_connections") == {"40"}
    if name != "huge_pages":
        assert three.sql("SELECT pg_postmaster_start_time()") == uptime


@pytest.mark.requirement("overview/consistent-configuration")
def test_dcs_parameter_edited_by_hand_is_reverted(
    three: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    store = f"{three.name}-config"

    def agreed() -> dict[str, Any]:
        return json.loads(three.namespace_client.get("configmap", store)["metadata"]["annotations"]["config"])

    declared, started = agreed(), three.sql("SELECT pg_postmaster_start_time()")
    settings = declared["postgresql"]
    harm = {"log_min_duration_statement": "7", "max_connections": "39", "work_mem": "9MB"}
    config = json.dumps({**declared, "postgresql": {**settings, "parameters": {**settings["parameters"], **harm}}})
    with three.namespace_client.expecting_events(
        three.name, ("ParametersWritten", ", ".join(f"postgresql.parameters.{name}" for name in harm))
    ):
        three.namespace_client.patch("configmap", store, {"metadata": {"annotations": {"config": config}}})
        began = time.monotonic()
        three.until("members agree as before", lambda: agreed() == declared, HEALED_WITHIN)
        for name, value in (("work_mem", "4MB"), ("log_min_duration_statement", "-1"), ("max_connections", "40")):
            left = HEALED_WITHIN - (time.monotonic() - began)
            three.until(
                f"servers run with {name} as before", lambda n=name, v=value: three.server_values(n) == {v}, left
            )
        record_property("seconds until servers run as before", round(time.monotonic() - began, 1))
    applied(three)
    assert three.sql("SELECT pg_postmaster_start_time()") == started


def test_alter_system_is_rejected(three: ClusterUnderTest) -> None:
    """From version 17 on."""
    for instance in three.nodes():
        with pytest.raises(CommandFailed, match="ALTER SYSTEM is not allowed in this environment"):
            three.sql("ALTER SYSTEM SET work_mem = '9MB'", instance=instance)


def test_parameter_exceeding_memory_is_rejected_at_apply(three: ClusterUnderTest) -> None:
    with pytest.raises(CommandFailed, match="needs more than the memory limit of 512Mi"):
        declare(three, shared_buffers="999999GB")
    declare(three)


def test_bootstrap_with_bad_parameter_reports_and_recovers(place: NamespaceClient) -> None:
    """There is no former value to go back to."""
    new = ClusterUnderTest(place)
    new.apply(instances=1, postgresql={"parameters": {**PARAMETERS, "huge_pages": "on"}})
    said = new.wait_reason("ParameterRejected", "ParametersApplied", seconds=240)["message"]
    assert '"shared_buffers"' in said and "FATAL:  could not map anonymous shared memory" in said
    declare(new)
    # A container that ended often is begun anew after minutes.
    new.wait_ready(seconds=400)
    applied(new)
