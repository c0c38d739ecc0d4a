"""What we say of users' lines of pg_hba.conf, and what the server says of the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import psycopg
import pytest
from psycopg.sql import SQL, Literal

from database_support.contracts.hba_examples import INVALID_LINES, LINES_WITH_SECRETS, UNPARSABLE_LINES, VALID_LINES
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import AccessDenied, AdministratorRejected, RoleMissing
from steersman_databases.engines.postgresql.config.hba import hba_lines, redact
from steersman_databases.engines.postgresql.config.hba_patterns import is_valid_pattern
from steersman_databases.engines.postgresql.sql.session import logged_in
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredUser, OwnershipMark, SecondCredential
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.reconcile_sql import reconcile

# A line that runs on makes another one of the next, and is therefore looked at by itself: by us alone.
LINES = (*VALID_LINES, *(line for line in INVALID_LINES if not line.endswith("\\")))

PARTS = (
    *"aA0129-[](){}|*+?,^$.:=_# ",
    "\\",
    "\\d",
    "\\1",
    "\\.",
    "\\Z",
    "a-c",
    "[a-c",
    "-]",
    "[:digit:]",
    "(?:",
    "(?i)",
    "(?=",
    "{2}",
    "{3,1}",
    "{,2}",
)
"""What regular expressions are made of here."""
EACH_IS_READ = SQL("""
DO $tried$
DECLARE tried text;
BEGIN
    FOREACH tried IN ARRAY {}::text[] LOOP PERFORM '' ~ tried COLLATE "C"; END LOOP;
EXCEPTION WHEN invalid_regular_expression THEN RAISE EXCEPTION '%: %', SQLERRM, tried;
END $tried$
""")


@contextmanager
def rules(postgresql: RealPostgreSQLServer, lines: tuple[str, ...]) -> Generator[None]:
    """The server's file has these lines. It reads them only when told to."""
    ((name,),) = postgresql.administer("SHOW hba_file")
    file = Path(name)
    former = file.read_text()
    try:
        file.write_text("".join(f"{line}\n" for line in lines))
        yield
    finally:
        file.write_text(former)


def test_hba_validation_agrees_with_server(postgresql: RealPostgreSQLServer) -> None:
    # Of some wrong values of options the view has no error, and nothing of the line either.
    wrong = "SELECT line_number, error FROM pg_hba_file_rules WHERE error IS NOT NULL OR type IS NULL"
    with rules(postgresql, LINES):
        found = postgresql.administer(wrong)
    refused: set[str] = {LINES[number - 1] for number, _ in found}
    assert refused == set(LINES) - set(VALID_LINES), found


def test_hba_secrets_are_redacted(postgresql: RealPostgreSQLServer) -> None:
    taken = "SELECT line_number, options, error FROM pg_hba_file_rules"
    with rules(postgresql, LINES_WITH_SECRETS):
        found = postgresql.administer(taken)
    assert [(number, error) for number, _, error in found] == [(n + 1, None) for n in range(len(LINES_WITH_SECRETS))]
    for line, (_, options, _) in zip(LINES_WITH_SECRETS, found, strict=True):
        shown = redact(line)
        (secret,) = (each for each in options if each.startswith(("ldapbindpasswd=", "radiussecrets=")))
        assert "hunter2" in secret and "hunter2" not in shown
        others = [each for each in options if each in line.replace('"', "") and each != secret]
        assert len(others) > 1 and all(each in shown.replace('"', "") for each in others), shown


def test_invalid_regex_would_stop_server(postgresql: RealPostgreSQLServer) -> None:
    with rules(postgresql, UNPARSABLE_LINES):
        found = postgresql.administer("SELECT line_number FROM pg_hba_file_rules WHERE error ~ 'regular expression'")
    major = int(postgresql.administer("SHOW server_version_num")[0][0]) // 10000
    assert len(found) == (len(UNPARSABLE_LINES) if major > 15 else 0)


def test_accepted_regex_is_accepted_by_server(postgresql: RealPostgreSQLServer) -> None:
    chance = Random(7)
    short = ("".join(parts) for length in range(4) for parts in product(PARTS, repeat=length))
    longer = ("".join(chance.choices(PARTS, k=chance.randint(4, 9))) for _ in range(100_000))
    longest = "a{99}" * 200
    assert is_valid_pattern(longest) and not is_valid_pattern("((a{99}){99}){99}")
    patterns = sorted({longest} | {each for each in (*short, *longer) if is_valid_pattern(each)})
    assert len(patterns) > 5_000
    postgresql.run(EACH_IS_READ.format(Literal(patterns)).as_string())


def test_replication_requires_password_of_replication_user(postgresql: RealPostgreSQLServer) -> None:
    receiver, clerk = "hba receiver", "hba clerk"
    postgresql.administer("CREATE ROLE {} LOGIN REPLICATION PASSWORD 's3cret'", receiver)
    postgresql.administer("CREATE ROLE {} LOGIN PASSWORD 's3cret'", clerk)
    try:
        with rules(postgresql, hba_lines((), tls_required=True)):
            postgresql.administer("SELECT pg_reload_conf()")
            stream(postgresql, receiver)
            with pytest.raises(psycopg.OperationalError, match=r"walsender|WAL sender"):
                stream(postgresql, clerk)
            # The file is read before it is looked whether there is such a role.
            for name in ("steersman_rewind", "steersman_operator", "postgres"):
                with pytest.raises(psycopg.OperationalError, match=r"pg_hba\.conf rejects|certificate"):
                    stream(postgresql, name)
    finally:
        postgresql.administer("SELECT pg_reload_conf()")
        for name in (receiver, clerk):
            postgresql.administer("DROP ROLE {}", name)


@pytest.mark.parametrize(
    ("superuser", "words"), [(True, "password authentication failed"), (False, "hba.conf rejects")]
)
def test_superuser_requires_password_or_is_rejected(
    postgresql: RealPostgreSQLServer, superuser: bool, words: str
) -> None:
    """Whatever the user's own lines say."""
    declared = ("host all all all trust", "host all postgres all trust")
    at = postgresql.endpoint
    try:
        with rules(postgresql, hba_lines(declared, tls_required=True, superuser=superuser)):
            postgresql.administer("SELECT pg_reload_conf()")
            with pytest.raises(psycopg.OperationalError, match=words):
                psycopg.connect(f"host={at.host} port={at.port} user=postgres password=x sslmode=require")
    finally:
        postgresql.administer("SELECT pg_reload_conf()")


def stream(postgresql: RealPostgreSQLServer, name: str) -> None:
    """Begins to, as ``pg_receivewal`` does. Raises psycopg's errors."""
    at = postgresql.endpoint
    # libpq's own word for it, which psycopg's signature does not have.
    told = f"host={at.host} port={at.port} user='{name}' password=s3cret sslmode=require replication=true"
    with psycopg.connect(told, autocommit=True, prepare_threshold=None) as connection:
        connection.pgconn.exec_(b"IDENTIFY_SYSTEM")


CLERK = "hba_clerk"
DEPUTY = f"{CLERK}~"
AT_LAST = f"hostssl all {ADMINISTRATOR.username} all scram-sha-256", "hostssl all all all scram-sha-256"
PASSWORDS = {CLERK: "f1rst", DEPUTY: "s3cond"}


@pytest.fixture
async def rotating(postgresql: RealPostgreSQLServer) -> AsyncGenerator[ServerSessions]:
    """Sessions of a superuser, by which verifiers are read, on a server with a user of two names."""
    login = Login(ADMINISTRATOR.username, ADMINISTRATOR.password)
    contents = postgresql.sql_engine
    server = DatabaseServer("postgresql", postgresql.endpoint, login, Verification(TLSMode.REQUIRE))
    sessions, claim = contents.connect(server), OwnershipMark("c1", "DatabaseUser", "shop", "clerk")
    await reconcile(contents, sessions, DesiredUser(CLERK, "f1rst", SecondCredential("s3cond"), mark=claim))
    yield sessions
    survey = await contents.inspect(sessions, InspectionScope(users=frozenset({CLERK})))
    await contents.execute(sessions, contents.plan_drop_user(survey, CLERK, claim, None))
    await sessions.close()


@contextmanager
def in_force(postgresql: RealPostgreSQLServer, *lines: str) -> Generator[None]:
    """The server goes by these lines, lets its administrator in, and can ask for certificates."""
    authority = postgresql.log.parent / "cert.pem"
    postgresql.administer(f"ALTER SYSTEM SET ssl_ca_file = '{authority}'")
    try:
        with rules(postgresql, (AT_LAST[0], *lines, AT_LAST[1])):
            postgresql.administer("SELECT pg_reload_conf()")
            yield
    finally:
        postgresql.administer("ALTER SYSTEM RESET ssl_ca_file")
        postgresql.administer("SELECT pg_reload_conf()")


async def opens(postgresql: RealPostgreSQLServer, sessions: ServerSessions, name: str, password: str = "") -> bool:
    credentials = SqlCredentials(name, password or PASSWORDS[name])
    return await postgresql.sql_engine.can_log_in(sessions.server, credentials, "postgres")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((f"hostssl all {CLERK} 10.1.0.0/16 scram-sha-256", f"hostssl all {CLERK} all reject"), "rejects connection"),
        ((f"hostnossl all {CLERK} all scram-sha-256", f"host all {CLERK} all reject"), "rejects connection"),
        ((f"hostssl all {CLERK} all cert",), "valid client certificate"),
        ((f"hostssl all {CLERK} all scram-sha-256 clientcert=verify-ca",), "valid client certificate"),
        ((f"hostssl all {CLERK} all ldap ldapserver=127.0.0.1 ldapprefix=cn=",), "server requested a cleartext"),
        ((f"hostssl all {CLERK} all trust",), "did not complete authentication"),
    ],
    ids=["from elsewhere", "without TLS", "by certificate", "with a certificate", "by LDAP", "by nothing"],
)
async def test_hba_rejection_reveals_nothing_about_password(
    postgresql: RealPostgreSQLServer, rotating: ServerSessions, lines: tuple[str, ...], words: str
) -> None:
    """What the server keeps of it does. Who has another name is let in, or refused, by it."""
    with in_force(postgresql, *lines):
        for password in ("f1rst", "wr0ng"):
            with pytest.raises(AccessDenied, match=words):
                await opens(postgresql, rotating, CLERK, password)
        assert await opens(postgresql, rotating, DEPUTY)
        assert not await opens(postgresql, rotating, DEPUTY, "wr0ng")
        survey = await postgresql.sql_engine.inspect(rotating, InspectionScope(without_contents=frozenset({CLERK})))
        verifier = survey.users[CLERK].verifier
        assert survey.verifiers_readable and postgresql.sql_engine.verifies("f1rst", verifier)
    assert await opens(postgresql, rotating, CLERK)


async def test_no_matching_hba_line_is_access_denied(
    postgresql: RealPostgreSQLServer, rotating: ServerSessions
) -> None:
    try:
        with rules(postgresql, AT_LAST[:1]):
            postgresql.administer("SELECT pg_reload_conf()")
            with pytest.raises(AccessDenied, match=r"no pg_hba\.conf entry"):
                await opens(postgresql, rotating, CLERK)
    finally:
        postgresql.administer("SELECT pg_reload_conf()")


async def test_missing_role_is_reported(postgresql: RealPostgreSQLServer) -> None:
    """Who shows a password does not hear of it."""
    nobody = DatabaseServer("postgresql", postgresql.endpoint, Login("gone"), Verification(TLSMode.REQUIRE))
    with_password = replace(nobody, login=Login("gone", "s3cret"))

    async def come_in(server: DatabaseServer) -> None:
        async with logged_in(server, asyncio.get_running_loop().time() + 10):
            pass

    missing = pytest.raises(RoleMissing, match='"gone" does not exist')
    with in_force(postgresql, "hostssl all gone all trust"), missing:
        await come_in(nobody)
    with in_force(postgresql), pytest.raises(AdministratorRejected, match="password authentication failed"):
        await come_in(with_password)


NOBODY = "host all all all reject"


@pytest.mark.parametrize(
    ("lines", "alike", "since"),
    [
        ((), True, 15),
        (("hostssl postgres all 10.1.0.0/16 scram-sha-256", NOBODY), True, 15),
        ((f"hostssl all +{CLERK} 127.0.0.0/8 scram-sha-256", NOBODY), True, 15),
        ((f"hostssl all {CLERK},{CLERK}~ 127.0.0.0/8 scram-sha-256", NOBODY), True, 15),
        ((f"hostssl all somebody,{CLERK} 127.0.0.0/8 scram-sha-256", NOBODY), False, 15),
        ((f"hostssl all {CLERK}~ all reject",), False, 15),
        ((f"hostssl other,elsewhere {CLERK} all reject",), True, 15),
        ((f"hostssl postgres,other {CLERK} all reject",), False, 15),
        ((f"local all {CLERK} peer",), True, 15),
        (("hostssl all /^hba_clerk~?$ 127.0.0.0/8 scram-sha-256", NOBODY), True, 16),
        (("hostssl all /^hba_clerk$ 127.0.0.0/8 scram-sha-256", NOBODY), False, 16),
    ],
)
async def test_both_rotation_logins_match_same_hba_lines(
    postgresql: RealPostgreSQLServer, rotating: ServerSessions, lines: tuple[str, ...], alike: bool, since: int
) -> None:
    """As the server does it, which the two try from an address that some of the lines let in."""
    ((number,),) = postgresql.administer("SHOW server_version_num")
    with in_force(postgresql, *lines):
        said = await postgresql.sql_engine.same_hba_access(rotating, CLERK, DEPUTY, "postgres")
        assert said is (alike or int(number) // 10000 < since)

        async def comes_in(name: str) -> bool:
            try:
                return await opens(postgresql, rotating, name)
            except AccessDenied:
                return False

        assert not said or await comes_in(CLERK) is await comes_in(DEPUTY)


async def test_sameuser_rule_distinguishes_rotation_login(
    postgresql: RealPostgreSQLServer, rotating: ServerSessions
) -> None:
    with in_force(postgresql, "hostssl sameuser all 127.0.0.0/8 scram-sha-256", NOBODY):
        assert not await postgresql.sql_engine.same_hba_access(rotating, CLERK, DEPUTY, CLERK)
        assert await postgresql.sql_engine.same_hba_access(rotating, CLERK, DEPUTY, "postgres")
