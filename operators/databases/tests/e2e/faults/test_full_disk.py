"""A volume runs full: it is said in time and by name, nobody takes over, and with room all is as it was."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("full-disk"), pytest.mark.timeout(1200)]

Record = Callable[[str, object], None]
FILLER = "/var/lib/steersman/data/filler"
# Twice what the volume has: the server's words are not ours to choose, and it may be the log that finds no room. On
# MySQL in many transactions, since a group takes none that is large, each of which is in the binary log as well; what
# finds no room there waits.
_MEGABYTES = ", ".join(["(REPEAT('0123456789abcdef', 65536))"] * 8)
FLOOD = {
    # What one statement has written is gone when it fails.
    "postgresql": "DO $$ BEGIN CREATE TABLE flood (words text); FOR i IN 1..60 LOOP INSERT INTO flood"
    " SELECT repeat(md5(n::text), 30) FROM generate_series(1, 20000) n; COMMIT; END LOOP; END $$",
    "mysql": "CREATE TABLE flood (number bigint AUTO_INCREMENT PRIMARY KEY, words longtext); "
    f"INSERT INTO flood (words) VALUES {_MEGABYTES}; "
    + "INSERT INTO flood (words) SELECT words FROM flood LIMIT 8; "
    * 130,
}
PATIENCE = 240
"""Seconds for which a client floods the database."""
LARGER = {"postgresql": "1Gi", "mysql": "2Gi"}


@pytest.fixture
def cluster_of_two(place: NamespaceClient, of: EngineCommands) -> ClusterUnderTest:
    """A primary and a synchronous replica on volumes of limited size, the second place of a database's tables."""
    spec = {**of.small, "instances": 2, "storage": {**of.small["storage"], "storageClass": "limited"}}
    if of is POSTGRESQL:
        spec["postgresql"] = {**of.small["postgresql"], "synchronous": {"mode": "Quorum"}}
    made = ClusterUnderTest(place, spec=spec, engine=of)
    made.apply()
    place.apply("Database", "shop", made.reference(deletionPolicy="Delete"))
    made.wait_ready()
    place.wait_reason("database", "shop", "DatabaseReady")
    return made


def levels(cluster: ClusterUnderTest) -> dict[str, str]:
    """What the instances tell of their volumes."""
    members = [member["name"] for member in cluster.status["members"]]
    return {
        m: cluster.pod(m)["metadata"]["annotations"].get("databases.steersman.dev/volume-usage", "") for m in members
    }


def restarts(cluster: ClusterUnderTest) -> int:
    pods = [cluster.pod(member["name"]) for member in cluster.status["members"]]
    return sum(c["restartCount"] for pod in pods for c in pod["status"]["containerStatuses"])


@EACH_ENGINE
def test_primary_disk_full_recovers_after_cleanup(cluster_of_two: ClusterUnderTest, record_property: Record) -> None:
    """Scenario 6, by something beside the database: reads go on, and nobody fails over."""
    orders = cluster_of_two
    primary, timeline = orders.primary, orders.status.get("timeline")
    orders.wait_reason("Sufficient", "StorageSufficient")
    with writing(orders, "shop-app") as seen:
        began = time.time()
        orders.execute(primary, "sh", "-c", f"dd if=/dev/zero of={FILLER} bs=1M 2>&1 || true", seconds=120)
        condition = orders.wait_reason("DiskFull")
        record_property("full: seconds from the first byte to the condition", round(time.time() - began, 1))
        assert f"data-{primary} is full" in condition["message"]
        assert "Raise spec.storage.size" in condition["message"]
        assert orders.namespace_client.events("orders", "DiskFull")
        # Whoever declares something else must wait: a server without room may not come up again.
        orders.apply(podMetadata={"labels": {"asked": "for"}})
        orders.until(
            "it is looked at", lambda: orders.status["observedGeneration"] == orders.found["metadata"]["generation"]
        )
        assert int(orders.sql("SELECT count(*) FROM written", "shop")) > 0
        orders.wait_reason("DiskFull")
        assert (orders.primary, orders.status.get("timeline")) == (primary, timeline), "nobody took over"
        orders.execute(primary, "rm", FILLER)
        began = time.time()
        orders.wait_reason("Sufficient", "StorageSufficient")
        record_property("emptied: seconds to the condition", round(time.time() - began, 1))
        orders.wait_ready(2, seconds=400)
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
    assert not orders.namespace_client.events("orders", "Failover")
    assert not orders.namespace_client.events("orders", "InstanceReplaced")


@EACH_ENGINE
def test_replica_disk_full_recovers_after_cleanup(cluster_of_two: ClusterUnderTest, record_property: Record) -> None:
    """It is not replaced, and who leads leads on: with what commits wait for, they wait for its room."""
    orders = cluster_of_two
    primary, replica, timeline = orders.primary, orders.replicas[0], orders.status.get("timeline")
    with writing(orders, "shop-app") as seen:
        orders.execute(replica, "sh", "-c", f"dd if=/dev/zero of={FILLER} bs=1M 2>&1 || true", seconds=120)
        condition = orders.wait_reason("DiskFull")
        assert f"data-{replica} is full" in condition["message"]
        assert int(orders.sql("SELECT count(*) FROM written", "shop")) > 0
        assert (orders.primary, orders.status.get("timeline")) == (primary, timeline), "nobody took over"
        orders.execute(replica, "rm", FILLER)
        orders.wait_reason("Sufficient", "StorageSufficient")
        orders.wait_ready(2, seconds=400)
        seen.wait_for_writes(time.time())
        record_property("replica: longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
    assert orders.primary == primary
    assert not orders.namespace_client.events("orders", "Failover")
    assert not orders.namespace_client.events("orders", "InstanceReplaced")


@EACH_ENGINE
def test_disk_full_recovers_after_resize(cluster_of_two: ClusterUnderTest, record_property: Record) -> None:
    """Scenario 6, by the database itself: the replica's disk is as full as the primary's."""
    orders = cluster_of_two
    primary, timeline, engine = orders.primary, orders.status.get("timeline"), orders.engine
    flood = engine.admin_command(FLOOD[engine.settings], "shop")
    with writing(orders, "shop-app") as seen:
        with pytest.raises(CommandFailed) as refusal:
            orders.execute(primary, "timeout", str(PATIENCE), *flood, seconds=PATIENCE + 60)
        record_property("what the server said", str(refusal.value)[-200:])
        orders.until(
            "it is said",
            lambda: (
                orders.namespace_client.events("orders", "RunningLow")
                or orders.namespace_client.events("orders", "DiskFull")
            ),
        )
        record_property("levels", levels(orders))
        orders.until("a primary serves", lambda: orders.sql("SELECT 1") == "1", 120)
        assert (orders.primary, orders.status.get("timeline")) == (primary, timeline), "nobody took over"
        orders.apply(storage={"size": LARGER[engine.settings], "storageClass": "limited"})
        orders.wait_reason("Sufficient", "StorageSufficient", 180)
        orders.wait_ready(2, seconds=300)
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
    assert restarts(orders) == 0
    assert not orders.namespace_client.events("orders", "Failover")
    assert not orders.namespace_client.events("orders", "InstanceReplaced")


def test_wal_volume_full_everywhere_is_reported(cluster_of_two: ClusterUnderTest, record_property: Record) -> None:
    """The server stops for it, and is who it was as soon as there is room: whoever took over would be as full."""
    orders = cluster_of_two
    primary, timeline = orders.primary, orders.status["timeline"]
    with writing(orders, "shop-app") as seen:
        for instance in (orders.replicas[0], primary):
            orders.execute(instance, "sh", "-c", f"dd if=/dev/zero of={FILLER} bs=1M 2>&1 || true", seconds=120)
        orders.wait_reason("DiskFull")
        with pytest.raises(CommandFailed) as refusal:
            for _ in range(60):
                # Each begins another file of the log, and those that were made before are few.
                orders.sql("SELECT pg_logical_emit_message(false, 'e2e', 'x'), pg_switch_wal()", instance=primary)
        record_property("what the server said", str(refusal.value)[-200:])
        orders.until("no instance accepts writes", lambda: not orders.primary, 60)
        orders.wait_reason("DiskFull")
        began = time.time()
        orders.until("it has been so for a while", lambda: time.time() > began + 30, 60)
        orders.until("who led has the lock", lambda: orders.leader == primary, 60)
        assert orders.sql("SELECT pg_is_in_recovery()", instance=primary) == "t", "it waits, and can be read"
        assert orders.status["timeline"] == timeline, "nobody took over"
        orders.apply(storage={"size": "1Gi", "storageClass": "limited"})
        orders.wait_reason("Sufficient", "StorageSufficient", 180)
        orders.wait_ready(2, seconds=300)
        seen.wait_for_writes(time.time())
        record_property("log without room: longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
    assert orders.primary == primary
    assert restarts(orders) == 0


def test_absent_replica_does_not_fill_primary_disk(cluster_of_two: ClusterUnderTest, record_property: Record) -> None:
    """Its slot keeps a quarter of the volume for it, while more log is written than would find room there."""
    orders = cluster_of_two
    # Whom commits wait for would not be replaced as long as it seems to follow, which is so each time that it asks.
    orders.apply(postgresql={**orders.spec["postgresql"], "synchronous": {"mode": "Disabled"}})
    orders.wait_ready()
    primary, away, timeline = orders.primary, orders.replicas[0], orders.status["timeline"]
    kept: list[int] = []

    def write(segments: int) -> None:
        """As many files of the log as that, of 16 MiB each, and not faster than checkpoints follow."""
        for _ in range(segments):
            begin = "SELECT pg_logical_emit_message(false, 'e2e', 'x'); SELECT pg_switch_wal()"
            told = orders.sql(f"{begin}; SELECT sum(size)::bigint >> 20 FROM pg_ls_waldir()", instance=primary)
            kept.append(int(told.splitlines()[-1]))

    with writing(orders, "shop-app") as seen:
        orders.annotate("fenced-instances", away)
        orders.until("nobody follows", lambda: orders.sql(orders.engine.is_following, instance=primary) == "0", 90)
        left = orders.sql("SELECT pg_current_wal_lsn()", instance=primary)
        slot = f"{away}-0".replace("-", "_")
        held = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"
        # What it would go on from: segments are called by their numbers, behind the timeline's.
        oldest = "SELECT min(right(name, 16)) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'"
        is_gone = f"SELECT ({oldest}) > right(pg_walfile_name('{left}'), 16)"
        write(6)
        assert orders.sql(held, instance=primary) == "f"
        assert orders.sql(is_gone, instance=primary) == "f", "its slot keeps what a quarter of the volume holds"
        write(34)
        record_property("largest log, in MiB", max(kept))
        # Patroni makes such a slot anew at once, so that what it says of itself is not waited for.
        orders.until("it is kept no longer", lambda: orders.sql(is_gone, instance=primary) == "t", 60)
        seen.wait_for_writes(time.time())
        record_property("away: longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert not orders.namespace_client.events("orders", "DiskFull")

        orders.annotate("fenced-instances", None)
        began = time.time()
        orders.until(
            "it serves and does not follow",
            lambda: (
                f"instance {away} is Running"
                in orders.namespace_client.condition(orders.kind, orders.name)["message"]
            ),
            120,
        )
        # Of itself it is given up when it has followed nobody for six minutes.
        orders.annotate("replace-instance", away)
        orders.until("another takes its place", lambda: away not in orders.nodes(), 90)
        orders.wait_ready(2, seconds=300)
        record_property("seconds from its return until another is ready", round(time.time() - began))
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
    rows = orders.sql("SELECT count(*) FROM written", "shop")
    orders.until(
        "it has the rows", lambda: orders.sql("SELECT count(*) FROM written", "shop", orders.replicas[0]) == rows, 30
    )
    assert (orders.primary, orders.status["timeline"]) == (primary, timeline), "nobody took over"
    assert orders.namespace_client.events("orders", "InstanceReplaced") == [
        f"replacing instance {away}: a user requested it"
    ]
