"""Who owns what inside the application's database.

`give_back` and `take_public_schema` are the only statements that the administrator runs where an application
may have planted things. They read catalogs and run ALTER … OWNER, which call no functions of users, with
`search_path` pinned to `pg_catalog`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

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
        SELECT 'ROUTINE', tableoid, oid, pronamespace, proowner, proname,
               pg_catalog.pg_get_function_identity_arguments(oid)
        FROM pg_catalog.pg_proc WHERE prokind IN ('f', 'p', 'w') AND NOT prosecdef
    ) found JOIN pg_catalog.pg_namespace n ON n.oid = found.namespace
    WHERE pg_catalog.pg_get_userbyid(found.owner) = %s
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
      AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_depend extension
        WHERE extension.classid = found.tableoid AND extension.objid = found.oid AND extension.deptype = 'e')
"""
"""What a role owns in the connected database, system schemas and members of extensions aside.

ALTER TABLE serves views, sequences and the like as well; the sequence of a column follows its table.
"""


@dataclass(frozen=True, slots=True)
class PublicSchema:
    """What the connected role may do with the schema `public`."""

    usable: bool
    owned: bool


async def public_schema(session: Session) -> PublicSchema:
    """How the schema `public` stands for the connected role. A schema that was dropped is nobody's loss."""
    rows = await session.rows(
        "looking at schema public",
        "SELECT pg_catalog.has_schema_privilege(session_user, oid, 'USAGE')"
        " AND pg_catalog.has_schema_privilege(session_user, oid, 'CREATE'),"
        " pg_catalog.pg_has_role(session_user, nspowner, 'USAGE')"
        " FROM pg_catalog.pg_namespace WHERE nspname = 'public'",
    )
    if not rows:
        return PublicSchema(usable=True, owned=True)
    usable, owned = rows[0]
    return PublicSchema(usable=usable, owned=owned)


async def grant_public_schema(session: Session) -> None:
    """Give the schema's owner its own rights again, as that owner."""
    await session.run("restoring grants on schema public", _GRANT_PUBLIC)


async def take_public_schema(session: Session) -> None:
    """Make the schema belong to whoever owns the database, as PostgreSQL itself does since version 15."""
    async with session.transaction():
        await session.run(
            "restoring the owner of schema public",
            sql.SQL("ALTER SCHEMA public OWNER TO pg_database_owner").format(),
        )
        await session.run("restoring grants on schema public", _GRANT_PUBLIC)


_GRANT_PUBLIC = sql.SQL("GRANT ALL ON SCHEMA public TO pg_database_owner").format()


async def give_back(session: Session, former: str, owner: str) -> int:
    """Give what `former` owns in the connected database to `owner`, and say how many objects that were.

    A dropped role leaves its tables to whoever they were reassigned to, mostly the administrator; a role
    made anew must find them its own again. REASSIGN OWNED would do more than that: it also gives other
    databases away, and refuses for the administrator. Members of extensions, and functions that run with
    their owner's rights, stay.
    """
    role = sql.Identifier(owner)
    found = await session.rows("looking at what the database holds", CONTENTS, former)
    async with session.transaction():
        for kind, schema, name, arguments in found:
            statement = sql.SQL("ALTER {} {} OWNER TO {}").format(
                sql.SQL(kind), _address(kind, schema, name, arguments), role
            )
            await session.run(f"giving objects back to {owner}", statement)
    return len(found)


def _address(kind: str, schema: str, name: str, arguments: LiteralString) -> sql.Composable:
    if kind == "SCHEMA":
        return sql.Identifier(schema)
    if kind == "ROUTINE":
        # The server quotes argument types itself, and qualifies all that are not in pg_catalog.
        return sql.SQL("{}({})").format(sql.Identifier(schema, name), sql.SQL(arguments))
    return sql.Identifier(schema, name)
