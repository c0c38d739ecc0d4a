"""All database scenarios and the chart of their results."""

from __future__ import annotations

from functools import partial

from benchmarks.databases import creation, drift, failover, many_databases, mysql_failover, planned_disruptions
from benchmarks.databases.scenarios import DatabaseScenario
from benchmarks.plot import Panel, PlotSpec
from benchmarks.summary import Summary
from database_support.e2e.engines import MYSQL

CREATION = "A cluster is made"
MANY = "Many databases and users of one cluster"
DRIFT = "Changed behind the operator's back"
ROLLING = "Rolling update, 50 writes a second"
SWITCHOVER = "Switchover, 50 writes a second"
FAILOVER = "Faults, 50 writes a second, no operator"
MYSQL_ROLLING = "Rolling update of MySQL, 50 writes a second"
MYSQL_SWITCHOVER = "Switchover of MySQL, 50 writes a second"
MYSQL_FAILOVER = "Faults of MySQL, 50 writes a second, no operator"
MYSQL_OUTAGE = "Outage of all of MySQL, 50 writes a second, no operator"
WORST = 20
"""Runs of that whose worst counts."""

SCENARIOS = (
    DatabaseScenario("creation", CREATION, creation.measure),
    DatabaseScenario("contents", MANY, many_databases.measure, 1),
    DatabaseScenario("drift", DRIFT, drift.measure),
    DatabaseScenario("rolling", ROLLING, planned_disruptions.rolling_update, WORST),
    DatabaseScenario("switchover", SWITCHOVER, planned_disruptions.switchover, WORST),
    DatabaseScenario("failover", FAILOVER, failover.measure),
    DatabaseScenario(
        "rolling-mysql", MYSQL_ROLLING, partial(planned_disruptions.rolling_update, engine=MYSQL), WORST
    ),
    DatabaseScenario(
        "switchover-mysql", MYSQL_SWITCHOVER, partial(planned_disruptions.switchover, engine=MYSQL), WORST
    ),
    DatabaseScenario("failover-mysql", MYSQL_FAILOVER, mysql_failover.measure, WORST),
    DatabaseScenario("outage-mysql", MYSQL_OUTAGE, mysql_failover.outage, WORST),
)


def picture(summaries: list[Summary]) -> PlotSpec:
    """Define the chart: one panel per metric that matters to users."""
    drift_metrics = [s.metric for s in summaries if s.scenario == DRIFT]
    panels = [
        Panel(CREATION, "apply to Ready", "A cluster is made: from apply to Ready, s"),
        Panel(MANY, "all Databases Ready", "All Databases are Ready, s"),
        Panel(MANY, "all DatabaseUsers Ready", "All DatabaseUsers are Ready, s"),
        Panel(MANY, "operator's CPU at rest", "Operator at rest: % of a core"),
        Panel(MANY, "operator's memory at rest", "Operator at rest: MiB"),
        *(
            Panel(DRIFT, name, f"{name[0].upper()}{name[1:]}: healed after, s")
            for name in dict.fromkeys(drift_metrics)
        ),
        Panel(ROLLING, "write gap", "Rolling update: longest gap in writes, s"),
        Panel(SWITCHOVER, "write gap", "Switchover: longest gap in writes, s"),
        *_faults(summaries, FAILOVER, ""),
        Panel(MYSQL_ROLLING, "write gap", "MySQL, rolling update: longest gap in writes, s"),
        Panel(MYSQL_SWITCHOVER, "write gap", "MySQL, switchover: longest gap in writes, s"),
        *_faults(summaries, MYSQL_FAILOVER, "MySQL, "),
        *_faults(summaries, MYSQL_OUTAGE, "MySQL, "),
    ]
    peers = list(dict.fromkeys(summary.peer for summary in summaries))
    return PlotSpec("The database operator", panels, peers, frozenset(peers))


def _faults(summaries: list[Summary], scenario: str, prefix: str) -> list[Panel]:
    names = [s.metric for s in summaries if s.scenario == scenario and s.metric.endswith("write gap")]
    return [
        Panel(scenario, name, f"{prefix}{name.partition(':')[0]}: longest gap, s") for name in dict.fromkeys(names)
    ]
