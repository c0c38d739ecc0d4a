"""Exporter of an instance: collectors, threads, and HTTP server."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..paths import PATHS, InstancePaths
from ..resource_usage.present import USAGE_FILE
from .catalog import Collector, Metric
from .history.recorder import History
from .history.series import mysql_series, postgresql_series
from .history.sources import Series
from .host import AgentReport, Certificates, HostSession, Patroni, ServerUse, Volumes
from .schedule import RECONNECT_SECONDS, CollectorThread
from .server import PORT, MetricsServer
from .snapshot import OWN_METRICS, Snapshot
from .user_queries import DatabaseSessions, MySQLUserQuery, PostgreSQLUserQuery, load_queries

ENGINES = ("postgresql", "read-replica", "mysql")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Collectors that share a thread and a session."""

    connect: Callable[[], Any]
    collectors: Sequence[Collector[Any]]


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """All groups of an engine, the most important collectors first.

    `up` names the collector whose fresh values mean that the server is up. `series` are those of the history.
    """

    groups: Sequence[Group]
    series: Sequence[Series]
    up: Mapping[str, Metric] = field(default_factory=dict[str, Metric])

    def metrics(self) -> Sequence[Metric]:
        """Return every metric that can be served."""
        collected = [metric for group in self.groups for one in group.collectors for metric in one.metrics]
        return (*dict.fromkeys(collected), *self.up.values(), *OWN_METRICS)

    def snapshot(self, labels: Mapping[str, str]) -> Snapshot:
        """Return an empty snapshot for the collectors."""
        return Snapshot([one for group in self.groups for one in group.collectors], up=self.up, labels=labels)

    def start(self, snapshot: Snapshot, stop: threading.Event) -> None:
        """Start a thread for each group. They end after `stop` is set."""
        for group in self.groups:
            thread = CollectorThread(group.connect, group.collectors, snapshot)
            threading.Thread(target=thread.run, args=(stop,), name="metrics-collector", daemon=True).start()


def _host_group(paths: InstancePaths, more: Sequence[Collector[HostSession]]) -> Group:
    volumes = Volumes({"data": paths.volume, "wal": paths.wal_volume})
    certificates = Certificates({"server": paths.tls / "tls.crt", "peer": paths.peer / "tls.crt"})
    return Group(connect=HostSession, collectors=(volumes, certificates, ServerUse(paths.run / USAGE_FILE), *more))


def _user_queries(connect: Callable[[], Any], queries: Sequence[Collector[Any]]) -> Sequence[Group]:
    """Return the group of user queries. Their values are the first that the limit of series leaves out."""
    return (Group(connect=connect, collectors=queries),) if queries else ()


def postgresql_exporter(
    server_version: int, paths: InstancePaths, address: Any = None, *, patroni: bool = True
) -> Exporter:
    """Return the exporter of a PostgreSQL instance.

    Args:
        server_version: version as a number, such as 170005.
        paths: directories of the pod.
        address: `ServerAddress` of PostgreSQL. Defaults to the socket in `paths.run`.
        patroni: the instance is a member of a Patroni cluster. A read replica is not.
    """
    # The image of the other engine does not have the driver.
    from .postgresql.collectors import DatabaseSizes, DatabaseTour, Tables, WaitSampler
    from .postgresql.queries import UP, server_queries
    from .postgresql.session import PostgreSQLSession, ServerAddress

    server = address or ServerAddress(host=str(paths.run))
    login = server.for_user_queries()
    return Exporter(
        groups=(
            Group(
                connect=lambda: PostgreSQLSession(server), collectors=(*server_queries(server_version), WaitSampler())
            ),
            _host_group(paths, [Patroni(paths.tls / "ca.crt")] if patroni else []),
            Group(connect=lambda: DatabaseTour(server), collectors=(DatabaseSizes(), Tables())),
            *_user_queries(
                lambda: DatabaseSessions(lambda database: PostgreSQLSession(login, database)),
                [PostgreSQLUserQuery(one) for one in load_queries(paths.queries_file, "postgresql")],
            ),
        ),
        series=postgresql_series(),
        up={"server": UP},
    )


def mysql_exporter(paths: InstancePaths, address: Any = None) -> Exporter:
    """Return the exporter of a MySQL instance.

    Args:
        paths: directories of the pod.
        address: `ServerAddress` of MySQL. Defaults to the socket in `paths.run`.
    """
    # The image of the other engine does not have the driver.
    from .mysql.queries import COLLECTORS, UP
    from .mysql.session import MySQLSession, ServerAddress

    server = address or ServerAddress(certificates=paths.peer, more={"unix_socket": str(paths.run / "mysqld.sock")})
    return Exporter(
        groups=(
            Group(connect=lambda: MySQLSession(server), collectors=COLLECTORS),
            _host_group(paths, [AgentReport(paths.run / "member.json")]),
            *_user_queries(
                lambda: MySQLSession(server.for_user_queries()),
                [MySQLUserQuery(one) for one in load_queries(paths.queries_file, "mysql")],
            ),
        ),
        series=mysql_series(),
        up={"server": UP},
    )


def instance_labels(pod: str) -> Mapping[str, str]:
    """Return the labels that all series of a pod have: its cluster.

    The name is not `cluster`, which many installations use for the Kubernetes cluster.
    """
    cluster = pod.removesuffix("-0").rpartition("-")[0]
    return {"dbcluster": cluster or pod}


def installed_postgresql_version(programs: Path = Path("/usr/local/lib/postgresql")) -> int:
    """Return the version of the programs in an image, such as 170000."""
    major = programs.resolve().parent.name
    return int(major) * 10000


def exporter_of(engine: str, paths: InstancePaths) -> Exporter:
    """Return the exporter by the argument of the program."""
    if engine == "mysql":
        return mysql_exporter(paths)
    return postgresql_exporter(installed_postgresql_version(), paths, patroni=engine != "read-replica")


def serve(engine: str, pod: str, paths: InstancePaths, stop: threading.Event, port: int = PORT) -> None:
    """Collect and serve until `stop` is set. A port in use is tried again."""
    exporter = exporter_of(engine, paths)
    snapshot = exporter.snapshot(instance_labels(pod))
    exporter.start(snapshot, stop)
    history = History(exporter.series, snapshot.readings)
    threading.Thread(target=history.run, args=(stop,), name="metrics-history", daemon=True).start()
    while not stop.is_set():
        try:
            server = MetricsServer(snapshot, history, paths.tls, port=port)
        except OSError as error:
            sys.stderr.write(f"metrics: cannot listen on port {port}: {error}\n")
            stop.wait(RECONNECT_SECONDS)
            continue
        server.start()
        stop.wait()
        server.stop()


def main(arguments: Sequence[str]) -> int:
    """Run the exporter of an engine, such as ``metrics postgresql``. It ends after SIGTERM or SIGINT."""
    if len(arguments) != 1 or arguments[0] not in ENGINES:
        sys.stderr.write(f"usage: steersman-instance metrics {'|'.join(ENGINES)}\n")
        return 2
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda _signal, _frame: stop.set())
    serve(arguments[0], os.environ["POD_NAME"], PATHS, stop)
    return 0
