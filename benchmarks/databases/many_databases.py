"""Time to Ready and resource usage for hundreds of databases and users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from benchmarks.databases import drift
from benchmarks.databases.scenarios import DatabaseBenchmark
from benchmarks.measurement import Measurement
from database_support.e2e.cluster import API, ClusterUnderTest, NamespaceClient

DATABASES, USERS = 200, 1000
_BATCH = 100
_TIMEOUT_SECONDS = 3600.0
_INSPECTIONS = 5  # connection samples per list of objects, because a list of 1,200 objects costs CPU time
_REST_SECONDS = 180.0
_SETTLE_SECONDS = 60.0
_REPAIR_METRICS = 5
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'steersman'"


def workload_title(databases: int, users: int) -> str:
    """Return the title for this number of databases and users."""
    return f"{databases} Databases, {users} DatabaseUsers"


def repair_metric(drift: str) -> str:
    """Return the name of a drift's repair metric."""
    return f"{drift}: healed after"


def measure(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
    """Measure creation on a new cluster per run, then resources at rest."""
    for _ in range(bench.runs):
        with bench.cluster("contents", 1) as cluster:
            yield from _run(bench, title, cluster)


def _run(bench: DatabaseBenchmark, title: str, cluster: ClusterUnderTest) -> Iterator[Measurement]:
    workload = workload_title(bench.databases, bench.users)

    def figure(metric: str, value: float, unit: str) -> Measurement:
        bench.print_line(f"{metric}: {value:.1f} {unit}".rstrip())
        return Measurement(title, workload, metric, value, unit)

    before = bench.operator.usage()
    begun = time.time()
    for batch in _batches(objects(cluster.name, bench.databases, bench.users)):
        cluster.namespace_client.create(*batch)
    most, memory = 0, before.memory
    done: dict[str, float] = {}
    while len(done) < 2:
        if time.time() - begun > _TIMEOUT_SECONDS:
            raise TimeoutError(
                f"not all are Ready after {_TIMEOUT_SECONDS:.0f} s: {_describe_unready(cluster.namespace_client)}"
            )
        for _ in range(_INSPECTIONS):
            time.sleep(1)
            most = max(most, _open_connections(cluster))
        memory = max(memory, bench.operator.latest().memory)
        for kind, count in (("databases", bench.databases), ("databaseusers", bench.users)):
            if kind not in done and len(moments := ready_timestamps(cluster.namespace_client.all(kind))) == count:
                done[kind] = max(moments) - begun
    after = bench.operator.usage()
    number = bench.databases + bench.users
    yield figure("all Databases Ready", done["databases"], "s")
    yield figure("all DatabaseUsers Ready", done["databaseusers"], "s")
    yield figure("operator's CPU per object", after.cpu_since(before) / number * 1000, "ms")
    yield figure("operator's memory, at the most", memory, "MiB")
    yield figure("connections to the server, at the most", most, "")
    time.sleep(_SETTLE_SECONDS)
    yield from _measure_at_rest(bench, cluster, figure)
    yield from _measure_drift_repair(bench, cluster, figure)


def _measure_at_rest(bench: DatabaseBenchmark, cluster: ClusterUnderTest, figure: Any) -> Iterator[Measurement]:
    started, initial_connections = bench.operator.usage(), list[int]()
    until = time.monotonic() + _REST_SECONDS
    while time.monotonic() < until:
        initial_connections.append(_open_connections(cluster))
        time.sleep(1)
    ended = bench.operator.usage()
    yield figure(
        "operator's CPU at rest",
        ended.cpu_since(started) / (ended.timestamp - started.timestamp) * 100,
        "% of a core",
    )
    yield figure("operator's memory at rest", ended.memory, "MiB")
    yield figure("connections at rest, mostly", sorted(initial_connections)[len(initial_connections) // 2], "")
    yield figure("connections at rest, at the most", max(initial_connections), "")


def _measure_drift_repair(bench: DatabaseBenchmark, cluster: ClusterUnderTest, figure: Any) -> Iterator[Measurement]:
    """Measure drift repair in one database while the operator inspects all."""
    cluster.sql("SET ROLE owner_0; CREATE TABLE kept (n int)", "shop_0")
    each = drift.drift_causes(cluster, "shop_0", drift.drifts("owner_0", "clerk_0"))
    for name, seconds in drift.measure_repairs(bench, _REPAIR_METRICS, each):
        yield figure(repair_metric(name), seconds, "s")


def objects(cluster: str, databases: int, users: int) -> Iterator[dict[str, Any]]:
    """Yield the objects: each user may read one database, including future tables."""
    reference = {"clusterRef": {"name": cluster}}
    for number in range(databases):
        spec = {**reference, "databaseName": f"shop_{number}", "username": f"owner_{number}"}
        yield _object("Database", f"shop-{number}", spec)
    for number in range(users):
        database = f"shop_{number % databases}"
        public = {"database": database, "schema": "public"}
        grants = [
            {"database": database, "privileges": ["CONNECT"]},
            {**public, "privileges": ["USAGE"]},
            {**public, "tables": ["*"], "privileges": ["SELECT"], "future": True},
        ]
        yield _object("DatabaseUser", f"clerk-{number}", {**reference, "user": f"clerk_{number}", "grants": grants})


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _batches(objects_to_apply: Iterable[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    remaining = iter(objects_to_apply)
    while batch := tuple(islice(remaining, _BATCH)):
        yield batch


def _open_connections(cluster: ClusterUnderTest) -> int:
    return int(cluster.sql(CONNECTIONS))


def ready_timestamps(items: Iterable[dict[str, Any]]) -> list[float]:
    """Return the Unix timestamps at which objects became Ready."""
    moments = (
        c["lastTransitionTime"]
        for item in items
        for c in item.get("status", {}).get("conditions", ())
        if c["type"] == "Ready" and c["status"] == "True"
    )
    return [datetime.fromisoformat(moment).timestamp() for moment in moments]


def _describe_unready(place: NamespaceClient) -> str:
    messages = {
        c["message"]
        for kind in ("databases", "databaseusers")
        for item in place.all(kind)
        for c in item.get("status", {}).get("conditions", ())
        if c["type"] == "Ready" and c["status"] != "True"
    }
    return json.dumps(sorted(messages)[:5])
