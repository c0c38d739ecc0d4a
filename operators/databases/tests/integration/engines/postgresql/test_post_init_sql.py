"""The SQL for a new database, run by the real ``psql`` on a real server."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from database_support.contracts.owned_database import OwnedDatabase, ensure
from database_support.servers.matrix import postgresqls
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.process import program
from steersman_databases.engines.cluster_engine import SqlSource
from steersman_databases.engines.post_init_sql import file_of
from steersman_databases.engines.postgresql.sql import post_init_sql
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredDatabase
from steersman_databases.engines.sql.inspection import InspectionScope

TABLES = SqlSource("ConfigMap", "orders", "tables.sql")
SEED = SqlSource("Secret", "orders-seed", "seed.sql")
_numbers = itertools.count(1)


class Job:
    """What the Job's container does, on a database of its own."""

    def __init__(self, server: RealPostgreSQLServer, desired: OwnedDatabase, files: Path) -> None:
        self.server, self.desired, self._files = server, desired, files

    def run(self, *given: tuple[SqlSource, str]) -> tuple[int, str]:
        """Exit status, and all that was written."""
        for source, text in given:
            path = self._files / file_of(source)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        environment = {
            "PGHOST": self.server.endpoint.host,
            "PGPORT": str(self.server.endpoint.port),
            "PGDATABASE": self.desired.database,
            "PGUSER": self.desired.username,
            "PGPASSWORD": self.desired.password,
            "PGSSLMODE": "require",
            "PGTARGETSESSIONATTRS": "read-write",
            "PGOPTIONS": post_init_sql.OPTIONS,
        }
        called = [
            program("psql", str(self.server.programs)),
            *post_init_sql.psql_arguments([source for source, _ in given], "5ecret"),
        ]
        done = subprocess.run(
            called,
            cwd=self._files,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=30,
        )
        return done.returncode, done.stdout.strip()

    async def applied(self) -> bool:
        """Whether the operator finds the marker."""
        contents = PostgreSQLSqlEngine()
        login = Login(self.server.administrator.username, self.server.administrator.password)
        to = DatabaseServer("postgresql", self.server.endpoint, login, Verification(TLSMode.REQUIRE))
        name = self.desired.database
        scope = InspectionScope.of([DesiredDatabase(name, self.desired.username)]) | InspectionScope(
            contents={name: frozenset({post_init_sql.SCHEMA})}
        )
        sessions = contents.connect(to)
        try:
            survey = await contents.inspect(sessions, scope)
        finally:
            await sessions.close()
        return post_init_sql.marker(name) in survey.contents[name].objects

    async def tables(self) -> set[str]:
        """What the owner made."""
        found = await self.server.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'public'",
            database=self.desired.database,
        )
        return {name for (name,) in found}


@pytest.fixture
async def job(postgresql: RealPostgreSQLServer, tmp_path: Path) -> Job:
    return await made(postgresql, tmp_path)


async def made(postgresql: RealPostgreSQLServer, files: Path) -> Job:
    number = next(_numbers)
    desired = OwnedDatabase(f"init shop{number}", f"init clerk{number}", "s3cret")
    await ensure(PostgreSQLSqlEngine(), postgresql.endpoint, postgresql.administrator, desired)
    return Job(postgresql, desired, files)


async def test_post_init_files_run_in_order_and_leave_marker(job: Job) -> None:
    assert not await job.applied()
    seed = (SEED, "SET search_path TO ''; CREATE TABLE public.t (i int); SELECT 'never shown'; SET ROLE NONE")
    assert job.run(seed, (TABLES, "INSERT INTO t VALUES (1)")) == (0, "")
    assert await job.applied()
    assert await job.tables() == {"t"}


async def test_post_init_second_run_changes_nothing(job: Job) -> None:
    assert job.run((TABLES, "CREATE TABLE a ()")) == (0, "")
    status, told = job.run((TABLES, "CREATE TABLE b ()"))
    assert (status in post_init_sql.NON_RETRYABLE_EXIT_CODES, "already exists" in told) == (True, True)
    assert await job.tables() == {"a"}


async def test_post_init_error_rolls_back_all_and_is_reported(job: Job) -> None:
    broken = "INSERT INTO nowhere\nVALUES ('hunter2');"
    status, told = job.run((TABLES, "CREATE TABLE a ();"), (SqlSource("ConfigMap", "orders", "more.sql"), broken))
    assert status in post_init_sql.NON_RETRYABLE_EXIT_CODES
    assert told.startswith('psql:configmap/orders/more.sql:2: ERROR:  relation "nowhere" does not exist')
    assert "hunter2" not in told and "\n" not in told
    assert (await job.tables(), await job.applied()) == (set(), False)


async def test_post_init_error_does_not_quote_secret_sql(job: Job) -> None:
    status, told = job.run((SEED, "SELECT hunter2;"))
    assert (status in post_init_sql.NON_RETRYABLE_EXIT_CODES, told) == (
        True,
        "psql:secret/orders-seed/seed.sql:1: ERROR:  42703",
    )


async def test_post_init_runs_with_read_only_default(job: Job) -> None:
    job.server.administer("ALTER ROLE {} SET default_transaction_read_only = on", job.desired.username)
    assert job.run((TABLES, "CREATE TABLE a ()")) == (0, "")
    assert await job.tables() == {"a"}


@pytest.fixture(params=sorted(postgresqls()))
def each_version(request: pytest.FixtureRequest) -> Generator[RealPostgreSQLServer]:
    with contextmanager(postgresqls()[request.param])() as server:
        assert isinstance(server, RealPostgreSQLServer)
        yield server


async def test_post_init_has_no_statement_timeout(each_version: RealPostgreSQLServer, tmp_path: Path) -> None:
    """A server that ends the session for it looks like one that cannot be reached."""
    job = await made(each_version, tmp_path)
    if each_version.administer("SELECT current_setting('transaction_timeout', true) <> ''") == [(True,)]:
        each_version.administer("ALTER ROLE {} SET transaction_timeout = 200", job.desired.username)
    slow = "SELECT pg_sleep(0.3);"
    assert job.run((TABLES, f"{slow} CREATE TABLE a ();"), (SEED, f"{slow} CREATE TABLE b ();")) == (0, "")
    assert await job.applied()


@pytest.mark.parametrize("ended", ["COMMIT;", "BEGIN; COMMIT;", "ROLLBACK;"])
async def test_post_init_commit_in_sql_is_rejected(job: Job, ended: str) -> None:
    status, told = job.run((TABLES, f"CREATE TABLE a ();\n{ended}"))
    assert status in post_init_sql.NON_RETRYABLE_EXIT_CODES
    assert "leave BEGIN, COMMIT and ROLLBACK out" in told
    assert not await job.applied()


@pytest.mark.parametrize(
    "command",
    [
        "\\! env > leaked",
        "\\copy t from program 'env > leaked'",
        "\\o |env > leaked",
        "SELECT 1 \\g |env > leaked",
        "\\set told `env > leaked`",
        "\\c",
        "\\set ON_ERROR_STOP 0",
        "\\i secret/orders-seed/seed.sql",
        "\\unrestrict guessed",
        "CREATE TABLE a (i int); COPY a FROM stdin;\n1\n\\.\n\\! env > leaked",
    ],
)
async def test_post_init_psql_commands_are_rejected(job: Job, tmp_path: Path, command: str) -> None:
    """The environment holds the owner's password, and other Secrets lie beside the file."""
    status, told = job.run((TABLES, f"CREATE TABLE t (i int);\n{command}\nSELECT 1;"))
    assert status in post_init_sql.NON_RETRYABLE_EXIT_CODES
    assert told.startswith("psql:configmap/orders/tables.sql:")
    assert "restrict" in told or "wrong key" in told
    assert "leaked" not in {name for _, _, names in os.walk(tmp_path) for name in names}
    assert (await job.tables(), await job.applied()) == (set(), False)


async def test_post_init_connection_failure_is_retryable(job: Job) -> None:
    job.desired = OwnedDatabase(job.desired.database, job.desired.username, "wrong")
    status, told = job.run((TABLES, "CREATE TABLE a ()"))
    assert (status, "password authentication failed" in told) == (2, True)
