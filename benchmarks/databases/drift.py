"""Time until the operator repairs drift.

One shell in the pod of the primary causes drift inside the server and checks for its repair ten times per second. A
kubectl process per check would take longer than the repair.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.databases.scenarios import DatabaseBenchmark
from benchmarks.measurement import Measurement
from database_support.e2e.cluster import ClusterUnderTest

CauseDrift = Callable[[], float]
"""Causes drift, waits for the repair and returns its time in seconds."""
PEER = "healed after"
PARAMETER, SERVICE = "parameter changed", "Service deleted"
"""Drift outside the servers."""
_TIMEOUT_SECONDS = 120
# Longer than the interval between two inspections of a server.
_PHASE_SECONDS = 10.0
_LOOP = """
psql -XAtq -v ON_ERROR_STOP=1 -d "$1" -c "$2" || exit 1
begun=$(date +%s%N)
until [ "$(psql -XAtq -d "$1" -c "$3")" = "$4" ]; do
  [ $(( ($(date +%s%N) - begun) / 1000000000 )) -lt "$5" ] || exit 2
  sleep 0.1
done
echo $(( ($(date +%s%N) - begun) / 1000000 ))
"""


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift inside a database and the query that detects its repair."""

    name: str
    statement: str
    query: str
    expected: str


def drifts(owner: str, user: str) -> tuple[Drift, ...]:
    """Return the drifts for a database of ``owner`` with reader ``user``."""
    grants = f"SELECT has_table_privilege('{user}', '{{}}', 'SELECT')"
    return (
        Drift(
            "role dropped",
            f"DROP OWNED BY {user}; DROP ROLE {user}",
            f"SELECT has_table_privilege(oid, 'kept', 'SELECT') FROM pg_roles WHERE rolname = '{user}'",
            "t",
        ),
        Drift("grant revoked", f"REVOKE SELECT ON kept FROM {user}", grants.format("kept"), "t"),
        Drift(
            "a new table, not granted",
            f"DROP TABLE IF EXISTS later; SET ROLE {owner}; CREATE TABLE later (n int);"
            f" REVOKE ALL ON later FROM {user}",
            grants.format("later"),
            "t",
        ),
        Drift(
            "role made a superuser",
            f"ALTER ROLE {user} SUPERUSER",
            f"SELECT rolsuper FROM pg_roles WHERE rolname = '{user}'",
            "f",
        ),
    )


def measure(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
    """Measure each drift at random moments."""
    with bench.cluster("drift", 1) as cluster:
        _create_owner_and_user(cluster)
        outside: dict[str, CauseDrift] = {
            PARAMETER: lambda: _change_parameter(cluster),
            SERVICE: lambda: _delete_service(cluster),
        }
        inside = drift_causes(cluster, "shop", drifts("shop", "clerk"))
        for name, seconds in measure_repairs(bench, bench.runs, {**inside, **outside}):
            bench.print_line(f"{name}: repaired after {seconds:.1f} s")
            yield Measurement(title, PEER, name, seconds, "s")


def measure_repairs(
    bench: DatabaseBenchmark, times: int, causes: Mapping[str, CauseDrift]
) -> Iterator[tuple[str, float]]:
    """Cause each drift repeatedly and yield its name and repair time."""
    for _ in range(times):
        for name, cause in causes.items():
            time.sleep(bench.random.uniform(0, _PHASE_SECONDS))
            yield name, cause()


def _create_owner_and_user(cluster: ClusterUnderTest) -> None:
    place, reference = cluster.namespace_client, {"clusterRef": {"name": cluster.name}}
    place.apply("Database", "shop", reference)
    place.wait_reason("database", "shop", "DatabaseReady")
    cluster.sql("SET ROLE shop; CREATE TABLE kept (n int)", "shop")
    public = {"database": "shop", "schema": "public"}
    grants = [
        {"database": "shop", "privileges": ["CONNECT"]},
        {**public, "privileges": ["USAGE"]},
        {**public, "tables": ["*"], "privileges": ["SELECT"], "future": True},
    ]
    place.apply("DatabaseUser", "clerk", {**reference, "user": "clerk", "grants": grants})
    place.wait_reason("databaseuser", "clerk", "ProvisionSucceeded")


def drift_causes(cluster: ClusterUnderTest, database: str, each: Iterable[Drift]) -> Mapping[str, CauseDrift]:
    """Return the functions that cause drift in a database, by name."""
    return {drift.name: _drift_cause(cluster, database, drift) for drift in each}


def _drift_cause(cluster: ClusterUnderTest, database: str, drift: Drift) -> CauseDrift:
    command = ("sh", "-c", _LOOP, "sh", database, drift.statement, drift.query, drift.expected, str(_TIMEOUT_SECONDS))

    def cause_drift() -> float:
        return int(cluster.execute(cluster.primary, *command, seconds=_TIMEOUT_SECONDS + 30)) / 1000

    return cause_drift


def _change_parameter(cluster: ClusterUnderTest) -> float:
    """Change a parameter in Patroni's configuration and time its repair."""
    name = f"{cluster.name}-config"
    parameter_value = cluster.namespace_client.get("configmap", name)["metadata"]["annotations"]["config"]
    config: dict[str, Any] = json.loads(parameter_value)
    config["postgresql"]["parameters"]["work_mem"] = "9MB"
    begun = time.monotonic()
    cluster.namespace_client.patch("configmap", name, {"metadata": {"annotations": {"config": json.dumps(config)}}})

    def repaired() -> bool:
        annotations: dict[str, str] = cluster.namespace_client.get("configmap", name)["metadata"]["annotations"]
        configured: dict[str, Any] = json.loads(annotations["config"])["postgresql"]["parameters"]
        return configured.get("work_mem") != "9MB" and cluster.server_values("work_mem") == {"4MB"}

    return _seconds_until(repaired, begun)


def _delete_service(cluster: ClusterUnderTest) -> float:
    name = f"{cluster.name}-rw"
    uid = cluster.namespace_client.get("service", name)["metadata"]["uid"]
    begun = time.monotonic()
    cluster.namespace_client.kubectl("delete", "service", name, "--wait=false")
    return _seconds_until(
        lambda: cluster.namespace_client.get("service", name).get("metadata", {}).get("uid", uid) != uid, begun
    )


def _seconds_until(repaired: Callable[[], bool], started_at: float) -> float:
    while not repaired():
        if time.monotonic() - started_at > _TIMEOUT_SECONDS:
            raise TimeoutError(f"not repaired after {_TIMEOUT_SECONDS} s")
        time.sleep(0.1)
    return time.monotonic() - started_at
