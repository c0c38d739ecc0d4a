"""Users, grants and the operator's own few rights, on a real PostgreSQL: each tried by who has it, or not."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace

import psycopg
import pytest

from database_support.servers.postgresql import RealPostgreSQLServer
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import CertificateRefused, ObjectsMissing, SqlFailed
from steersman_databases.engines.postgresql.sql.accounts import system_accounts
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import (
    DesiredDatabase,
    DesiredGrant,
    DesiredUser,
    OwnershipMark,
    PasswordDirective,
    SecondCredential,
    SecurableKind,
)
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.reconcile_sql import reconcile

CLAIM = OwnershipMark("c1", "DatabaseUser", "shop", "it's")
OPERATOR = SqlCredentials("steersman_operator", "0perator")
SHOP, OWNER, CLERK = 'users"; shop', "users' owner", 'users\\ "clerk" %s'
CONTENTS = PostgreSQLSqlEngine()


@pytest.fixture
async def operator(postgresql: RealPostgreSQLServer) -> AsyncGenerator[ServerSessions]:
    """Sessions of an operator that is no superuser, on a server with one database and a table in it."""
    if (OPERATOR.username,) not in postgresql.administer("SELECT rolname FROM pg_roles"):
        postgresql.run(system_accounts.statements())
    postgresql.administer(f"ALTER ROLE {{}} PASSWORD '{OPERATOR.password}'", OPERATOR.username)
    superuser = Login(postgresql.administrator.username, postgresql.administrator.password)
    login = Login(OPERATOR.username, OPERATOR.password)
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
    endpoint = postgresql.endpoint
    server = DatabaseServer("postgresql", endpoint, login, verification, superuser_login=lambda: superuser)
    sessions = CONTENTS.connect(server)
    await reconcile(CONTENTS, sessions, DesiredUser(OWNER, "0wner", mark=CLAIM))
    made = await reconcile(CONTENTS, sessions, DesiredDatabase(SHOP, OWNER, mark=CLAIM))
    if made:
        await postgresql.execute(
            "CREATE TABLE orders (id int); CREATE TABLE goods (id int)",
            credentials=SqlCredentials(OWNER, "0wner"),
            database=SHOP,
        )
    yield sessions
    await sessions.close()


CONNECT = DesiredGrant(SHOP, frozenset({"CONNECT"}))
USE = DesiredGrant(SHOP, frozenset({"USAGE", "CREATE"}), SecurableKind.SCHEMA, "public")


def on_tables(*names: str, privilege: str = "SELECT", future: bool = False) -> DesiredGrant:
    return DesiredGrant(SHOP, frozenset({privilege}), SecurableKind.TABLE, "public", names, future=future)


async def make(operator: ServerSessions, user: DesiredUser) -> list[str]:
    return [change.reason for change in await reconcile(CONTENTS, operator, user)]


async def test_user_privileges_match_declaration(postgresql: RealPostgreSQLServer, operator: ServerSessions) -> None:
    owner, clerk = SqlCredentials(OWNER, "0wner"), SqlCredentials(CLERK, "cl3rk")
    user = DesiredUser(CLERK, clerk.password, mark=CLAIM, grants=(CONNECT, USE, on_tables("orders")))
    await make(operator, user)
    assert await make(operator, user) == []
    assert await may(postgresql, clerk, "SELECT * FROM orders")
    assert not await may(postgresql, clerk, "SELECT * FROM goods")
    assert not await may(postgresql, clerk, "INSERT INTO orders VALUES (1)")
    await postgresql.execute("GRANT INSERT ON orders TO {}", CLERK, credentials=owner, database=SHOP)
    await postgresql.execute("GRANT SELECT (id) ON goods TO {}", CLERK, credentials=owner, database=SHOP)
    assert await make(operator, user) == ["GrantRevoked", "GrantRevoked"]
    assert not await may(postgresql, clerk, "INSERT INTO orders VALUES (1)")
    assert not await may(postgresql, clerk, "SELECT id FROM goods")
    wide = DesiredUser(CLERK, clerk.password, mark=CLAIM, grants=(CONNECT, USE, on_tables("*", future=True)))
    await make(operator, wide)
    await postgresql.execute("CREATE TABLE later (id int)", credentials=owner, database=SHOP)
    assert await may(postgresql, clerk, "SELECT * FROM later, goods")
    assert await make(operator, wide) == []
    await make(operator, DesiredUser(CLERK, clerk.password, mark=CLAIM))
    assert not await postgresql.can_log_in(clerk, SHOP)


async def test_two_credentials_share_one_user(postgresql: RealPostgreSQLServer, operator: ServerSessions) -> None:
    first, second = SqlCredentials(CLERK, "f1rst"), SqlCredentials(CLERK + "~", "s3cond")
    user = DesiredUser(CLERK, first.password, SecondCredential(second.password), mark=CLAIM, grants=(CONNECT, USE))
    await make(operator, user)
    await postgresql.execute("CREATE TABLE till (id int)", credentials=second, database=SHOP)
    assert await may(postgresql, first, "DROP TABLE till"), "what one makes is the other's"
    await make(
        operator,
        DesiredUser(CLERK, PasswordDirective.NONE, SecondCredential(PasswordDirective.UNCHANGED), mark=CLAIM),
    )
    assert not await postgresql.can_log_in(first, "postgres")
    assert await postgresql.can_log_in(second, "postgres")
    assert not {first.password, second.password} & set(postgresql.log.read_text(errors="replace").split("'"))


async def test_user_with_connect_only_is_dropped(postgresql: RealPostgreSQLServer, operator: ServerSessions) -> None:
    guest = "users guest"
    await make(operator, DesiredUser(guest, "gu3st", mark=CLAIM, grants=(CONNECT,)))
    survey = await CONTENTS.inspect(operator, InspectionScope(users=frozenset({guest})))
    await CONTENTS.execute(operator, CONTENTS.plan_drop_user(survey, guest, CLAIM, None))
    assert (guest,) not in postgresql.administer("SELECT rolname FROM pg_roles")


async def test_dropped_user_objects_go_to_database_owner(
    postgresql: RealPostgreSQLServer, operator: ServerSessions
) -> None:
    leaver = SqlCredentials("users leaver", "gone")
    await make(operator, DesiredUser(leaver.username, leaver.password, mark=CLAIM, grants=(CONNECT, USE)))
    await postgresql.execute("CREATE TABLE left_over (id int)", credentials=leaver, database=SHOP)
    survey = await CONTENTS.inspect(operator, InspectionScope(users=frozenset({leaver.username})))
    other = OwnershipMark("c1", "DatabaseUser", "shop", "another")
    assert not CONTENTS.plan_drop_user(survey, leaver.username, other, None)
    await CONTENTS.execute(operator, CONTENTS.plan_drop_user(survey, leaver.username, CLAIM, None))
    assert (leaver.username,) not in postgresql.administer("SELECT rolname FROM pg_roles")
    assert await may(postgresql, SqlCredentials(OWNER, "0wner"), "DROP TABLE left_over")


async def test_operator_role_cannot_read_data(postgresql: RealPostgreSQLServer, operator: ServerSessions) -> None:
    assert not await may(postgresql, OPERATOR, "SELECT * FROM orders")


async def test_server_with_other_certificate_is_not_logged_in_to(
    postgresql: RealPostgreSQLServer, operator: ServerSessions
) -> None:
    login = Login(OPERATOR.username, OPERATOR.password)
    verification = Verification(TLSMode.VERIFY_FULL, (postgresql.log.parent / "cert.pem").read_bytes())
    strict = CONTENTS.connect(DatabaseServer("postgresql", postgresql.endpoint, login, verification))
    with pytest.raises(CertificateRefused, match="does not match host name"):
        await CONTENTS.inspect(strict, InspectionScope())
    strange = CONTENTS.connect(DatabaseServer("postgresql", postgresql.endpoint, login, Verification()))
    with pytest.raises(CertificateRefused, match="certificate verify failed"):
        await CONTENTS.inspect(strange, InspectionScope())


async def test_correct_password_is_recognised_despite_other_errors(
    postgresql: RealPostgreSQLServer, operator: ServerSessions
) -> None:
    clerk = SqlCredentials("users tried", "r1ght")
    await make(operator, DesiredUser(clerk.username, clerk.password, mark=CLAIM))
    server = operator.server
    assert not await CONTENTS.can_log_in(server, SqlCredentials(clerk.username, "wr0ng"), "postgres")
    with pytest.raises(SqlFailed, match="lacks CONNECT on it"):
        await CONTENTS.can_log_in(server, clerk, SHOP)
    with pytest.raises(SqlFailed, match="it does not exist"):
        await CONTENTS.can_log_in(server, clerk, "users nowhere")
    postgresql.administer("ALTER ROLE {} NOLOGIN", clerk.username)
    with pytest.raises(SqlFailed, match="is not permitted to log in"):
        await CONTENTS.can_log_in(server, clerk, "postgres")


async def test_hba_rules_are_read_by_superuser_only(
    postgresql: RealPostgreSQLServer, operator: ServerSessions
) -> None:
    assert await CONTENTS.same_hba_access(operator, "clerk", "clerk~", "postgres")
    modest = CONTENTS.connect(replace(operator.server, superuser_login=None))
    assert not await CONTENTS.same_hba_access(modest, "clerk", "clerk~", "postgres")
    await modest.close()


@pytest.mark.parametrize("full", ["of the role", "of the database", "of the server"])
async def test_connection_limit_is_checked_after_password(
    postgresql: RealPostgreSQLServer, operator: ServerSessions, full: str
) -> None:
    clerk, database = SqlCredentials("users tried", "r1ght"), "users full"
    await make(operator, DesiredUser(clerk.username, clerk.password, mark=CLAIM))
    postgresql.administer("CREATE DATABASE {}", database)
    taken: list[psycopg.AsyncConnection] = []
    try:
        if full == "of the role":
            postgresql.administer("ALTER ROLE {} CONNECTION LIMIT 1", clerk.username)
        if full == "of the database":
            postgresql.administer("ALTER DATABASE {} CONNECTION LIMIT 1", database)
        with contextlib.suppress(psycopg.OperationalError):
            while full == "of the server" or not taken:
                taken.append(await postgresql.connected(clerk, database))
        with pytest.raises(psycopg.OperationalError, match="connection"):
            await postgresql.connected(clerk, database)
        assert await CONTENTS.can_log_in(operator.server, clerk, database)
        assert not await CONTENTS.can_log_in(operator.server, SqlCredentials(clerk.username, "wr0ng"), database)
    finally:
        for connection in taken:
            await connection.close()
        postgresql.administer("ALTER ROLE {} CONNECTION LIMIT -1", clerk.username)
        postgresql.administer("DROP DATABASE {} (FORCE)", database)


async def test_ungrantable_privilege_is_reported_rest_granted(
    postgresql: RealPostgreSQLServer, operator: ServerSessions
) -> None:
    clerk = SqlCredentials("users reader", "r34der")
    await postgresql.execute("CREATE TABLE public.theirs (id int)", database=SHOP)
    try:
        user = DesiredUser(clerk.username, clerk.password, mark=CLAIM, grants=(CONNECT, USE, on_tables("*")))
        with pytest.raises(
            ObjectsMissing,
            match=r"public\.theirs belongs to the-administrator, and the operator cannot grant as this role",
        ):
            await make(operator, user)
        assert await may(postgresql, clerk, "SELECT * FROM orders")
        assert not await may(postgresql, clerk, "SELECT * FROM theirs")
    finally:
        await postgresql.execute("DROP TABLE public.theirs", database=SHOP)
    assert await make(operator, user) == []


async def test_column_grants_apply(postgresql: RealPostgreSQLServer, operator: ServerSessions) -> None:
    clerk = SqlCredentials("users column's", "c0lumn")
    owner = SqlCredentials(OWNER, "0wner")
    await postgresql.execute('CREATE TABLE parts (id int, "it\'s" int)', credentials=owner, database=SHOP)
    try:
        wanted = DesiredGrant(
            SHOP, frozenset({"SELECT"}), SecurableKind.TABLE, "public", ("parts",), columns=("it's", "none")
        )
        user = DesiredUser(clerk.username, clerk.password, mark=CLAIM, grants=(CONNECT, USE, wanted))
        with pytest.raises(ObjectsMissing, match=r"^column none of table .*public\.parts does not exist yet$"):
            await make(operator, user)
        assert await may(postgresql, clerk, 'SELECT "it\'s" FROM parts')
        assert not await may(postgresql, clerk, "SELECT id FROM parts")
        await postgresql.execute("GRANT SELECT (id) ON parts TO {}", clerk.username, credentials=owner, database=SHOP)
        there = replace(user, grants=(CONNECT, USE, replace(wanted, columns=("it's",))))
        assert await make(operator, there) == ["GrantRevoked"]
        assert not await may(postgresql, clerk, "SELECT id FROM parts")
        await make(operator, replace(user, grants=(CONNECT, USE, replace(wanted, columns=()))))
        assert await may(postgresql, clerk, "SELECT id FROM parts")
        assert await make(operator, there) == ["GrantRevoked", "PrivilegesGranted"]
        assert await make(operator, there) == []
        assert await may(postgresql, clerk, 'SELECT "it\'s" FROM parts')
        assert not await may(postgresql, clerk, "SELECT id FROM parts")
    finally:
        await postgresql.execute("DROP TABLE parts", credentials=owner, database=SHOP)


async def may(postgresql: RealPostgreSQLServer, who: SqlCredentials, statement: str) -> bool:
    try:
        await postgresql.execute(statement, credentials=who, database=SHOP)
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True
