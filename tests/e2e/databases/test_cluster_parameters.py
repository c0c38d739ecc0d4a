"""Parameters of the servers: taken at once, with a restart, in order, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from cluster_under_test import SMALL, ClusterUnderTest, Place, writing

pytestmark = pytest.mark.xdist_group("cluster-parameters")

PARAMETERS: dict[str, str] = SMALL["postgresql"]["parameters"]


def declare(cluster: ClusterUnderTest, **parameters: str) -> None:
    cluster.apply(postgresql={"parameters": {**PARAMETERS, **parameters}})


def applied(cluster: ClusterUnderTest) -> None:
    """Waits until this declaration's parameters are said to be there, and all is well."""
    cluster.wait_ready()

    def said() -> bool:
        found = cluster.found
        condition = cluster.place.condition("postgresqlcluster", cluster.name, "ParametersApplied")
        return condition["reason"] == "Applied" and condition["observedGeneration"] == found["metadata"]["generation"]

    cluster.until("parameters are applied", said)


def test_one_that_takes_a_reload(three: ClusterUnderTest) -> None:
    before, started = three.pods(), three.sql("SELECT pg_postmaster_start_time()")
    declare(three, work_mem="5MB")
    three.until("all servers have it", lambda: three.shown("work_mem") == {"5MB"}, 60)
    applied(three)
    # And what is declared no more is the server's default again.
    declare(three)
    three.until("none has it", lambda: three.shown("work_mem") == {"4MB"}, 60)
    applied(three)
    assert three.pods() == before
    assert three.sql("SELECT pg_postmaster_start_time()") == started


def test_one_that_takes_a_restart_and_its_lowering(
    three: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    before = three.pods()
    for value in ("60", "40"):
        with writing(three, "shop-app") as seen:
            declare(three, max_connections=value)
            three.until("all servers have it", lambda v=value: three.shown("max_connections") == {v}, 240)
            applied(three)
            seen.goes_on(time.time())
            assert seen.lost() == 0
            record_property(f"longest gap in writes when it becomes {value}, in seconds", round(seen.gap, 2))
    assert three.pods() == before, "servers restart, pods do not"


@pytest.mark.parametrize(
    ("name", "value"),
    [("wrok_mem", "5MB"), ("work_mem", "a lot"), ("shared_buffers", "999999GB"), ("max_connections", "-1")],
    ids=["misspelt", "no-size", "too-large", "out-of-bounds"],
)
def test_one_that_the_server_refuses(three: ClusterUnderTest, name: str, value: str) -> None:
    uptime = three.sql("SELECT pg_postmaster_start_time()")
    declare(three, **{name: value})
    said = three.wait_reason("ParameterRefused", "ParametersApplied", 180)
    assert name in said["message"]
    declare(three)
    applied(three)
    assert three.shown("max_connections") == {"40"}
    assert three.shown("shared_buffers") == {"32MB"}
    if name != "shared_buffers":
        assert three.sql("SELECT pg_postmaster_start_time()") == uptime


def test_a_new_cluster_whose_server_does_not_start_says_for_what_and_recovers(place: Place) -> None:
    """There is no former value to go back to."""
    new = ClusterUnderTest(place)
    new.apply(instances=1, postgresql={"parameters": {**PARAMETERS, "shared_buffers": "900000MB"}})
    said = new.wait_reason("ParameterRefused", "ParametersApplied", seconds=240)["message"]
    assert '"shared_buffers"' in said and "FATAL:  could not map anonymous shared memory" in said
    declare(new)
    # A container that ended often is begun anew after minutes.
    new.wait_ready(seconds=400)
    applied(new)
