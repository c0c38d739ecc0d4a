"""Write outage during a rolling update and a switchover by the operator.

One client writes 50 rows per second through the -rw Service and, for PostgreSQL, through the pooler. The gap is the
longest time between two acknowledged writes. Lost rows were acknowledged, but are missing afterwards.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Protocol

from benchmarks.databases.scenarios import DatabaseBenchmark
from benchmarks.measurement import Figure, Measurement
from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.engines import POSTGRESQL, EngineCommands

INSTANCES = 3
DIRECT, POOLED = "without pooler", "with pooler"
_SETTLE_SECONDS = 5.0  # seconds of writing before a change and after the recovery


class PlannedChange(Protocol):
    """A planned change of a cluster; ``number`` counts the runs."""

    def __call__(self, cluster: ClusterUnderTest, number: int) -> None:
        """Apply the change and wait for it, but not for full recovery."""
        ...


def rolling_update(
    bench: DatabaseBenchmark, title: str, engine: EngineCommands = POSTGRESQL
) -> Iterator[Measurement]:
    """Measure a rolling update that a changed memory size causes."""
    return _measure(bench, title, "rolling", _next_resources, engine)


def switchover(bench: DatabaseBenchmark, title: str, engine: EngineCommands = POSTGRESQL) -> Iterator[Measurement]:
    """Measure a switchover to another instance."""
    return _measure(bench, title, "switchover", _request_switchover, engine)


def _measure(
    bench: DatabaseBenchmark, title: str, name: str, change: PlannedChange, engine: EngineCommands
) -> Iterator[Measurement]:
    pooler = {"pooler": {"readOnly": False}} if engine is POSTGRESQL else {}
    with bench.cluster(name, INSTANCES, engine, **pooler) as cluster:
        place = cluster.namespace_client
        place.apply("Database", "shop", cluster.reference())
        place.wait_reason("database", "shop", "DatabaseReady")
        hosts_by_path = {DIRECT: ""}
        if pooler:
            rollout = ("rollout", "status", f"deployment/{cluster.name}-pooler-rw", "--timeout=120s")
            place.kubectl(*rollout, seconds=130)
            hosts_by_path[POOLED] = f"{cluster.name}-pooler-rw.{place.namespace}.svc"
        run_number = itertools.count()
        for _ in range(bench.runs):
            for who, host in hosts_by_path.items():
                yield from bench.measure_run(
                    title, who, lambda host=host: _run(cluster, host, change, next(run_number))
                )


def _run(cluster: ClusterUnderTest, host: str, change: PlannedChange, number: int) -> Iterator[Figure]:
    with writing(cluster, "shop-app", host) as rows:
        time.sleep(_SETTLE_SECONDS)
        started_at = time.monotonic()
        change(cluster, number)
        cluster.wait_ready()
        duration = time.monotonic() - started_at
        time.sleep(_SETTLE_SECONDS)
        rows.wait_for_writes(time.time())
        yield Figure("write gap", rows.longest_gap, "s")
        yield Figure("lost rows", float(rows.lost_rows()), "")
        yield Figure("errors of the client", float(len(rows.errors)), "")
        yield Figure("until all is Ready", duration, "s")


def _next_resources(cluster: ClusterUnderTest, number: int) -> None:
    resources, before = cluster.engine.small["resources"], _uids(cluster)
    usual = int(resources["limits"]["memory"].removesuffix("Mi"))
    cluster.apply(resources={**resources, "limits": {"memory": f"{usual + 8 * (1 - number % 2)}Mi"}})
    cluster.until("all pods are new", lambda: not before & _uids(cluster) and len(_uids(cluster)) == INSTANCES, 600)


def _uids(cluster: ClusterUnderTest) -> set[str]:
    chosen = f"--selector=databases.steersman.dev/cluster={cluster.name}"
    return {pod["metadata"]["uid"] for pod in cluster.namespace_client.all("pods", chosen)}


def _request_switchover(cluster: ClusterUnderTest, number: int) -> None:
    previous_primary = cluster.primary
    cluster.annotate("switchover", "any")
    cluster.until("another leads", lambda: cluster.primary not in ("", previous_primary), 60)
