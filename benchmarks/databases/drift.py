"""How long it takes until what somebody changed behind the operator's back is as declared again.

What is inside a server is spoilt and looked at by one shell in the pod of the primary, every tenth of a second: a
process of kubectl for each look would take longer than what is measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.databases.scenarios import Bench
from benchmarks.measurement import Measurement
from database_support.cluster_under_test import ClusterUnderTest

Spoil = Callable[[], float]
"""Does a harm and waits; gives after how many seconds it was healed."""
WHO = "healed after"
PARAMETER, SERVICE = "parameter changed", "Service deleted"
"""The harms outside the servers."""
_PATIENCE = 120
# Longer than any two looks of the operator at a server are apart.
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
class Harm:
    """A change inside a database, and the question whose answer is ``wanted`` once it is healed."""

    name: str
    statement: str
    question: str
    wanted: str


def harms(owner: str, user: str) -> tuple[Harm, ...]:
    """Those of a database of ``owner``, whose tables ``user`` may read, ``kept`` among them."""
    may = f"SELECT has_table_privilege('{user}', '{{}}', 'SELECT')"
    return (
        Harm(
            "role dropped",
            f"DROP OWNED BY {user}; DROP ROLE {user}",
            f"SELECT has_table_privilege(oid, 'kept', 'SELECT') FROM pg_roles WHERE rolname = '{user}'",
            "t",
        ),
        Harm("grant revoked", f"REVOKE SELECT ON kept FROM {user}", may.format("kept"), "t"),
        Harm(
            "a new table, not granted",
            f"DROP TABLE IF EXISTS later; SET ROLE {owner}; CREATE TABLE later (n int);"
            f" REVOKE ALL ON later FROM {user}",
            may.format("later"),
            "t",
        ),
        Harm(
            "role made a superuser",
            f"ALTER ROLE {user} SUPERUSER",
            f"SELECT rolsuper FROM pg_roles WHERE rolname = '{user}'",
            "f",
        ),
    )


def measure(bench: Bench, title: str) -> Iterator[Measurement]:
    """Each harm, at moments that do not keep step with the operator."""
    with bench.cluster("drift", 1) as cluster:
        _furnish(cluster)
        outside: dict[str, Spoil] = {
            PARAMETER: lambda: _parameter_changed(cluster),
            SERVICE: lambda: _service_deleted(cluster),
        }
        inside = spoiling(cluster, "shop", harms("shop", "clerk"))
        for name, seconds in healed(bench, bench.runs, {**inside, **outside}):
            bench.tell(f"{name}: healed after {seconds:.1f} s")
            yield Measurement(title, WHO, name, seconds, "s")


def healed(bench: Bench, times: int, each: Mapping[str, Spoil]) -> Iterator[tuple[str, float]]:
    """Does all so often, one after another; gives the name, and after how many seconds it was healed."""
    for _ in range(times):
        for name, spoil in each.items():
            time.sleep(bench.random.uniform(0, _PHASE_SECONDS))
            yield name, spoil()


def _furnish(cluster: ClusterUnderTest) -> None:
    place, reference = cluster.place, {"clusterRef": {"name": cluster.name}}
    place.declare("Database", "shop", reference)
    place.wait_reason("database", "shop", "DatabaseReady")
    cluster.sql("SET ROLE shop; CREATE TABLE kept (n int)", "shop")
    public = {"database": "shop", "schema": "public"}
    grants = [
        {"database": "shop", "privileges": ["CONNECT"]},
        {**public, "privileges": ["USAGE"]},
        {**public, "tables": ["*"], "privileges": ["SELECT"], "future": True},
    ]
    place.declare("DatabaseUser", "clerk", {**reference, "user": "clerk", "grants": grants})
    place.wait_reason("databaseuser", "clerk", "ProvisionSucceeded")


def spoiling(cluster: ClusterUnderTest, database: str, each: Iterable[Harm]) -> Mapping[str, Spoil]:
    """What does each harm in a database, by its name."""
    return {harm.name: _spoiling(cluster, database, harm) for harm in each}


def _spoiling(cluster: ClusterUnderTest, database: str, harm: Harm) -> Spoil:
    command = ("sh", "-c", _LOOP, "sh", database, harm.statement, harm.question, harm.wanted, str(_PATIENCE))

    def spoil() -> float:
        return int(cluster.execute(cluster.primary, *command, seconds=_PATIENCE + 30)) / 1000

    return spoil


def _parameter_changed(cluster: ClusterUnderTest) -> float:
    """In Patroni's own configuration, as by ``patronictl edit-config``, until the server has the declared one."""
    name = f"{cluster.name}-config"
    held = cluster.place.get("configmap", name)["metadata"]["annotations"]["config"]
    config: dict[str, Any] = json.loads(held)
    config["postgresql"]["parameters"]["work_mem"] = "9MB"
    begun = time.monotonic()
    cluster.place.patch("configmap", name, {"metadata": {"annotations": {"config": json.dumps(config)}}})

    def healed() -> bool:
        annotations: dict[str, str] = cluster.place.get("configmap", name)["metadata"]["annotations"]
        told: dict[str, Any] = json.loads(annotations["config"])["postgresql"]["parameters"]
        return told.get("work_mem") != "9MB" and cluster.shown("work_mem") == {"4MB"}

    return _seconds_until(healed, begun)


def _service_deleted(cluster: ClusterUnderTest) -> float:
    name = f"{cluster.name}-rw"
    uid = cluster.place.get("service", name)["metadata"]["uid"]
    begun = time.monotonic()
    cluster.place.kubectl("delete", "service", name, "--wait=false")
    return _seconds_until(
        lambda: cluster.place.get("service", name).get("metadata", {}).get("uid", uid) != uid, begun
    )


def _seconds_until(healed: Callable[[], bool], begun: float) -> float:
    while not healed():
        if time.monotonic() - begun > _PATIENCE:
            raise TimeoutError(f"not healed after {_PATIENCE} s")
        time.sleep(0.1)
    return time.monotonic() - begun
