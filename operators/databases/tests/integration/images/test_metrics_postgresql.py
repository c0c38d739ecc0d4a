"""The exporter on a real PostgreSQL server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from database_support.servers.history_steps import HistorySteps
from database_support.servers.matrix import postgresqls
from database_support.servers.postgresql import RealPostgreSQLServer, initialise
from database_support.servers.process import DatabaseServerProcess, data_directory, free_port
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines import ServerEndpoint
from steersman_instance.metrics.catalog import CollectFailed, Reading, SessionLost
from steersman_instance.metrics.exporter import Exporter, postgresql_exporter
from steersman_instance.metrics.postgresql.collectors import DatabaseSizes, DatabaseTour, Tables, WaitSampler
from steersman_instance.metrics.postgresql.queries import server_queries
from steersman_instance.metrics.postgresql.session import PostgreSQLSession, ServerAddress
from steersman_instance.paths import InstancePaths

SERVERS = postgresqls()
pytestmark = pytest.mark.xdist_group("metrics-postgresql")


@pytest.fixture(scope="module", params=sorted(SERVERS))
def server(request: pytest.FixtureRequest) -> Generator[RealPostgreSQLServer]:
    with ExitStack() as stack:
        started = stack.enter_context(contextmanager(SERVERS[request.param])())
        assert isinstance(started, RealPostgreSQLServer)
        started.run("CREATE ROLE steersman_monitor NOLOGIN; GRANT pg_monitor TO steersman_monitor")
        yield started


@pytest.fixture
def address(server: RealPostgreSQLServer) -> ServerAddress:
    return address_of(server.endpoint)


def address_of(endpoint: ServerEndpoint) -> ServerAddress:
    more = {"port": str(endpoint.port), "password": ADMINISTRATOR.password}
    return ServerAddress(host=endpoint.host, user=ADMINISTRATOR.username, more=more)


@pytest.fixture
def session(address: ServerAddress) -> Generator[PostgreSQLSession]:
    opened = PostgreSQLSession(address)
    yield opened
    opened.close()


def values(reading: Reading) -> Mapping[str, float]:
    """Values by name and labels."""
    return {"/".join((one.metric.name, *one.labels)).removeprefix("steersman_"): one.value for one in reading.samples}


def read_all(session: PostgreSQLSession) -> dict[str, float]:
    """Return the values of all queries."""
    found: dict[str, float] = {}
    for query in server_queries(session.server_version):
        found |= values(query.collect(session))
    return found


@pytest.mark.requirement("overview/level-4-monitoring")
def test_exporter_values_equal_sql(server: RealPostgreSQLServer, session: PostgreSQLSession) -> None:
    found = read_all(session)
    assert found["postgresql_is_primary"] == 1
    [(connections, xid)] = server.administer(
        "SELECT current_setting('max_connections')::int, (SELECT max(age(datfrozenxid)) FROM pg_database)"
    )
    assert found["postgresql_max_connections"] == connections
    assert found["postgresql_transaction_id_age"] == pytest.approx(xid, abs=5)
    assert found["postgresql_synchronous_replication"] == 0
    assert found["postgresql_sessions/idle"] >= 1, "the administrator's"
    assert found["postgresql_wal_bytes_total"] > 0
    assert found["postgresql_wal_directory_bytes"] % (16 << 20) == 0
    assert found["postgresql_checkpoints_total/requested"] >= 0
    server.run("SELECT pg_create_physical_replication_slot('waiting', true)")
    slots = read_all(session)
    assert slots["postgresql_slot_active/waiting"] == 0
    assert slots["postgresql_slot_retained_bytes/waiting"] >= 0
    server.run("SELECT pg_drop_replication_slot('waiting')")


def test_exporter_session_has_least_rights(session: PostgreSQLSession) -> None:
    [row] = session.rows("SELECT current_user AS role, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)")
    assert row == {"role": "steersman_monitor", "rolsuper": False}
    with pytest.raises(CollectFailed, match="permission denied"):
        session.rows("SELECT * FROM pg_authid")


def test_exporter_closed_database_tables_are_read(server: RealPostgreSQLServer, address: ServerAddress) -> None:
    server.run("CREATE DATABASE closed")
    server.run("REVOKE ALL ON DATABASE closed FROM PUBLIC")
    with connected(server, "closed") as client:
        client.execute("CREATE TABLE orders AS SELECT generate_series(1, 500) AS id")
        client.execute("DELETE FROM orders WHERE id <= 200")
        # Statistics of a session reach the server when it is idle, at the latest when it ends.
    tour = DatabaseTour(address)
    deadline = time.monotonic() + 20
    while (found := values(Tables().collect(tour))).get("postgresql_table_dead_rows/closed/public/orders") != 200:
        assert time.monotonic() < deadline, found
    assert found["postgresql_databases_unreadable"] == 0
    [(size,)] = server.administer("SELECT pg_database_size('closed')")
    assert values(DatabaseSizes().collect(tour))["postgresql_database_bytes/closed"] == pytest.approx(size, rel=0.1)
    server.run("DROP DATABASE closed")


def test_exporter_locked_table_does_not_delay(server: RealPostgreSQLServer, address: ServerAddress) -> None:
    session = PostgreSQLSession(address)
    with connected(server, "postgres") as holder, connected(server, "postgres") as waiting:
        holder.execute("CREATE TABLE IF NOT EXISTS till (coin int)")
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE till IN ACCESS EXCLUSIVE MODE")
        [[pid]] = waiting.execute("SELECT pg_backend_pid()").fetchall()
        waiting.pgconn.send_query(b"SELECT * FROM till")
        deadline = time.monotonic() + 20
        while read_all(session)["postgresql_sessions_waiting_for_lock"] != 1:
            assert time.monotonic() < deadline
        start = time.monotonic()
        found = {**read_all(session), **values(Tables().collect(DatabaseTour(address)))}
        assert time.monotonic() - start < 5
        assert found["postgresql_longest_transaction_seconds"] > 0
        assert found["postgresql_longest_lock_wait_seconds"] > 0
        assert found["postgresql_databases_unreadable"] == 0
        server.run(f"SELECT pg_terminate_backend({pid})")
    session.close()


def test_exporter_empty_instance_has_few_series(server: RealPostgreSQLServer, address: ServerAddress) -> None:
    exporter = exporter_of(server, address)
    count = 0
    for group in exporter.groups[0], exporter.groups[2]:
        opened = group.connect()
        count += sum(len(one.collect(opened).samples) for one in group.collectors)
        opened.close()
    # Besides them: volumes, certificates, Patroni, and four of the exporter for each collector.
    assert count + 20 + 4 * 20 <= 300


def test_exporter_catalog_names_all_metrics(server: RealPostgreSQLServer, address: ServerAddress) -> None:
    exporter = exporter_of(server, address)
    for group in exporter.groups[0], exporter.groups[2]:
        opened = group.connect()
        for one in group.collectors:
            assert {sample.metric for sample in one.collect(opened).samples} <= set(one.metrics)
        opened.close()


def test_exporter_hung_server_ends_session(server: RealPostgreSQLServer, address: ServerAddress) -> None:
    session = PostgreSQLSession(address, statement_timeout_seconds=0.1)
    [row] = session.rows("SELECT pg_backend_pid() AS pid")
    pid = int(str(row["pid"]))
    os.kill(pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(SessionLost):
            session.rows("SELECT 1")
        assert time.monotonic() - start < 10
    finally:
        os.kill(pid, signal.SIGCONT)
        session.close()


def test_exporter_slow_query_keeps_session(address: ServerAddress) -> None:
    session = PostgreSQLSession(address, statement_timeout_seconds=0.1)
    with pytest.raises(CollectFailed, match="statement timeout"):
        session.rows("SELECT pg_sleep(60)")
    assert session.rows("SELECT 1 AS one") == [{"one": 1}]
    session.close()


def test_exporter_unreachable_server_loses_session() -> None:
    with pytest.raises(SessionLost):
        PostgreSQLSession(ServerAddress(host="127.0.0.1", more={"port": str(free_port())}))


def test_exporter_active_sessions_accumulate(server: RealPostgreSQLServer, session: PostgreSQLSession) -> None:
    now = 0.0
    sampler = WaitSampler(clock=lambda: now)
    with connected(server, "postgres") as client:
        client.pgconn.send_query(b"SELECT pg_sleep(600)")
        deadline = time.monotonic() + 20
        name = "postgresql_active_session_seconds_total/Timeout"
        while values(sampler.collect(session))[name] < 5:
            now += 1
            assert time.monotonic() < deadline
        server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%'")


def test_exporter_standby_queries_succeed(server: RealPostgreSQLServer) -> None:
    with data_directory() as directory:
        command = initialise(directory, server.programs)
        prepare_standby(directory, command, server.programs)
        endpoint = ServerEndpoint("127.0.0.1", free_port())
        address = [f"-cport={endpoint.port}", f"-clisten_addresses={endpoint.host}"]
        process = DatabaseServerProcess(directory, [*command, *address])
        try:
            process.wait_for(endpoint)
            session = open_when_ready(address_of(endpoint))
            found = read_all(session)
            assert found["postgresql_is_primary"] == 0
            assert found["postgresql_wal_receiver_streaming"] == 0
            session.close()
        finally:
            process.stop(signal.SIGQUIT)


def test_history_of_server_has_rates(server: RealPostgreSQLServer, address: ServerAddress) -> None:
    steps = HistorySteps(exporter_of(server, address))
    found = steps.record()
    assert (found["connections"] or 0) >= 1 and found["transactions"] is None
    with connected(server, "postgres") as client:
        client.execute("CREATE TABLE IF NOT EXISTS recorded AS SELECT generate_series(1, 10000) AS id")
        client.execute("BEGIN")
        client.execute("SELECT count(*) FROM recorded")
        assert steps.record()["sessions_idle_in_transaction"] == 1
        client.execute("ROLLBACK")
        # Statistics of a session reach the server when it is idle, at the latest when it ends.
    deadline = time.monotonic() + 20
    rows = 0.0
    while rows < 10000:
        assert time.monotonic() < deadline
        found = steps.record()
        rows += 10 * (found["rows_written"] or 0)
    assert found["wal"] is not None and found["wal"] >= 0
    assert 0 <= (found["cache_hit_ratio"] or 0) <= 1
    steps.close()


def prepare_standby(directory: Path, command: list[str], programs: Path) -> None:
    """Create the role in data of their own, and make them those of a standby without a primary."""
    endpoint = ServerEndpoint("127.0.0.1", free_port())
    process = DatabaseServerProcess(
        directory, [*command, f"-cport={endpoint.port}", f"-clisten_addresses={endpoint.host}"]
    )
    process.wait_for(endpoint)
    made = RealPostgreSQLServer(endpoint, process.log, programs)
    deadline = time.monotonic() + 30
    while True:
        try:
            made.run("CREATE ROLE steersman_monitor NOLOGIN; GRANT pg_monitor TO steersman_monitor; CHECKPOINT")
            break
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
    made.close()
    process.stop(signal.SIGINT)
    process.ended(30)
    (directory / "data/standby.signal").touch(0o644)


def open_when_ready(address: ServerAddress) -> PostgreSQLSession:
    deadline = time.monotonic() + 30
    while True:
        try:
            return PostgreSQLSession(address)
        except SessionLost:
            if time.monotonic() > deadline:
                raise


def exporter_of(server: RealPostgreSQLServer, address: ServerAddress) -> Exporter:
    [(version,)] = server.administer("SELECT current_setting('server_version_num')::int")
    return postgresql_exporter(version, InstancePaths(), address)


@contextmanager
def connected(server: RealPostgreSQLServer, database: str) -> Generator[psycopg.Connection[Any]]:
    client = psycopg.connect(
        host=server.endpoint.host,
        port=server.endpoint.port,
        user=ADMINISTRATOR.username,
        password=ADMINISTRATOR.password,
        dbname=database,
        autocommit=True,
    )
    try:
        yield client
    finally:
        # A commit would wait for the query that the test has sent.
        client.close()
