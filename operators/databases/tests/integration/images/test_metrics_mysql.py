"""The exporter on a real MySQL server."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from database_support.servers.history_steps import HistorySteps
from database_support.servers.matrix import mysqls
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.process import free_port
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines.mysql.sql.system_accounts import statements
from steersman_databases.engines.naming import MONITOR_ROLE, REPLICATION_ROLE
from steersman_instance.metrics.catalog import CollectFailed, Reading, SessionLost
from steersman_instance.metrics.exporter import mysql_exporter
from steersman_instance.metrics.mysql.queries import COLLECTORS
from steersman_instance.metrics.mysql.session import MySQLSession, ServerAddress
from steersman_instance.paths import InstancePaths

SERVERS = mysqls()
pytestmark = pytest.mark.xdist_group("metrics-mysql")


@pytest.fixture(scope="module", params=sorted(SERVERS))
def server(request: pytest.FixtureRequest) -> Generator[RealMySQLServer]:
    with ExitStack() as stack:
        started = stack.enter_context(contextmanager(SERVERS[request.param])())
        assert isinstance(started, RealMySQLServer)
        yield started


@pytest.fixture
async def address(server: RealMySQLServer) -> AsyncGenerator[ServerAddress]:
    """The exporter's account with its rights, but with a password: the server has no authority for certificates."""
    for statement in statements():
        if MONITOR_ROLE in statement:
            without = statement.replace(f"REQUIRE SUBJECT '/CN={REPLICATION_ROLE}'", "REQUIRE SSL")
            await server.execute_unprepared(without)
    yield ServerAddress(None, more={"host": server.endpoint.host, "port": server.endpoint.port, "ssl": encrypted()})


def encrypted() -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def values(reading: Reading) -> Mapping[str, float]:
    """Values by name and labels."""
    return {"/".join((one.metric.name, *one.labels)).removeprefix("steersman_"): one.value for one in reading.samples}


def read_all(session: MySQLSession) -> dict[str, float]:
    """Return the values of all collectors."""
    found: dict[str, float] = {}
    for one in COLLECTORS:
        found |= values(one.collect(session))
    return found


async def test_exporter_values_equal_sql(server: RealMySQLServer, address: ServerAddress) -> None:
    await server.execute_unprepared("CREATE DATABASE IF NOT EXISTS orders")
    await server.execute_unprepared("CREATE TABLE IF NOT EXISTS orders.till (coin INT PRIMARY KEY)")
    session = MySQLSession(address)
    found = read_all(session)
    [(connections, pool)] = await server.execute("SELECT @@max_connections, @@innodb_buffer_pool_size")
    assert found["mysql_max_connections"] == connections
    assert found["mysql_buffer_pool_size_bytes"] == pool
    assert found["mysql_connections"] >= 1
    assert found["mysql_super_read_only"] == found["mysql_offline_mode"] == 0
    logs = await server.execute("SHOW BINARY LOGS")
    assert found["mysql_binary_logs"] == len(logs)
    assert found["mysql_binary_log_bytes"] == pytest.approx(sum(row[1] for row in logs), abs=5000)
    assert found["mysql_database_bytes/orders"] >= 1 << 16
    assert found["mysql_is_primary"] == found["mysql_group_online"] == found["mysql_apply_queue"] == 0
    assert found["mysql_uptime_seconds"] >= 0
    assert len(found) <= 100
    session.close()


async def test_exporter_session_has_least_rights(address: ServerAddress) -> None:
    session = MySQLSession(address)
    for sql in ("SELECT * FROM mysql.user", "SELECT * FROM orders.till", "CREATE DATABASE mine"):
        with pytest.raises(CollectFailed):
            session.rows(sql)
    session.close()


async def test_exporter_locked_table_does_not_delay(server: RealMySQLServer, address: ServerAddress) -> None:
    await server.execute_unprepared("CREATE DATABASE IF NOT EXISTS orders")
    await server.execute_unprepared("CREATE TABLE IF NOT EXISTS orders.locked (id INT PRIMARY KEY)")
    session = MySQLSession(address)
    async with server.connected(ADMINISTRATOR, "orders") as holder:
        await holder.query("START TRANSACTION")
        await holder.query("INSERT INTO locked VALUES (1)")
        async with server.connected(ADMINISTRATOR, "orders") as other:
            await other.query("LOCK INSTANCE FOR BACKUP")
            start = time.monotonic()
            found = read_all(session)
            assert time.monotonic() - start < 5
            assert found["mysql_transactions"] >= 1
            await other.query("UNLOCK INSTANCE")
        await holder.query("ROLLBACK")
    session.close()


async def test_exporter_slow_query_keeps_session(address: ServerAddress) -> None:
    session = MySQLSession(address)
    start = time.monotonic()
    with pytest.raises(CollectFailed):
        columns = "information_schema.COLUMNS"
        session.rows(f"SELECT COUNT(*) FROM {columns} a, {columns} b, {columns} c")
    assert time.monotonic() - start < 4
    assert session.rows("SELECT 1 AS one") == [{"one": 1}]
    session.close()


def test_exporter_unreachable_server_loses_session() -> None:
    with pytest.raises(SessionLost):
        MySQLSession(ServerAddress(None, more={"host": "127.0.0.1", "port": free_port()}))


async def test_exporter_catalog_names_all_metrics(address: ServerAddress) -> None:
    exporter = mysql_exporter(InstancePaths(), address)
    session = exporter.groups[0].connect()
    for one in exporter.groups[0].collectors:
        assert {sample.metric for sample in one.collect(session).samples} <= set(one.metrics)
    session.close()


async def test_history_of_server_has_rates(server: RealMySQLServer, address: ServerAddress) -> None:
    await server.execute_unprepared("CREATE DATABASE IF NOT EXISTS orders")
    await server.execute_unprepared("CREATE TABLE IF NOT EXISTS orders.recorded (id INT PRIMARY KEY)")
    steps = HistorySteps(mysql_exporter(InstancePaths(), address))
    assert steps.record()["statements"] is None
    async with server.connected(ADMINISTRATOR, "orders") as client:
        await client.query("START TRANSACTION")
        await client.query("REPLACE INTO recorded VALUES (1), (2), (3)")
        found = steps.record()
        rows = found["rows_written"]
        assert rows is not None and 10 * rows >= 3
        assert found["statements"] is not None and 10 * found["statements"] >= 2
        deadline = time.monotonic() + 20
        while found["sessions_idle_in_transaction"] != 1:
            assert time.monotonic() < deadline, found
            # The server refreshes INNODB_TRX only after a tenth of a second without readers.
            await client.query("DO SLEEP(0.2)")
            found = steps.record()
        await client.query("COMMIT")
    assert found["binary_log"] is not None and found["redo_log"] is not None
    steps.close()
