"""The cluster's own accounts, given to a real server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.process import program
from steersman_databases.engines import ServerUnreachable, SqlCredentials
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import ensure_accounts, statements, version
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.data_takeover import DataOwner
from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_databases.engines.sql.inspection import InspectionScope

HOLDER = DataOwner("the first", "5f0c4a71", {})
CLERK = OwnershipMark("5f0c4a71", "DatabaseUser", "shop", "clerk")
KEPT = OwnershipMark("5f0c4a71", "Database", "shop", "kept")


def administrated(postgresql: RealPostgreSQLServer) -> DatabaseServer:
    """The server, as somebody who may do everything logs in."""
    login = Login(postgresql.administrator.username, postgresql.administrator.password)
    return DatabaseServer("postgresql", postgresql.endpoint, login, Verification(TLSMode.REQUIRE))


async def test_accounts_of_other_version_are_updated(postgresql: RealPostgreSQLServer) -> None:
    server = administrated(postgresql)
    postgresql.administer("CREATE ROLE somebody LOGIN")
    somebody = SqlCredentials("somebody", "not-for-any-log")

    async def reasons(credentials: SqlCredentials) -> list[str]:
        return [change.reason for change in await ensure_accounts(server, credentials, HOLDER)]

    await ensure_accounts(server, somebody, HOLDER)
    assert await reasons(somebody) == []
    assert await postgresql.can_log_in(somebody, "postgres")
    postgresql.administer("COMMENT ON SCHEMA steersman IS 'of another version'")
    second = replace(somebody, password="it's \\also not-for-any-log")
    assert await reasons(second) == ["AccountsUpdated", "PasswordReset"]
    assert await postgresql.can_log_in(second, "postgres")
    assert not await postgresql.can_log_in(somebody, "postgres")
    [(comment,)] = postgresql.administer("SELECT obj_description(to_regnamespace('steersman'), 'pg_namespace')")
    assert comment.startswith(f"{version()} ")
    assert await reasons(second) == []
    log = postgresql.log.read_text(errors="replace")
    assert 'ALTER ROLE "somebody" PASSWORD \'SCRAM-SHA-256$' in log
    assert somebody.password not in log
    postgresql.administer("DROP ROLE somebody")


async def test_accounts_of_marked_data_are_updated(postgresql: RealPostgreSQLServer) -> None:
    server, administrator = administrated(postgresql), postgresql.administrator
    mark = OwnershipMark("5f0c4a71", "PostgreSQLCluster", "shop", "orders")
    owner = DataOwner(f"{mark.text} 5eb3b365-1ff6-4b28-bc2a-ea8d087b5638", mark.cluster, {})
    await ensure_accounts(server, administrator, owner)
    try:
        postgresql.administer("COMMENT ON SCHEMA steersman IS 'of another version'")
        assert [change.reason for change in await ensure_accounts(server, administrator, owner)] == [
            "AccountsUpdated"
        ]
    finally:
        postgresql.administer("COMMENT ON ROLE steersman_operator IS NULL")


async def test_takeover_by_clone_keeps_operator_login(postgresql: RealPostgreSQLServer) -> None:
    server, administrator = administrated(postgresql), postgresql.administrator
    source = OwnershipMark("5f0c4a71", "PostgreSQLCluster", "prod", "orders")
    clone = replace(source, name="copy")
    text = f"{clone.text} 6eb3b365-1ff6-4b28-bc2a-ea8d087b5638"
    query = """
        SELECT rolcanlogin, shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = 'steersman_operator'
    """
    try:
        previous = DataOwner(f"{source.text} 5eb3b365-1ff6-4b28-bc2a-ea8d087b5638", source.cluster, {})
        await ensure_accounts(server, administrator, previous)
        changes = await ensure_accounts(server, administrator, DataOwner(text, source.cluster, {}, restored=True))
        # Users of other tests on this server may be locked.
        assert not [change for change in changes if "steersman_operator" in change.message]
        assert postgresql.administer(query) == [(True, text)]
    finally:
        postgresql.administer("COMMENT ON ROLE steersman_operator IS NULL")
        postgresql.administer("ALTER ROLE steersman_operator LOGIN")


@pytest.mark.parametrize("restored", [True, False])
async def test_recreated_namespace_keeps_recovered_users(postgresql: RealPostgreSQLServer, restored: bool) -> None:
    server, administrator = administrated(postgresql), postgresql.administrator
    cluster, mark = replace(CLERK, kind="PostgreSQLCluster", name="main"), replace(CLERK, namespace_uid="uid-1")
    first, second = (DataOwner(f"{cluster.text} {uid}", cluster.cluster, {CLERK.text: {"clerk"}}) for uid in "12")
    query = """
        SELECT shobj_description(to_regrole('clerk'), 'pg_authid'), shobj_description(oid, 'pg_database')
        FROM pg_database WHERE datname = 'ledger'
    """
    try:
        await ensure_accounts(server, administrator, first)
        for created in ("ROLE clerk", "DATABASE ledger"):
            postgresql.administer(f"CREATE {created}")
            postgresql.administer(f"COMMENT ON {created} IS '{mark.text}'")
        changes = await ensure_accounts(server, administrator, replace(second, restored=restored))
        assert not [change for change in changes if "clerk" in change.message]
        assert postgresql.administer(query) == [(CLERK.text, CLERK.text)]
    finally:
        postgresql.administer("COMMENT ON ROLE steersman_operator IS NULL")
        postgresql.administer("DROP DATABASE IF EXISTS ledger")
        postgresql.administer("DROP ROLE IF EXISTS clerk")


NOTHING_SET = """
    SELECT NOT EXISTS (SELECT FROM pg_db_role_setting
        WHERE setrole::regrole::text LIKE 'steersman%'
            AND NOT setconfig <@ ARRAY['event_triggers=off', 'log_min_duration_statement=-1'])
"""
CHANGED = {
    "ALTER ROLE steersman_operator NOLOGIN": (
        "SELECT rolcanlogin AND NOT rolinherit FROM pg_roles WHERE rolname = 'steersman_operator'"
    ),
    "ALTER ROLE steersman_pooler SUPERUSER": "SELECT NOT rolsuper FROM pg_roles WHERE rolname = 'steersman_pooler'",
    "DROP FUNCTION steersman.pooled(text)": "SELECT to_regprocedure('steersman.pooled(text)') IS NOT NULL",
    "ALTER FUNCTION steersman.pooled(text) SECURITY INVOKER": (
        "SELECT prosecdef FROM pg_proc WHERE oid = 'steersman.pooled(text)'::regprocedure"
    ),
    "REVOKE EXECUTE ON FUNCTION steersman.verifiers(name[]) FROM steersman_operator": (
        "SELECT has_function_privilege('steersman_operator', 'steersman.verifiers(name[])', 'EXECUTE')"
    ),
    "GRANT EXECUTE ON FUNCTION steersman.verifiers(name[]) TO PUBLIC": (
        "SELECT NOT has_function_privilege('steersman_rewind', 'steersman.verifiers(name[])', 'EXECUTE')"
    ),
    "REVOKE EXECUTE ON FUNCTION pg_stat_file(text, boolean) FROM steersman_rewind": (
        "SELECT has_function_privilege('steersman_rewind', 'pg_stat_file(text, boolean)', 'EXECUTE')"
    ),
    "REVOKE USAGE ON SCHEMA steersman FROM steersman_pooler": (
        "SELECT has_schema_privilege('steersman_pooler', 'steersman', 'USAGE')"
    ),
    "REVOKE pg_monitor FROM steersman_operator": "SELECT pg_has_role('steersman_operator', 'pg_monitor', 'MEMBER')",
    "ALTER ROLE steersman_operator CONNECTION LIMIT 0": (
        "SELECT rolconnlimit = -1 FROM pg_roles WHERE rolname = 'steersman_operator'"
    ),
    "ALTER ROLE steersman_pooler BYPASSRLS": (
        "SELECT NOT rolbypassrls FROM pg_roles WHERE rolname = 'steersman_pooler'"
    ),
    "ALTER ROLE steersman_pooler NOINHERIT": "SELECT rolinherit FROM pg_roles WHERE rolname = 'steersman_pooler'",
    "ALTER ROLE steersman_operator VALID UNTIL '2001-01-01'": (
        "SELECT rolvaliduntil > now() FROM pg_roles WHERE rolname = 'steersman_operator'"
    ),
    "ALTER ROLE steersman_operator SET statement_timeout = 1": NOTHING_SET,
    "ALTER ROLE steersman_superuser IN DATABASE postgres SET default_transaction_read_only = on": NOTHING_SET,
    "DROP SCHEMA steersman CASCADE": "SELECT to_regprocedure('steersman.verifiers(name[])') IS NOT NULL",
}
"""What somebody does to the accounts, and a look whether it is undone."""


@pytest.mark.parametrize("statement", CHANGED)
async def test_accounts_changed_by_hand_are_restored(postgresql: RealPostgreSQLServer, statement: str) -> None:
    server, administrator = administrated(postgresql), postgresql.administrator
    await ensure_accounts(server, administrator, HOLDER)
    postgresql.administer("ALTER ROLE steersman_operator PASSWORD '0perator'")
    # One that is open goes on, whatever becomes of its role.
    sessions = PostgreSQLSqlEngine().connect(replace(server, login=Login("steersman_operator", "0perator")))

    async def is_altered() -> bool:
        return (await PostgreSQLSqlEngine().inspect(sessions, InspectionScope(system_accounts=True))).accounts_altered

    try:
        assert not await is_altered()
        postgresql.administer(statement)
        assert await is_altered()
        assert not (await PostgreSQLSqlEngine().inspect(sessions, InspectionScope())).accounts_altered, (
            "unless nobody asks"
        )
        [change] = await ensure_accounts(server, administrator, HOLDER)
        assert change.reason == "AccountsUpdated"
        assert postgresql.administer(CHANGED[statement]) == [(True,)]
        assert not await is_altered()
    finally:
        await sessions.close()


async def test_accounts_current_write_nothing(postgresql: RealPostgreSQLServer) -> None:
    server, administrator = administrated(postgresql), postgresql.administrator
    await ensure_accounts(server, administrator, HOLDER)
    # The callback gives the SQL by psql, and what others have planted must not count.
    postgresql.administer("CREATE SCHEMA hostile")
    planted = "CREATE FUNCTION hostile.{}(text, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'"
    postgresql.administer(planted, "hashtextextended")
    postgresql.administer("ALTER DATABASE postgres SET search_path = hostile, pg_catalog")
    try:
        for _ in range(2):
            by_callback(postgresql)
            before = postgresql.administer(NEXT_TRANSACTION)
            for _ in range(3):
                assert await ensure_accounts(server, administrator, HOLDER) == ()
            assert postgresql.administer(NEXT_TRANSACTION) == before
    finally:
        postgresql.administer("ALTER DATABASE postgres RESET search_path")
        postgresql.administer("DROP SCHEMA hostile CASCADE")


NEXT_TRANSACTION = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
"""The number of the next transaction that writes."""


def by_callback(postgresql: RealPostgreSQLServer) -> None:
    """Gives the server the accounts as a primary's callback does."""
    at, credentials = postgresql.endpoint, postgresql.administrator
    place = (f"--host={at.host}", f"--port={at.port}", f"--username={credentials.username}", "--dbname=postgres")
    given = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-")
    command = [program("psql", str(postgresql.programs)), *place, *given]
    environment = {**os.environ, "PGPASSWORD": credentials.password}
    subprocess.run(command, input=statements(), text=True, check=True, env=environment, timeout=60)


async def test_data_takeover_locks_undeclared_users(postgresql: RealPostgreSQLServer) -> None:
    server, somebody = administrated(postgresql), postgresql.administrator
    await ensure_accounts(server, somebody, HOLDER)
    others = replace(CLERK, cluster="another")
    roles = {
        "clerk": CLERK.text,
        "clerk~": CLERK.text,
        'it\'s "gone"': replace(CLERK, name="gone").text,
        "renamed": replace(CLERK, name="jane").text,
        "elsewhere": others.text,
        "owner": replace(CLERK, kind="Database").text,
        "owner of what was kept": KEPT.text,
        "owner of what was dropped": replace(KEPT, name="dropped").text,
        "made by hand": "for the reports",
    }
    for name, mark in roles.items():
        quoted, literal = name.replace('"', '""'), mark.replace("'", "''")
        postgresql.administer(f"CREATE ROLE \"{quoted}\" LOGIN PASSWORD 's3cret'")
        postgresql.administer(f"COMMENT ON ROLE \"{quoted}\" IS '{literal}'")
    gone = SqlCredentials('it\'s "gone"', "s3cret")
    declared = {
        CLERK.text: {"clerk", "clerk~"},
        replace(CLERK, name="jane").text: {"jane", "jane~"},
        replace(CLERK, kind="Database").text: {"owner"},
    }
    left = {'it\'s "gone"', "owner of what was dropped", "renamed"}
    second = DataOwner("the second", CLERK.cluster, declared, {KEPT.text})
    try:
        postgresql.administer("COMMENT ON ROLE steersman_operator IS NULL")
        assert await ensure_accounts(server, somebody, HOLDER) == (), (
            "of data that bear no word nobody knows who left them"
        )
        assert await ensure_accounts(server, somebody, HOLDER) == (), "of one's own data, whoever was retained stays"
        async with logged_in(postgresql, gone) as session:
            [change] = await ensure_accounts(server, somebody, second)
            assert change.reason == "UsersLocked" and f"{', '.join(sorted(left))}:" in change.message
            with pytest.raises(psycopg.OperationalError):
                await session.execute("SELECT 1")
        for name in roles:
            assert await postgresql.can_log_in(SqlCredentials(name, "s3cret"), "postgres") is (name not in left), name
        assert await ensure_accounts(server, somebody, second) == ()
    finally:
        for name in roles:
            quoted = name.replace('"', '""')
            postgresql.administer(f'DROP ROLE "{quoted}"')


async def test_administrator_password_change_is_detected(
    postgresql: RealPostgreSQLServer,
) -> None:
    await ensure_accounts(administrated(postgresql), postgresql.administrator, HOLDER)
    postgresql.administer("CREATE ROLE mighty SUPERUSER PASSWORD 'first'")
    postgresql.administer("CREATE ROLE modest PASSWORD 'first'")

    def learnt() -> dict[str, str | None]:
        names = "ARRAY['mighty', 'modest']::name[]"
        rows = postgresql.administer(f"SELECT name, verifier FROM steersman.verifiers({names})")
        return {str(name): verifier for name, verifier in rows}

    try:
        before = learnt()
        assert [str(before[name])[:7] for name in ("mighty", "modest")] == ["sha256:", "SCRAM-S"]
        assert learnt() == before
        postgresql.administer("ALTER ROLE mighty PASSWORD 'first'")
        assert learnt()["mighty"] not in (before["mighty"], None), "by another salt, and so it is looked at"
        postgresql.administer("ALTER ROLE mighty PASSWORD NULL")
        assert learnt()["mighty"] is None
    finally:
        for name in ("mighty", "modest"):
            postgresql.administer(f"DROP ROLE {name}")


async def test_async_commit_role_is_detected(postgresql: RealPostgreSQLServer) -> None:
    set_and_reset = {
        'ROLE "in a hurry"': "off",
        'ROLE "in a hurry" IN DATABASE template1': "LOCAL",
        "DATABASE template1": "'0'",
        "ROLE patient": "remote_write",
        "ROLE ALL": "local",
    }
    for role in ('"in a hurry"', "patient"):
        postgresql.administer(f"CREATE ROLE {role}")
    sessions = PostgreSQLSqlEngine().connect(administrated(postgresql))
    try:
        for whom, value in set_and_reset.items():
            postgresql.administer(f"ALTER {whom} SET synchronous_commit = {value}")
        seen = (
            await PostgreSQLSqlEngine().inspect(sessions, InspectionScope(commit_settings=True))
        ).async_commit_roles
        expected = {"role in a hurry", "role in a hurry in database template1", "database template1", "all roles"}
        assert seen == expected
        assert (await PostgreSQLSqlEngine().inspect(sessions, InspectionScope())).async_commit_roles == frozenset(), (
            "unless nobody asks"
        )
    finally:
        await sessions.close()
        for whom in set_and_reset:
            postgresql.administer(f"ALTER {whom} RESET synchronous_commit")
        for role in ('"in a hurry"', "patient"):
            postgresql.administer(f"DROP ROLE {role}")


async def test_standby_is_not_marked_provisioned(
    postgresql: RealPostgreSQLServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_begun(_session: PostgreSQLSession, _deadline: float) -> bool:
        return False

    monkeypatch.setattr(PostgreSQLSession, "begin_use", not_begun)
    with pytest.raises(ServerUnreachable, match="not the primary"):
        await ensure_accounts(administrated(postgresql), postgresql.administrator, HOLDER)


@asynccontextmanager
async def logged_in(
    postgresql: RealPostgreSQLServer, credentials: SqlCredentials
) -> AsyncGenerator[psycopg.AsyncConnection[tuple[object, ...]]]:
    """A session of an application's."""
    at = postgresql.endpoint
    connection = await psycopg.AsyncConnection.connect(
        host=at.host, port=at.port, user=credentials.username, password=credentials.password, dbname="postgres"
    )
    async with connection:
        yield connection
