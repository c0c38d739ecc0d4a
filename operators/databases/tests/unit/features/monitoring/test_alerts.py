"""Alerts, dashboards and generated files agree with the metrics that are exported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from steersman.observability.metrics import registry
from steersman_databases.features.monitoring.alerts import ALERTS
from steersman_databases.features.monitoring.cluster_metrics import FAMILIES
from steersman_databases.features.monitoring.dashboards import DASHBOARDS
from steersman_databases.features.monitoring.generate import outputs
from steersman_instance.metrics.exporter import mysql_exporter, postgresql_exporter
from steersman_instance.paths import PATHS

ROOT = Path(__file__).parents[6]
_NAME = re.compile(r"\b(?:steersman|controller_runtime|workqueue|leader_election)_\w+")
_VALUE = re.compile(r'"[^"]*"')


def exported() -> set[str]:
    """Names that instances and the operator serve."""
    instances = [
        *postgresql_exporter(170000, PATHS).metrics(),
        *postgresql_exporter(150000, PATHS).metrics(),
        *mysql_exporter(PATHS).metrics(),
    ]
    return {one.name for one in instances} | set(FAMILIES) | set(operator_metrics(registry))


def operator_metrics(served: CollectorRegistry) -> Iterable[str]:
    for family in served.collect():
        yield f"{family.name}_total" if family.type == "counter" else family.name


def named(expression: str) -> set[str]:
    """Metrics that an expression names. Values of labels are none."""
    return set(_NAME.findall(_VALUE.sub('""', expression)))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_metrics_are_exported(alert: object) -> None:
    expression = next(one for one in ALERTS if one is alert).full_expression
    assert named(expression) <= exported()


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_dashboard_metrics_are_exported(dashboard: object) -> None:
    for expression in next(one for one in DASHBOARDS if one is dashboard).expressions:
        assert named(expression) <= exported(), expression


def test_alerts_have_unique_names_and_texts() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert alert.action and alert.summary.endswith("."), alert.name


def test_alerts_about_databases_need_no_operator_metric() -> None:
    of_operator = set(FAMILIES) - {"steersman_alert_disabled"}
    for alert in ALERTS:
        if alert.group != "clusters":
            assert not named(alert.expression) & of_operator, alert.name


def test_exported_names_have_prefix_and_no_duplicates() -> None:
    for exporter in (postgresql_exporter(170000, PATHS), mysql_exporter(PATHS)):
        names = [one.name for one in exporter.metrics()]
        assert len(names) == len(set(names))
        assert all(name.startswith("steersman_") for name in names)


@pytest.mark.parametrize("name", sorted(outputs()))
def test_generated_file_is_current(name: str) -> None:
    assert (ROOT / name).read_text() == outputs()[name], "run make manifests"
