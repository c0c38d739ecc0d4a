"""Queries of users on real servers: their rights and their limits."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from database_support.servers.matrix import mysqls, postgresqls
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines.mysql.sql.ownership_table import DATABASE
from steersman_databases.engines.mysql.sql.system_accounts import statements
from steersman_databases.engines.naming import QUERIES_ROLE, REPLICATION_ROLE
from steersman_instance.metrics.catalog import CollectFailed, Metric, Reading
from steersman_instance.metrics.mysql.session import MySQLSession
from steersman_instance.metrics.mysql.session import ServerAddress as MySQLAddress
from steersman_instance.metrics.postgresql.session import PostgreSQLSession, ServerAddress
from steersman_instance.metrics.user_queries import (
    LABEL_LIMIT,
    ROW_LIMIT,
    DatabaseSessions,
    MySQLUserQuery,
    PostgreSQLUserQuery,
    UserQuery,
)

pytestmark = pytest.mark.xdist_group("user-queries")
PASSWORD = "queries-of-users"


def declared(
    sql: str, *databases: str, labels: tuple[str, ...] = ("state",), primary_only: bool = False
) -> UserQuery:
    names = (*(("database",) if databases else ()), *labels)
    return UserQuery(
        name="orders",
        sql=sql,
        labels=labels,
        values={"waiting": Metric("steersman_query_orders_waiting", "Waiting.", names)},
        databases=databases,
        primary_only=primary_only,
        interval_seconds=60,
    )


def values(reading: Reading) -> Mapping[tuple[str, ...], float]:
    return {one.labels: one.value for one in reading.samples}


@pytest.fixture(scope="module", params=sorted(postgresqls()))
def postgresql(request: pytest.FixtureRequest) -> Generator[RealPostgreSQLServer]:
    with ExitStack() as stack:
        server = stack.enter_context(contextmanager(postgresqls()[request.param])())
        assert isinstance(server, RealPostgreSQLServer)
        server.run(f"CREATE ROLE {QUERIES_ROLE} LOGIN PASSWORD '{PASSWORD}'; GRANT pg_monitor TO {QUERIES_ROLE}")
        server.run("CREATE DATABASE shop")
        server.run("REVOKE ALL ON DATABASE shop FROM PUBLIC")
        with connected(server, "shop") as client:
            client.execute("CREATE TABLE orders (state text)")
            client.execute("INSERT INTO orders VALUES ('open'), ('open'), ('paid')")
        yield server


@contextmanager
def connected(server: RealPostgreSQLServer, database: str) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(
        host=server.endpoint.host,
        port=server.endpoint.port,
        user=ADMINISTRATOR.username,
        password=ADMINISTRATOR.password,
        dbname=database,
        autocommit=True,
    ) as client:
        yield client


@pytest.fixture
def sessions(postgresql: RealPostgreSQLServer) -> DatabaseSessions:
    more = {"port": str(postgresql.endpoint.port), "password": PASSWORD}
    login = ServerAddress(host=postgresql.endpoint.host, more=more).for_user_queries()
    return DatabaseSessions(lambda database: PostgreSQLSession(login, database))


def test_postgresql_query_reads_what_is_granted(postgresql: RealPostgreSQLServer, sessions: DatabaseSessions) -> None:
    sql = "SELECT state, count(*) AS waiting FROM orders GROUP BY state -- all of them"
    query = PostgreSQLUserQuery(declared(sql, "shop"))
    with pytest.raises(CollectFailed, match=r"database shop: .*permission denied for database"):
        query.collect(sessions)
    with connected(postgresql, "shop") as client:
        client.execute(f"GRANT CONNECT ON DATABASE shop TO {QUERIES_ROLE}")
        with pytest.raises(CollectFailed, match="permission denied for table orders"):
            query.collect(sessions)
        client.execute(f"GRANT SELECT ON orders TO {QUERIES_ROLE}")
    assert values(query.collect(sessions)) == {("shop", "open"): 2, ("shop", "paid"): 1}


def test_postgresql_star_is_each_open_database(postgresql: RealPostgreSQLServer, sessions: DatabaseSessions) -> None:
    postgresql.run("CREATE DATABASE closed")
    postgresql.run("REVOKE ALL ON DATABASE closed FROM PUBLIC")
    postgresql.run(f"GRANT CONNECT ON DATABASE shop TO {QUERIES_ROLE}")
    query = declared("SELECT current_database() AS state, 1 AS waiting", "*")
    assert values(PostgreSQLUserQuery(query).collect(sessions)) == {("postgres", "postgres"): 1, ("shop", "shop"): 1}


def test_postgresql_session_cannot_become_superuser(sessions: DatabaseSessions) -> None:
    taken = f"SELECT set_config('session_authorization', '{ADMINISTRATOR.username}', false) AS state, 1 AS waiting"
    with pytest.raises(CollectFailed, match="permission denied to set session authorization"):
        PostgreSQLUserQuery(declared(taken, "postgres")).collect(sessions)
    with pytest.raises(CollectFailed, match=r"read-only transaction|permission denied"):
        PostgreSQLUserQuery(declared("SELECT '' AS state, lo_create(0)::bigint AS waiting", "postgres")).collect(
            sessions
        )


def test_postgresql_results_are_limited(sessions: DatabaseSessions) -> None:
    many = "SELECT 'state ' || n AS state, n AS waiting FROM generate_series(1, 1000000) n"
    reading = PostgreSQLUserQuery(declared(many, "postgres")).collect(sessions)
    assert (len(reading.samples), reading.dropped) == (ROW_LIMIT, 1)
    long = "SELECT repeat('x', 10000000) AS state, 1 AS waiting"
    [(_, label)] = values(PostgreSQLUserQuery(declared(long, "postgres")).collect(sessions))
    assert len(label) == LABEL_LIMIT
    slow = "SELECT '' AS state, 1 AS waiting FROM pg_sleep(60)"
    start = time.monotonic()
    with pytest.raises(CollectFailed, match="statement timeout"):
        PostgreSQLUserQuery(declared(slow, "postgres")).collect(sessions)
    assert time.monotonic() - start < 10


def test_postgresql_wrong_column_is_named(sessions: DatabaseSessions) -> None:
    with pytest.raises(CollectFailed, match=r"column q\.waiting does not exist"):
        PostgreSQLUserQuery(declared("SELECT 'a' AS state", "postgres")).collect(sessions)


def test_postgresql_primary_only_runs_on_primary(sessions: DatabaseSessions) -> None:
    query = declared("SELECT '' AS state, 1 AS waiting", "postgres", primary_only=True)
    assert len(PostgreSQLUserQuery(query).collect(sessions).samples) == 1


@pytest.fixture(scope="module", params=sorted(mysqls()))
def mysql(request: pytest.FixtureRequest) -> Generator[RealMySQLServer]:
    with ExitStack() as stack:
        server = stack.enter_context(contextmanager(mysqls()[request.param])())
        assert isinstance(server, RealMySQLServer)
        yield server


@pytest.fixture
async def session(mysql: RealMySQLServer) -> AsyncGenerator[MySQLSession]:
    """The account with its rights, but with a password: the server has no authority for certificates."""
    for statement in statements():
        if QUERIES_ROLE in statement or f"`{DATABASE}`" in statement:
            await mysql.execute_unprepared(
                statement.replace(f"REQUIRE SUBJECT '/CN={REPLICATION_ROLE}'", "REQUIRE SSL")
            )
    for statement in (
        "CREATE DATABASE IF NOT EXISTS shop",
        "CREATE TABLE IF NOT EXISTS shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, state VARCHAR(9))",
        "DELETE FROM shop.orders",
        "INSERT INTO shop.orders (state) VALUES ('open'), ('open'), ('paid')",
    ):
        await mysql.execute_unprepared(statement)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    more = {"host": mysql.endpoint.host, "port": mysql.endpoint.port, "ssl": tls}
    opened = MySQLSession(MySQLAddress(None, more=more).for_user_queries())
    yield opened
    opened.close()


async def test_mysql_query_reads_what_is_granted(mysql: RealMySQLServer, session: MySQLSession) -> None:
    sql = "SELECT state, count(*) AS waiting FROM shop.orders GROUP BY state; "
    with pytest.raises(CollectFailed, match="SELECT command denied"):
        MySQLUserQuery(declared(sql)).collect(session)
    await mysql.execute_unprepared(f"GRANT SELECT ON shop.orders TO {QUERIES_ROLE}")
    for primary_only in (False, True):
        query = MySQLUserQuery(declared(sql, primary_only=primary_only))
        assert values(query.collect(session)) == {("open",): 2, ("paid",): 1}
    with pytest.raises(CollectFailed, match="SELECT command denied"):
        session.rows("SELECT * FROM mysql.user")


async def test_mysql_results_are_limited(session: MySQLSession) -> None:
    numbers = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
    reading = MySQLUserQuery(declared(f"{numbers} SELECT i AS state, i AS waiting FROM n")).collect(session)
    assert (len(reading.samples), reading.dropped) == (ROW_LIMIT, 1)
    long = MySQLUserQuery(declared("SELECT REPEAT('x', 1000000) AS state, 1 AS waiting"))
    [(label,)] = values(long.collect(session))
    assert len(label) == LABEL_LIMIT
    start = time.monotonic()
    slow = declared("SELECT a.state, SLEEP(0.5) AS waiting FROM information_schema.columns c, (SELECT '' state) a")
    with pytest.raises(CollectFailed, match=r"maximum statement execution time|interrupted"):
        MySQLUserQuery(slow).collect(session)
    assert time.monotonic() - start < 10
