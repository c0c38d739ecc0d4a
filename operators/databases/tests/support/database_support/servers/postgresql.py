"""A real PostgreSQL, from Debian's packages, for the engines' contract."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg import sql

from database_support.contracts.owned_database import OwnedDatabase
from database_support.servers.process import (
    START_SECONDS,
    DatabaseServerProcess,
    data_directory,
    free_port,
    program,
    run,
)
from database_support.servers.real_server import ADMINISTRATOR, RealServer
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser
from steersman_databases.engines.sql.reconcile_sql import reconcile


def compose(statement: str, *names: str) -> sql.Composed:
    return sql.SQL(cast(Any, statement)).format(*map(sql.Identifier, names))


class RealPostgreSQLServer(RealServer):
    sql_engine = PostgreSQLSqlEngine()

    def __init__(self, endpoint: ServerEndpoint, statements: Path, programs: Path) -> None:
        super().__init__(endpoint, statements)
        self.programs = programs
        self._administration: psycopg.Connection | None = None

    def administer(self, statement: str, *names: str) -> list[Any]:
        """Run a statement as the administrator, on a connection that is kept: a new one takes a process."""
        if self._administration is None:
            self._administration = psycopg.connect(
                host=self.endpoint.host,
                port=self.endpoint.port,
                user=ADMINISTRATOR.username,
                password=ADMINISTRATOR.password,
                dbname="postgres",
                autocommit=True,
            )
        cursor = self._administration.execute(compose(statement, *names))
        return cursor.fetchall() if cursor.description else []

    def run(self, statements: str) -> None:
        """Run statements as they are."""
        self.administer("SELECT")
        assert self._administration is not None
        self._administration.execute(cast(Any, statements))

    def close(self) -> None:
        if self._administration is not None:
            self._administration.close()

    async def execute(
        self, statement: str, *names: str, credentials: SqlCredentials = ADMINISTRATOR, database: str = "postgres"
    ) -> list[Any]:
        """Run a statement, its `{}` filled with quoted names."""
        async with await self.connected(credentials, database) as connection:
            cursor = await connection.execute(compose(statement, *names))
            return await cursor.fetchall() if cursor.description else []

    async def connected(self, credentials: SqlCredentials, database: str) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(
            host=self.endpoint.host,
            port=self.endpoint.port,
            user=credentials.username,
            password=credentials.password,
            dbname=database,
            autocommit=True,
        )

    async def can_log_in(self, credentials: SqlCredentials, database: str) -> bool:
        try:
            await self.execute("SELECT 1", credentials=credentials, database=database)
        except psycopg.OperationalError:
            return False
        return True

    async def create_table(self, credentials: SqlCredentials, database: str) -> None:
        await self.execute("CREATE TABLE till (coin int)", credentials=credentials, database=database)

    async def reads_table(self, credentials: SqlCredentials, database: str) -> bool:
        try:
            await self.execute("SELECT coin FROM till", credentials=credentials, database=database)
        except psycopg.errors.InsufficientPrivilege:
            return False
        return True

    async def databases(self) -> set[str]:
        return {name for (name,) in self.administer("SELECT datname FROM pg_database")}

    async def users(self) -> set[str]:
        return {name for (name,) in self.administer("SELECT rolname FROM pg_roles")}

    async def drop_user(self, desired: OwnedDatabase) -> None:
        names = (desired.username, ADMINISTRATOR.username)
        await self.execute("REASSIGN OWNED BY {} TO {}", *names, database=desired.database)
        self.administer("DROP ROLE {}", desired.username)

    async def drop_database(self, desired: OwnedDatabase) -> None:
        self.administer("DROP DATABASE {} WITH (FORCE)", desired.database)

    async def change_password(self, desired: OwnedDatabase, password: str) -> None:
        self.administer(f"ALTER ROLE {{}} PASSWORD '{password}'", desired.username)

    async def revoke(self, desired: OwnedDatabase) -> None:
        self.administer("REVOKE ALL ON DATABASE {} FROM {}", desired.database, desired.username)

    async def lock(self, desired: OwnedDatabase) -> None:
        self.administer("ALTER ROLE {} NOLOGIN", desired.username)

    async def make_superuser_owned(self, desired: OwnedDatabase) -> None:
        statement = "ALTER DATABASE {} IS_TEMPLATE true"
        await self.execute(statement, desired.database, credentials=desired.credentials, database=desired.database)

    async def expire(self, desired: OwnedDatabase) -> None:
        self.administer("ALTER ROLE {} VALID UNTIL '2001-01-01'", desired.username)

    async def create_superuser(self, username: str) -> None:
        self.administer("CREATE ROLE {} SUPERUSER", username)


def newest_programs() -> Path:
    """The directory of the newest PostgreSQL that is installed."""
    found = Path("/usr/lib/postgresql").glob("*/bin")
    return max(found, key=lambda path: float(path.parent.name), default=Path("/usr/bin"))


def initialise(directory: Path, programs: Path) -> list[str]:
    """Makes the data of a server in a directory; the command that starts it, but for its address."""
    data = directory / "data"
    password = directory / "password"
    password.write_text(ADMINISTRATOR.password)
    password.chmod(0o644)
    run(
        [
            program("initdb", str(programs)),
            f"--pgdata={data}",
            f"--username={ADMINISTRATOR.username}",
            f"--pwfile={password}",
            "--encoding=UTF8",
            "--no-sync",
        ],
        directory,
    )
    # TLS only, so that every test shows that it is used.
    (data / "pg_hba.conf").write_text("hostssl all all all scram-sha-256\n")
    settings = {
        "unix_socket_directories": directory,
        "fsync": "off",
        "full_page_writes": "off",
        # It would visit each database in a minute, and these are hundreds.
        "autovacuum": "off",
        "ssl": "on",
        "ssl_cert_file": directory / "cert.pem",
        "ssl_key_file": directory / "key.pem",
        "log_statement": "all",
        "shared_preload_libraries": "pg_stat_statements",
        "shared_buffers": "16MB",
        "max_wal_size": "64MB",
    }
    return [
        program("postgres", str(programs)),
        f"-D{data}",
        *(f"-c{name}={value}" for name, value in settings.items()),
    ]


def start_postgresql(
    programs: Path | None = None, parameters: Mapping[str, str] | None = None
) -> Generator[RealPostgreSQLServer]:
    """A server of the programs in a directory; of the newest that are installed unless given."""
    programs = programs or newest_programs()
    endpoint = ServerEndpoint("127.0.0.1", free_port())
    with data_directory() as directory:
        command = initialise(directory, programs)
        options = {"port": endpoint.port, "listen_addresses": endpoint.host, **(parameters or {})}
        process = DatabaseServerProcess(directory, [*command, *(f"-c{n}={v}" for n, v in options.items())])
        try:
            process.wait_for(endpoint)
            server = RealPostgreSQLServer(endpoint, process.log, programs)
            asyncio.run(wait_ready(server))
            yield server
            server.close()
        finally:
            process.stop(signal.SIGQUIT)


async def wait_ready(server: RealPostgreSQLServer) -> None:
    """PostgreSQL accepts connections before it takes them."""
    deadline = time.monotonic() + START_SECONDS
    while not await server.can_log_in(ADMINISTRATOR, "postgres"):
        if time.monotonic() > deadline:
            raise RuntimeError(server.log.read_text(errors="replace"))


@asynccontextmanager
async def administered(
    server: RealPostgreSQLServer, owner: SqlCredentials, database: DesiredDatabase
) -> AsyncGenerator[ServerSessions]:
    """Sessions of the administrator's, as by ``serverRef``. The owner is there; the database goes with the block."""
    login = Login(server.administrator.username, server.administrator.password)
    sessions = server.sql_engine.connect(
        DatabaseServer("postgresql", server.endpoint, login, Verification(TLSMode.REQUIRE))
    )
    await reconcile(server.sql_engine, sessions, DesiredUser(owner.username, owner.password, mark=database.mark))
    yield sessions
    await sessions.close()
    server.administer("DROP DATABASE IF EXISTS {}", database.name)
