"""The account of a ``Restore`` on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace

from psycopg import sql

from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.postgresql.sql.accounts import verifiers
from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession, logged_in
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.sql.restore_account import (
    CopyDatabaseMissing,
    CopyNameTaken,
    CopyOutcome,
    CopyServer,
    CopyTarget,
)

_TIMEOUT_SECONDS = 60.0
_VALID_FOR = "2 days"
_ROLE_QUERY = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = %s"
_DATABASE_QUERY = """
    SELECT r.rolname, r.rolsuper FROM pg_catalog.pg_database d JOIN pg_catalog.pg_roles r ON r.oid = d.datdba
    WHERE d.datname = %s
"""
_SCHEMA_QUERY = """
    SELECT pg_catalog.pg_get_userbyid(nspowner) FROM pg_catalog.pg_namespace WHERE nspname = %s
"""
_SCHEMAS_QUERY = """
    SELECT nspname FROM pg_catalog.pg_namespace
    WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' AND pg_catalog.has_schema_privilege(%s, oid, 'USAGE')
"""
_SUPERUSER_QUERY = "SELECT rolname FROM pg_catalog.pg_roles WHERE oid = 10"
_TABLE_QUERY = """
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""
_VALID_UNTIL_QUERY = "SELECT (pg_catalog.now() + %s::pg_catalog.interval)::pg_catalog.text"
_TERMINATE_QUERY = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = %s"


async def prepare(server: DatabaseServer, target: CopyTarget) -> None:
    """Create the account, which may create the copy.

    Raises:
        CopyNameTaken: the name is taken.
        CopyDatabaseMissing: the present database does not exist.
        EngineError: the server does not respond in time, or rejects a statement.
    """
    if target.is_schema:
        await _prepare_schema(server, target)
        return
    name = target.account.username
    async with _session(server) as session:
        found = await session.rows("inspecting the copy", _DATABASE_QUERY, target.into)
        if found and found[0][0] != name:
            raise CopyNameTaken("database", target.into)
        await _create_account(session, target, "CREATEDB")
        grant = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(
            sql.Identifier(server.maintenance_database), sql.Identifier(name)
        )
        await session.run("granting", grant)


async def _prepare_schema(server: DatabaseServer, target: CopyTarget) -> None:
    account = sql.Identifier(target.account.username)
    async with _session(server) as session:
        found = await session.rows("inspecting the database", _DATABASE_QUERY, target.database)
    if not found:
        raise CopyDatabaseMissing(target.database)
    owner = found[0][0]
    async with _session(server, target.database) as session:
        present = await session.rows("inspecting the copy", _SCHEMA_QUERY, target.into)
        if present and present[0][0] != target.account.username:
            raise CopyNameTaken("schema", target.into)
        await _create_account(session, target, "NOCREATEDB")
        grant = sql.SQL("GRANT CONNECT, CREATE ON DATABASE {} TO {}")
        await session.run("granting", grant.format(sql.Identifier(target.database), account))
        # Types and functions of the tables may be in schemas that only the owner can use. A member of the owner would
        # give its rights to functions in constraints, which any user may have written.
        for (schema,) in await session.rows("inspecting schemas", _SCHEMAS_QUERY, owner):
            usage = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}")
            await session.run("granting", usage.format(sql.Identifier(schema), account))


async def _create_account(session: PostgreSQLSession, target: CopyTarget, attribute: str) -> None:
    name = target.account.username
    exists = await session.rows("inspecting the account", _ROLE_QUERY, name)
    [(until,)] = await session.rows("reading the time", _VALID_UNTIL_QUERY, _VALID_FOR)
    statement = sql.SQL(
        "{} ROLE {} LOGIN INHERIT NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS {} CONNECTION LIMIT 8"
        " PASSWORD {} VALID UNTIL {}"
    )
    parts = (
        sql.SQL("ALTER") if exists else sql.SQL("CREATE"),
        sql.Identifier(name),
        sql.SQL("CREATEDB") if attribute == "CREATEDB" else sql.SQL("NOCREATEDB"),
        sql.Literal(verifiers.scram_verifier(target.account.password)),
        sql.Literal(until),
    )
    await session.run(f"creating role {name}", statement.format(*parts))


async def finish(server: DatabaseServer, target: CopyTarget, owner: str) -> CopyOutcome:
    """Give the copy to the owner of the present database.

    The account is dropped.

    Args:
        owner: of the copy if the present database does not exist. If there is no such role, it is the superuser.

    Raises:
        EngineError: the server does not respond in time, or rejects a statement.
    """
    name = target.account.username
    async with _session(server) as session:
        present = await session.rows("inspecting the database", _DATABASE_QUERY, target.database)
        known = await session.rows("inspecting the owner", _ROLE_QUERY, owner)
        superuser = await session.rows("inspecting the superuser", _SUPERUSER_QUERY)
        is_unfinished = bool(await session.rows("inspecting the account", _ROLE_QUERY, name))
    new_owner = str(present[0][0] if present else owner if known else superuser[0][0])
    async with _session(server, target.database if target.is_schema else target.into) as session:
        exists = [
            bool(await session.rows("inspecting a table", _TABLE_QUERY, schema, table))
            for schema, table in target.tables
        ]
        if is_unfinished:
            await _give(session, target, new_owner)
    return CopyOutcome(new_owner, tuple(exists))


async def _give(session: PostgreSQLSession, target: CopyTarget, owner: str) -> None:
    name = target.account.username
    account, kind = sql.Identifier(name), sql.SQL("SCHEMA") if target.is_schema else sql.SQL("DATABASE")
    comment = sql.SQL("COMMENT ON {} {} IS {}")
    reassign = sql.SQL("REASSIGN OWNED BY {} TO {}")
    async with session.transaction():
        await session.run(
            "describing the copy", comment.format(kind, sql.Identifier(target.into), sql.Literal(target.comment))
        )
        await session.run("giving the copy to its owner", reassign.format(account, sql.Identifier(owner)))
        await session.run("revoking", sql.SQL("DROP OWNED BY {}").format(account))
        await session.run(f"dropping role {name}", sql.SQL("DROP ROLE {}").format(account))


async def discard(server: DatabaseServer, target: CopyTarget) -> None:
    """Drop the account and whatever it owns.

    Raises:
        EngineError: the server does not respond in time, or rejects a statement.
    """
    name = target.account.username
    account = sql.Identifier(name)
    async with _session(server) as session:
        if not await session.rows("inspecting the account", _ROLE_QUERY, name):
            return
        await session.run(f"locking role {name}", sql.SQL("ALTER ROLE {} NOLOGIN").format(account))
        await session.rows("ending sessions", _TERMINATE_QUERY, name)
        place = target.database if target.is_schema else target.into
        found = await session.rows("inspecting the copy", _DATABASE_QUERY, place)
        if not target.is_schema and found and found[0][0] == name:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            await session.run(f"dropping database {place}", drop.format(sql.Identifier(place)))
    inside = target.database if target.is_schema and found else None
    async with _session(server, inside) as session, session.transaction():
        await session.run("dropping the copy", sql.SQL("DROP OWNED BY {} CASCADE").format(account))
        await session.run(f"dropping role {name}", sql.SQL("DROP ROLE {}").format(account))


@contextlib.asynccontextmanager
async def _session(server: DatabaseServer, database: str | None = None) -> AsyncGenerator[PostgreSQLSession]:
    """Provide a session of a superuser on the primary."""
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    elevated = server if server.superuser_login is None else replace(server, login=server.superuser_login())
    async with logged_in(elevated, deadline, database) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is not the primary, or is stopping")
        yield session


COPIES = CopyServer(prepare, finish, discard)
"""The operations of PostgreSQL."""
