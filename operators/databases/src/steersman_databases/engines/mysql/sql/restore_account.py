"""The account of a ``Restore`` on MySQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.sql.restore_account import CopyNameTaken, CopyOutcome, CopyServer, CopyTarget

from . import verifiers
from .session import ANY_HOST, MySQLSession, grant_pattern, identifier, logged_in, quoted_account

_TIMEOUT_SECONDS = 60.0
_ACCOUNT_QUERY = "SELECT User FROM mysql.user WHERE User = ? AND Host = ?"
_DATABASE_QUERY = "SELECT SCHEMA_NAME AS name FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?"
_TABLE_QUERY = "SELECT 1 AS found FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?"
_SESSIONS_QUERY = "SELECT PROCESSLIST_ID AS id FROM performance_schema.threads WHERE PROCESSLIST_USER = ?"
# mysql.db has patterns, in which these characters are escaped or not.
_OWNERS_QUERY = """
    SELECT DISTINCT User AS name, Host AS host FROM mysql.db
    WHERE Db IN (?, ?) AND Create_priv = 'Y' AND Drop_priv = 'Y' AND User NOT LIKE 'steersman%' ORDER BY User, Host
"""


async def prepare(server: DatabaseServer, target: CopyTarget) -> None:
    """Create the account and an empty database for it.

    The account is created before the database: without it, an existing database is foreign.

    Raises:
        CopyNameTaken: the name is taken.
        EngineError: the server does not respond in time, or rejects a statement.
    """
    name = quoted_account(target.account.username)
    verifier = verifiers.sha2_verifier(target.account.password).partition(":")[2].encode("latin-1").hex()
    authentication = f"IDENTIFIED WITH {verifiers.SHA2} AS 0x{verifier} REQUIRE SSL"
    async with _session(server) as session:
        is_repeated = bool(await _account(session, target))
        if not is_repeated:
            if await session.rows("inspecting the copy", _DATABASE_QUERY, target.into):
                raise CopyNameTaken("database", target.into)
            await session.run("creating the account", f"CREATE USER {name} {authentication}")
        await session.run("setting the password", f"ALTER USER {name} {authentication}")
        database = identifier(grant_pattern(target.into))
        await session.run("granting", f"GRANT ALL ON {database}.* TO {name}")
        await session.run("creating the database", f"CREATE DATABASE IF NOT EXISTS {identifier(target.into)}")


async def finish(server: DatabaseServer, target: CopyTarget, owner: str) -> CopyOutcome:
    """Grant the copy to the owners of the present database.

    The account is dropped.

    An account owns a database if it may create and drop its tables.

    Args:
        owner: not used, since databases of MySQL have no owner.

    Raises:
        EngineError: the server does not respond in time, or rejects a statement.
    """
    del owner
    async with _session(server) as session:
        if await _account(session, target):
            database = identifier(grant_pattern(target.into))
            for account in await _owners(session, target.database):
                await session.run("granting", f"GRANT ALL ON {database}.* TO {account}")
            await session.run("dropping the account", f"DROP USER {quoted_account(target.account.username)}")
        exists = [
            bool(await session.rows("inspecting a table", _TABLE_QUERY, target.database, table))
            for _, table in target.tables
        ]
    return CopyOutcome("", tuple(exists))


async def discard(server: DatabaseServer, target: CopyTarget) -> None:
    """Drop the account and the unfinished copy.

    Raises:
        EngineError: the server does not respond in time, or rejects a statement.
    """
    name = target.account.username
    async with _session(server) as session:
        if not await _account(session, target):
            return
        await session.run("locking the account", f"ALTER USER {quoted_account(name)} ACCOUNT LOCK")
        for row in await session.rows("inspecting sessions", _SESSIONS_QUERY, name):
            with contextlib.suppress(Exception):  # it has ended by itself
                await session.run("ending a session", f"KILL {int(row['id'])}")
    async with _session(server) as session:
        await session.run("dropping the copy", f"DROP DATABASE IF EXISTS {identifier(target.into)}")
        await session.run("dropping the account", f"DROP USER {quoted_account(name)}")


async def _account(session: MySQLSession, target: CopyTarget) -> bool:
    return bool(await session.rows("inspecting the account", _ACCOUNT_QUERY, target.account.username, ANY_HOST))


async def _owners(session: MySQLSession, database: str) -> Sequence[str]:
    found = await session.rows("inspecting grants", _OWNERS_QUERY, database, grant_pattern(database))
    return [quoted_account(str(row["name"]), str(row["host"])) for row in found]


@contextlib.asynccontextmanager
async def _session(server: DatabaseServer) -> AsyncGenerator[MySQLSession]:
    """Provide a session of a superuser on the primary."""
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    elevated = server if server.superuser_login is None else replace(server, login=server.superuser_login())
    async with logged_in(elevated, deadline) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is stopping")
        yield session


COPIES = CopyServer(prepare, finish, discard)
"""The operations of MySQL."""
