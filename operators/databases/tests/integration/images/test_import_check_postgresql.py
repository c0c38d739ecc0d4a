"""Dry run of an import from a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from database_support.dumps.job_runs import DumpJobs
from database_support.servers.matrix import postgresqls
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines import SqlCredentials

pytestmark = pytest.mark.xdist_group("import-check-postgresql")
SOURCE, OWNER = "old orders", SqlCredentials("clerk", "cl3rk")
READER = SqlCredentials("import'er", "r3ader: s\\cret")


@pytest.fixture(scope="module")
def server() -> Generator[RealPostgreSQLServer]:
    start = list(postgresqls().values())[-1]
    with contextmanager(start)() as found:
        assert isinstance(found, RealPostgreSQLServer)
        for each in (OWNER, READER):
            password = each.password.replace("'", "''")
            found.administer(f"CREATE ROLE {{}} LOGIN PASSWORD '{password}'", each.username)
        yield found


@pytest.fixture
def jobs(server: RealPostgreSQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[DumpJobs]:
    programs = {name: server.programs / name for name in ("pg_dump", "psql")}
    # Programs of other releases are unpacked below another root.
    share = server.programs.parents[3] / "share" / "postgresql" / server.programs.parent.name
    config = tmp_path / "pg_config"
    config.write_text(f"#!/bin/sh\necho {share}\n")
    config.chmod(0o755)
    found = DumpJobs(
        tmp_path / "pods", None, "postgresql", server.endpoint, ADMINISTRATOR, {**programs, "pg_config": config}
    )
    found.directory.mkdir()
    found.install(monkeypatch)
    server.administer("CREATE DATABASE {} OWNER {}", SOURCE, OWNER.username)
    yield found
    server.administer("DROP DATABASE {} WITH (FORCE)", SOURCE)
    server.run("DROP ROLE IF EXISTS auditor, audits")


def sql(server: RealPostgreSQLServer, *statements: str, user: SqlCredentials = OWNER) -> None:
    """Run statements in the source."""
    with psycopg.connect(
        host=server.endpoint.host,
        port=server.endpoint.port,
        user=user.username,
        password=user.password,
        dbname=SOURCE,
        autocommit=True,
    ) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def reasons(report: dict[str, Any]) -> Sequence[str]:
    """Return the reasons of the problems."""
    return [each["reason"] for each in report["problems"]]


def test_check_lists_all_that_an_import_cannot_take(jobs: DumpJobs, server: RealPostgreSQLServer) -> None:
    sql(
        server,
        "CREATE TABLE hidden (n int)",
        "CREATE SEQUENCE numbers",
        "CREATE TABLE filtered (n int)",
        "ALTER TABLE filtered ENABLE ROW LEVEL SECURITY",
        "GRANT SELECT ON filtered TO PUBLIC",
        "SELECT lo_create(4711)",
    )
    sql(
        server,
        "CREATE EXTENSION dblink",
        "CREATE EXTENSION citext",
        "CREATE FUNCTION f(internal) RETURNS internal LANGUAGE internal AS 'numeric_avg_serialize'",
        "CREATE TYPE span AS RANGE (subtype = int)",
        "CREATE AGGREGATE top(int) (SFUNC = int4larger, STYPE = int)",
        "CREATE FUNCTION noted() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
        "CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION noted()",
        "CREATE PUBLICATION changes",
        f'ALTER DATABASE "{SOURCE}" SET work_mem = 8192',
        "ALTER DEFAULT PRIVILEGES FOR ROLE clerk GRANT SELECT ON TABLES TO PUBLIC",
        user=ADMINISTRATOR,
    )
    report = jobs.check(SOURCE, READER, {"storage_bytes": 1})
    assert reasons(report) == [*("RightsMissing",) * 3, "ExtensionMissing", "SuperuserRequired"]
    denied, filtered, objects, extension, function = report["problems"]
    assert (denied["count"], denied["names"]) == (2, ["public.hidden", "public.numbers"])
    assert "hides rows of public.filtered of" in filtered["message"]
    assert "cannot read 1 large objects" in objects["message"]
    assert "has extension dblink, which only an administrator can create" in extension["message"]
    assert "has function public.f(internal) which only a superuser" in function["message"]
    left_out = {each["kind"]: each["names"] for each in report["leftOut"]}
    assert left_out == {
        "event triggers": ["watch"],
        "publications": ["changes"],
        "settings of the database and its roles": ["database"],
        "default privileges of roles": ["clerk"],
    }
    assert any("The owner of the source is clerk" in note for note in report["notes"])
    assert any("Set a larger storageSize" in note for note in report["notes"])
    assert report["source"]["sizeBytes"] > 1_000_000


def test_check_of_a_readable_source_has_no_problem(jobs: DumpJobs, server: RealPostgreSQLServer) -> None:
    sql(server, "CREATE EXTENSION citext", "CREATE TABLE words (word citext)", "GRANT SELECT ON words TO PUBLIC")
    sql(server, "CREATE EXTENSION dblink", user=ADMINISTRATOR)
    declared = {"extensions": [{"name": "dblink"}]}
    assert jobs.check(SOURCE, READER, declared)["problems"] == []
    report = jobs.check(SOURCE, READER, declared, server=True)
    assert (report["problems"], report["target"]) == ([], {"version": report["source"]["version"]})
    assert reasons(jobs.check(SOURCE, READER, {**declared, "encoding": "LATIN1"})) == ["EncodingMismatch"]


def test_check_lists_accounts_with_exact_privileges(jobs: DumpJobs, server: RealPostgreSQLServer) -> None:
    server.run(
        "CREATE ROLE audits; CREATE ROLE auditor LOGIN PASSWORD 'never-shown' CONNECTION LIMIT 3"
        " VALID UNTIL '2030-01-01 00:00:00+00' IN ROLE audits"
    )
    sql(
        server,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (id int, note text, price int)",
        "CREATE TABLE shop.items (id int)",
        "CREATE SEQUENCE shop.numbers",
        "CREATE FUNCTION shop.total(a int, b text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "GRANT USAGE ON SCHEMA shop TO audits",
        "GRANT SELECT, INSERT ON shop.orders, shop.items TO audits WITH GRANT OPTION",
        "GRANT UPDATE (note, price) ON shop.orders TO auditor",
        "GRANT USAGE ON SEQUENCE shop.numbers TO audits",
        "GRANT EXECUTE ON FUNCTION shop.total TO audits",
        f'GRANT TEMPORARY ON DATABASE "{SOURCE}" TO audits',
    )
    report = jobs.check(SOURCE, ADMINISTRATOR)
    assert "never-shown" not in str(report)
    accounts = {each["name"]: each for each in report["accounts"]}
    assert accounts.keys() == {"auditor", "audits", "clerk"}
    auditor, audits = accounts["auditor"], accounts["audits"]
    assert (auditor["login"], auditor["connectionLimit"], auditor["validUntil"]) == (True, 3, "2030-01-01T00:00:00Z")
    assert auditor["roles"] == [{"name": "audits", "admin": False}]
    assert [(each["objects"], each["columns"], each["privileges"]) for each in auditor["grants"]] == [
        (["orders"], ["note", "price"], ["UPDATE"])
    ]
    assert audits["login"] is False
    granted = [(g["kind"], g["schema"], g["objects"], g["privileges"], g["option"]) for g in audits["grants"]]
    assert granted == [
        ("database", "", [""], ["TEMPORARY"], False),
        ("function", "shop", ["total(integer, text)"], ["EXECUTE"], False),
        ("schema", "shop", [""], ["USAGE"], False),
        ("sequence", "shop", ["numbers"], ["USAGE"], False),
        ("table", "shop", ["items", "orders"], ["INSERT", "SELECT"], True),
    ]
    assert ("table", ["items", "orders"]) in [(g["kind"], g["objects"]) for g in accounts["clerk"]["grants"]]
