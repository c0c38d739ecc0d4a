"""A real Prometheus scrapes the instances of a cluster, and alerts fire and resolve with their faults."""

from __future__ import annotations

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


def test_faults_are_of_existing_alerts() -> None:
    names = {alert.name for alert in ALERTS}
    assert names.issuperset(*(FAULTS[engine.settings] for engine in (POSTGRESQL, MYSQL)))
