"""Who owns what inside a database, seen and set as superuser where an application may have planted things.

Catalogs are read and ALTER … OWNER is run, which call no functions of users, with `search_path` pinned to
`pg_catalog`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from psycopg import sql

from ..actions import GiveBack
from ..errors import EngineError, SqlFailed
from . import names
from .session import Session

CONTENTS = """
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
"""What a role owns in the connected database, system schemas and members of extensions aside, in one order.

ALTER TABLE serves views, sequences and the like as well; the sequence of a column follows its table.
"""


PLANTED = """
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
"""What a script of an extension could mistake for what it means.

Members of extensions that are a superuser's are theirs; others are members because their owner has added them.
"""
_TRIGGERED = """
    SELECT DISTINCT t.evtname FROM pg_catalog.pg_event_trigger t
    JOIN pg_catalog.pg_proc p ON p.oid = t.evtfoid
    JOIN pg_catalog.pg_roles r ON (r.oid = t.evtowner OR r.oid = p.proowner) AND NOT r.rolsuper
    JOIN pg_catalog.pg_roles we ON we.rolname = session_user AND we.rolsuper
    WHERE t.evtenabled <> 'D'
"""


async def require_unplanted(session: Session, schema: str, doing: str) -> None:
    """Refuse to run an extension's script as superuser where somebody left functions, operators or types.

    Raises `SqlFailed`, ``doing`` what was meant.
    """
    if await session.rows("looking at the extension's schema", PLANTED, schema):
        raise SqlFailed(
            doing,
            None,
            f"schema {schema} holds functions, operators or types of others, which the extension's script, run by a"
            " superuser, could call: name an empty schema in spec.extensions, or move them to another one",
        )


async def require_untriggered(session: Session, database: str) -> None:
    """Refuse to work in a database as superuser where that would run a function of somebody else's.

    Only superusers make event triggers, but a function stays its owner's when he is a superuser no more.

    Raises `SqlFailed`.
    """
    if found := await session.rows("looking at event triggers", _TRIGGERED):
        names = ", ".join(sorted(name for (name,) in found))
        raise SqlFailed(
            f"working in database {database} as superuser",
            None,
            f"event trigger {names} would run a function of somebody who is none: give trigger and function to a"
            " superuser, or disable the trigger",
        )


NOT_INHERITED = """
    SELECT r.rolname FROM pg_catalog.pg_database d JOIN pg_catalog.pg_roles r ON r.oid = d.datdba
    WHERE d.datname = %s AND NOT pg_catalog.pg_has_role(r.oid, 'USAGE') AND pg_catalog.pg_has_role(r.oid,
        CASE WHEN pg_catalog.current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END)
"""
"""The owner of a database, where one has his rights by acting as him alone. Version 15 does not know of SET."""


@asynccontextmanager
async def as_owner(session: Session, database: str, first: sql.Composed | None = None) -> AsyncGenerator[None]:
    """Act as the owner of a database during the block, in no transaction, where there is no other way.

    `first` is done before, as oneself.
    """
    owners = await session.rows("looking at whose database it is", NOT_INHERITED, database)
    try:
        for (owner,) in owners:
            if first is not None:
                await session.run(f"ending sessions in database {database}", first)
            await session.run(f"acting as {owner}", sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
        yield
    finally:
        if owners:
            await _as_oneself(session)


async def _as_oneself(session: Session) -> None:
    try:
        await session.run("acting as oneself", sql.Composed([sql.SQL("SET ROLE NONE")]))
    except EngineError:
        # What failed before is what is to be told, and nobody has this session after it.
        session.sever()


async def give_back(session: Session, action: GiveBack) -> None:
    """Give the connected database, and what its former owner owns in it, to another.

    The database comes first: in the schema `public` only its owner may have anything. A dropped role leaves its
    tables to whoever they were reassigned to, mostly the administrator; a role made anew must find them its own.
    REASSIGN OWNED would do more than that: it also gives other databases away, and refuses for the administrator.
    Members of extensions, and functions that run with their owner's rights, stay.
    """
    role = sql.Identifier(action.owner)
    found = await session.rows("looking at what the database holds", CONTENTS, action.former)
    async with session.transaction():
        statement = sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(action.database), role)
        await session.run(f"restoring the owner of database {action.database}", statement)
        for kind, schema, name, arguments in found:
            statement = sql.SQL("ALTER {} {} OWNER TO {}").format(
                sql.SQL(kind), _address(kind, schema, name, arguments), role
            )
            await session.run(f"giving objects back to {action.owner}", statement)


def _address(kind: str, schema: str, name: str, arguments: str) -> sql.Composable:
    if kind == "SCHEMA":
        return sql.Identifier(schema)
    if kind == "ROUTINE":
        # The server quotes argument types itself, and qualifies all that are not in pg_catalog.
        types = sql.SQL(names.arguments(arguments))  # pyright: ignore[reportArgumentType]
        return sql.SQL("{}({})").format(sql.Identifier(schema, name), types)
    return sql.Identifier(schema, name)
