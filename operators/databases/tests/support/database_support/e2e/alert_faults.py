"""Faults in running clusters, by the alert that each of them must fire."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress

from database_support.e2e.cluster import ClusterUnderTest
from devcluster.errors import CommandFailed

Fault = Callable[[ClusterUnderTest], AbstractContextManager[None]]

_SECONDS = 240
"""Bound of each fault: what it started ends by itself."""
_POSTGRESQL_SESSIONS = """
import psycopg2, sys, time
sessions = [psycopg2.connect(dbname="postgres") for _ in range(int(sys.argv[1]))]
time.sleep(float(sys.argv[2]))
"""
_MYSQL_SESSIONS = """
import pymysql, sys, time
connect = lambda: pymysql.connect(unix_socket="/run/steersman/mysqld.sock", user="root")
sessions = [connect() for _ in range(int(sys.argv[1]))]
time.sleep(float(sys.argv[2]))
"""


@contextmanager
def _background(cluster: ClusterUnderTest, instance: str, *command: str) -> Generator[None]:
    """Run a command beside a server until the end of the block."""
    script = 'timeout "$0" "$@" >/tmp/fault.log 2>&1 & echo $!'
    pid = cluster.execute(instance, "sh", "-c", script, str(_SECONDS), *command).strip()
    try:
        yield
    finally:
        cluster.execute(instance, "sh", "-c", f"kill {pid} || true")


@contextmanager
def _stopped(cluster: ClusterUnderTest, *instances: str) -> Generator[None]:
    """Stop all processes of the servers."""
    for instance in instances:
        _signal(cluster, instance, "STOP")
    try:
        yield
    finally:
        for instance in instances:
            # Its liveness probe may have failed, and its server starts again.
            with suppress(CommandFailed):
                _signal(cluster, instance, "CONT")


def _signal(cluster: ClusterUnderTest, instance: str, name: str) -> None:
    process = cluster.engine.process
    script = f'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != {process} ] || kill -{name} ${{p#/proc/}}; done'
    cluster.execute(instance, "sh", "-c", script)


def replica_stopped(cluster: ClusterUnderTest) -> AbstractContextManager[None]:
    """Stop the process of a replica's server, which then responds to nobody."""
    return _stopped(cluster, cluster.replicas[0])


def majority_stopped(cluster: ClusterUnderTest) -> AbstractContextManager[None]:
    """Stop the servers of all replicas."""
    return _stopped(cluster, *cluster.replicas)


def all_stopped(cluster: ClusterUnderTest) -> AbstractContextManager[None]:
    """Stop the servers of all instances."""
    return _stopped(cluster, *cluster.nodes())


@contextmanager
def exporter_stopped(cluster: ClusterUnderTest) -> Generator[None]:
    """Stop the exporter of a replica."""
    pod = f"{cluster.replicas[0]}-0"

    def signal(name: str) -> None:
        script = (
            "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q '[s]teersman.*metrics' "
            f"&& kill -{name} ${{p#/proc/}}; done; true"
        )
        cluster.namespace_client.kubectl("exec", pod, "--container=agent", "--", "sh", "-c", script)

    signal("STOP")
    try:
        yield
    finally:
        signal("CONT")


@contextmanager
def replay_stopped(cluster: ClusterUnderTest) -> Generator[None]:
    """Stop the process of a replica of PostgreSQL that replays WAL, while the primary writes."""
    replica = cluster.replicas[0]
    signal = "kill -{} $(grep -l [s]tartup /proc/[0-9]*/cmdline | cut -d/ -f3)"
    cluster.sql("CREATE TABLE IF NOT EXISTS lagging (at timestamptz)")
    # Patroni would resume a paused replay.
    cluster.execute(replica, "sh", "-c", signal.format("STOP"))
    cluster.sql("INSERT INTO lagging SELECT now() FROM generate_series(1, 1000)")
    try:
        yield
    finally:
        cluster.execute(replica, "sh", "-c", signal.format("CONT"))


@contextmanager
def applier_locked(cluster: ClusterUnderTest) -> Generator[None]:
    """Hold a lock on a replica of MySQL that its applier waits for, while the primary writes."""
    cluster.sql("CREATE DATABASE IF NOT EXISTS lagging")
    cluster.sql("CREATE TABLE IF NOT EXISTS lagging.t (n INT PRIMARY KEY AUTO_INCREMENT)")
    lock = "LOCK TABLES lagging.t READ; DO SLEEP(200)"
    with _background(cluster, cluster.replicas[0], *cluster.engine.admin_command(lock, "lagging")):
        cluster.sql("INSERT INTO lagging.t VALUES ()")
        yield
    cluster.sql("DROP DATABASE lagging")


def postgresql_connections(cluster: ClusterUnderTest) -> AbstractContextManager[None]:
    """Open nearly all connections of a primary of PostgreSQL."""
    return _connections(cluster, _POSTGRESQL_SESSIONS, "SELECT count(*) FROM pg_stat_activity WHERE datname <> ''")


def mysql_connections(cluster: ClusterUnderTest) -> AbstractContextManager[None]:
    """Open nearly all connections of a primary of MySQL."""
    return _connections(
        cluster,
        _MYSQL_SESSIONS,
        "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Threads_connected'",
    )


def _connections(cluster: ClusterUnderTest, program: str, count: str) -> AbstractContextManager[None]:
    maximum = int(cluster.sql(cluster.engine.show_parameter("max_connections")))
    wanted = int(maximum * 0.95) - int(cluster.sql(count)) + 2
    return _background(cluster, cluster.primary, "python3", "-c", program, str(wanted), str(_SECONDS))


@contextmanager
def postgresql_lock_wait(cluster: ClusterUnderTest) -> Generator[None]:
    """Let a session of PostgreSQL wait for another one's lock."""
    cluster.sql("CREATE TABLE IF NOT EXISTS locked (n INT)")
    lock = "BEGIN; LOCK TABLE locked; SELECT pg_sleep(230)"
    primary = cluster.primary
    with _background(cluster, primary, *cluster.engine.admin_command(lock, "postgres")):
        cluster.until(
            "locked", lambda: cluster.sql("SELECT count(*) FROM pg_locks WHERE relation = 'locked'::regclass") != "0"
        )
        with _background(cluster, primary, *cluster.engine.admin_command("SELECT * FROM locked", "postgres")):
            yield


@contextmanager
def mysql_lock_wait(cluster: ClusterUnderTest) -> Generator[None]:
    """Let a transaction of MySQL wait for another one's row lock."""
    cluster.sql("CREATE DATABASE IF NOT EXISTS waiting")
    cluster.sql("CREATE TABLE IF NOT EXISTS waiting.t (n INT PRIMARY KEY)")
    cluster.sql("REPLACE INTO waiting.t VALUES (1)")
    held = "START TRANSACTION; UPDATE t SET n = 1 WHERE n = 1; SELECT * FROM t FOR UPDATE; DO SLEEP(230)"
    waits = "SET innodb_lock_wait_timeout = 200; SELECT * FROM t FOR UPDATE"
    primary = cluster.primary
    transactions = "SELECT COUNT(*) FROM information_schema.INNODB_TRX"
    with _background(cluster, primary, *cluster.engine.admin_command(held, "waiting")):
        cluster.until("locked", lambda: cluster.sql(transactions) != "0")
        with _background(cluster, primary, *cluster.engine.admin_command(waits, "waiting")):
            yield
    cluster.sql("DROP DATABASE waiting")


@contextmanager
def volume_filled(cluster: ClusterUnderTest) -> Generator[None]:
    """Fill the data volume of a replica to 92 percent. It must have a class of limited size."""
    replica, path = cluster.replicas[0], "/var/lib/steersman/data"
    used, free = map(
        int, cluster.execute(replica, "sh", "-c", f"df -B1 {path} | awk 'NR==2 {{print $3, $4}}'").split()
    )
    size = int((used + free) * 0.92) - used
    cluster.execute(replica, "fallocate", "--length", str(size), f"{path}/filler")
    try:
        yield
    finally:
        cluster.execute(replica, "rm", "-f", f"{path}/filler")


FAULTS: Mapping[str, Mapping[str, Fault]] = {
    "postgresql": {
        "DatabaseInstanceDown": replica_stopped,
        "DatabaseMetricsMissing": exporter_stopped,
        "PostgreSQLReplicationLag": replay_stopped,
        "PostgreSQLConnectionsRunOut": postgresql_connections,
        "PostgreSQLLocksWait": postgresql_lock_wait,
        "VolumeAlmostFull": volume_filled,
        "PostgreSQLNoPrimary": all_stopped,
    },
    "mysql": {
        "DatabaseInstanceDown": replica_stopped,
        "DatabaseMetricsMissing": exporter_stopped,
        "MySQLReplicationLag": applier_locked,
        "MySQLConnectionsRunOut": mysql_connections,
        "MySQLLocksWait": mysql_lock_wait,
        "MySQLQuorumLost": majority_stopped,
        "MySQLNoPrimary": all_stopped,
    },
}
"""Faults by alert, by engine."""
