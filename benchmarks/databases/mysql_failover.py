"""Write outage and data loss after faults of a MySQL cluster.

The operator creates the cluster and is scaled to 0 replicas during the faults. One client writes 50 rows per second
through the -rw Service. Another one writes to the primary itself, in the primary's pod. The gap is the longest time
between two acknowledged writes of the first client. Lost rows were acknowledged to either client, but are missing
afterwards. The time in which both clients receive acknowledgements is measured as well.

    make bench-databases BENCH="--scenario failover-mysql --runs 5"
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import repeat

from benchmarks.databases import faults
from benchmarks.databases.scenarios import DatabaseBenchmark
from benchmarks.measurement import Figure, Measurement
from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import MYSQL
from database_support.e2e.failovers import Failover, failover_under_load
from database_support.nodes.lost_nodes import isolated

INSTANCES = 3
NODE = "node-cut-off"
PEER = "no operator"
_SETTLE_SECONDS = 5.0  # seconds of writing before a fault and after the recovery
_TIMEOUT_SECONDS = 300.0

Fault = Callable[[ClusterUnderTest, str], AbstractContextManager[object]]
"""Context manager that injects a fault and ends it if possible."""


@contextmanager
def _run_instant_fault(
    fault: Callable[[ClusterUnderTest, str], object], cluster: ClusterUnderTest, primary: str
) -> Generator[None]:
    fault(cluster, primary)
    yield


def _kill_primary(cluster: ClusterUnderTest, primary: str) -> None:
    """Kill the server and keep its agent running."""
    cluster.signal(primary, "KILL")


def _kill_all(cluster: ClusterUnderTest, _: str) -> None:
    """Kill all servers at the same time."""
    nodes = cluster.nodes()
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(cluster.signal, nodes, repeat("KILL")))


def _delete_all(cluster: ClusterUnderTest, _: str) -> None:
    """Delete all pods by force at once."""
    cluster.namespace_client.kubectl(
        "delete", "pods", cluster.selector, "--grace-period=0", "--force", "--wait=false"
    )


def _drop_packets(*directions: faults.Direction) -> Fault:
    """Drop packets of the primary's pod."""
    return lambda cluster, primary: faults.dropped_packets(cluster.namespace_client, f"{primary}-0", *directions)


FAULTS: Mapping[str, Fault] = {
    "process": partial(_run_instant_fault, _kill_primary),
    "force-deleted": partial(
        _run_instant_fault, lambda cluster, primary: faults.force_delete_pod(cluster.namespace_client, f"{primary}-0")
    ),
    "deleted": partial(
        _run_instant_fault, lambda cluster, primary: faults.delete_pod(cluster.namespace_client, f"{primary}-0")
    ),
    "cut-off": _drop_packets("--source", "--destination"),
    "unheard": _drop_packets("--source"),
    "deaf": _drop_packets("--destination"),
    NODE: lambda cluster, primary: isolated(cluster.nodes()[primary]),
}
"""``unheard`` drops outgoing packets of the primary, ``deaf`` incoming ones."""
OUTAGES: Mapping[str, Fault] = {
    "all-killed": partial(_run_instant_fault, _kill_all),
    "all-force-deleted": partial(_run_instant_fault, _delete_all),
}


def measure(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
    """Measure each primary fault in sequence on one cluster."""
    return _measure_each(bench, title, "failover-mysql", FAULTS, Failover.wait_for_other_leader)


def outage(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
    """Measure each full outage in sequence on one cluster."""
    return _measure_each(bench, title, "outage-mysql", OUTAGES, Failover.wait_for_leader)


def _measure_each(
    bench: DatabaseBenchmark,
    title: str,
    name: str,
    faults: Mapping[str, Fault],
    recovered: Callable[[Failover, float], None],
) -> Iterator[Measurement]:
    with bench.cluster(name, INSTANCES, MYSQL) as cluster:
        cluster.namespace_client.apply("Database", "shop", cluster.reference())
        cluster.namespace_client.wait_reason("database", "shop", "DatabaseReady")
        spread = len({*cluster.nodes().values()}) == INSTANCES
        if not spread and NODE in faults:
            bench.skip_part(NODE, "it needs a node for each instance (make cluster NODES=3)")
        with e2e_operator.operator_stopped(bench.target):
            selected_faults = {name: fault for name, fault in faults.items() if spread or name != NODE}
            for _ in range(bench.runs):
                for name, fault in selected_faults.items():
                    run = partial(_run, cluster, fault, recovered, by_node=name == NODE)
                    yield from bench.measure_run(title, PEER, run, f"{name}: ")


def _run(
    cluster: ClusterUnderTest, fault: Fault, recovered: Callable[[Failover, float], None], *, by_node: bool
) -> Iterator[Figure]:
    """Measure one fault, from a healthy cluster to a recovered one."""
    with failover_under_load(cluster, by_node=by_node) as rows:
        time.sleep(_SETTLE_SECONDS)
        # A second missing member would cause quorum loss, which is a different fault.
        rows.wait_for_followers(_TIMEOUT_SECONDS)
        started_at = time.time()
        with fault(cluster, rows.previous_primary):
            recovered(rows, _TIMEOUT_SECONDS)
        rows.wait_for_followers(_TIMEOUT_SECONDS)
        duration = time.time() - started_at
        time.sleep(_SETTLE_SECONDS)
        rows.through.wait_for_writes(time.time())
        yield Figure("write gap", rows.through.longest_gap, "s")
        yield Figure("lost rows", float(rows.lost_rows), "")
        yield Figure("two primaries", rows.two_primaries_seconds(started_at), "s")
        yield Figure("until all follow", duration, "s")
