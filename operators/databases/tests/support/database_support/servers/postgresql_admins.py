"""Who the operator is on a PostgreSQL, and all that there is to be seen of what came of its work.

A server of others has a superuser, mostly not the one that it was made with, or somebody who may make roles and
databases and no more, as managed servers give away; on a cluster the operator has few rights of its own and a
superuser's login for the rest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import psycopg

from database_support.servers.matrix import WHOLE_MATRIX
from database_support.servers.postgresql import RealPostgreSQLServer, compose
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.postgresql.sql.accounts import system_accounts
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, OwnershipMark, PasswordDirective
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.reconcile_sql import reconcile

Rank = Literal["superuser", "operator", "modest"]
RANKS: tuple[Rank, ...] = ("superuser", "operator", "modest") if WHOLE_MATRIX else ("operator",)
"""`modest`: somebody with CREATEROLE and CREATEDB, and nobody mightier behind."""

MARK = OwnershipMark("c1", "Database", "shop", "it's")
SHOP = 'the "shop"; 100% \\ łódź'
OWNER = SqlCredentials('shop\'s "owner" %s', "0wner")
DATABASE = DesiredDatabase(SHOP, OWNER.username, mark=MARK)
_LOGINS: dict[Rank, SqlCredentials] = {
    "superuser": SqlCredentials('another "superuser"', "m1ghty"),
    "operator": SqlCredentials("steersman_operator", "0perator"),
    "modest": SqlCredentials("somebody modest", "m0dest"),
}


class PostgreSQLHarness:
    """A server as somebody administrates it, with an owner who is there."""

    def __init__(self, postgresql: RealPostgreSQLServer, sessions: ServerSessions, rank: Rank) -> None:
        self.postgresql, self.sessions, self.rank = postgresql, sessions, rank
        self.sql_engine = PostgreSQLSqlEngine()
        self.administrator = _LOGINS[rank]
        self._open: dict[tuple[str, str], psycopg.AsyncConnection] = {}
        self.version = int(postgresql.administer("SHOW server_version_num")[0][0]) // 10000

    async def reconcile(self, desired: DesiredUser | DesiredDatabase) -> list[str]:
        """The reasons of what was changed. Afterwards nothing is left to do."""
        reasons = [change.reason for change in await reconcile(self.sql_engine, self.sessions, desired)]
        assert await reconcile(self.sql_engine, self.sessions, desired) == ()
        return reasons

    async def drop(self, name: str, heir: str | None = None) -> list[str]:
        scope = InspectionScope(frozenset({name, *([heir] if heir else [])}))
        survey = await self.sql_engine.inspect(self.sessions, scope)
        plan = self.sql_engine.plan_drop_user(survey, name, MARK, heir)
        return [change.reason for change in await self.sql_engine.execute(self.sessions, plan)]

    async def drop_database(self, claim: OwnershipMark = MARK) -> list[str]:
        survey = await self.sql_engine.inspect(self.sessions, InspectionScope(databases=frozenset({SHOP})))
        plan = self.sql_engine.plan_drop_database(survey, SHOP, claim)
        return [change.reason for change in await self.sql_engine.execute(self.sessions, plan)]

    async def sql(
        self, statement: str, *names: str, who: SqlCredentials = ADMINISTRATOR, database: str = SHOP
    ) -> Any:
        """What a statement finds, its `{}` filled with quoted names; a single value as it is."""
        connection = self._open.get((who.username, database))
        if connection is None:
            connection = await self.postgresql.connected(who, database)
            self._open[who.username, database] = connection
        cursor = await connection.execute(compose(statement, *names))
        rows = await cursor.fetchall() if cursor.description else []
        return rows[0][0] if len(rows) == 1 and len(rows[0]) == 1 else rows

    async def is_allowed(self, who: SqlCredentials, statement: str, *names: str) -> bool:
        try:
            await self.sql(statement, *names, who=who)
        except psycopg.errors.InsufficientPrivilege:
            return False
        return True

    async def close_connections(self) -> None:
        """End what `sql` has open: a database that somebody is in cannot be copied."""
        for connection in self._open.values():
            await connection.close()
        self._open.clear()


def user(name: str = "clerk", **fields: Any) -> DesiredUser:
    return replace(DesiredUser(name, "s3cret", mark=MARK), **fields)


def role(name: str, **fields: Any) -> DesiredUser:
    return user(name, password=PasswordDirective.NONE, login=False, **fields)


@asynccontextmanager
async def administrated(postgresql: RealPostgreSQLServer, rank: Rank) -> AsyncGenerator[PostgreSQLHarness]:
    """The server with an owner. Whatever is made during the block goes with it."""
    sessions = PostgreSQLSqlEngine().connect(_server(postgresql, rank))
    at = PostgreSQLHarness(postgresql, sessions, rank)
    before = {name: await _names(at, query) for name, query in _KNOWN.items()}
    try:
        await at.reconcile(user(OWNER.username, password=OWNER.password))
        yield at
    finally:
        await sessions.close()
        await at.close_connections()
        for name in await _names(at, _KNOWN["DATABASE"]) - before["DATABASE"]:
            postgresql.administer("DROP DATABASE {} WITH (FORCE)", name)
        roles = sorted(await _names(at, _KNOWN["ROLE"]) - before["ROLE"])
        if roles:
            postgresql.administer(f"DROP OWNED BY {', '.join(['{}'] * len(roles))}", *roles)
            postgresql.administer(f"DROP ROLE {', '.join(['{}'] * len(roles))}", *roles)


_KNOWN = {"DATABASE": "SELECT datname FROM pg_database", "ROLE": "SELECT rolname FROM pg_roles"}


async def _names(at: PostgreSQLHarness, query: str) -> set[str]:
    return {name for (name,) in at.postgresql.administer(query)}


def _server(postgresql: RealPostgreSQLServer, rank: Rank) -> DatabaseServer:
    credentials = _LOGINS[rank]
    _introduce(postgresql, rank, credentials)
    login = Login(credentials.username, credentials.password)
    server = DatabaseServer("postgresql", postgresql.endpoint, login, Verification(TLSMode.REQUIRE))
    if rank != "operator":
        return server
    mighty = Login(postgresql.administrator.username, postgresql.administrator.password)
    return replace(server, superuser_login=lambda: mighty)


def _introduce(postgresql: RealPostgreSQLServer, rank: Rank, credentials: SqlCredentials) -> None:
    there = (credentials.username,) in postgresql.administer("SELECT rolname FROM pg_roles")
    if rank == "operator" and not there:
        postgresql.run(system_accounts.statements())
    elif not there:
        rights = "SUPERUSER" if rank == "superuser" else "CREATEROLE CREATEDB"
        postgresql.administer(f"CREATE ROLE {{}} LOGIN {rights}", credentials.username)
    postgresql.administer(f"ALTER ROLE {{}} PASSWORD '{credentials.password}'", credentials.username)
