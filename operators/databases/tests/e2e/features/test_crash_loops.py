"""A parameter that crashes servers is reverted without a deleted pod."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import MYSQL, POSTGRESQL
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("crash-loops"), pytest.mark.timeout(900)]

SORT = "SELECT count(*) FROM (SELECT repeat(md5(g::text), 20) FROM generate_series(1, 3000000) g ORDER BY 1) s"
"""It needs more memory than an instance has, unless `work_mem` limits it."""


def parameters(cluster: ClusterUnderTest, **more: str) -> dict[str, Any]:
    """The field of a spec with the parameters of the cluster and these."""
    declared: dict[str, str] = dict(cluster.engine.small.get(cluster.engine.settings, {}).get("parameters", {}))
    return {cluster.engine.settings: {"parameters": {**declared, **more}}}


def said(cluster: ClusterUnderTest, condition: str) -> str:
    """Reason and message of a condition."""
    found = cluster.namespace_client.condition(cluster.kind, cluster.name, condition)
    return f"{found.get('reason', '')}: {found.get('message', '')}"


def uids(cluster: ClusterUnderTest) -> set[str]:
    return {uid for uid, _ in cluster.pods().values()}


def assert_reverted(cluster: ClusterUnderTest, parameter: str, value: str, pods: set[str]) -> None:
    words = f'after parameter "{parameter}" was set to {value}; '
    cluster.until("it is reverted", lambda: words in said(cluster, "ParametersApplied"), 120)
    cluster.until("the loop is named", lambda: said(cluster, "ServersStable").startswith("ParameterReverted"), 60)
    assert parameter in said(cluster, "ServersStable")
    cluster.until("no server has the value", lambda: value not in cluster.server_values(parameter), 120)
    (entry,) = cluster.status["automation"]
    assert (entry["name"], entry["decision"]) == ("CrashLoops", "ParameterReverted")
    assert cluster.namespace_client.events(cluster.name, "ParameterReverted")
    assert uids(cluster) == pods, "no pod was deleted"


def test_memory_parameter_that_kills_servers_is_reverted(place: NamespaceClient) -> None:
    orders = ClusterUnderTest(place, spec={**POSTGRESQL.small, "instances": 2})
    orders.apply()
    orders.wait_ready(2)
    pods = uids(orders)
    orders.apply(**parameters(orders, work_mem="4GB"))
    orders.until("all servers have it", lambda: orders.server_values("work_mem") == {"4GB"}, 90)

    def crash() -> bool:
        with suppress(CommandFailed):
            orders.sql(SORT)
        return "was set to 4GB" in said(orders, "ParametersApplied")

    orders.until("servers crash until it is reverted", crash, 420)
    assert_reverted(orders, "work_mem", "4GB", pods)
    orders.apply(**parameters(orders))
    orders.wait_ready(2)
    orders.wait_reason("Applied", "ParametersApplied")


def test_parameter_before_crashes_of_mysql_is_reverted(place: NamespaceClient) -> None:
    orders = ClusterUnderTest(place, spec={**MYSQL.small, "instances": 1}, engine=MYSQL)
    orders.apply()
    orders.wait_ready(1)
    pods, before = uids(orders), orders.server_values("long_query_time")
    orders.apply(**parameters(orders, long_query_time="3"))
    orders.until("all servers have it", lambda: orders.server_values("long_query_time") != before, 90)
    for _ in range(3):
        process = orders.processes()
        orders.signal("orders-0", "SEGV")

        def restarted(process: dict[str, str] = process) -> bool:
            return orders.processes() != process and orders.sql("SELECT 1") == "1"

        orders.until("the server runs again", restarted, 120)
    assert_reverted(orders, "long_query_time", "3", pods)
