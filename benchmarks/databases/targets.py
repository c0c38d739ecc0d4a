"""What the database operator must reach, and clusters without it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.databases import catalogue, contents, drift, failover, mysql_failover
from benchmarks.databases.writes import DIRECTLY, POOLED
from benchmarks.targets import Target

GAP = "write gap"
PLANNED = 2.0
"""Seconds for which writes may wait behind the pooler; a rolling update has one switchover."""
MYSQL_PLANNED, MYSQL_FAILOVER = 5.0, 15.0
HEALED = 30.0
BEFORE = {
    "process": 2.8,
    "force-deleted": 1.9,
    "deleted": 2.2,
    "cut-off": 21.6,
    failover.NODE: 21.6,
}
"""By fault, the longest gap of the cluster that was there before ours; decision 29 has it. Of a pod that alone is cut
off nothing is known from then: for the others it is what its node is.
"""
USUALLY_BEFORE = {"process": 2.0}
"""Its median, where it had runs enough for one that says something."""

_WHOLE = contents.declared(contents.DATABASES, contents.USERS)
_HARMS = tuple(harm.name for harm in drift.harms("owner", "user"))
_NO_OPERATOR = (mysql_failover.WHO,)


def _worst(scenario: str, metric: str, limit: float, *peers: str) -> Target:
    return Target(scenario, metric, limit, worst=True, peers=peers)


def _nothing_lost() -> Iterator[Target]:
    """And no two servers had writes acknowledged at a time, where that is seen."""
    for scenario in (catalogue.ROLLING, catalogue.SWITCHOVER):
        yield _worst(scenario, "lost rows", 0, DIRECTLY, POOLED)
    for scenario in (catalogue.MYSQL_ROLLING, catalogue.MYSQL_SWITCHOVER):
        yield _worst(scenario, "lost rows", 0, DIRECTLY)
    for fault in failover.FAULTS:
        yield _worst(catalogue.FAILOVER, f"{fault}: lost rows", 0, *failover.MODES)
    for scenario, faults in (
        (catalogue.MYSQL_FAILOVER, mysql_failover.FAULTS),
        (catalogue.MYSQL_OUTAGE, mysql_failover.OUTAGES),
    ):
        for fault in faults:
            for metric in ("lost rows", "two primaries"):
                yield _worst(scenario, f"{fault}: {metric}", 0, *_NO_OPERATOR)


TARGETS = (
    *(_worst(scenario, GAP, PLANNED, POOLED) for scenario in (catalogue.ROLLING, catalogue.SWITCHOVER)),
    *(_worst(scenario, "errors of the client", 0, POOLED) for scenario in (catalogue.ROLLING, catalogue.SWITCHOVER)),
    *(
        _worst(scenario, GAP, MYSQL_PLANNED, DIRECTLY)
        for scenario in (catalogue.MYSQL_ROLLING, catalogue.MYSQL_SWITCHOVER)
    ),
    *(_worst(catalogue.FAILOVER, f"{fault}: {GAP}", seconds, *failover.MODES) for fault, seconds in BEFORE.items()),
    *(
        Target(catalogue.FAILOVER, f"{fault}: {GAP}", seconds, peers=failover.MODES)
        for fault, seconds in USUALLY_BEFORE.items()
    ),
    *(
        _worst(catalogue.MYSQL_FAILOVER, f"{fault}: {GAP}", MYSQL_FAILOVER, *_NO_OPERATOR)
        for fault in mysql_failover.FAULTS
    ),
    *(_worst(catalogue.DRIFT, harm, HEALED, drift.WHO) for harm in (*_HARMS, drift.PARAMETER, drift.SERVICE)),
    *(_worst(catalogue.MANY, contents.healing(harm), HEALED, _WHOLE) for harm in _HARMS),
    *_nothing_lost(),
)
