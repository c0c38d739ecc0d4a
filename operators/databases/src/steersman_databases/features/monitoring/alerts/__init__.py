"""Alerts of Prometheus about instances, clusters and the operator."""

from steersman_databases.features.monitoring.alerts import clusters, instances, mysql, postgresql
from steersman_databases.features.monitoring.alerts.model import Alert, rule_groups

ALERTS = (*instances.ALERTS, *postgresql.ALERTS, *mysql.ALERTS, *clusters.ALERTS)
"""All alerts, in the order of the reference."""

__all__ = ["ALERTS", "Alert", "rule_groups"]
