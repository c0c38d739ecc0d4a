"""Write outage and data loss after faults, with the operator stopped.

One client writes 50 rows per second through the -rw Service. The gap is the longest time between two acknowledged
writes. Lost rows were acknowledged, but are missing afterwards.

    make bench-databases BENCH="--scenario failover --runs 5"
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks.databases import faults
from benchmarks.databases.scenarios import DatabaseBenchmark
from benchmarks.databases.write_gaps import Row, longest_gap, parse_acknowledged
from benchmarks.measurement import Figure, Measurement
from database_support.e2e.engines import POSTGRESQL as ENGINE
from database_support.e2e.patroni_cluster import PatroniCluster, view, with_mode
from database_support.nodes import lost_nodes
from devcluster.images import POSTGRESQL, POSTGRESQL_15, POSTGRESQL_18, ensure, load
from devcluster.progress import Progress
from devcluster.target import Target, wait_until
from steersman_databases.engines.cluster_engine import SynchronousMode

RECIPES = {"15": POSTGRESQL_15, "17": POSTGRESQL, "18": POSTGRESQL_18}
VERSION = "17"
RATE = 50.0  # rows per second
MODES: tuple[SynchronousMode, ...] = ("Quorum", "Priority")
_SETTLE_SECONDS = 5.0  # seconds of writing before a fault and after the recovery
_TIMEOUT_SECONDS = 180.0

Fault = Literal["process", "force-deleted", "deleted", "switchover", "cut-off", "node-cut-off", "standby-restarted"]
NODE: Literal["node-cut-off"] = "node-cut-off"


def kill_process(cluster: PatroniCluster, primary: str) -> None:
    """Kill the postmaster and keep Patroni running."""
    cluster.execute(primary, "sh", "-c", f"kill -9 $({ENGINE.pid})")


def switchover(cluster: PatroniCluster, primary: str) -> None:
    """Request a switchover in the operator's way."""
    cluster.switch_over()


def restart_standby(cluster: PatroniCluster, primary: str) -> None:
    """Kill a synchronous standby."""
    kill_process(cluster, cluster.synchronous()[0])


@contextmanager
def run_instant_fault(
    fault: Callable[[PatroniCluster, str], None], cluster: PatroniCluster, primary: str
) -> Generator[None]:
    """Inject a fault without a duration."""
    fault(cluster, primary)
    yield


def isolate_pod(cluster: PatroniCluster, primary: str) -> AbstractContextManager[None]:
    """Cut the pod's network while both sides keep running."""
    return faults.dropped_packets(cluster, primary, "--source", "--destination")


def isolate_node(cluster: PatroniCluster, primary: str) -> AbstractContextManager[object]:
    """Drop all packets from and to the primary's node."""
    return lost_nodes.isolated(cluster.nodes()[primary])


FAULTS: Mapping[Fault, Callable[[PatroniCluster, str], AbstractContextManager[object]]] = {
    "process": partial(run_instant_fault, kill_process),
    "force-deleted": partial(run_instant_fault, faults.force_delete_pod),
    "deleted": partial(run_instant_fault, faults.delete_pod),
    "switchover": partial(run_instant_fault, switchover),
    "standby-restarted": partial(run_instant_fault, restart_standby),
    "cut-off": isolate_pod,
    NODE: isolate_node,
}


@dataclass(frozen=True)
class WriterPod:
    """Pod of the writing client."""

    cluster: PatroniCluster
    name: str = "writer"

    def start(self, password: str) -> None:
        """Start an unprivileged writer, preferably on another node than the primary."""
        leader = self.cluster.leader() or ""
        for statement in (
            "DROP TABLE IF EXISTS written",
            "DROP ROLE IF EXISTS writer",
            f"CREATE ROLE writer LOGIN PASSWORD '{password}'",
            "CREATE TABLE written (number bigint PRIMARY KEY)",
            "GRANT INSERT ON written TO writer",
        ):
            self.cluster.sql(leader, statement)
        nodes = self.cluster.nodes()
        other_nodes = next((node for node in nodes.values() if node != nodes.get(leader)), "")
        service = self.cluster.declared.names.service("rw")
        conninfo = (
            f"host={service.name} dbname=postgres user=writer sslmode=require "
            # The shortest timeout that drivers allow for an unresponsive server.
            "connect_timeout=2 tcp_user_timeout=1000 keepalives_idle=1 keepalives_interval=1 keepalives_count=1"
        )
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name}}
        script = Path(__file__).with_name("writer.py").read_text()
        source = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name},
            "data": {"writer.py": script},
        }
        reference = {"secretKeyRef": {"name": self.name, "key": "password"}}
        container = {
            "name": "writer",
            "image": self.cluster.declared.image,
            "command": ["python3", "/source/writer.py", "psycopg2", conninfo, str(RATE)],
            "env": [{"name": "PGPASSWORD", "valueFrom": reference}],
            "volumeMounts": [{"name": "source", "mountPath": "/source"}],
            "resources": {"requests": {"cpu": "50m"}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name},
            "spec": {
                "containers": [container],
                "nodeSelector": {"kubernetes.io/hostname": other_nodes} if other_nodes else {},
                "volumes": [{"name": "source", "configMap": {"name": self.name}}],
                "terminationGracePeriodSeconds": 0,
            },
        }
        objects = {
            "apiVersion": "v1",
            "kind": "List",
            "items": [secret | {"stringData": {"password": password}}, source, pod],
        }
        self.cluster.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(objects))
        wait_until("the client writes", lambda: len(self.acknowledged()) > RATE, seconds=60)

    def acknowledged(self) -> list[Row]:
        """Return the acknowledged rows in order."""
        completed = self.cluster.target.try_kubectl(f"--namespace={self.cluster.namespace}", "logs", self.name)
        return parse_acknowledged(completed.stdout.splitlines())

    def stop(self) -> None:
        self.cluster.kubectl("delete", "pod", self.name, "--ignore-not-found", "--force", "--grace-period=0")


@contextmanager
def running_writer(cluster: PatroniCluster) -> Generator[WriterPod]:
    """Run a writer during the block."""
    writer = WriterPod(cluster)
    writer.stop()
    writer.start(secrets.token_urlsafe(16))
    try:
        yield writer
    finally:
        writer.stop()


def run(cluster: PatroniCluster, fault: Fault) -> Iterator[Figure]:
    """Measure one fault, from a healthy cluster to a recovered one."""
    wait_until("all stream", cluster.settled, seconds=_TIMEOUT_SECONDS)
    with running_writer(cluster) as writer:
        time.sleep(_SETTLE_SECONDS)
        primary = cluster.leader() or ""
        started_at = time.time()
        changes = fault != "standby-restarted"
        with FAULTS[fault](cluster, primary):
            wait_until(
                "writes go on",
                lambda: cluster.leader() != primary or not changes if writer_resumed(writer, started_at) else None,
                seconds=_TIMEOUT_SECONDS,
            )
        wait_until("all stream again", cluster.settled, seconds=_TIMEOUT_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        rows = writer.acknowledged()
    stored_rows = set(map(int, cluster.sql(cluster.leader() or "", "SELECT number FROM written").split()))
    yield Figure("write gap", longest_gap(rows), "s")
    yield Figure("lost rows", float(len({row.number for row in rows} - stored_rows)), "")


def writer_resumed(writer: WriterPod, since: float) -> bool:
    """Return True if writes are acknowledged again after the fault."""
    rows = writer.acknowledged()
    return bool(rows) and rows[-1].moment > max(since + 3, time.time() - 1)


@contextmanager
def running_cluster(target: Target, image: str, version: str, mode: SynchronousMode) -> Generator[PatroniCluster]:
    """Run a cluster of three instances in a temporary namespace."""
    namespace = "bench-failover"
    target.kubectl("create", "namespace", namespace)
    try:
        cluster = PatroniCluster(target, view("pg", namespace, image, version=version, mode=mode))
        cluster.apply()
        cluster.start_all(_TIMEOUT_SECONDS)
        yield cluster
    finally:
        target.kubectl("delete", "namespace", namespace, "--timeout=180s", seconds=200)


def measure(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
    """Measure each fault in each synchronous mode. Raises as `target` and `wait_until` do."""
    image = ensure(RECIPES[VERSION], Progress())
    load(image)
    with running_cluster(bench.target, image.reference, VERSION, MODES[0]) as cluster:
        spread = len({*cluster.nodes().values()}) == len(cluster.nodes())
        if not spread:
            bench.skip_part(NODE, "it needs a node for each member (make cluster NODES=3)")
        selected_faults: list[Fault] = [fault for fault in FAULTS if spread or fault != NODE]
        for mode in MODES:
            configured = with_mode(cluster, mode)
            configured.apply()
            for _ in range(bench.runs):
                for fault in selected_faults:
                    yield from bench.measure_run(title, mode, partial(run, configured, fault), f"{fault}: ")
