"""A primary whose Patroni hangs: its server ends before another instance may lead."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EngineCommands

pytestmark = [pytest.mark.xdist_group("hung-patroni"), pytest.mark.timeout(900)]


def patroni_process(pod_uid: str) -> int:
    """Return Patroni's process in the host's numbers. In a container it is a child of process 1, which only reaps."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            numbers = next(line.split() for line in status.read_text().splitlines() if line.startswith("NSpid:"))
            command = status.with_name("cmdline").read_bytes()
            groups = status.with_name("cgroup").read_text().replace("_", "-")
        except (OSError, StopIteration):
            continue
        if numbers[-1] != "1" and b"/usr/bin/patroni" in command and pod_uid in groups:
            return int(status.parent.name)
    raise LookupError(f"pod {pod_uid} has no Patroni")


@contextmanager
def patroni_stopped(cluster: ClusterUnderTest, instance: str) -> Generator[None]:
    process = patroni_process(cluster.pod(instance)["metadata"]["uid"])
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def server_runs(cluster: ClusterUnderTest, instance: str) -> bool:
    count = "grep -lx postgres /proc/[0-9]*/comm | wc -l"
    return cluster.execute(instance, "sh", "-c", count).strip() != "0"


def test_server_ends_before_another_leads(shared: NamespaceClient, of: EngineCommands) -> None:
    if not shared.target.is_devcluster:
        pytest.skip("stops a process of a node, which runs on this machine with the devcluster")
    two = ClusterUnderTest(shared, "two", {**of.small, "instances": 2, "deletionPolicy": "Delete"}, of)
    two.apply()
    two.wait_ready()
    shared.apply("Database", "shop", two.reference(deletionPolicy="Retain"))
    shared.wait_reason("database", "shop", "DatabaseReady")
    former = two.primary
    with writing(two, "shop-app") as seen:
        with patroni_stopped(two, former):
            two.until("the server ended", lambda: not server_runs(two, former), 40)
            assert two.leader == former, "nobody else led while it ran"
            two.until("another leads", lambda: two.leader not in ("", former), 40)
        two.wait_ready()
        seen.wait_for_writes(time.time())
        assert not seen.lost_rows(), "replication is synchronous with two instances"
    two.delete()
