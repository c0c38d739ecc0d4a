"""Replication slots of users: declared ones are on every primary, and none is dropped."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, writing

pytestmark = [pytest.mark.xdist_group("cluster-slots"), pytest.mark.timeout(1500)]
DECLARED = {"name": "cdc", "plugin": "test_decoding", "database": "shop"}
SETTINGS = SMALL_SPEC["postgresql"]
READ = "SELECT data FROM pg_logical_slot_get_changes('cdc', NULL, NULL)"


def slots(cluster: ClusterUnderTest, instance: str = "") -> Mapping[str, str]:
    """Return the type of each slot of an instance, the primary by default."""
    rows = cluster.sql(
        "SELECT slot_name, slot_type FROM pg_replication_slots WHERE NOT temporary",
        instance=instance or cluster.primary,
    )
    return dict(line.split("|") for line in rows.splitlines())


def inserted(changes: str) -> set[int]:
    """Return the rows in changes of test_decoding."""
    found = (line.rpartition("number[integer]:") for line in changes.splitlines() if "public.numbers: INSERT" in line)
    return {int(number) for _, _, number in found}


def test_slots_survive_restart_reload_and_switchover(three: ClusterUnderTest) -> None:
    """Declared slots are on the new primary without a gap. Others stay on their server."""
    three.apply(postgresql={**SETTINGS, "replicationSlots": [DECLARED, {"name": "receiver"}]})
    three.until(
        "the primary has them", lambda: {"cdc": "logical", "receiver": "physical"}.items() <= slots(three).items()
    )
    three.wait_ready(3)
    kind = "postgresqlcluster"
    three.until(
        "reported",
        lambda: three.namespace_client.condition(kind, three.name, "ReplicationSlotsReady")["status"] == "True",
        60,
    )
    three.sql("SELECT pg_create_logical_replication_slot('debezium', 'test_decoding')", "shop")
    three.sql("SELECT pg_create_physical_replication_slot('standalone', true)")
    three.sql("CREATE TABLE numbers (number integer)", "shop")
    mine = {"debezium", "standalone", "cdc", "receiver"}
    first = three.primary
    read = set[int]()

    three.apply(
        postgresql={
            **SETTINGS,
            "replicationSlots": [DECLARED, {"name": "receiver"}],
            "parameters": {**SETTINGS["parameters"], "work_mem": "5MB"},
        }
    )
    three.until("parameter is reloaded", lambda: three.server_values("work_mem") == {"5MB"}, 60)
    three.sql("INSERT INTO numbers SELECT generate_series(1, 100)", "shop")
    read |= inserted(three.sql(READ, "shop"))
    assert read == set(range(1, 101))

    # In place: the server reads its slots from the disk.
    started = three.sql("SELECT pg_postmaster_start_time()")
    restart = ("patronictl", "-c", "/run/steersman/patroni", "restart", three.name, f"{first}-0", "--force")
    three.execute(first, *restart, seconds=60)
    three.until(
        "it serves again",
        lambda: three.primary == first and three.sql("SELECT pg_postmaster_start_time()") != started,
    )
    three.wait_ready(3)
    assert mine <= slots(three).keys()

    replicas = [name for name in ("orders-0", "orders-1", "orders-2") if name != three.primary]
    for replica in replicas:
        three.until(
            f"{replica} has the declared ones", lambda at=replica: {"cdc", "receiver"} <= slots(three, at).keys()
        )
    three.sql("INSERT INTO numbers SELECT generate_series(101, 200)", "shop")
    with writing(three, "shop-app") as seen:
        three.annotate("switchover", "any")
        three.until("another leads", lambda: three.primary not in ("", first), 120)
        seen.wait_for_writes(time.time())
    assert {"cdc", "receiver"} <= slots(three).keys()
    three.sql("INSERT INTO numbers SELECT generate_series(201, 300)", "shop")
    read |= inserted(three.sql(READ, "shop"))
    assert read == set(range(1, 301)), "no change is lost"
    three.wait_ready(3)
    assert {"debezium", "standalone"} <= slots(three, first).keys(), "Patroni drops no slot that is not its own"

    # The slot that only one replica has does not stop the advance of the others.
    three.sql("INSERT INTO numbers SELECT generate_series(301, 400)", "shop")
    three.sql(READ, "shop")
    position = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'cdc'"
    confirmed = three.sql(position)
    three.until("it advances", lambda: three.sql(position, instance=first) == confirmed, 60)
