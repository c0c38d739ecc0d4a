"""A real Prometheus scrapes the instances of a cluster, and alerts fire and resolve with their faults."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from database_support.e2e.alert_faults import FAULTS
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, MYSQL, POSTGRESQL, EngineCommands
from database_support.e2e.prometheus import Prometheus, prometheus, wait_until_scraped
from steersman_databases.features.monitoring.alerts import ALERTS

pytestmark = [pytest.mark.xdist_group("monitoring"), pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def watched(
    shared: NamespaceClient, of: EngineCommands, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[ClusterUnderTest, Prometheus]]:
    """A cluster on volumes of limited size, and the Prometheus that scrapes it."""
    spec = {**of.small, "storage": {**of.small["storage"], "storageClass": "limited"}}
    cluster = ClusterUnderTest(shared, spec=spec, engine=of)
    cluster.apply()
    cluster.wait_ready(seconds=600)
    with prometheus(cluster, tmp_path_factory.mktemp("prometheus")) as server:
        wait_until_scraped(cluster, server, of.settings)
        yield cluster, server


@pytest.mark.requirement("overview/level-4-monitoring")
@EACH_ENGINE
def test_alert_fires_and_resolves_with_its_fault(
    watched: tuple[ClusterUnderTest, Prometheus], of: EngineCommands, subtests: pytest.Subtests
) -> None:
    cluster, server = watched
    cluster.until("the rules are evaluated", lambda: server.value("steersman_exporter_collector_success") == 1)
    assert server.firing() == set(), "no alert fires without a fault"
    for alert, fault in FAULTS[of.settings].items():
        with subtests.test(alert):
            with fault(cluster):
                cluster.until(f"{alert} fires", lambda alert=alert: alert in server.firing())
            cluster.until(f"{alert} is resolved", lambda alert=alert: alert not in server.firing())
            cluster.wait_ready(seconds=400)


@EACH_ENGINE
def test_user_query_reaches_prometheus(watched: tuple[ClusterUnderTest, Prometheus], of: EngineCommands) -> None:
    cluster, server = watched
    ours = cluster.namespace_client
    table = "tills" if of is POSTGRESQL else f"{of.administrative}.tills"
    cluster.sql(f"CREATE TABLE {table} (coin int)", of.administrative)
    cluster.sql(f"INSERT INTO {table} VALUES (1), (2)", of.administrative)
    query = {"query": f"SELECT count(*) AS coins FROM {table}", "cache_seconds": 5, "primary": True}
    text = json.dumps({"till": {**query, "metrics": [{"coins": {"usage": "GAUGE"}}]}, "damaged": 1})
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tills"}, "data": {"q": text}}
    ours.create(config_map)
    ours.patch(of.kind, cluster.name, {"spec": {"monitoring": {"queries": [{"name": "tills", "key": "q"}]}}})
    refused = cluster.wait_reason("QueryInvalid", "QueriesValid")
    assert "query damaged: Expected `object`, got `int`" in refused["message"]
    failing = 'steersman_exporter_collector_success{collector="query_till"}'
    cluster.until("it has no right", lambda: server.value(f"max({failing})") == 0)
    cluster.sql(f"GRANT SELECT ON {table} TO steersman_queries", of.administrative)
    cluster.until("the value is scraped", lambda: server.value("max(steersman_query_till_coins)") == 2)
    ours.patch(of.kind, cluster.name, {"spec": {"monitoring": None}})
    cluster.until("the series ends", lambda: server.value("max(steersman_query_till_coins)") is None, seconds=600)


def test_faults_are_of_existing_alerts() -> None:
    names = {alert.name for alert in ALERTS}
    assert names >= {name for engine in (POSTGRESQL, MYSQL) for name in FAULTS[engine.settings]}
