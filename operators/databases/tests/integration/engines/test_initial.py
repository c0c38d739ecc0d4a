"""The SQL for a new database, run by the real ``psql`` on a real server."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from database_support.every_server import postgresqls
from database_support.owned_database import Desired, ensure
from database_support.postgresql_server import PostgreSQLServer
from database_support.server_process import program
from steersman_databases.engines import PostgreSQL
from steersman_databases.engines.cluster import SqlSource
from steersman_databases.engines.desired import DesiredDatabase
from steersman_databases.engines.initial_sql import path_of
from steersman_databases.engines.postgresql import initial
from steersman_databases.engines.server import Login, Server, TLSMode, Verification
from steersman_databases.engines.survey import Scope

TABLES = SqlSource("ConfigMap", "orders", "tables.sql")
SEED = SqlSource("Secret", "orders-seed", "seed.sql")
_numbers = itertools.count(1)


class Job:
    """What the Job's container does, on a database of its own."""

    def __init__(self, server: PostgreSQLServer, desired: Desired, files: Path) -> None:
        self.server, self.desired, self._files = server, desired, files

    def run(self, *given: tuple[SqlSource, str]) -> tuple[int, str]:
        """Exit status, and all that was written."""
        for source, text in given:
            path = self._files / path_of(source)
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
            "PGOPTIONS": initial.OPTIONS,
        }
        called = [
            program("psql", str(self.server.programs)),
            *initial.arguments([source for source, _ in given], "5ecret"),
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
        contents = PostgreSQL()
        login = Login(self.server.administrator.username, self.server.administrator.password)
        to = Server("postgresql", self.server.endpoint, login, Verification(TLSMode.REQUIRE))
        name = self.desired.database
        scope = Scope.of([DesiredDatabase(name, self.desired.username)]) | Scope(
            inside={name: frozenset({initial.SCHEMA})}
        )
        sessions = contents.connect(to)
        try:
            survey = await contents.survey(sessions, scope)
        finally:
            await sessions.close()
        return initial.marker(name) in survey.inside[name].objects

    async def tables(self) -> set[str]:
        """What the owner made."""
        found = await self.server.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'public'",
            database=self.desired.database,
        )
        return {name for (name,) in found}


@pytest.fixture
async def job(postgresql: PostgreSQLServer, tmp_path: Path) -> Job:
    return await made(postgresql, tmp_path)


async def made(postgresql: PostgreSQLServer, files: Path) -> Job:
    number = next(_numbers)
    desired = Desired(f"init shop{number}", f"init clerk{number}", "s3cret")
    await ensure(PostgreSQL(), postgresql.endpoint, postgresql.administrator, desired)
    return Job(postgresql, desired, files)


async def test_all_files_are_applied_in_their_order_and_marked(job: Job) -> None:
    assert not await job.applied()
    seed = (SEED, "SET search_path TO ''; CREATE TABLE public.t (i int); SELECT 'never shown'; SET ROLE NONE")
    assert job.run(seed, (TABLES, "INSERT INTO t VALUES (1)")) == (0, "")
    assert await job.applied()
    assert await job.tables() == {"t"}


async def test_a_second_run_leaves_nothing_behind(job: Job) -> None:
    assert job.run((TABLES, "CREATE TABLE a ()")) == (0, "")
    status, told = job.run((TABLES, "CREATE TABLE b ()"))
    assert (status in initial.REFUSED, "already exists" in told) == (True, True)
    assert await job.tables() == {"a"}


async def test_a_refused_statement_undoes_all_of_it_and_is_told_in_one_line(job: Job) -> None:
    broken = "INSERT INTO nowhere\nVALUES ('hunter2');"
    status, told = job.run((TABLES, "CREATE TABLE a ();"), (SqlSource("ConfigMap", "orders", "more.sql"), broken))
    assert status in initial.REFUSED
    assert told.startswith('psql:configmap/orders/more.sql:2: ERROR:  relation "nowhere" does not exist')
    assert "hunter2" not in told and "\n" not in told
    assert (await job.tables(), await job.applied()) == (set(), False)


async def test_of_a_secrets_sql_nothing_is_quoted(job: Job) -> None:
    status, told = job.run((SEED, "SELECT hunter2;"))
    assert (status in initial.REFUSED, told) == (True, "psql:secret/orders-seed/seed.sql:1: ERROR:  42703")


async def test_it_is_applied_where_sessions_begin_read_only(job: Job) -> None:
    job.server.administer("ALTER ROLE {} SET default_transaction_read_only = on", job.desired.username)
    assert job.run((TABLES, "CREATE TABLE a ()")) == (0, "")
    assert await job.tables() == {"a"}


@pytest.fixture(params=sorted(postgresqls()))
def each_version(request: pytest.FixtureRequest) -> Generator[PostgreSQLServer]:
    with contextmanager(postgresqls()[request.param])() as server:
        assert isinstance(server, PostgreSQLServer)
        yield server


async def test_it_may_take_as_long_as_it_takes(each_version: PostgreSQLServer, tmp_path: Path) -> None:
    """A server that ends the session for it looks like one that cannot be reached."""
    job = await made(each_version, tmp_path)
    if each_version.administer("SELECT current_setting('transaction_timeout', true) <> ''") == [(True,)]:
        each_version.administer("ALTER ROLE {} SET transaction_timeout = 200", job.desired.username)
    slow = "SELECT pg_sleep(0.3);"
    assert job.run((TABLES, f"{slow} CREATE TABLE a ();"), (SEED, f"{slow} CREATE TABLE b ();")) == (0, "")
    assert await job.applied()


@pytest.mark.parametrize("ended", ["COMMIT;", "BEGIN; COMMIT;", "ROLLBACK;"])
async def test_sql_that_ends_its_transaction_is_refused(job: Job, ended: str) -> None:
    status, told = job.run((TABLES, f"CREATE TABLE a ();\n{ended}"))
    assert status in initial.REFUSED
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
async def test_psqls_own_commands_are_refused(job: Job, tmp_path: Path, command: str) -> None:
    """The environment holds the owner's password, and other Secrets lie beside the file."""
    status, told = job.run((TABLES, f"CREATE TABLE t (i int);\n{command}\nSELECT 1;"))
    assert status in initial.REFUSED
    assert told.startswith("psql:configmap/orders/tables.sql:")
    assert "restrict" in told or "wrong key" in told
    assert "leaked" not in {name for _, _, names in os.walk(tmp_path) for name in names}
    assert (await job.tables(), await job.applied()) == (set(), False)


async def test_no_connection_is_no_refusal(job: Job) -> None:
    job.desired = Desired(job.desired.database, job.desired.username, "wrong")
    status, told = job.run((TABLES, "CREATE TABLE a ()"))
    assert (status, "password authentication failed" in told) == (2, True)
