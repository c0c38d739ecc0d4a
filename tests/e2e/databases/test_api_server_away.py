"""The API server is away: writes go on, nobody is demoted, no server is started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from cluster_under_test import ClusterUnderTest, Writing, writing
from devcluster import cluster as devcluster
from devcluster.target import Target, wait_until
from silence import no_api_server

pytestmark = pytest.mark.xdist_group("api-server-away")

Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    if not three.place.target.is_devcluster:
        pytest.skip("takes the devcluster's API server away")
    three.wait_ready(seconds=400)


@contextmanager
def unmoved(three: ClusterUnderTest, record: Record) -> Generator[Writing]:
    """Somebody writes meanwhile; in the end the same servers do the same as before."""
    leader, timeline, pods = three.leader, three.status["timeline"], three.pods()
    started = {
        instance: three.sql("SELECT pg_postmaster_start_time()", instance=instance) for instance in three.nodes()
    }
    with writing(three, "shop-app") as seen:
        yield seen
        three.wait_ready(seconds=600)  # an operator that could not renew its Lease ends, and comes back in its time
        seen.goes_on(time.time())
        record("longest gap in writes, in seconds", round(seen.gap, 2))
        record("writes that failed", len(seen.errors))
        assert seen.lost() == 0
        assert seen.errors == []
    assert (three.leader, three.status["timeline"]) == (leader, timeline)
    assert three.pods() == pods
    for instance, moment in started.items():
        assert three.sql("SELECT pg_postmaster_start_time()", instance=instance) == moment


def test_a_minute_out_of_the_servers_reach(three: ClusterUnderTest, record_property: Record) -> None:
    """And within the operator's, which sees pods that are not ready and leaves them alone."""
    with unmoved(three, record_property) as seen:
        with no_api_server(three.place.target, three.place.namespace):
            seen.goes_on(time.time() + 60, seconds=90)
        assert seen.gap < 5, "not even for a moment"


@pytest.mark.disruptive
def test_ten_minutes_down(cluster: Target, three: ClusterUnderTest, record_property: Record) -> None:
    leader = three.leader
    number = int(three.nodes()[leader].rpartition("-")[2])
    question = "SELECT clock_timestamp() - max(at) < '5s' AND max(at) - '{}' > '10min' FROM written"
    with unmoved(three, record_property) as seen:
        with devcluster.without("kube-apiserver", graceful=False):
            began = time.strftime("%F %T+00", time.gmtime())

            def written() -> bool:
                command = ["psql", "-XAtq", "-d", "shop", "-c", question.format(began)]
                said = devcluster.execute(number, three.place.namespace, f"{leader}-0", "server", command)
                return said.strip() == "t"

            wait_until("writes of ten minutes", written, seconds=660, every=5)
        seen.look()
        assert seen.gap < 5, "not even for a moment"
