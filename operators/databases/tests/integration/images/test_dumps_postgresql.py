"""Dumps, restores and imports of PostgreSQL, with a real server and a real object store."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from database_support.dumps.job_runs import RETENTION, DumpJobs
from database_support.servers.matrix import postgresqls
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from devcluster import database_servers
from devcluster.store import local_store, programs
from steersman_databases.engines import SqlCredentials
from steersman_instance.dump import postgresql_client, postgresql_load

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="restic is not unpacked: run python -m devcluster servers"),
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("dumps-postgresql"),
]
OWNER, OTHER = SqlCredentials("clerk", "cl3rk: s\\cret"), SqlCredentials("cashier", "c4shier")
READER = SqlCredentials("import'er", "r3ader: s\\cret")
_CLIENT_PROGRAMS = ("pg_dump", "pg_restore", "psql")


@pytest.fixture(scope="module")
def server() -> Generator[RealPostgreSQLServer]:
    start = list(postgresqls().values())[-1]
    with contextmanager(start)() as found:
        assert isinstance(found, RealPostgreSQLServer)
        for each in (OWNER, OTHER, READER):
            password = each.password.replace("'", "''")
            found.administer(f"CREATE ROLE {{}} LOGIN PASSWORD '{password}'", each.username)
        yield found


@pytest.fixture
def jobs(server: RealPostgreSQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[DumpJobs]:
    assert ROOT is not None
    clients = {name: server.programs / name for name in _CLIENT_PROGRAMS}
    with local_store(tmp_path / "store") as store:
        found = DumpJobs(
            tmp_path / "pods",
            store,
            "postgresql",
            server.endpoint,
            ADMINISTRATOR,
            {**clients, "restic": ROOT / "usr/bin/restic"},
        )
        found.directory.mkdir()
        found.install(monkeypatch)
        yield found


@pytest.fixture
def names(server: RealPostgreSQLServer, request: pytest.FixtureRequest) -> Generator[tuple[str, str]]:
    """A database of the owner and an empty one, dropped afterwards."""
    source, target = "orders = 'old'", "new orders"
    for name, owner in ((source, OWNER), (target, OTHER)):
        server.administer("CREATE DATABASE {} OWNER {}", name, owner.username)
    yield source, target
    for name in (source, target):
        server.administer("DROP DATABASE {} WITH (FORCE)", name)
    server.run("DROP ROLE IF EXISTS auditor, audits, nobody_else")


def sql(server: RealPostgreSQLServer, database: str, *statements: str, user: SqlCredentials = OWNER) -> Sequence[Any]:
    """Run statements in a database and return the rows of the last one."""
    with psycopg.connect(
        host=server.endpoint.host,
        port=server.endpoint.port,
        user=user.username,
        password=user.password,
        dbname=database,
        autocommit=True,
    ) as connection:
        rows: Sequence[Any] = ()
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else ()
        return rows


def fill(server: RealPostgreSQLServer, database: str) -> None:
    """Create objects of several kinds, with grants to roles."""
    server.run("CREATE ROLE audits; CREATE ROLE auditor LOGIN PASSWORD 'secret' IN ROLE audits")
    sql(
        server,
        database,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)",
        "INSERT INTO shop.orders (note) SELECT 'note ' || n FROM generate_series(1, 1000) n",
        "CREATE VIEW shop.recent AS SELECT * FROM shop.orders WHERE id > 990",
        "CREATE FUNCTION shop.total() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM shop.orders'",
        "GRANT USAGE ON SCHEMA shop TO audits",
        "GRANT SELECT ON shop.orders TO audits",
    )
    server.administer("GRANT CONNECT ON DATABASE {} TO {}", database, "audits")


def test_restore_into_empty_database_returns_objects_and_grants(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    source, target = names
    fill(server, source)
    made = jobs.dump(source)
    assert made["ok"], made
    assert made["backup"]["type"] == "Full"
    assert made["backup"]["size"] > 10_000
    server.administer("REVOKE ALL ON DATABASE {} FROM audits", source)
    sql(server, source, "DROP SCHEMA shop CASCADE")
    server.run("DROP ROLE auditor, audits")
    loaded = jobs.load(target, OTHER, backup_id=made["backup"]["id"])
    assert loaded == {"ok": True, "restore": {"backup": made["backup"]["id"], "version": made["backup"]["version"]}}
    assert sql(server, target, "SELECT shop.total(), (SELECT count(*) FROM shop.recent)", user=OTHER) == [(1000, 10)]
    assert sql(server, target, "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'shop'", user=OTHER) == [
        (OTHER.username,)
    ]
    roles = "SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname IN ('audits', 'auditor') ORDER BY 1"
    assert server.administer(roles) == [("auditor", False), ("audits", False)]
    server.run("ALTER ROLE auditor LOGIN PASSWORD 'secret'")
    auditor = SqlCredentials("auditor", "secret")
    assert sql(server, target, "SELECT count(*) FROM shop.orders", user=auditor) == [(1000,)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        sql(server, target, "DELETE FROM shop.orders", user=auditor)


def test_restore_with_declared_schema_and_extension_succeeds(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    source, target = names
    sql(server, source, 'CREATE SCHEMA "my shop"', 'CREATE TABLE "my shop".t (n int)')
    assert jobs.dump(source)["ok"]
    sql(server, target, 'CREATE SCHEMA "my shop"', user=OTHER)
    assert jobs.load(target, OTHER)["ok"]
    assert sql(server, target, 'SELECT count(*) FROM "my shop".t', user=OTHER) == [(0,)]


def test_restore_into_database_with_objects_is_refused(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    source, target = names
    sql(server, source, "CREATE TABLE t (n int)")
    assert jobs.dump(source)["ok"]
    sql(server, target, "CREATE TABLE mine (n int)", user=OTHER)
    refused = jobs.load(target, OTHER)
    assert refused["reason"] == "DatabaseNotEmpty"
    assert "public.mine" in refused["message"]
    assert sql(server, target, "SELECT to_regclass('t')", user=OTHER) == [(None,)]


def test_failed_restore_leaves_nothing(jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]) -> None:
    source, target = names
    sql(server, source, "CREATE TABLE a (n int)", "INSERT INTO a SELECT generate_series(1, 100000)")
    # Only a superuser can create this function.
    sql(
        server,
        source,
        "CREATE FUNCTION f(internal) RETURNS internal LANGUAGE internal AS 'numeric_avg_serialize'",
        user=ADMINISTRATOR,
    )
    assert jobs.dump(source)["ok"]
    failed = jobs.load(target, OTHER)
    assert failed["reason"] == "RestoreFailed"
    assert "permission denied for language internal" in failed["message"]
    assert sql(server, target, "SELECT to_regclass('a')", user=OTHER) == [(None,)]


def test_second_pod_of_a_job_makes_no_second_dump(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    backup = {"name": "orders-nightly", "uid": "8b6b1c8e-0000-0000-0000-000000000000", "trigger": "Schedule"}
    first, second = (jobs.dump(names[0], backup=backup) for _ in range(2))
    assert second["backup"]["id"] == first["backup"]["id"]


def test_retention_removes_older_dumps(jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]) -> None:
    first = jobs.dump(names[0])
    held = jobs.dump(names[0], retention=RETENTION, retain_until={first["backup"]["id"]: "2999-01-01T00:00:00Z"})
    assert held["expired"] == []
    last = jobs.dump(names[0], retention=RETENTION)
    assert set(last["expired"]) == {first["backup"]["id"], held["backup"]["id"]} - {last["backup"]["id"]}
    refused = jobs.load(names[1], OTHER, backup_id="20200101T000000Z")
    assert refused["reason"] == "BackupNotFound"


def old_major(_client: postgresql_client.PostgreSQLClient) -> int:
    """Return the version of an old pg_dump."""
    return 9


def test_failures_are_reported_in_one_sentence(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = names
    empty = jobs.load(target, OTHER)
    assert empty["reason"] == "BackupNotFound"
    missing = jobs.dump("no such database")
    assert missing["reason"] == "ServerUnreachable"
    assert 'database "no such database" does not exist' in missing["message"]
    jobs.administrator = SqlCredentials("the-administrator", "wrong")
    rejected = jobs.dump(source)
    assert "password authentication failed" in rejected["message"]
    assert "wrong" not in rejected["message"]
    jobs.administrator = ADMINISTRATOR
    with monkeypatch.context() as patched:
        patched.setattr(postgresql_client.PostgreSQLClient, "program_major", old_major)
        newer = jobs.dump(source)
    assert newer["reason"] == "UnsupportedVersion"
    assert [newer["ok"], rejected["ok"], missing["ok"]] == [False, False, False]


def test_failed_dump_program_stores_nothing(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str], tmp_path: Path
) -> None:
    broken = tmp_path / "pods" / "bin" / "pg_dump"
    broken.unlink()
    script = '#!/bin/sh\n[ "$1" != --version ] || exec echo "pg_dump (PostgreSQL) 99.1"\n'
    broken.write_text(script + "head -c 3000000 /dev/zero; echo 'pg_dump: error: disk on fire' >&2; exit 1\n")
    broken.chmod(0o755)
    failed = jobs.dump(names[0])
    assert failed["reason"] == "DumpFailed"
    assert "disk on fire" in failed["message"]
    assert jobs.load(names[1], OTHER)["reason"] == "BackupNotFound"


def read_all(server: RealPostgreSQLServer, database: str) -> None:
    """Let the account of imports read all tables of the public schema."""
    reader = postgresql_client.quoted(READER.username)
    sql(server, database, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}", user=ADMINISTRATOR)


def tables(server: RealPostgreSQLServer, database: str) -> list[str]:
    """Return the names of the tables in a database."""
    found = sql(server, database, "SELECT tablename FROM pg_tables WHERE schemaname !~ '^(pg_|info)' ORDER BY 1")
    return [str(name) for (name,) in found]


def test_import_copies_objects_and_grants_without_a_superuser(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    source, target = names
    fill(server, source)
    sql(server, source, "CREATE EXTENSION citext", "CREATE TABLE words (word citext)")
    server.administer("GRANT pg_read_all_data TO {}", READER.username)
    imported = jobs.import_database(source, target, OTHER, READER)
    server.administer("REVOKE pg_read_all_data FROM {}", READER.username)
    version = sql(server, source, "SELECT split_part(current_setting('server_version'), ' ', 1)")[0][0]
    assert imported == {"ok": True, "restore": {"version": version}}
    assert sql(server, target, "SELECT shop.total(), (SELECT count(*) FROM shop.recent)", user=OTHER) == [(1000, 10)]
    owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname IN ('shop', 'public')"
    assert sql(server, target, owners, user=OTHER) == [(OTHER.username,)]
    auditor = SqlCredentials("auditor", "secret")
    assert sql(server, target, "SELECT count(*) FROM shop.orders", user=auditor) == [(1000,)]
    assert sql(server, target, "SELECT to_regnamespace('steersman_restore')", user=OTHER) == [(None,)]
    assert sql(server, source, "SELECT count(*) FROM shop.orders") == [(1000,)]


@pytest.mark.parametrize(
    ("statement", "reason", "message"),
    [
        ("CREATE TABLE hidden (n int)", "RightsMissing", "cannot read public.hidden of Database"),
        ("CREATE SEQUENCE a; CREATE TABLE b (n int)", "RightsMissing", "cannot read 2 tables or sequences, such as"),
        (
            "CREATE TABLE t (n int); ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT SELECT ON t TO PUBLIC",
            "RightsMissing",
            "BYPASSRLS",
        ),
        ("CREATE EXTENSION dblink", "ExtensionMissing", "Declare it in spec.extensions"),
    ],
)
def test_incomplete_import_is_refused_before_writing(
    jobs: DumpJobs,
    server: RealPostgreSQLServer,
    names: tuple[str, str],
    statement: str,
    reason: str,
    message: str,
) -> None:
    source, target = names
    sql(server, source, statement, user=ADMINISTRATOR)
    refused = jobs.import_database(source, target, OTHER, READER)
    assert refused["reason"] == reason
    assert message in refused["message"]
    assert tables(server, target) == []


def test_import_accepts_declared_extension(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    for name in names:
        sql(server, name, "CREATE EXTENSION dblink", user=ADMINISTRATOR)
    assert jobs.import_database(*names, OTHER, READER)["ok"]


@pytest.mark.parametrize(
    ("account", "fields", "message"),
    [
        (SqlCredentials("import'er", "wr0ng"), {}, "Check credentials in spec.bootstrap.import."),
        (READER, {"database": "no such"}, "Check databaseName and credentials in spec.bootstrap.import."),
        (READER, {"tls": "VerifyFull"}, "Check tls in spec.bootstrap.import."),
        (READER, {"port": 1}, "Check host and port in spec.bootstrap.import."),
        (READER, {"host": "no-such-host.invalid"}, "Check host and port in spec.bootstrap.import."),
        (SqlCredentials("", ""), {}, "The Secret of spec.bootstrap.import.credentials has no user name or password."),
    ],
)
def test_unreachable_source_names_the_field(
    jobs: DumpJobs,
    names: tuple[str, str],
    account: SqlCredentials,
    fields: dict[str, Any],
    message: str,
) -> None:
    refused = jobs.import_database(*names, OTHER, account, fields)
    assert not refused["ok"]
    assert refused["message"].endswith(message)
    assert "wr0ng" not in refused["message"]


def test_import_into_database_with_objects_is_refused(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    sql(server, names[1], "CREATE TABLE mine (n int)", user=OTHER)
    assert jobs.import_database(*names, OTHER, READER)["reason"] == "DatabaseNotEmpty"


def test_import_of_raw_bytes_into_utf8_is_refused(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    server.administer("CREATE DATABASE {} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'", "raw")
    try:
        refused = jobs.import_database("raw", names[1], OTHER, READER)
    finally:
        server.administer("DROP DATABASE {}", "raw")
    assert refused["reason"] == "EncodingMismatch"
    assert "spec.encoding SQL_ASCII" in refused["message"]


def test_import_of_a_source_that_fails_leaves_nothing(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]
) -> None:
    source, target = names
    sql(server, source, "CREATE TABLE a AS SELECT n FROM generate_series(1, 500000) n")
    read_all(server, source)
    program = jobs.directory / "bin" / "pg_dump"
    real = program.resolve()
    program.unlink()
    program.write_text(
        f'#!/bin/sh\n[ "$1" != --version ] || exec {real} "$1"\n'
        f"{real} \"$@\" | head -c 2500000\necho 'pg_dump: error: connection to server was lost' >&2; exit 1\n"
    )
    program.chmod(0o755)
    failed = jobs.import_database(source, target, OTHER, READER)
    assert failed["reason"] == "RestoreFailed"
    assert "connection to server was lost" in failed["message"]
    assert tables(server, target) == []
    program.unlink()
    program.symlink_to(real)
    assert jobs.import_database(source, target, OTHER, READER)["ok"]
    assert tables(server, target) == ["a"]


def test_pod_that_is_killed_before_grants_is_continued(
    jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = names
    fill(server, source)
    server.administer("GRANT pg_read_all_data TO {}", READER.username)

    def killed(*_: object) -> list[str]:
        raise RuntimeError("the pod was killed")

    with monkeypatch.context() as patched:
        patched.setattr(postgresql_load, "_grant", killed)
        assert not jobs.import_database(source, target, OTHER, READER)["ok"]
    assert tables(server, target) == ["orders"]
    continued = jobs.import_database(source, target, OTHER, READER)
    server.administer("REVOKE pg_read_all_data FROM {}", READER.username)
    assert continued["ok"], continued
    auditor = SqlCredentials("auditor", "secret")
    assert sql(server, target, "SELECT count(*) FROM shop.orders", user=auditor) == [(1000,)]
    assert sql(server, target, "SELECT to_regnamespace('steersman_restore')", user=OTHER) == [(None,)]


def test_import_leaves_tablespaces_out(jobs: DumpJobs, server: RealPostgreSQLServer, names: tuple[str, str]) -> None:
    source, target = names
    with psycopg.connect(
        host=server.endpoint.host,
        port=server.endpoint.port,
        user=ADMINISTRATOR.username,
        password=ADMINISTRATOR.password,
        dbname=source,
        autocommit=True,
    ) as connection:
        connection.execute("SET allow_in_place_tablespaces = on")
        connection.execute("CREATE TABLESPACE fast LOCATION ''")
    try:
        sql(server, source, "CREATE TABLE t (n int) TABLESPACE fast", user=ADMINISTRATOR)
        read_all(server, source)
        assert jobs.import_database(source, target, OTHER, READER)["ok"]
        assert sql(server, target, "SELECT tablespace FROM pg_tables WHERE tablename = 't'", user=OTHER) == [(None,)]
    finally:
        sql(server, source, "DROP TABLE t", user=ADMINISTRATOR)
        server.administer("DROP TABLESPACE fast")
