"""Replicas of a MySQL cluster are made anew, an image with another tag rolled out, and data outlive their object."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.engines import ON_MYSQL
from devcluster.errors import CommandFailed
from devcluster.images import MYSQL, tag

pytestmark = [pytest.mark.xdist_group("mysql-cluster-repair"), pytest.mark.timeout(1200), ON_MYSQL]

Record = Callable[[str, object], None]
NEXT = "steersman.dev/mysql:9.7-next"


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


def test_image_change_rolls_out_with_one_switchover(three: ClusterUnderTest, record_property: Record) -> None:
    """As with a minor upgrade: replicas first, then the primary hands over."""
    tag(MYSQL.reference, NEXT)
    former = three.primary
    with writing(three, "shop-app") as seen:
        three.apply(image=NEXT)
        three.until("it is looked at", lambda: not three.ready(3), 30)
        three.wait_ready(seconds=500)
        seen.wait_for_writes(time.time())
        record_property("rolling update: longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.longest_gap <= 5.0
        assert seen.lost_rows() == 0
    assert three.status["image"] == NEXT
    pods = [three.pod(member["name"]) for member in three.status["members"]]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {NEXT}
    assert three.primary != former
    assert three.status["lastSwitchover"]["outcome"] == "Succeeded"
    assert not three.namespace_client.events("orders", "Failover")


def test_replica_needing_purged_binary_logs_is_cloned(three: ClusterUnderTest, record_property: Record) -> None:
    """Scenario 12: it was away while binary logs were purged everywhere, and gets a copy of somebody's data."""
    away = three.replicas[0]
    three.annotate("fenced-instances", away)
    three.wait_reason("Fenced")
    three.until("it is out", lambda: three.sql(three.engine.is_following) == "1", 120)
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
    for name in (three.primary, *(n for n in three.replicas if n != away)):
        three.sql("FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY", instance=name)
    assert three.sql("SELECT @@GLOBAL.gtid_purged") != ""
    began = time.time()
    three.annotate("fenced-instances", None)
    three.wait_ready(seconds=500)
    record_property("seconds until it is there again", round(time.time() - began))
    rows = three.sql("SELECT COUNT(*) FROM written", "shop")
    assert {three.sql("SELECT COUNT(*) FROM written", "shop", name) for name in three.nodes()} == {rows}


def test_replica_with_errant_transactions_waits_for_request(three: ClusterUnderTest) -> None:
    stray = three.replicas[0]
    apart = "STOP GROUP_REPLICATION; SET GLOBAL super_read_only = OFF; CREATE DATABASE strayed"

    def strays() -> bool:
        """Its agent has it join again within a second, and may be sooner."""
        try:
            three.sql(apart, instance=stray)
        except CommandFailed:
            return False
        return True

    three.until("it does what the group has not", strays, 60)
    said = three.wait_reason("ErrantTransactions", "NoErrantTransactions", 120)
    errant = next(member["errantGtids"] for member in three.status["members"] if member["name"] == stray)
    assert stray in said["message"] and errant in said["message"]
    assert "strayed" not in three.sql("SHOW DATABASES").split()
    assert "strayed" in three.sql("SHOW DATABASES", instance=stray).split(), "it is there to be looked at"
    assert f"{stray}-0" not in three.endpoints("ro")

    def replaced() -> bool:
        return stray not in {member["name"] for member in three.status["members"]} and three.ready(3)

    with three.namespace_client.expecting_events(three.name, ("InstanceReplaced", f"replacing instance {stray}: ")):
        three.annotate("replace-instance", stray)
        three.until("another takes its place", replaced, 400)
    three.wait_reason("NoErrantTransactions", "NoErrantTransactions", 60)


@pytest.mark.parametrize("damage", ["system tables", "pages of a table", "rows"])
def test_replica_with_corrupt_data_is_rebuilt(three: ClusterUnderTest, record_property: Record, damage: str) -> None:
    broken, primary = three.replicas[0], three.primary
    began = time.time()
    three.sql("CREATE TABLE IF NOT EXISTS sample (n int PRIMARY KEY, word text)", "shop")
    numbers = ", ".join(f"({n}, REPEAT('x', 1000))" for n in range(1000))
    three.sql(f"REPLACE INTO sample VALUES {numbers}", "shop")
    three.until("it has them", lambda: three.sql("SELECT COUNT(*) FROM sample", "shop", broken) == "1000", 60)
    told = ("InstanceReplaced", f"replacing instance {broken}: its data are corrupt")
    with writing(three, "shop-app") as seen, three.namespace_client.expecting_events(three.name, told):
        if damage == "rows":
            three.sql("SET GLOBAL super_read_only = OFF; SET sql_log_bin = OFF; DELETE FROM sample", "shop", broken)
        elif damage == "system tables":
            three.execute(broken, "sh", "-c", three.engine.corrupt)
        else:
            file = "/var/lib/steersman/data/mysql/shop/sample.ibd"
            spoilt = f"dd if=/dev/urandom of={file} bs=16k seek=4 count=60 conv=notrunc"
            # Before it writes what it holds in memory.
            three.execute(broken, "sh", "-c", f"{spoilt} && kill -9 $({three.engine.pid})")
        three.sql("DELETE FROM sample", "shop")
        three.until("nobody reads from it", lambda: f"{broken}-0" not in three.endpoints("ro"), 120)
        record_property(f"{damage}: seconds until nobody reads from it", round(time.time() - began))
        three.until("another takes its place", lambda: broken not in three.nodes(), 700)
        record_property(f"{damage}: seconds until it is given up", round(time.time() - began))
        three.wait_ready(seconds=400)
        record_property(f"{damage}: seconds until all are ready", round(time.time() - began))
        assert seen.errors == [] and seen.lost_rows() == 0
    assert three.primary == primary


def test_retained_data_is_adopted_by_same_name(three: ClusterUnderTest) -> None:
    """It is the last: the cluster is another one afterwards."""
    three.apply(deletionPolicy="Retain")
    numbers = ", ".join(f"({n})" for n in range(1000))
    three.sql(f"CREATE TABLE kept (n int PRIMARY KEY); INSERT INTO kept VALUES {numbers}", "shop")
    three.until(
        "it is everywhere",
        lambda: {three.sql("SELECT COUNT(*) FROM kept", "shop", n) for n in three.nodes()} == {"1000"},
        30,
    )
    primary, secret = three.primary, three.namespace_client.secret("orders-admin")
    servers = {three.sql("SELECT @@server_uuid", instance=name) for name in three.nodes()}
    claims = {c["metadata"]["name"]: c["metadata"]["uid"] for c in three.namespace_client.all("pvc")}
    three.delete()
    three.until("the pods are gone", lambda: not three.nodes(), 120)
    assert {c["metadata"]["name"]: c["metadata"]["uid"] for c in three.namespace_client.all("pvc")} == claims

    three.apply(deletionPolicy="Delete")
    three.wait_ready(seconds=400)
    assert {c["metadata"]["name"]: c["metadata"]["uid"] for c in three.namespace_client.all("pvc")} == claims
    assert three.namespace_client.secret("orders-admin") == secret
    assert {three.sql("SELECT @@server_uuid", instance=name) for name in three.nodes()} == servers
    assert three.sql("SELECT COUNT(*) FROM kept", "shop") == "1000"
    assert three.primary == primary, "who led last leads again"
    three.namespace_client.wait_reason("database", "shop", "DatabaseReady")
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
