"""Figures from the metrics of an instance."""

from __future__ import annotations

import pytest

from database_support.unit.tuning_samples import START
from steersman_databases.features.tuning import figures
from steersman_databases.features.tuning.window import Sample, TableRows
from steersman_instance.metrics.exporter import mysql_exporter, postgresql_exporter
from steersman_instance.paths import InstancePaths

POSTGRESQL = """
# TYPE steersman_postgresql_is_primary gauge
steersman_postgresql_is_primary{dbcluster="shop"} 1.0
steersman_postgresql_start_time_seconds{dbcluster="shop"} 1893456000.0
# TYPE steersman_postgresql_database_commits_total counter
steersman_postgresql_database_commits_total{database="shop",dbcluster="shop"} 70.0
steersman_postgresql_database_commits_total{database="stock",dbcluster="shop"} 30.0
steersman_postgresql_database_commits_total{database="postgres",dbcluster="shop"} 9000.0
# TYPE steersman_postgresql_checkpoints_total counter
steersman_postgresql_checkpoints_total{trigger="timed",dbcluster="shop"} 3.0
steersman_postgresql_checkpoints_total{trigger="requested",dbcluster="shop"} 5.0
# TYPE steersman_postgresql_parameter gauge
steersman_postgresql_parameter{parameter="work_mem",dbcluster="shop"} 4194304.0
# TYPE steersman_postgresql_table_dead_rows gauge
steersman_postgresql_table_dead_rows{database="shop",schema="public",table="orders",dbcluster="shop"} 500.0
steersman_postgresql_table_dead_rows{database="shop",schema="public",table="items",dbcluster="shop"} 7.0
# TYPE steersman_postgresql_table_live_rows gauge
steersman_postgresql_table_live_rows{database="shop",schema="public",table="orders",dbcluster="shop"} 900.0
"""


def parsed(text: str) -> Sample | None:
    return figures.parse_sample(text, "pod-1", START, figures.POSTGRESQL)


def test_metrics_become_figures() -> None:
    found = parsed(POSTGRESQL)
    assert found is not None
    assert found.server == "pod-1 1893456000"
    assert found.counters == {"commits": 100, "timed_checkpoints": 3, "requested_checkpoints": 5}
    assert found.gauges["work_mem"] == 4 << 20 and found.gauges["dead_rows"] == 507
    assert found.tables == {"shop.public.orders": TableRows(500, 900), "shop.public.items": TableRows(7, 0)}


def test_metrics_of_a_replica_are_no_sample() -> None:
    assert parsed(POSTGRESQL.replace('is_primary{dbcluster="shop"} 1.0', 'is_primary{dbcluster="shop"} 0.0')) is None
    assert parsed("") is None


def test_malformed_metrics_are_refused() -> None:
    with pytest.raises(ValueError):
        parsed('steersman_postgresql_is_primary{dbcluster="shop" one\n')


def test_metrics_of_user_queries_are_not_parsed() -> None:
    """Thousands of series would occupy the operator for a second."""
    assert parsed(f"{POSTGRESQL}my_query{{a=") == parsed(POSTGRESQL)


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
def test_every_figure_is_a_metric_of_the_exporter(engine: str) -> None:
    if engine == "mysql":
        exporter, known = mysql_exporter(InstancePaths()), figures.MYSQL
    else:
        exporter, known = postgresql_exporter(170000, InstancePaths()), figures.POSTGRESQL
    assert {each.metric for each in known} <= {metric.name for metric in exporter.metrics()}
