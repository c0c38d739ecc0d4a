"""Inspection of the contents of one database."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from steersman_databases.engines.connection.input_limits import MAX_OBJECTS
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import (
    DatabaseContents,
    ExtensionOnDisk,
    ExtensionState,
    HeldPrivilege,
    InspectionScope,
    SecuredObject,
)

from .session import PostgreSQLSession

_ESCAPED, _ESCAPE = r'(["\\])', r"\\\1"

_MAX_PRIVILEGES = 5 * MAX_OBJECTS

_SCHEMAS = """
    SELECT n.nspname, pg_catalog.pg_get_userbyid(n.nspowner) FROM pg_catalog.pg_namespace n WHERE n.nspname = ANY(%s)
"""

DATABASE_OWNER = "pg_database_owner"
"""Predefined role with one member: the owner of the current database."""
UNASSUMABLE_ROLES_QUERY = """
    SELECT r.rolname FROM pg_catalog.pg_roles r
    WHERE r.rolname = ANY(%s::pg_catalog.text[] || %s::pg_catalog.text[]) AND NOT pg_catalog.pg_has_role(r.oid, %s)
"""


_OBJECTS = """
    SELECT found.kind, n.nspname, found.name, found.arguments,
           CASE WHEN EXISTS (
               SELECT FROM pg_catalog.pg_depend extension
               WHERE extension.classid = found.tableoid AND extension.objid = found.oid AND extension.deptype = 'e')
           THEN '' ELSE pg_catalog.pg_get_userbyid(found.owner)::text END
    FROM (
        SELECT CASE relkind WHEN 'S' THEN 'sequence' ELSE 'table' END AS kind, tableoid, oid,
               relnamespace AS namespace, relname AS name, NULL AS arguments, relowner AS owner
        FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
      UNION ALL
        SELECT 'function', tableoid, oid, pronamespace, proname, pg_catalog.oidvectortypes(proargtypes), proowner
        FROM pg_catalog.pg_proc
    ) found JOIN pg_catalog.pg_namespace n ON n.oid = found.namespace
    WHERE n.nspname = ANY(%s)
    ORDER BY 1, 2, 3, 4
    LIMIT %s
"""
"""Objects of some schemas with their owners, sorted.

Members of extensions have an empty owner.
"""


_COLUMNS = """
    SELECT n.nspname, c.relname, a.attname
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE a.attnum > 0 AND NOT a.attisdropped
      AND (n.nspname, c.relname, a.attname) IN (SELECT * FROM ROWS FROM (
          pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[]),
          pg_catalog.unnest(%s::pg_catalog.text[])))
"""
"""The existing ones of some columns, by schema, table and name."""


_PRIVILEGES = """
    SELECT held.kind, n.nspname, held.name, held.arguments, held.attname, held.creator,
           CASE acl.grantee WHEN 0 THEN '' ELSE pg_catalog.pg_get_userbyid(acl.grantee)::text END,
           acl.privilege_type, pg_catalog.pg_get_userbyid(acl.grantor), acl.is_grantable
    FROM (
        SELECT 'schema' AS kind, oid AS namespace, NULL::name AS name, NULL AS arguments, NULL::name AS attname,
               NULL::name AS creator, nspowner AS owner,
               coalesce(nspacl, pg_catalog.acldefault('n', nspowner)) AS list
        FROM pg_catalog.pg_namespace WHERE nspacl IS NOT NULL OR nspname = 'public'
      UNION ALL
        SELECT CASE relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, relnamespace, relname, NULL, NULL, NULL,
               relowner, relacl
        FROM pg_catalog.pg_class WHERE relacl IS NOT NULL
      UNION ALL
        SELECT 'table', c.relnamespace, c.relname, NULL, a.attname, NULL, c.relowner, a.attacl
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
        WHERE a.attacl IS NOT NULL AND NOT a.attisdropped
      UNION ALL
        SELECT 'function', pronamespace, proname, pg_catalog.oidvectortypes(proargtypes), NULL, NULL, proowner, proacl
        FROM pg_catalog.pg_proc WHERE proacl IS NOT NULL
      UNION ALL
        SELECT CASE defaclobjtype WHEN 'r' THEN 'table' WHEN 'S' THEN 'sequence' WHEN 'f' THEN 'function'
                    ELSE 'schema' END,
               defaclnamespace, NULL, NULL, NULL, pg_catalog.pg_get_userbyid(defaclrole), defaclrole, defaclacl
        FROM pg_catalog.pg_default_acl WHERE defaclobjtype IN ('r', 'S', 'f', 'n')
    ) held
    CROSS JOIN LATERAL pg_catalog.aclexplode(held.list) acl
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = held.namespace
    WHERE (acl.grantee <> held.owner AND pg_catalog.pg_get_userbyid(acl.grantee) = ANY(%s::pg_catalog.text[]))
       OR (acl.grantor <> held.owner AND pg_catalog.pg_get_userbyid(acl.grantor) = ANY(%s::pg_catalog.text[]))
       OR (held.kind = 'schema' AND n.nspname = 'public' AND held.creator IS NULL)
    LIMIT %s
"""
"""Privileges that some roles hold or granted in the connected database.

Privileges of owners are left out. All privileges on the schema `public` are included.
"""


_EXTENSIONS = """
    SELECT e.extname, e.extversion, n.nspname, pg_catalog.pg_get_userbyid(e.extowner)
    FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = ANY(%s)
"""


_AVAILABLE_EXTENSIONS_QUERY = """
    SELECT a.name, a.default_version, pg_catalog.array_agg(v.version), pg_catalog.bool_or(v.trusted)
    FROM pg_catalog.pg_available_extensions() a JOIN pg_catalog.pg_available_extension_versions() v ON v.name = a.name
    WHERE a.name = ANY(%s) GROUP BY a.name, a.default_version
"""


def array_literal(names: Iterable[str]) -> str:
    """Return names as PostgreSQL's text form of an array.

    Source: PostgreSQL 17 documentation, 8.15.2 "Array Value Input".
    """
    return "{" + ",".join(f'"{re.sub(_ESCAPED, _ESCAPE, name)}"' for name in names) + "}"


class TooManyObjects(Exception):
    """The database has more objects than an inspection may read."""


async def inspect_database(
    session: PostgreSQLSession, database: str, scope: InspectionScope, users: str, effective_role: str
) -> DatabaseContents:
    """Return the contents of the connected database.

    Args:
        scope: the objects in the schemas of its contents are read.
        users: its users as `array_literal`, since drivers convert long lists slowly.

    Raises:
        TooManyObjects: they have more than ``MAX_OBJECTS``.
    """
    schemas = scope.contents.get(database, frozenset[str]())
    names, extensions = sorted(schemas), sorted(scope.extensions)
    objects = await _objects(session, database, schemas, scope) if names else {}
    owned = dict(await session.rows("inspecting schemas", _SCHEMAS, names))
    owners = sorted({*owned.values(), *objects.values()} - {"", DATABASE_OWNER})
    unassumable_roles = (
        await session.rows("inspecting owners", UNASSUMABLE_ROLES_QUERY, owners, users, effective_role)
        if names
        else []
    )
    held = await session.rows("inspecting grants", _PRIVILEGES, users, users, _MAX_PRIVILEGES + 1)
    if len(held) > _MAX_PRIVILEGES:
        raise TooManyObjects(f"its declared users hold more than {_MAX_PRIVILEGES:,} privileges on single objects")
    return DatabaseContents(
        schemas=owned,
        objects=objects,
        unassumable_roles=frozenset(name for (name,) in unassumable_roles),
        extensions={
            name: ExtensionState(*state)
            for name, *state in (
                await session.rows("inspecting extensions", _EXTENSIONS, extensions) if extensions else []
            )
        },
        available_extensions={
            name: ExtensionOnDisk(default, frozenset(versions), trusted)
            for name, default, versions, trusted in (
                await session.rows("inspecting extensions on disk", _AVAILABLE_EXTENSIONS_QUERY, extensions)
                if extensions
                else []
            )
        },
        privileges=frozenset(
            HeldPrivilege(
                grantee,
                SecuredObject(SecurableKind(kind), database, schema, name, arguments, column, creator),
                *rest,
            )
            for kind, schema, name, arguments, column, creator, grantee, *rest in held
        ),
    )


async def _objects(
    session: PostgreSQLSession, database: str, schemas: frozenset[str], scope: InspectionScope
) -> dict[SecuredObject, str]:
    rows = await session.rows("inspecting objects", _OBJECTS, sorted(schemas), MAX_OBJECTS + 1)
    if len(rows) > MAX_OBJECTS:
        raise TooManyObjects(
            f"schemas with declared grants on single or all objects ({', '.join(sorted(schemas))}) have more than"
            f" {MAX_OBJECTS:,} tables, sequences and functions: drop some, or remove the grants and use GRANT"
        )
    found = {
        SecuredObject(SecurableKind(kind), database, schema, name, arguments): owner
        for kind, schema, name, arguments, owner in rows
    }
    asked = sorted(
        (on.schema, on.name, on.column)
        for on in scope.columns
        if on.database == database and on.schema and on.name and on.column
    )
    if asked:
        for schema, table, column in await session.rows(
            "inspecting columns", _COLUMNS, *map(list, zip(*asked, strict=True))
        ):
            on = SecuredObject(SecurableKind.TABLE, database, schema, table)
            if on in found:
                found[replace(on, column=column)] = found[on]
    return found
