"""Dashboards of Grafana as ConfigMaps, for its sidecar.

Source: Grafana documentation, "Dashboard JSON model", schema version 39.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_CLUSTER = 'namespace=~"$namespace",dbcluster=~"$dbcluster"'


@dataclass(frozen=True)
class Panel:
    """A graph of some expressions.

    Args:
        queries: PromQL by legend.
        unit: unit of Grafana, such as bytes.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. Variables select values of labels."""

    name: str
    title: str
    rows: Mapping[str, Sequence[Panel]]
    variables: Sequence[str] = ("namespace", "dbcluster")

    @property
    def expressions(self) -> Iterator[str]:
        """Yield all expressions."""
        for panels in self.rows.values():
            for panel in panels:
                yield from panel.queries.values()


def _p(metric: str, condition: str = "") -> str:
    return f"{metric}{{{_CLUSTER}{condition}}}"


_FLEET = Dashboard(
    "fleet",
    "Databases: all clusters",
    {
        "Health": (
            Panel("Clusters by phase", {"{{phase}}": "sum by (phase) (steersman_cluster_phase)"}),
            Panel("Firing alerts", {"{{alertname}}": 'count by (alertname) (ALERTS{alertstate="firing"})'}),
            Panel(
                "Instances that do not respond",
                {
                    "PostgreSQL {{dbcluster}}": "count by (namespace, dbcluster) (steersman_postgresql_up == 0)",
                    "MySQL {{dbcluster}}": "count by (namespace, dbcluster) (steersman_mysql_up == 0)",
                },
            ),
        ),
        "Capacity": (
            Panel(
                "Used space of the fullest volumes",
                {
                    "{{namespace}}/{{pod}} {{volume}}": (
                        "topk(10, 1 - steersman_volume_available_bytes / steersman_volume_size_bytes)"
                    )
                },
                "percentunit",
            ),
            Panel(
                "Used connections",
                {
                    "{{namespace}}/{{pod}}": (
                        "topk(10, steersman_postgresql_connections / steersman_postgresql_max_connections"
                        " or steersman_mysql_connections / steersman_mysql_max_connections)"
                    )
                },
                "percentunit",
            ),
            Panel(
                "Certificates that expire first",
                {
                    "{{namespace}}/{{pod}} {{certificate}}": (
                        "bottomk(10, steersman_certificate_not_after_timestamp_seconds - time())"
                    )
                },
                "s",
            ),
        ),
    },
    variables=(),
)
_POSTGRESQL = Dashboard(
    "postgresql",
    "Databases: PostgreSQL cluster",
    {
        "Health": (
            Panel("Primary", {"{{pod}}": _p("steersman_postgresql_is_primary")}),
            Panel("Server responds", {"{{pod}}": _p("steersman_postgresql_up")}),
            Panel("Replay lag", {"{{pod}}": _p("steersman_postgresql_replay_lag_seconds")}, "s"),
        ),
        "Load": (
            Panel(
                "Active sessions by wait event type",
                {
                    "{{wait_event_type}}": (
                        "sum by (wait_event_type) (rate("
                        + _p("steersman_postgresql_active_session_seconds_total")
                        + "[$__rate_interval]))"
                    )
                },
            ),
            Panel(
                "Transactions",
                {
                    "commits {{database}}": "sum by (database) (rate("
                    + _p("steersman_postgresql_database_commits_total")
                    + "[$__rate_interval]))",
                    "rollbacks {{database}}": "sum by (database) (rate("
                    + _p("steersman_postgresql_database_rollbacks_total")
                    + "[$__rate_interval]))",
                },
                "ops",
            ),
            Panel(
                "Connections",
                {
                    "{{pod}}": _p("steersman_postgresql_connections"),
                    "limit {{pod}}": _p("steersman_postgresql_max_connections"),
                },
            ),
            Panel(
                "Longest transaction and lock wait",
                {
                    "transaction {{pod}}": _p("steersman_postgresql_longest_transaction_seconds"),
                    "lock wait {{pod}}": _p("steersman_postgresql_longest_lock_wait_seconds"),
                },
                "s",
            ),
        ),
        "WAL": (
            Panel(
                "WAL",
                {"{{pod}}": f"rate({_p('steersman_postgresql_wal_bytes_total')}[$__rate_interval])"},
                "Bps",
            ),
            Panel(
                "WAL retained by slots",
                {"{{pod}} {{slot}}": _p("steersman_postgresql_slot_retained_bytes")},
                "bytes",
            ),
            Panel(
                "Segments that wait for the archive",
                {"{{pod}}": _p("steersman_postgresql_wal_segments_waiting_for_archive")},
            ),
            Panel(
                "Checkpoints",
                {"{{pod}} {{trigger}}": (f"rate({_p('steersman_postgresql_checkpoints_total')}[$__rate_interval])")},
            ),
        ),
        "Storage": (
            Panel("Free space", {"{{pod}} {{volume}}": _p("steersman_volume_available_bytes")}, "bytes"),
            Panel(
                "Databases",
                {"{{database}}": f"max by (database) ({_p('steersman_postgresql_database_bytes')})"},
                "bytes",
            ),
            Panel(
                "Tables with most dead rows",
                {
                    "{{database}} {{schema}}.{{table}}": "topk(10, max by (database, schema, table) ("
                    + _p("steersman_postgresql_table_dead_rows")
                    + "))"
                },
            ),
            Panel("Age of transaction IDs", {"{{pod}}": _p("steersman_postgresql_transaction_id_age")}),
        ),
    },
)
_MYSQL = Dashboard(
    "mysql",
    "Databases: MySQL cluster",
    {
        "Health": (
            Panel("Primary", {"{{pod}}": _p("steersman_mysql_is_primary")}),
            Panel("Members that are reached", {"{{pod}}": _p("steersman_mysql_group_members_reachable")}),
            Panel("Apply lag", {"{{pod}}": _p("steersman_mysql_apply_lag_seconds")}, "s"),
            Panel("Apply queue", {"{{pod}}": _p("steersman_mysql_apply_queue")}),
        ),
        "Load": (
            Panel(
                "Statements",
                {"{{pod}}": f"rate({_p('steersman_mysql_statements_total')}[$__rate_interval])"},
                "ops",
            ),
            Panel("Threads running", {"{{pod}}": _p("steersman_mysql_threads_running")}),
            Panel(
                "Connections",
                {
                    "{{pod}}": _p("steersman_mysql_connections"),
                    "limit {{pod}}": _p("steersman_mysql_max_connections"),
                },
            ),
            Panel("Row lock waits", {"{{pod}}": _p("steersman_mysql_row_lock_waits")}),
        ),
        "Storage": (
            Panel("Free space", {"{{pod}} {{volume}}": _p("steersman_volume_available_bytes")}, "bytes"),
            Panel(
                "Databases", {"{{database}}": f"max by (database) ({_p('steersman_mysql_database_bytes')})"}, "bytes"
            ),
            Panel("Binary logs", {"{{pod}}": _p("steersman_mysql_binary_log_bytes")}, "bytes"),
            Panel(
                "Buffer pool hits",
                {
                    "{{pod}}": f"1 - rate({_p('steersman_mysql_buffer_pool_reads_total')}[$__rate_interval])"
                    f" / rate({_p('steersman_mysql_buffer_pool_read_requests_total')}[$__rate_interval])"
                },
                "percentunit",
            ),
        ),
    },
)
_OPERATOR = Dashboard(
    "operator",
    "Databases: operator",
    {
        "Reconciles": (
            Panel(
                "Reconciles",
                {
                    "{{controller}}": (
                        "sum by (controller) (rate(controller_runtime_reconcile_total[$__rate_interval]))"
                    )
                },
                "ops",
            ),
            Panel(
                "Errors",
                {
                    "{{controller}}": (
                        "sum by (controller) (rate(controller_runtime_reconcile_errors_total[$__rate_interval]))"
                    )
                },
                "ops",
            ),
            Panel("Queue", {"{{name}}": "workqueue_depth"}),
            Panel("Leader", {"{{pod}}": "leader_election_master_status"}),
        ),
        "Clusters": (
            Panel(
                "Conditions that are false",
                {"{{namespace}}/{{dbcluster}} {{type}}: {{reason}}": "steersman_cluster_condition == 0"},
            ),
        ),
    },
    variables=(),
)
DASHBOARDS = (_FLEET, _POSTGRESQL, _MYSQL, _OPERATOR)


def dashboard_config_maps() -> Sequence[Mapping[str, Any]]:
    """Return a ConfigMap for each dashboard."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"steersman-databases-dashboard-{one.name}",
                "namespace": "steersman-databases-system",
                "labels": {"grafana_dashboard": "1"},
            },
            "data": {f"steersman-databases-{one.name}.json": json.dumps(_dashboard(one), indent=1)},
        }
        for one in DASHBOARDS
    ]


def _dashboard(one: Dashboard) -> Mapping[str, Any]:
    variables: list[Mapping[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    ]
    selected = ""
    for name in one.variables:
        variables.append(
            {
                "name": name,
                "type": "query",
                "datasource": _DATASOURCE,
                "query": f"label_values(steersman_volume_size_bytes{{{selected}}}, {name})",
                "refresh": 2,
                "includeAll": True,
                "multi": True,
            }
        )
        selected = f'{name}=~"${name}"'
    return {
        "uid": f"steersman-databases-{one.name}",
        "title": one.title,
        "tags": ["steersman", "databases"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "panels": list(_panels(one)),
    }


def _panels(one: Dashboard) -> Iterator[Mapping[str, Any]]:
    top, number = 0, 1
    for title, panels in one.rows.items():
        yield {"id": number, "type": "row", "title": title, "gridPos": _position(0, top, _WIDTH, 1), "panels": []}
        number, top = number + 1, top + 1
        width = _WIDTH // len(panels)
        for index, panel in enumerate(panels):
            yield {
                "id": number,
                "type": "timeseries",
                "title": panel.title,
                "datasource": _DATASOURCE,
                "gridPos": _position(index * width, top, width, 8),
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {
                        "refId": chr(ord("A") + target),
                        "datasource": _DATASOURCE,
                        "expr": expression,
                        "legendFormat": legend,
                    }
                    for target, (legend, expression) in enumerate(panel.queries.items())
                ],
            }
            number += 1
        top += 8


def _position(x: int, y: int, width: int, height: int) -> Mapping[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}
