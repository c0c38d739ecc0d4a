"""Slow statements in the logs of the servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, EngineCommands
from database_support.e2e.plugin import install_plugin

pytestmark = [pytest.mark.xdist_group("slow-statements"), pytest.mark.timeout(900)]


@EACH_ENGINE
def test_threshold_logs_slow_statements(place: NamespaceClient, of: EngineCommands, tmp_path: Path) -> None:
    sleep = "pg_sleep" if of.settings == "postgresql" else "sleep"
    orders = ClusterUnderTest(place, spec={**of.small, "instances": 1}, engine=of)
    orders.apply()
    orders.wait_ready()
    pods, processes = orders.pods(), orders.processes()
    orders.apply(monitoring={"slowStatementThreshold": "500ms"})
    setting = "log_min_duration_statement" if of.settings == "postgresql" else "long_query_time"
    value = "500ms" if of.settings == "postgresql" else "0.500000"
    orders.until("applied", lambda: orders.server_values(setting) == {value}, 120)
    orders.sql(f"SELECT {sleep}(0.1), 'quick'")
    orders.sql(f"SELECT {sleep}(1), 'slow'")
    plugin = install_plugin(orders, tmp_path)
    shown = orders.until("logged", lambda: plugin("logs", "orders", "--slow").strip() or None, 60)
    (line,) = [each for each in shown.splitlines() if sleep in each]
    assert line.startswith("orders-0  ")
    assert f"SELECT {sleep}(1), 'slow'" in line
    assert " ms  " in line
    if of.settings == "postgresql":
        assert "user=postgres db=postgres app=psql queryid=" in line
    else:
        assert "user=root" in line
    assert (orders.pods(), orders.processes()) == (pods, processes), "a server was restarted"
    orders.apply(monitoring={})
    orders.until("reverted", lambda: orders.server_values(setting) != {value}, 120)
