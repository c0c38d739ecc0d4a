"""System accounts of PostgreSQL, created and restored by the pod over its socket, by the real psql."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path

import psycopg
import pytest

from database_support.servers.real_server import ADMINISTRATOR
from database_support.servers.socket_server import PROGRAMS, SocketServer, start_socket_server
from database_support.unit.image_script import script
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import check_statement, statements
from steersman_instance import system_accounts

pytestmark = pytest.mark.xdist_group("role-accounts")

watch = script("postgresql", "watch")
NO_LIMITS = "-c default_transaction_read_only=off -c statement_timeout=0"
MADE = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'steersman%'"


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def started(request: pytest.FixtureRequest) -> Generator[SocketServer]:
    yield from start_socket_server(request.param)


@pytest.fixture
def server(started: SocketServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SocketServer:
    """One that psql finds as it does in its pod, with the accounts."""
    where = {
        "PGHOST": str(started.directory),
        "PGPORT": str(started.port),
        "PGUSER": ADMINISTRATOR.username,
        "PATH": f"{PROGRAMS[str(started.major)]}:{os.environ['PATH']}",
    }
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    system_accounts._major_version.cache_clear()  # pyright: ignore[reportPrivateUsage]
    (tmp_path / "roles.sql").write_text(statements())
    (tmp_path / "roles-check.sql").write_text(check_statement())
    of_pod = {"roles": tmp_path / "roles.sql", "check": tmp_path / "roles-check.sql"}
    monkeypatch.setattr(system_accounts.ensure, "__defaults__", (of_pod["roles"],))
    monkeypatch.setattr(system_accounts.are_current, "__defaults__", (of_pod["check"],))
    monkeypatch.setattr(watch, "STANDBY", tmp_path / "standby.signal")
    system_accounts.ensure()
    return started


def test_accounts_created_despite_session_defaults(server: SocketServer, tmp_path: Path) -> None:
    settings = ["statement_timeout = 1", "default_transaction_read_only = on"]
    if server.major >= 17:
        settings.append("transaction_timeout = 200")
    # Longer than any limit below, however fast the machine is.
    (tmp_path / "roles.sql").write_text(statements().replace("COMMIT;", "SELECT pg_sleep(0.3);\nCOMMIT;"))
    limited = "; ".join(f'ALTER ROLE "{ADMINISTRATOR.username}" SET {setting}' for setting in settings)
    server.sql(limited)
    try:
        for _ in range(2):
            system_accounts.ensure()
            assert server.sql(MADE, options=NO_LIMITS) == [(7,)]
    finally:
        server.sql(f'ALTER ROLE "{ADMINISTRATOR.username}" RESET ALL', options=NO_LIMITS)


OPERATOR = "steersman_operator"
ALL = [
    f"steersman_{name}" for name in ("replication", "rewind", "operator", "superuser", "pooler", "monitor", "queries")
]
REFUSING_TRIGGER = (
    (
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'logins are closed'; END $$"
    ),
    "CREATE EVENT TRIGGER refuse ON login EXECUTE FUNCTION refuse()",
    "ALTER EVENT TRIGGER refuse ENABLE ALWAYS",
)
FAULTS: dict[str, Sequence[str]] = {
    "CONNECT": ["REVOKE ALL ON DATABASE postgres FROM PUBLIC"],
    "CONNECT of its own": [
        "REVOKE ALL ON DATABASE postgres FROM PUBLIC",
        "REVOKE ALL ON DATABASE postgres FROM steersman_operator, steersman_pooler",
    ],
    "schemas": ["REVOKE ALL ON SCHEMA pg_catalog FROM PUBLIC", "REVOKE ALL ON SCHEMA public FROM PUBLIC"],
    "functions": ["REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pg_catalog FROM PUBLIC"],
    "catalogs": [
        "REVOKE ALL ON pg_catalog.pg_roles, pg_catalog.pg_database, pg_catalog.pg_shdescription FROM PUBLIC"
    ],
    "all roles": [
        *(f"DROP OWNED BY {name}" for name in ALL),
        *(f"DROP ROLE {name}" for name in ALL),
    ],
    "the schema": ["DROP SCHEMA steersman CASCADE"],
    "a login trigger": [
        *(f"ALTER ROLE {name} IN DATABASE postgres RESET ALL" for name in ("steersman_operator", "steersman_pooler")),
        f'ALTER ROLE "{ADMINISTRATOR.username}" IN DATABASE postgres RESET ALL',
        *REFUSING_TRIGGER,
    ],
}
UNDONE = (
    "DROP EVENT TRIGGER IF EXISTS refuse",
    "DROP FUNCTION IF EXISTS refuse()",
    "GRANT ALL ON ALL FUNCTIONS IN SCHEMA pg_catalog TO PUBLIC",
    "GRANT USAGE ON SCHEMA pg_catalog, public TO PUBLIC",
    "GRANT SELECT ON pg_catalog.pg_roles, pg_catalog.pg_database, pg_catalog.pg_shdescription TO PUBLIC",
    "GRANT CONNECT, TEMPORARY ON DATABASE postgres TO PUBLIC",
)


def work(server: SocketServer) -> None:
    """Use each account as its owner does. Raises psycopg.Error."""
    server.sql(
        "SELECT pg_is_in_recovery(), set_config('lock_timeout', '1s', false)",
        "SELECT r.rolname, shobj_description(r.oid, 'pg_authid') FROM pg_roles r, pg_database d",
        "SELECT * FROM steersman.verifiers('{postgres}')",
        "SELECT pid FROM pg_stat_activity",
        user="steersman_operator",
    )
    server.sql("SELECT * FROM steersman.pooled('an application')", user="steersman_pooler")
    server.sql("SELECT pg_read_binary_file('PG_VERSION')", user="steersman_rewind")
    server.sql("SELECT count(*) FROM pg_stat_activity", user="steersman_queries")
    # As Patroni, and as the exporter.
    server.sql("SET SESSION AUTHORIZATION steersman_monitor", "SELECT count(*) FROM pg_stat_database")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_accounts_lost_are_restored_by_the_pod(server: SocketServer, fault: str, restarted: bool) -> None:
    if fault == "a login trigger" and server.major < 17:
        pytest.skip("there are none before 17")
    work(server)
    server.sql(*FAULTS[fault])
    try:
        if restarted:
            server.stop()
            server.start()
        check = watch.AccountCheck()
        # Within two intervals, which are less than 30 s.
        for now in (0.0, 10.0):
            check.run(now)
        work(server)
        assert system_accounts.are_current() is True
    finally:
        server.sql(*UNDONE, options="-c event_triggers=off" if server.major >= 17 else "")


def test_recreated_operator_administers_its_users(server: SocketServer) -> None:
    server.sql(
        "CREATE ROLE clerk LOGIN",
        "COMMENT ON ROLE clerk IS 'steersman: 5f0c4a71 DatabaseUser shop/clerk'",
        user=OPERATOR,
    )
    server.sql("CREATE ROLE application LOGIN", "CREATE ROLE mighty SUPERUSER")
    server.sql("COMMENT ON ROLE mighty IS 'steersman: 5f0c4a71 DatabaseUser shop/mighty'")
    try:
        server.sql(*FAULTS["all roles"])
        watch.AccountCheck().run(0.0)
        server.sql("ALTER ROLE clerk PASSWORD 'another'", user=OPERATOR)
        for other in ("mighty", *(["application"] if server.major >= 16 else [])):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                server.sql(f"ALTER ROLE {other} PASSWORD 'another'", user=OPERATOR)
    finally:
        server.sql("DROP ROLE clerk, application, mighty")


def test_login_trigger_does_not_lock_out_accounts(server: SocketServer) -> None:
    if server.major < 17:
        pytest.skip("there are none before 17")
    server.sql("CREATE ROLE application LOGIN", *REFUSING_TRIGGER)
    try:
        work(server)
        with pytest.raises(psycopg.OperationalError, match="logins are closed"):
            server.sql("SELECT 1", user="application")
    finally:
        server.sql(*UNDONE, "DROP ROLE application")


def test_closed_database_is_opened(server: SocketServer) -> None:
    server.sql("ALTER DATABASE postgres ALLOW_CONNECTIONS false", database="template1")
    with pytest.raises(psycopg.OperationalError, match="not currently accepting"):
        work(server)
    watch.AccountCheck().run(0.0)
    work(server)


def test_current_accounts_are_left_alone(server: SocketServer) -> None:
    number = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
    before = server.sql(number)
    for now in (0.0, 10.0, 20.0):
        watch.AccountCheck().run(now)
    assert server.sql(number) == before
    # Another version is the operator's to replace, unless it cannot log in.
    server.sql("COMMENT ON SCHEMA steersman IS 'accounts 0123 4567'")
    assert system_accounts.are_current() is True
    server.sql("ALTER ROLE steersman_superuser NOLOGIN")
    assert system_accounts.are_current() is False
    watch.AccountCheck().run(0.0)
    assert system_accounts.are_current() is True


def test_standby_is_left_alone(server: SocketServer, tmp_path: Path) -> None:
    (tmp_path / "standby.signal").touch()
    server.sql("ALTER ROLE steersman_pooler NOLOGIN")
    watch.AccountCheck().run(0.0)
    assert system_accounts.are_current() is False
    (tmp_path / "standby.signal").unlink()
    watch.AccountCheck().run(0.0)
    assert system_accounts.are_current() is True
