"""A primary is lost while two clients write: one through -rw, and one to that server alone."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.databases import write_gaps, writer

from database_support.e2e.cluster import RATE, ClusterUnderTest, SqlClient, WriteLog, writing
from devcluster.errors import CommandFailed


@dataclass(frozen=True)
class Failover:
    """What the two have seen of who was the primary, and of who is it since."""

    cluster: ClusterUnderTest
    previous_primary: str
    names: Collection[str]
    """What other clients call the former primary's server."""
    through: WriteLog
    direct: WriteLog

    def wait_for_other_leader(self, seconds: float = 90) -> None:
        """Waits until another instance does, clients find it, and it takes writes."""
        cluster = self.cluster
        cluster.until("another leads", lambda: cluster.leader not in ("", self.previous_primary), seconds)
        self.wait_for_leader(30)

    def wait_for_leader(self, seconds: float = 240) -> None:
        """Waits until clients find the primary, whoever it is, and it takes writes."""
        cluster = self.cluster
        cluster.until("-rw leads to who leads", lambda: cluster.endpoints() == [f"{cluster.leader}-0"], seconds)
        self.through.wait_for_writes(time.time(), seconds=240)

    def wait_for_followers(self, seconds: float = 300) -> None:
        """Waits until who leads has all others behind it, with the operator away too."""
        cluster, others = self.cluster, str(self.cluster.spec["instances"] - 1)
        cluster.until("all follow", lambda: cluster.sql(cluster.engine.is_following) == others, seconds)
        self.through.wait_for_writes(time.time())

    @property
    def lost_rows(self) -> int:
        """How many rows were acknowledged to either and are not there."""
        self.direct.read_log()
        return self.through.lost_rows() + self.direct.lost_rows()

    def two_primaries_seconds(self, since: float) -> float:
        """For how many seconds the former primary acknowledged rows while another did."""
        self.direct.read_log()
        return write_gaps.dual_primary_seconds(self.direct.acknowledged, self.through.acknowledged, since, self.names)

    def assert_safe(self, since: float) -> float:
        """The longest time without a write; nothing is lost, and there were no two primaries at a time."""
        assert self.two_primaries_seconds(since) == 0.0, "two primaries at a time"
        assert self.lost_rows == 0
        return self.through.longest_gap


@dataclass
class PodWriteLog(WriteLog):
    """A client in the pod of a server: it reaches that one, whatever becomes of the network, and no other."""

    log: IO[str] | None = None

    def read_log(self) -> None:
        """Reads its log."""
        assert self.log is not None
        self.acknowledged = write_gaps.parse_acknowledged(Path(self.log.name).read_text().splitlines())


@contextmanager
def writing_in_pod(cluster: ClusterUnderTest, instance: str, secret: str, table: str) -> Generator[PodWriteLog]:
    """It writes as the owner of a database. It ends with its pod, or with the block."""
    entries, engine, target = cluster.namespace_client.secret(secret), cluster.engine, cluster.namespace_client.target
    cluster.sql(engine.create_table(table, entries["user"]), entries["dbname"])
    login = engine.connection_string(entries, "127.0.0.1", verified=False)
    # The password is the first line of what it reads, and the program the rest.
    script = f'read -r {engine.password}; export {engine.password}; echo pid $$; exec python3 - "$@"'
    where = ("--stdin", f"{instance}-0", "--container=server", "--", "sh", "-c", script, "sh")
    config = [] if target.kubeconfig is None else [f"--kubeconfig={target.kubeconfig}"]
    command = [target.kubectl_path, *config, f"--namespace={cluster.namespace_client.namespace}", "exec", *where]
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            [*command, engine.driver, login, str(RATE), table],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(f"{entries['password']}\n{Path(writer.__file__).read_text()}")
        process.stdin.close()
        seen = PodWriteLog(SqlClient(cluster, secret), table, log=log)

        def writes() -> bool:
            seen.read_log()
            return len(seen.acknowledged) > RATE

        try:
            cluster.until("it writes beside the server", writes, 60)
            yield seen
        finally:
            process.kill()
            process.wait()
            _end(cluster, instance, Path(log.name).read_text())


def _end(cluster: ClusterUnderTest, instance: str, log: str) -> None:
    """What kubectl has started goes on without it, unless the pod is another one by now."""
    for number in (line.split()[1] for line in log.splitlines() if line.startswith("pid ")):
        with contextlib.suppress(CommandFailed):
            own = f"grep -qa {cluster.engine.driver} /proc/{number}/cmdline"
            cluster.execute(instance, "sh", "-c", f"{own} && kill {number}")


@contextmanager
def failover_under_load(
    cluster: ClusterUnderTest, secret: str = "shop-app", *, by_node: bool = False
) -> Generator[Failover]:
    """Both write meanwhile: one on another node than the primary's, where there is one.

    Args:
        by_node: the other one has a pod of its own on the primary's node, since nobody reaches into it. It reaches
            the server at that one's own name, which no Service leads elsewhere.
    """
    former, nodes = cluster.leader, cluster.nodes()
    away = next((node for node in nodes.values() if node != nodes[former]), "")
    with ExitStack() as stack:
        through = stack.enter_context(writing(cluster, secret, on=away))
        if by_node:
            host = f"{former}-0.{cluster.name}-headless.{cluster.namespace_client.namespace}.svc"
            direct = stack.enter_context(writing(cluster, secret, host, on=nodes[former], table="direct"))
        else:
            direct = stack.enter_context(writing_in_pod(cluster, former, secret, "direct"))
        pod = cluster.pod(former)
        yield Failover(cluster, former, {pod["status"]["podIP"], pod["metadata"]["name"]}, through, direct)
