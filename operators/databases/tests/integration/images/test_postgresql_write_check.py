"""Writes of a primary to a real PostgreSQL, and what refuses them."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing

import psycopg
import pytest

from database_support.servers.real_server import ADMINISTRATOR
from database_support.servers.socket_server import PROGRAMS, SocketServer, start_socket_server
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import statements
from steersman_instance.write_check import postgresql
from steersman_instance.write_check.check import UNANSWERED_SECONDS, WriteCheck

pytestmark = pytest.mark.xdist_group("write-check")

NEWEST = max(PROGRAMS, key=int)
RELOADED = "SELECT pg_reload_conf()"
ANYWAY = "-c default_transaction_read_only=off"


@pytest.fixture(scope="module")
def server() -> Generator[SocketServer]:
    for found in start_socket_server(NEWEST):
        found.sql(statements())
        yield found


class Clock:
    """One that can be put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def check(server: SocketServer, clock: Clock) -> WriteCheck:
    address = postgresql.ServerAddress(host=str(server.directory), superuser=ADMINISTRATOR.username, port=server.port)
    return WriteCheck(lambda: postgresql.Writer(address), lambda: postgresql.describe_wait(address), clock)


def repeated(check: WriteCheck) -> str:
    """Return the report after two writes."""
    check.step()
    check.step()
    return check.error


def test_idle_server_writes_no_wal(server: SocketServer, check: WriteCheck) -> None:
    assert repeated(check) == ""
    written = server.sql("SELECT pg_current_wal_insert_lsn()::text, at FROM steersman.heartbeat")
    for _ in range(5):
        assert repeated(check) == ""
    assert server.sql("SELECT pg_current_wal_insert_lsn()::text, at FROM steersman.heartbeat") == written
    server.sql("CREATE TABLE IF NOT EXISTS busy (i int)", "INSERT INTO busy VALUES (1)")
    assert repeated(check) == ""
    assert server.sql("SELECT at FROM steersman.heartbeat") != [written[0][1:]]


@pytest.mark.parametrize(
    ("fault", "undo"),
    [
        (
            ["ALTER SYSTEM SET default_transaction_read_only = on", RELOADED],
            ["ALTER SYSTEM RESET default_transaction_read_only", RELOADED],
        ),
        (
            ["ALTER ROLE ALL SET default_transaction_read_only = on"],
            ["ALTER ROLE ALL RESET default_transaction_read_only"],
        ),
    ],
    ids=["ALTER SYSTEM", "ALTER ROLE ALL"],
)
def test_read_only_server_is_reported(
    server: SocketServer, check: WriteCheck, fault: Sequence[str], undo: Sequence[str]
) -> None:
    assert repeated(check) == ""
    server.sql(*fault)
    try:
        deadline = time.monotonic() + 10
        while not repeated(check) and time.monotonic() < deadline:
            pass  # The server reads its files in a moment.
        assert check.error == "cannot execute INSERT in a read-only transaction"
    finally:
        server.sql(*undo, options=ANYWAY)
    deadline = time.monotonic() + 10
    while repeated(check) and time.monotonic() < deadline:
        pass
    assert check.error == ""


def test_connections_used_up_are_reported(server: SocketServer, check: WriteCheck) -> None:
    server.sql("CREATE ROLE tenant LOGIN")
    try:
        with ExitStack() as stack:
            with pytest.raises(psycopg.OperationalError):
                while True:
                    connected = psycopg.connect(
                        host=str(server.directory), port=server.port, user="tenant", dbname="postgres"
                    )
                    stack.enter_context(closing(connected))
            assert "remaining connection slots are reserved" in repeated(check)
        deadline = time.monotonic() + 10
        while repeated(check) and time.monotonic() < deadline:
            pass  # Backends end after their clients.
        assert check.error == ""
    finally:
        server.sql("DROP ROLE tenant")


def test_unconfirmed_write_is_reported(server: SocketServer, check: WriteCheck, clock: Clock) -> None:
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", RELOADED)
    active = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    thread = threading.Thread(target=check.step, daemon=True)
    try:
        while server.sql("SHOW synchronous_standby_names") != [("nobody",)]:
            pass
        thread.start()
        while server.sql(active) != [(1,)]:
            pass
        assert check.error == ""
        clock.ahead = UNANSWERED_SECONDS
        assert check.error == "a write was not acknowledged in 15 s: no synchronous replica confirms it"
        assert server.sql(active) == [(1,)], "it takes one connection"
    finally:
        server.sql("ALTER SYSTEM RESET synchronous_standby_names", RELOADED)
    thread.join(30)
    assert not thread.is_alive() and check.error == ""


def test_missing_account_or_table_is_not_reported(server: SocketServer, check: WriteCheck) -> None:
    try:
        server.sql("ALTER ROLE steersman_queries NOLOGIN")
        assert repeated(check) == ""
        server.sql("ALTER ROLE steersman_queries LOGIN", "DROP TABLE steersman.heartbeat")
        assert repeated(check) == ""
    finally:
        server.sql(statements())
    assert repeated(check) == ""


def test_stopped_server_keeps_the_result(server: SocketServer, check: WriteCheck) -> None:
    server.stop()
    assert repeated(check) == ""
    server.start()
    assert repeated(check) == ""
