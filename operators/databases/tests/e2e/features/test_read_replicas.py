"""Read replicas: they serve -ro, follow a failover and the load, and leave nothing behind."""

from __future__ import annotations

import time

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.nodes.packet_loss import without_api_server

pytestmark = [pytest.mark.xdist_group("cluster-read-replicas"), pytest.mark.timeout(1500)]
FAST = {"scaleOut": "10s", "scaleIn": "20s"}


def ready(cluster: ClusterUnderTest) -> int:
    return cluster.status.get("readReplicas", {}).get("ready") or 0


def read_endpoints(cluster: ClusterUnderTest) -> set[str]:
    """Read replicas to which -ro leads."""
    return {pod for pod in cluster.endpoints("ro") if "-read" in pod}


def in_recovery(cluster: ClusterUnderTest, pod: str, statement: str) -> str:
    command = ("exec", pod, "--container=server", "--", "psql", "-XAtq", "--dbname=shop", f"--command={statement}")
    return cluster.namespace_client.kubectl(*command).strip()


def signal(cluster: ClusterUnderTest, pod: str, name: str) -> None:
    """Send a signal to all processes of a server, such as ``STOP``."""
    script = f"for file in $(grep -l postgres /proc/[0-9]*/comm); do kill -{name} $(echo $file | cut -d/ -f3); done"
    cluster.namespace_client.kubectl("exec", pod, "--container=server", "--", "sh", "-c", script)


def test_read_replicas_serve_reads_and_never_lead(three: ClusterUnderTest) -> None:
    """The number is fixed; the primary fails; the field is removed."""
    with writing(three, "shop-app") as seen:
        three.apply(readReplicas={"min": 2, "maxLag": "20s"})
        three.until("both serve", lambda: read_endpoints(three) == {"orders-read0-0", "orders-read1-0"}, 300)
        assert ready(three) == 2
        members = {member["name"] for member in three.status["members"]}
        assert members == {"orders-0", "orders-1", "orders-2"}, "they are no members"
        names = three.sql("SELECT application_name || ' ' || sync_state FROM pg_stat_replication").splitlines()
        assert {"orders-read0-0 async", "orders-read1-0 async"} <= set(names)
        rows = int(three.sql("SELECT count(*) FROM written", "shop"))
        three.until(
            "a read replica has the rows",
            lambda: int(in_recovery(three, "orders-read0-0", "SELECT count(*) FROM written")) >= rows,
            30,
        )
        assert in_recovery(three, "orders-read0-0", "SELECT pg_is_in_recovery()") == "t"

        former = three.primary
        three.namespace_client.kubectl("delete", "pod", f"{former}-0", "--grace-period=0", "--force")
        three.until("another leads", lambda: three.primary not in ("", former), 120)
        assert not three.primary.startswith("orders-read")
        seen.wait_for_writes(time.time())
        rows = int(three.sql("SELECT count(*) FROM written", "shop"))
        three.until(
            "they follow the new primary",
            lambda: int(in_recovery(three, "orders-read1-0", "SELECT count(*) FROM written")) >= rows,
            120,
        )
        assert seen.lost_rows() == 0
    three.wait_ready(3)
    three.namespace_client.patch("pg", three.name, {"spec": {"readReplicas": None}})
    three.until("pods are gone", lambda: not read_endpoints(three), 120)
    three.until(
        "volumes are gone", lambda: not any("read" in name for name in three.namespace_client.names("pvc")), 120
    )
    three.until(
        "slots are gone",
        lambda: "steersman_read" not in three.sql("SELECT slot_name FROM pg_replication_slots"),
        120,
    )


@pytest.mark.requirement("overview/level-5-scaling")
def test_number_follows_connections(three: ClusterUnderTest) -> None:
    settings = {"min": 1, "max": 2, "target": {"connections": 2}, "stabilization": FAST}
    three.apply(readReplicas=settings)
    three.until("one serves", lambda: read_endpoints(three) == {"orders-read0-0"}, 300)
    session = "nohup psql -XAtq --dbname=shop --command='SELECT pg_sleep(60)' > /dev/null 2>&1 &"
    four = f"for each in 1 2 3 4; do {session} done"
    three.namespace_client.kubectl("exec", "orders-read0-0", "--container=server", "--", "sh", "-c", four)
    three.until("a second one is desired", lambda: three.status["readReplicas"]["desired"] == 2, 60)
    three.until("both serve", lambda: len(read_endpoints(three)) == 2, 300)
    three.until("one is removed", lambda: read_endpoints(three) == {"orders-read0-0"}, 300)
    events = {event["reason"] for event in three.namespace_client.all("events")}
    assert {"ReadReplicaAdded", "ReadReplicaRemoved"} <= events


def test_read_replica_does_not_hold_up_an_eviction(three: ClusterUnderTest) -> None:
    """One that is not ready is not counted in the budget of the instances."""
    three.apply(readReplicas={"min": 1, "maxLag": "10s"})
    three.until("one serves", lambda: bool(read_endpoints(three)), 300)
    signal(three, "orders-read0-0", "STOP")
    three.until("it left -ro", lambda: not read_endpoints(three), 60)
    allowed = three.namespace_client.get("poddisruptionbudget", three.name)["status"]["disruptionsAllowed"]
    signal(three, "orders-read0-0", "CONT")
    assert allowed == 1


def test_writes_continue_without_api_server_and_read_replicas(three: ClusterUnderTest) -> None:
    """Failsafe mode asks all members, and read replicas are none."""
    if not three.namespace_client.target.is_devcluster:
        pytest.skip("cuts pods off from the devcluster's API server")
    three.apply(readReplicas={"min": 2})
    three.until("both serve", lambda: len(read_endpoints(three)) == 2, 300)
    primary, timeline = three.primary, three.status["timeline"]
    with writing(three, "shop-app") as seen:
        with without_api_server(three.namespace_client.target, three.namespace_client.namespace):
            for pod in ("orders-read0-0", "orders-read1-0"):
                signal(three, pod, "STOP")
            seen.wait_for_writes(time.time() + 60, seconds=90)
        assert seen.errors == []
        assert seen.lost_rows() == 0
    assert (three.primary, three.status["timeline"]) == (primary, timeline)
