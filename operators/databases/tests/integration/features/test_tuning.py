"""Trials on a real PostgreSQL server: workloads that get better, get worse, do not care, or have a spike.

A period is a number of transactions instead of a time, so that the load of the machine has no effect.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, cast

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from database_support.servers.matrix import WHOLE_MATRIX
from database_support.servers.postgresql import RealPostgreSQLServer, initialise, newest_programs, wait_ready
from database_support.servers.process import DatabaseServerProcess, data_directory, free_port, program, run
from database_support.servers.real_server import ADMINISTRATOR
from database_support.unit.tuning_samples import START
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.parameter_trial import ParameterTrial
from steersman_databases.features.tuning import figures
from steersman_databases.features.tuning.trial import base_value, collect, judge
from steersman_databases.features.tuning.window import Sample
from steersman_instance.metrics.postgresql.collectors import DatabaseTour, Tables
from steersman_instance.metrics.postgresql.queries import server_queries
from steersman_instance.metrics.postgresql.session import PostgreSQLSession, ServerAddress
from steersman_instance.metrics.snapshot import Snapshot

PERIODS = 13  # before a trial, and during it
TRANSACTIONS = 65
_DEADLINE_SECONDS = 30.0
_ROWS = 20_000
_SETTINGS = {
    "checkpoint_completion_target": "0",
    "checkpoint_timeout": "1h",
    "synchronous_commit": "off",
    "autovacuum": "off",
}
SORT = "SELECT count(*) FROM (SELECT n FROM generate_series(1, 2000) n ORDER BY md5(n::text)) sorted"
UPDATE = (
    f"UPDATE orders SET total = total + 1 WHERE id IN (SELECT (random() * {_ROWS})::int FROM generate_series(1, 50))"
)

pytestmark = pytest.mark.xdist_group("tuning")

RUNS = [1, 2] if WHOLE_MATRIX else [1]


@pytest.fixture(scope="module")
def server() -> Generator[RealPostgreSQLServer]:
    """A server whose parameters can be changed by a reload."""
    programs, endpoint = newest_programs(), ServerEndpoint("127.0.0.1", free_port())
    fixed = ("-cautovacuum", "-cfull_page_writes", "-clog_statement", "-cmax_wal_size")
    with data_directory() as directory:
        initial = initialise(directory, programs)
        command = [part for part in initial if part.partition("=")[0] not in fixed]
        arguments = [f"-cport={endpoint.port}", f"-clisten_addresses={endpoint.host}"]
        # Checkpoints follow from little WAL then.
        data = directory / "data"
        run([program("pg_resetwal", str(programs)), "--wal-segsize=1", f"-D{data}"], directory)
        process = DatabaseServerProcess(directory, [*command, *arguments])
        try:
            process.wait_for(endpoint)
            started = RealPostgreSQLServer(endpoint, process.log, programs)
            asyncio.run(wait_ready(started))
            started.run("CREATE ROLE steersman_monitor NOLOGIN; GRANT pg_monitor TO steersman_monitor")
            started.run("CREATE DATABASE shop")
            yield started
            started.close()
        finally:
            process.stop(signal.SIGQUIT)


@dataclass
class Workload:
    """A client, and the samples that the operator would take of its server."""

    server: RealPostgreSQLServer
    samples: list[Sample] = field(default_factory=list[Sample])
    _minutes: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        endpoint, self._user = self.server.endpoint, ADMINISTRATOR
        more = {"port": str(endpoint.port), "password": ADMINISTRATOR.password}
        self._address = ServerAddress(host=endpoint.host, user=ADMINISTRATOR.username, more=more)
        self._client = psycopg.connect(
            host=endpoint.host,
            port=endpoint.port,
            user=ADMINISTRATOR.username,
            password=ADMINISTRATOR.password,
            dbname="shop",
            autocommit=True,
        )
        for name, value in _SETTINGS.items():
            self.set(name, value)

    def close(self) -> None:
        """End the session, and reset the parameters."""
        self._execute("ALTER SYSTEM RESET ALL")
        self._execute("SELECT pg_reload_conf()")
        self._client.close()

    def _execute(self, sql: str) -> Any:
        cursor = self._client.execute(cast(Any, sql))
        return cursor.fetchone() if cursor.description else None

    def set(self, name: str, value: str) -> None:
        """Change a parameter of the server by a reload."""
        self._execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self._execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while self._execute(f"SELECT current_setting('{name}') = '{value}'") != (True,):
            assert time.monotonic() < deadline, f"{name} is not {value}"

    def fill(self) -> None:
        """Create the table of the updates, all of whose pages have changed since the last checkpoint."""
        self._execute("DROP TABLE IF EXISTS orders")
        self._execute("CREATE TABLE orders (id int PRIMARY KEY, total int, note text) WITH (fillfactor = 50)")
        self._execute(f"INSERT INTO orders SELECT n, 0, repeat('x', 500) FROM generate_series(1, {_ROWS}) n")
        self._execute("VACUUM ANALYZE orders")
        self._execute("CHECKPOINT")
        self._execute("UPDATE orders SET total = total + 1")

    def run(self, *statements: str, transactions: int = TRANSACTIONS) -> None:
        """Run one period, and take the sample at its end."""
        for _ in range(transactions):
            for statement in statements:
                self._execute(statement)
        self._execute("SELECT pg_stat_force_next_flush()")
        self._execute("SELECT 1")
        self.samples.append(self._sample())

    def _sample(self) -> Sample:
        session, tour = PostgreSQLSession(self._address), DatabaseTour(self._address)
        try:
            queries = server_queries(session.server_version)
            snapshot = Snapshot([*queries, Tables()], up={}, labels={})
            for query in queries:
                snapshot.store(query.name, query.collect(session), 0)
            tables = Tables()
            snapshot.store(tables.name, tables.collect(tour), 0)
        finally:
            session.close()
            tour.close()
        registry = CollectorRegistry()
        registry.register(snapshot)
        at = START + timedelta(minutes=next(self._minutes))
        found = figures.parse_sample(generate_latest(registry).decode(), "pod-1", at, figures.POSTGRESQL)
        assert found is not None
        return found


@pytest.fixture
def workload(server: RealPostgreSQLServer) -> Generator[Workload]:
    found = Workload(server)
    found.fill()
    yield found
    found.close()


def tried(workload: Workload, name: str, former: str, value: str, period: Callable[[int], None]) -> tuple[str, str]:
    """Run a workload before and during a trial. Return the verdict with the measurements."""
    workload.set(name, former)
    for index in range(PERIODS):
        period(index)
    workload.set(name, value)
    for index in range(PERIODS, 2 * PERIODS):
        period(index)
    trial = ParameterTrial(parameter=name, value=value, until=START)
    assert workload.samples[-1].gauges[name] == base_value(value), "the exporter reports the tried value"
    return judge(name, collect(workload.samples, trial), is_running=False)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("former", "value", "verdict"), [("64kB", "4MB", "Better"), ("4MB", "64kB", "Worse")])
def test_work_mem_is_judged_by_temporary_files(
    workload: Workload, run: int, former: str, value: str, verdict: str
) -> None:
    """The second sort exceeds its own limit always, so that there is something to compare."""
    statements = [SORT, "SET work_mem = '64kB'", *[SORT] * run, "RESET work_mem"]

    def period(_: int) -> None:
        workload.run(*statements, transactions=20)

    found = tried(workload, "work_mem", former, value, period)
    assert found[0] == verdict, found


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("former", "value", "verdict"), [("2MB", "1GB", "Better"), ("1GB", "2MB", "Worse")])
def test_max_wal_size_is_judged_by_wal(workload: Workload, run: int, former: str, value: str, verdict: str) -> None:
    """After a checkpoint, the next change of each page writes the whole page."""

    def period(_: int) -> None:
        workload.run(UPDATE, transactions=TRANSACTIONS + 20 * run)

    found = tried(workload, "max_wal_size", former, value, period)
    assert found[0] == verdict, found


@pytest.mark.parametrize("spike", [None, 3, 16])
@pytest.mark.parametrize("name", ["max_wal_size", "bgwriter_lru_maxpages"])
def test_value_without_effect_is_never_better_or_worse(workload: Workload, name: str, spike: int | None) -> None:
    values = {"max_wal_size": ("1GB", "2GB"), "bgwriter_lru_maxpages": ("100", "200")}

    def period(index: int) -> None:
        workload.run("BEGIN", *[UPDATE] * (20 if index == spike else 1), "COMMIT")

    found = tried(workload, name, *values[name], period)
    assert found[0] in ("NoEffect", "Unclear"), found
