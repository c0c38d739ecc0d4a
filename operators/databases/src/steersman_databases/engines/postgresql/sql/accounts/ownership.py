"""Ownership inside a database, read and changed as superuser.

An application may have planted objects there. Only catalogs are read and ALTER … OWNER runs, which call no
functions of users, with `search_path` pinned to `pg_catalog`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from psycopg import sql

from steersman_databases.engines.errors import EngineError, SqlFailed
from steersman_databases.engines.postgresql.planning import identifiers
from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession
from steersman_databases.engines.sql.sql_actions import RestoreOwnership

OWNED_OBJECTS_QUERY = """
    SELECT found.kind, n.nspname, found.name, found.arguments
    FROM (
        SELECT 'SCHEMA' AS kind, tableoid, oid, oid AS namespace, nspowner AS owner, '' AS name, '' AS arguments
        FROM pg_catalog.pg_namespace
      UNION ALL
        SELECT 'TABLE', tableoid, oid, relnamespace, relowner, relname, ''
        FROM pg_catalog.pg_class c
        WHERE relkind IN ('r', 'p', 'v', 'm', 'f') OR relkind = 'S' AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_depend column_of
            WHERE column_of.classid = c.tableoid AND column_of.objid = c.oid AND column_of.deptype IN ('a', 'i'))
      UNION ALL
        SELECT 'TYPE', t.tableoid, t.oid, typnamespace, typowner, typname, ''
        FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_class c ON c.oid = typrelid
        WHERE typtype IN ('d', 'e', 'r') OR c.relkind = 'c'
      UNION ALL
        SELECT 'ROUTINE', tableoid, oid, pronamespace, proowner, proname, pg_catalog.oidvectortypes(proargtypes)
        FROM pg_catalog.pg_proc WHERE NOT prosecdef
    ) found JOIN pg_catalog.pg_namespace n ON n.oid = found.namespace
    WHERE pg_catalog.pg_get_userbyid(found.owner) = %s
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
      AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_depend extension
        WHERE extension.classid = found.tableoid AND extension.objid = found.oid AND extension.deptype = 'e')
    ORDER BY found.kind <> 'SCHEMA', 1, 2, 3, 4
"""
"""Objects that a role owns in the connected database, sorted.

System schemas and members of extensions are left out. ALTER TABLE works for views and sequences as well. The
sequence of a column follows its table.
"""


PLANTED_OBJECTS_QUERY = """
    SELECT owner FROM (
        SELECT tableoid, oid, pronamespace AS namespace, proowner AS owner FROM pg_catalog.pg_proc
      UNION ALL
        SELECT tableoid, oid, oprnamespace, oprowner FROM pg_catalog.pg_operator
      UNION ALL
        SELECT tableoid, oid, collnamespace, collowner FROM pg_catalog.pg_collation
      UNION ALL
        SELECT tableoid, oid, typnamespace, typowner FROM pg_catalog.pg_type
        WHERE typtype IN ('d', 'e', 'r')
    ) found
    JOIN pg_catalog.pg_namespace n ON n.oid = found.namespace
    JOIN pg_catalog.pg_roles r ON r.oid = found.owner
    WHERE n.nspname = %s AND NOT r.rolsuper
"""
"""Objects that an extension's script could resolve instead of the intended ones.

Members of a superuser's extension belong to a superuser. Others are members only because their owner added them.
"""
_EVENT_TRIGGERS_QUERY = """
    SELECT DISTINCT t.evtname FROM pg_catalog.pg_event_trigger t
    JOIN pg_catalog.pg_proc p ON p.oid = t.evtfoid
    JOIN pg_catalog.pg_roles r ON (r.oid = t.evtowner OR r.oid = p.proowner) AND NOT r.rolsuper
    JOIN pg_catalog.pg_roles we ON we.rolname = session_user AND we.rolsuper
    WHERE t.evtenabled <> 'D' AND pg_catalog.current_setting('event_triggers', true) IS DISTINCT FROM 'off'
"""


async def require_no_planted_objects(session: PostgreSQLSession, schema: str, operation: str) -> None:
    """Refuse to run a script as superuser next to functions of users.

    The check covers functions, operators, collations and types in the schema.

    Raises:
        SqlFailed: with `operation`.
    """
    if await session.rows("inspecting the extension's schema", PLANTED_OBJECTS_QUERY, schema):
        raise SqlFailed(
            operation,
            None,
            f"schema {schema} has functions, operators or types of other roles, and the extension's script could call"
            " them as superuser: set an empty schema in spec.extensions, or move them to another one",
        )


async def require_no_event_triggers(session: PostgreSQLSession, database: str) -> None:
    """Refuse to work as superuser where this would run a user's function.

    Only superusers create event triggers. But a function keeps its owner when the owner loses the attribute.

    Raises:
        SqlFailed: there is such an event trigger.
    """
    if found := await session.rows("inspecting event triggers", _EVENT_TRIGGERS_QUERY):
        names = ", ".join(sorted(name for (name,) in found))
        raise SqlFailed(
            f"working in database {database} as superuser",
            None,
            f"event trigger {names} would run a function of another role as superuser: change the owner of trigger "
            "and"
            " function to a superuser, or disable the trigger",
        )


NOT_INHERITED_QUERY = """
    SELECT r.rolname FROM pg_catalog.pg_database d JOIN pg_catalog.pg_roles r ON r.oid = d.datdba
    WHERE d.datname = %s AND NOT pg_catalog.pg_has_role(r.oid, 'USAGE') AND pg_catalog.pg_has_role(r.oid,
        CASE WHEN pg_catalog.current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END)
"""
"""Owner of a database, but only if SET ROLE is necessary.

This is the case if the login does not inherit the owner's rights. Version 15 does not have the option SET.
"""


@asynccontextmanager
async def as_owner(
    session: PostgreSQLSession, database: str, first: sql.Composed | None = None
) -> AsyncGenerator[None]:
    """Act as the owner of a database during the block if necessary.

    It uses no transaction.

    Args:
        first: runs before SET ROLE, with the login's own rights.
    """
    owners = await session.rows("inspecting the owner of the database", NOT_INHERITED_QUERY, database)
    try:
        for (owner,) in owners:
            if first is not None:
                await session.run(f"ending sessions in database {database}", first)
            await session.run(f"acting as {owner}", sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
        yield
    finally:
        if owners:
            await _reset_role(session)


async def _reset_role(session: PostgreSQLSession) -> None:
    try:
        await session.run("resetting the role", sql.Composed([sql.SQL("SET ROLE NONE")]))
    except EngineError:
        # The previous failure is the one to report, and the session is not used afterwards.
        session.abort()


async def restore_ownership(session: PostgreSQLSession, action: RestoreOwnership) -> None:
    """Transfer the connected database and its previous owner's objects to another role.

    The database comes first, because only its owner may have objects in the schema `public`. The tables of a dropped
    role belong to the role they were reassigned to, mostly the administrator. A recreated role must own them again.
    REASSIGN OWNED would do too much: it also transfers other databases, and refuses for the administrator. Members
    of extensions, and functions with SECURITY DEFINER, keep their owner.
    """
    role = sql.Identifier(action.owner)
    found = await session.rows("inspecting the objects of the database", OWNED_OBJECTS_QUERY, action.previous_owner)
    async with session.transaction():
        statement = sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(action.database), role)
        await session.run(f"restoring the owner of database {action.database}", statement)
        for kind, schema, name, arguments in found:
            statement = sql.SQL("ALTER {} {} OWNER TO {}").format(
                sql.SQL(kind), _address(kind, schema, name, arguments), role
            )
            await session.run(f"restoring the owner {action.owner} of objects", statement)


def _address(kind: str, schema: str, name: str, arguments: str) -> sql.Composable:
    if kind == "SCHEMA":
        return sql.Identifier(schema)
    if kind == "ROUTINE":
        # The server quotes argument types itself, and qualifies all that are not in pg_catalog.
        types = sql.SQL(identifiers.normalize_argument_types(arguments))  # pyright: ignore[reportArgumentType]
        return sql.SQL("{}({})").format(sql.Identifier(schema, name), types)
    return sql.Identifier(schema, name)
