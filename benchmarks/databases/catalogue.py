"""All scenarios, and the picture of their figures."""

from __future__ import annotations

from benchmarks.databases import contents, creation, drift, failover, writes
from benchmarks.databases.scenarios import Scenario
from benchmarks.plot import Panel, Picture
from benchmarks.summary import Summary

CREATION = "A cluster is made"
MANY = "Many databases and users of one cluster"
DRIFT = "Changed behind the operator's back"
ROLLING = "Rolling update, 50 writes a second"
SWITCHOVER = "Switchover, 50 writes a second"
FAILOVER = "Faults, 50 writes a second, no operator"

SCENARIOS = (
    Scenario("creation", CREATION, creation.measure),
    Scenario("contents", MANY, contents.measure),
    Scenario("drift", DRIFT, drift.measure),
    Scenario("rolling", ROLLING, writes.rolling_update),
    Scenario("switchover", SWITCHOVER, writes.switchover),
    Scenario("failover", FAILOVER, failover.measure),
)


def picture(summaries: list[Summary]) -> Picture:
    """A panel a figure that a user waits for, or pays for."""
    drift_metrics = [s.metric for s in summaries if s.scenario == DRIFT]
    faults = [s.metric for s in summaries if s.scenario == FAILOVER and s.metric.endswith("write gap")]
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
        *(Panel(FAILOVER, name, f"{name.partition(':')[0]}: longest gap, s") for name in dict.fromkeys(faults)),
    ]
    peers = list(dict.fromkeys(summary.peer for summary in summaries))
    return Picture("The database operator", panels, peers, frozenset(peers))
