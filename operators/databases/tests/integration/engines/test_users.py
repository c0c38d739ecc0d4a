"""Users, grants and the operator's own few rights, on a real PostgreSQL: each tried by who has it, or not."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace

import psycopg
import pytest

from database_support.postgresql_server import PostgreSQLServer
from steersman_databases.engines import Credentials, PostgreSQL
from steersman_databases.engines.desired import (
    Claim,
    DesiredDatabase,
    DesiredGrant,
    DesiredUser,
    NoPassword,
    ObjectKind,
    SecondCredential,
)
from steersman_databases.engines.errors import CertificateRefused, ObjectsMissing, SqlFailed
from steersman_databases.engines.postgresql import accounts
from steersman_databases.engines.server import Login, Server, TLSMode, Verification
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.settle import settle
from steersman_databases.engines.survey import Scope

CLAIM = Claim("c1", "DatabaseUser", "shop", "it's")
OPERATOR = Credentials("steersman_operator", "0perator")
SHOP, OWNER, CLERK = 'users"; shop', "users' owner", 'users\\ "clerk" %s'
CONTENTS = PostgreSQL()


@pytest.fixture
async def operator(postgresql: PostgreSQLServer) -> AsyncGenerator[Sessions]:
    """Sessions of an operator that is no superuser, on a server with one database and a table in it."""
    if (OPERATOR.username,) not in postgresql.administer("SELECT rolname FROM pg_roles"):
        postgresql.run(accounts.statements())
    postgresql.administer(f"ALTER ROLE {{}} PASSWORD '{OPERATOR.password}'", OPERATOR.username)
    superuser = Login(postgresql.administrator.username, postgresql.administrator.password)
    login = Login(OPERATOR.username, OPERATOR.password)
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
    endpoint = postgresql.endpoint
    server = Server("postgresql", endpoint, login, verification, elevate=lambda: superuser)
    sessions = CONTENTS.connect(server)
    await settle(CONTENTS, sessions, DesiredUser(OWNER, "0wner", claim=CLAIM))
    made = await settle(CONTENTS, sessions, DesiredDatabase(SHOP, OWNER, claim=CLAIM))
    if made:
        await postgresql.execute(
            "CREATE TABLE orders (id int); CREATE TABLE goods (id int)",
            credentials=Credentials(OWNER, "0wner"),
            database=SHOP,
        )
    yield sessions
    await sessions.close()


CONNECT = DesiredGrant(SHOP, frozenset({"CONNECT"}))
USE = DesiredGrant(SHOP, frozenset({"USAGE", "CREATE"}), ObjectKind.SCHEMA, "public")


def on_tables(*names: str, privilege: str = "SELECT", future: bool = False) -> DesiredGrant:
    return DesiredGrant(SHOP, frozenset({privilege}), ObjectKind.TABLE, "public", names, future=future)


async def make(operator: Sessions, user: DesiredUser) -> list[str]:
    return [change.reason for change in await settle(CONTENTS, operator, user)]


async def test_who_may_do_what(postgresql: PostgreSQLServer, operator: Sessions) -> None:
    owner, clerk = Credentials(OWNER, "0wner"), Credentials(CLERK, "cl3rk")
    user = DesiredUser(CLERK, clerk.password, claim=CLAIM, grants=(CONNECT, USE, on_tables("orders")))
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
    wide = DesiredUser(CLERK, clerk.password, claim=CLAIM, grants=(CONNECT, USE, on_tables("*", future=True)))
    await make(operator, wide)
    await postgresql.execute("CREATE TABLE later (id int)", credentials=owner, database=SHOP)
    assert await may(postgresql, clerk, "SELECT * FROM later, goods")
    assert await make(operator, wide) == []
    await make(operator, DesiredUser(CLERK, clerk.password, claim=CLAIM))
    assert not await postgresql.can_log_in(clerk, SHOP)


async def test_two_credentials_are_one_user(postgresql: PostgreSQLServer, operator: Sessions) -> None:
    first, second = Credentials(CLERK, "f1rst"), Credentials(CLERK + "~", "s3cond")
    user = DesiredUser(CLERK, first.password, SecondCredential(second.password), claim=CLAIM, grants=(CONNECT, USE))
    await make(operator, user)
    await postgresql.execute("CREATE TABLE till (id int)", credentials=second, database=SHOP)
    assert await may(postgresql, first, "DROP TABLE till"), "what one makes is the other's"
    await make(operator, DesiredUser(CLERK, NoPassword.NONE, SecondCredential(NoPassword.UNCHANGED), claim=CLAIM))
    assert not await postgresql.can_log_in(first, "postgres")
    assert await postgresql.can_log_in(second, "postgres")
    assert not {first.password, second.password} & set(postgresql.log.read_text(errors="replace").split("'"))


async def test_who_may_only_connect_is_dropped(postgresql: PostgreSQLServer, operator: Sessions) -> None:
    guest = "users guest"
    await make(operator, DesiredUser(guest, "gu3st", claim=CLAIM, grants=(CONNECT,)))
    survey = await CONTENTS.survey(operator, Scope(users=frozenset({guest})))
    await CONTENTS.carry_out(operator, CONTENTS.plan_drop_user(survey, guest, CLAIM, None))
    assert (guest,) not in postgresql.administer("SELECT rolname FROM pg_roles")


async def test_what_a_dropped_user_owned_is_the_databases_owners(
    postgresql: PostgreSQLServer, operator: Sessions
) -> None:
    leaver = Credentials("users leaver", "gone")
    await make(operator, DesiredUser(leaver.username, leaver.password, claim=CLAIM, grants=(CONNECT, USE)))
    await postgresql.execute("CREATE TABLE left_over (id int)", credentials=leaver, database=SHOP)
    survey = await CONTENTS.survey(operator, Scope(users=frozenset({leaver.username})))
    other = Claim("c1", "DatabaseUser", "shop", "another")
    assert not CONTENTS.plan_drop_user(survey, leaver.username, other, None)
    await CONTENTS.carry_out(operator, CONTENTS.plan_drop_user(survey, leaver.username, CLAIM, None))
    assert (leaver.username,) not in postgresql.administer("SELECT rolname FROM pg_roles")
    assert await may(postgresql, Credentials(OWNER, "0wner"), "DROP TABLE left_over")


async def test_the_operator_itself_may_read_nothing(postgresql: PostgreSQLServer, operator: Sessions) -> None:
    assert not await may(postgresql, OPERATOR, "SELECT * FROM orders")


async def test_a_server_with_another_certificate_is_not_logged_in_to(
    postgresql: PostgreSQLServer, operator: Sessions
) -> None:
    login = Login(OPERATOR.username, OPERATOR.password)
    verification = Verification(TLSMode.VERIFY_FULL, (postgresql.log.parent / "cert.pem").read_bytes())
    strict = CONTENTS.connect(Server("postgresql", postgresql.endpoint, login, verification))
    with pytest.raises(CertificateRefused, match="does not match host name"):
        await CONTENTS.survey(strict, Scope())
    strange = CONTENTS.connect(Server("postgresql", postgresql.endpoint, login, Verification()))
    with pytest.raises(CertificateRefused, match="certificate verify failed"):
        await CONTENTS.survey(strange, Scope())


async def test_a_right_password_is_told_from_a_wrong_one_whatever_else_keeps_one_out(
    postgresql: PostgreSQLServer, operator: Sessions
) -> None:
    clerk = Credentials("users tried", "r1ght")
    await make(operator, DesiredUser(clerk.username, clerk.password, claim=CLAIM))
    server = operator.server
    assert not await CONTENTS.opens(server, Credentials(clerk.username, "wr0ng"), "postgres")
    with pytest.raises(SqlFailed, match="may not connect to it"):
        await CONTENTS.opens(server, clerk, SHOP)
    with pytest.raises(SqlFailed, match="it is not there"):
        await CONTENTS.opens(server, clerk, "users nowhere")
    postgresql.administer("ALTER ROLE {} NOLOGIN", clerk.username)
    with pytest.raises(SqlFailed, match="is not permitted to log in"):
        await CONTENTS.opens(server, clerk, "postgres")


async def test_access_rules_are_read_by_a_superusers_login_alone(
    postgresql: PostgreSQLServer, operator: Sessions
) -> None:
    assert await CONTENTS.admits_alike(operator, "clerk", "clerk~", "postgres")
    modest = CONTENTS.connect(replace(operator.server, elevate=None))
    assert not await CONTENTS.admits_alike(modest, "clerk", "clerk~", "postgres")
    await modest.close()


@pytest.mark.parametrize("full", ["of the role", "of the database", "of the server"])
async def test_connections_that_are_all_in_use_are_counted_after_the_password(
    postgresql: PostgreSQLServer, operator: Sessions, full: str
) -> None:
    clerk, database = Credentials("users tried", "r1ght"), "users full"
    await make(operator, DesiredUser(clerk.username, clerk.password, claim=CLAIM))
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
        assert await CONTENTS.opens(operator.server, clerk, database)
        assert not await CONTENTS.opens(operator.server, Credentials(clerk.username, "wr0ng"), database)
    finally:
        for connection in taken:
            await connection.close()
        postgresql.administer("ALTER ROLE {} CONNECTION LIMIT -1", clerk.username)
        postgresql.administer("DROP DATABASE {} (FORCE)", database)


async def test_what_the_operator_may_not_grant_is_named_and_the_rest_is_granted(
    postgresql: PostgreSQLServer, operator: Sessions
) -> None:
    clerk = Credentials("users reader", "r34der")
    await postgresql.execute("CREATE TABLE public.theirs (id int)", database=SHOP)
    try:
        user = DesiredUser(clerk.username, clerk.password, claim=CLAIM, grants=(CONNECT, USE, on_tables("*")))
        with pytest.raises(ObjectsMissing, match=r"public\.theirs belongs to the-administrator, as whom"):
            await make(operator, user)
        assert await may(postgresql, clerk, "SELECT * FROM orders")
        assert not await may(postgresql, clerk, "SELECT * FROM theirs")
    finally:
        await postgresql.execute("DROP TABLE public.theirs", database=SHOP)
    assert await make(operator, user) == []


async def test_single_columns(postgresql: PostgreSQLServer, operator: Sessions) -> None:
    clerk = Credentials("users column's", "c0lumn")
    owner = Credentials(OWNER, "0wner")
    await postgresql.execute('CREATE TABLE parts (id int, "it\'s" int)', credentials=owner, database=SHOP)
    try:
        wanted = DesiredGrant(
            SHOP, frozenset({"SELECT"}), ObjectKind.TABLE, "public", ("parts",), columns=("it's", "none")
        )
        user = DesiredUser(clerk.username, clerk.password, claim=CLAIM, grants=(CONNECT, USE, wanted))
        with pytest.raises(ObjectsMissing, match=r"^column none of table .*public\.parts is not there yet$"):
            await make(operator, user)
        assert await may(postgresql, clerk, 'SELECT "it\'s" FROM parts')
        assert not await may(postgresql, clerk, "SELECT id FROM parts")
        await postgresql.execute("GRANT SELECT (id) ON parts TO {}", clerk.username, credentials=owner, database=SHOP)
        there = replace(user, grants=(CONNECT, USE, replace(wanted, columns=("it's",))))
        assert await make(operator, there) == ["GrantRevoked"]
        assert not await may(postgresql, clerk, "SELECT id FROM parts")
        await make(operator, replace(user, grants=(CONNECT, USE, replace(wanted, columns=()))))
        assert await may(postgresql, clerk, "SELECT id FROM parts")
        assert await make(operator, there) == ["GrantRevoked", "Granted"]
        assert await make(operator, there) == []
        assert await may(postgresql, clerk, 'SELECT "it\'s" FROM parts')
        assert not await may(postgresql, clerk, "SELECT id FROM parts")
    finally:
        await postgresql.execute("DROP TABLE parts", credentials=owner, database=SHOP)


async def may(postgresql: PostgreSQLServer, who: Credentials, statement: str) -> bool:
    try:
        await postgresql.execute(statement, credentials=who, database=SHOP)
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True
