"""A real MariaDB, from Debian's packages, or MySQL, from a root file system, for the engines' contract."""

from __future__ import annotations

import re
import signal
import ssl
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncmy

from database_support.contracts.owned_database import OwnedDatabase
from database_support.servers.process import DatabaseServerProcess, data_directory, free_port, program, run
from database_support.servers.real_server import ADMINISTRATOR, RealServer
from steersman_databases.engines import ServerEndpoint, SqlCredentials, SqlEngine
from steersman_databases.engines.mysql.sql.engine import MySQLSqlEngine
from steersman_databases.engines.mysql.sql.session import quoted_account
from steersman_databases.engines.mysql.sql.system_accounts import statements
from steersman_databases.engines.naming import OPERATOR_ROLE as OF_CLUSTERS


class RealMySQLServer(RealServer):
    sql_engine: SqlEngine = MySQLSqlEngine()
    restricted = False

    def in_grants(self, database: str) -> str:
        """A database's name as GRANT wants it there."""
        return database if self.restricted else re.sub(r"([\\_%])", r"\\\1", database)

    async def execute(
        self, statement: str, *names: str, credentials: SqlCredentials = ADMINISTRATOR, database: str | None = None
    ) -> list[Any]:
        """Run a statement, its `{}` filled with quoted names."""
        async with (
            self.connected(credentials, database) as connection,
            await connection.prepare(_filled(statement, names)) as prepared,
        ):
            return list((await prepared.execute()).rows or ())

    async def execute_unprepared(
        self, statement: str, *names: str, credentials: SqlCredentials = ADMINISTRATOR, database: str | None = None
    ) -> None:
        """One of the statements that MySQL does not prepare."""
        async with self.connected(credentials, database) as connection:
            await connection.query(_filled(statement, names))

    @asynccontextmanager
    async def connected(self, credentials: SqlCredentials, database: str | None) -> AsyncGenerator[Any]:
        """The driver's own connection, during the block."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        connect = cast(Any, asyncmy.connect)  # pyright: ignore[reportUnknownMemberType]
        connection = await connect(
            host=self.endpoint.host,
            port=self.endpoint.port,
            user=credentials.username,
            password=credentials.password.encode(),
            database=database,
            ssl=tls,
            autocommit=True,
        )
        try:
            yield connection
        finally:
            await connection.ensure_closed()

    async def can_log_in(self, credentials: SqlCredentials, database: str) -> bool:
        try:
            await self.execute("SELECT 1", credentials=credentials, database=database)
        except asyncmy.errors.MySQLError:
            return False
        return True

    async def create_table(self, credentials: SqlCredentials, database: str) -> None:
        await self.execute("CREATE TABLE till (coin int)", credentials=credentials, database=database)

    async def reads_table(self, credentials: SqlCredentials, database: str) -> bool:
        await self.execute("SELECT coin FROM till", credentials=credentials, database=database)
        return True

    async def databases(self) -> set[str]:
        rows = await self.execute("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        return {name for (name,) in rows}

    async def users(self) -> set[str]:
        return {name for (name,) in await self.execute("SELECT User FROM mysql.user")}

    async def drop_user(self, desired: OwnedDatabase) -> None:
        await self.execute("DROP USER {}@'%'", desired.username)

    async def drop_database(self, desired: OwnedDatabase) -> None:
        await self.execute("DROP DATABASE {}", desired.database)

    async def change_password(self, desired: OwnedDatabase, password: str) -> None:
        await self.execute(f"ALTER USER {{}}@'%' IDENTIFIED BY '{password}'", desired.username)

    async def revoke(self, desired: OwnedDatabase) -> None:
        await self.execute("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {}@'%'", desired.username)

    async def lock(self, desired: OwnedDatabase) -> None:
        await self.execute("ALTER USER {}@'%' ACCOUNT LOCK", desired.username)

    async def make_superuser_owned(self, desired: OwnedDatabase) -> None:
        statement = "ALTER DATABASE {} CHARACTER SET latin1"
        await self.execute_unprepared(statement, desired.database, credentials=desired.credentials)

    async def expire(self, desired: OwnedDatabase) -> None:
        await self.execute("ALTER USER {}@'%' PASSWORD EXPIRE", desired.username)

    async def create_superuser(self, username: str) -> None:
        await self.execute("CREATE USER IF NOT EXISTS {}@'10.%'", username)
        await self.execute("GRANT SELECT, INSERT ON *.* TO {}@'10.%'", username)


def _filled(statement: str, names: tuple[str, ...]) -> str:
    return statement.format(*("`" + name.replace("`", "``") + "`" for name in names))


MAKE_ADMINISTRATOR = (
    f"CREATE USER `{ADMINISTRATOR.username}`@`%` IDENTIFIED BY '{ADMINISTRATOR.password}';\n"
    f"GRANT ALL ON *.* TO `{ADMINISTRATOR.username}`@`%` WITH GRANT OPTION;\n"
)


OPERATOR = SqlCredentials("the-operator", "0perator-s3cret")


def _make_operator() -> str:
    """Who may do in a server what the operator may in those of its clusters, and logs in by a password."""
    theirs, ours = quoted_account(OF_CLUSTERS), quoted_account(OPERATOR.username)
    grants = [one.replace(theirs, ours) for one in statements() if one.startswith("GRANT") and theirs in one]
    return ";\n".join([f"CREATE USER {ours} IDENTIFIED BY '{OPERATOR.password}'", *grants, ""])


def start_mariadb(root: Path, *options: str, tls: bool = True) -> Generator[RealMySQLServer]:
    # mysql/mysql_system_tables.sql in Debian 12, mariadb/mariadb_system_tables.sql after it
    system = "".join(
        next(root.glob(f"usr/share/m*/m*_{name}.sql")).read_text() for name in ("system_tables", "system_tables_data")
    )
    with data_directory() as directory:
        data = directory / "data"
        data.mkdir(mode=0o777)
        data.chmod(0o777)
        common = [program("mariadbd", str(root / "usr/sbin")), "--no-defaults", f"--basedir={root}/usr"]
        common += [f"--datadir={data}", "--innodb-log-file-size=8M", *options]
        run(
            [*common, "--bootstrap", "--innodb-flush-method=nosync"],
            directory,
            f"CREATE DATABASE mysql;\nUSE mysql;\n{system}FLUSH PRIVILEGES;\n{MAKE_ADMINISTRATOR}",
        )
        certificate = [f"--ssl-cert={directory}/cert.pem", f"--ssl-key={directory}/key.pem"]
        yield from serve_mysql(directory, [*common, *(certificate if tls else ["--skip-ssl"])])


_BUT_READ = (
    "INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE"
)


def start_mysql(root: Path, *options: str, restricted: bool = False) -> Generator[RealMySQLServer]:
    """One in which the operator may do what it may in a cluster, and no more.

    Args:
        restricted: it may not write the server's own tables either, as the administrators of many managed servers.
            That takes `partial_revokes`, with which GRANT takes names of databases as they are.
    """
    with data_directory() as directory:
        setup = directory / "setup.sql"
        restriction = (
            f"REVOKE {_BUT_READ} ON mysql.* FROM {quoted_account(OPERATOR.username)};\n" if restricted else ""
        )
        setup.write_text(MAKE_ADMINISTRATOR + _make_operator() + restriction)
        setup.chmod(0o644)
        common = [
            *(program("mysqld", str(root / "usr/sbin")), "--no-defaults", f"--basedir={root}/usr"),
            *(f"--lc-messages-dir={root}/usr/share/mysql", f"--plugin-dir={root}/usr/lib/mysql/plugin"),
            *(f"--datadir={directory}/data", "--secure-file-priv=NULL"),
            f"--partial-revokes={'ON' if restricted else 'OFF'}",
            *options,
        ]
        run([*common, "--initialize-insecure", f"--init-file={setup}"], directory)
        certificate = [f"--ssl-cert={directory}/cert.pem", f"--ssl-key={directory}/key.pem"]
        for server in serve_mysql(directory, [*common, "--mysqlx=OFF", "--sync-binlog=0", *certificate]):
            server.administrator, server.restricted = OPERATOR, restricted
            yield server


def serve_mysql(directory: Path, command: list[str]) -> Generator[RealMySQLServer]:
    endpoint = ServerEndpoint("127.0.0.1", free_port())
    statements = directory / "statements.log"
    process = DatabaseServerProcess(
        directory,
        [
            *command,
            f"--port={endpoint.port}",
            f"--bind-address={endpoint.host}",
            f"--socket={directory}/socket",
            f"--pid-file={directory}/pid",
            "--skip-name-resolve",
            "--general-log=1",
            f"--general-log-file={statements}",
            "--innodb-flush-method=nosync",
        ],
    )
    try:
        process.wait_for(endpoint)
        yield RealMySQLServer(endpoint, statements)
    finally:
        process.stop(signal.SIGKILL)
