"""Targets of the database operator, and of clusters without an operator."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.databases import catalog, drift, failover, many_databases, mysql_failover
from benchmarks.databases.planned_disruptions import DIRECT, POOLED
from benchmarks.targets import Target

FAILOVER_GAP_SECONDS = "write gap"
PLANNED_GAP_SECONDS = 2.0
"""Longest write outage through the pooler. A rolling update contains one switchover."""
MYSQL_PLANNED_GAP_SECONDS, MYSQL_FAILOVER_GAP_SECONDS = 5.0, 15.0
DRIFT_REPAIR_SECONDS = 30.0
BEFORE = {
    "process": 2.8,
    "force-deleted": 1.9,
    "deleted": 2.2,
    "cut-off": 21.6,
    failover.NODE: 21.6,
}
"""Longest gap per fault of the previous cluster design; see decision 29.

No previous value exists for a pod that is cut off alone, so its node's value applies.
"""
USUALLY_BEFORE = {"process": 2.0}
"""Median of the previous design, for faults with enough runs."""

_RECOVERY_METRICS = many_databases.workload_title(many_databases.DATABASES, many_databases.USERS)
_DRIFTS = tuple(harm.name for harm in drift.drifts("owner", "user"))
_WITHOUT_OPERATOR = (mysql_failover.PEER,)


def _worst(scenario: str, metric: str, limit: float, *peers: str) -> Target:
    return Target(scenario, metric, limit, worst=True, peers=peers)


def _no_data_loss_targets() -> Iterator[Target]:
    """Yield the targets for lost rows and for dual primaries."""
    for scenario in (catalog.ROLLING, catalog.SWITCHOVER):
        yield _worst(scenario, "lost rows", 0, DIRECT, POOLED)
    for scenario in (catalog.MYSQL_ROLLING, catalog.MYSQL_SWITCHOVER):
        yield _worst(scenario, "lost rows", 0, DIRECT)
    for fault in failover.FAULTS:
        yield _worst(catalog.FAILOVER, f"{fault}: lost rows", 0, *failover.MODES)
    for scenario, faults in (
        (catalog.MYSQL_FAILOVER, mysql_failover.FAULTS),
        (catalog.MYSQL_OUTAGE, mysql_failover.OUTAGES),
    ):
        for fault in faults:
            for metric in ("lost rows", "two primaries"):
                yield _worst(scenario, f"{fault}: {metric}", 0, *_WITHOUT_OPERATOR)


TARGETS = (
    *(
        _worst(scenario, FAILOVER_GAP_SECONDS, PLANNED_GAP_SECONDS, POOLED)
        for scenario in (catalog.ROLLING, catalog.SWITCHOVER)
    ),
    *(_worst(scenario, "errors of the client", 0, POOLED) for scenario in (catalog.ROLLING, catalog.SWITCHOVER)),
    *(
        _worst(scenario, FAILOVER_GAP_SECONDS, MYSQL_PLANNED_GAP_SECONDS, DIRECT)
        for scenario in (catalog.MYSQL_ROLLING, catalog.MYSQL_SWITCHOVER)
    ),
    *(
        _worst(catalog.FAILOVER, f"{fault}: {FAILOVER_GAP_SECONDS}", seconds, *failover.MODES)
        for fault, seconds in BEFORE.items()
    ),
    *(
        Target(catalog.FAILOVER, f"{fault}: {FAILOVER_GAP_SECONDS}", seconds, peers=failover.MODES)
        for fault, seconds in USUALLY_BEFORE.items()
    ),
    *(
        _worst(
            catalog.MYSQL_FAILOVER,
            f"{fault}: {FAILOVER_GAP_SECONDS}",
            MYSQL_FAILOVER_GAP_SECONDS,
            *_WITHOUT_OPERATOR,
        )
        for fault in mysql_failover.FAULTS
    ),
    *(
        _worst(catalog.DRIFT, harm, DRIFT_REPAIR_SECONDS, drift.PEER)
        for harm in (*_DRIFTS, drift.PARAMETER, drift.SERVICE)
    ),
    *(
        _worst(catalog.MANY, many_databases.repair_metric(harm), DRIFT_REPAIR_SECONDS, _RECOVERY_METRICS)
        for harm in _DRIFTS
    ),
    *_no_data_loss_targets(),
)
