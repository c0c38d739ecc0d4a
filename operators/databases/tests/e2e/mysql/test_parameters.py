"""Scenario 7: parameters of MySQL's servers are taken at once, with a restart, or refused with the server's words."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.engines import MYSQL, ON_MYSQL
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("mysql-cluster-parameters"), pytest.mark.timeout(900), ON_MYSQL]

Record = Callable[[str, object], None]
HEALED_WITHIN = 30.0
PARAMETERS: dict[str, str] = MYSQL.small["mysql"]["parameters"]


def declare(cluster: ClusterUnderTest, **parameters: str) -> None:
    cluster.apply(mysql={"parameters": {**PARAMETERS, **parameters}})


def applied(cluster: ClusterUnderTest) -> None:
    """Waits until this declaration's parameters are said to be there, and all is well."""
    cluster.wait_ready(seconds=400)

    def said() -> bool:
        found = cluster.found
        condition = cluster.namespace_client.condition(cluster.kind, cluster.name, "ParametersApplied")
        return condition["reason"] == "Applied" and condition["observedGeneration"] == found["metadata"]["generation"]

    cluster.until("parameters are applied", said)


def test_dynamic_variable_applies_without_restart(three: ClusterUnderTest) -> None:
    before, processes = three.pods(), three.processes()
    declare(three, long_query_time="3")
    three.until("all servers have it", lambda: three.server_values("long_query_time") == {"3.000000"}, 60)
    applied(three)
    # And what is declared no more is the server's default again.
    declare(three)
    three.until("none has it", lambda: three.server_values("long_query_time") == {"10.000000"}, 60)
    applied(three)
    assert (three.pods(), three.processes()) == (before, processes)


@pytest.mark.requirement("overview/consistent-configuration")
def test_variable_set_by_hand_is_reverted(three: ClusterUnderTest, record_property: Record) -> None:
    """At whichever server: its agent sets it back, and tells the operator."""
    declare(three, long_query_time="3")
    three.until("all servers have it", lambda: three.server_values("long_query_time") == {"3.000000"}, 60)
    applied(three)
    for name in three.nodes():
        told = f"reverted parameters that were changed by SET GLOBAL: long_query_time, max_connections on {name}"
        with three.namespace_client.expecting_events(three.name, ("DriftReverted", told)):
            undeclared = "SET GLOBAL max_heap_table_size = 33554432"
            # Nobody comes in any more: the agent has its connection.
            by_hand = "SET GLOBAL max_connections = 1, PERSIST long_query_time = 7"
            three.sql(f"{undeclared}; {by_hand}", instance=name)
            began = time.time()
            three.until(
                "it is taken back", lambda: three.server_values("long_query_time") == {"3.000000"}, HEALED_WITHIN
            )
            record_property(f"{name}: seconds until it is taken back", round(time.time() - began))
        assert three.sql("SELECT @@GLOBAL.max_heap_table_size", instance=name) == "33554432", "nobody declared it"
        three.sql("SET GLOBAL max_heap_table_size = DEFAULT", instance=name)
    declare(three)
    applied(three)


def test_static_variable_restarts_in_order(three: ClusterUnderTest, record_property: Record) -> None:
    """Replicas first, then one of them leads, then the former primary."""
    before = three.pods()
    for declared, shown in (({"table_open_cache_instances": "2"}, "2"), ({}, "16")):
        with writing(three, "shop-app") as seen:
            declare(three, **declared)
            three.until(
                "all servers have it", lambda s=shown: three.server_values("table_open_cache_instances") == {s}, 400
            )
            applied(three)
            seen.wait_for_writes(time.time())
            assert seen.lost_rows() == 0
            record_property(f"longest gap in writes when it becomes {shown}, in seconds", round(seen.longest_gap, 2))
    assert three.pods() == before, "servers restart, pods do not"
    assert not three.namespace_client.events(three.name, "Failover"), "primaries handed over"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_conections", "50", "Unknown system variable"),
        ("max_connections", "many", "Incorrect argument type"),
        ("max_connections", "-1", "can't be set to the value of '-1'"),
        ("sql_mode", "NO_SUCH_MODE", "NO_SUCH_MODE"),
    ],
    ids=["misspelt", "no-number", "out-of-bounds", "no-such-value"],
)
def test_invalid_variable_is_reported(three: ClusterUnderTest, name: str, value: str, words: str) -> None:
    processes = three.processes()
    declare(three, **{name: value})
    said = three.wait_reason("ParameterRejected", "ParametersApplied", 180)
    assert name in said["message"] and words in said["message"]
    three.wait_degraded("ParametersApplied: ")
    declare(three)
    applied(three)
    assert three.server_values("max_connections") == {"60"}
    assert three.processes() == processes, "nobody was restarted for it"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("group_replication_consistency", "EVENTUAL", "the operator manages the group"),
        ("sync_binlog", "0", "a power failure loses committed transactions"),
        ("ssl_ca", "/tmp/ca.crt", "the operator manages the certificates"),
        ("innodb_buffer_pool_size", "100G", "needs more than the memory limit of 768Mi"),
    ],
)
def test_operator_variable_is_rejected_at_apply(three: ClusterUnderTest, name: str, value: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=words):
        declare(three, **{name: value})
    declare(three)
