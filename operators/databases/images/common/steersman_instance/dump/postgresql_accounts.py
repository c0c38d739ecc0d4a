"""Roles of a PostgreSQL database with attributes, memberships and privileges. Passwords are not read."""

from __future__ import annotations

from typing import Any

from .account_grants import MAX_ACCOUNTS, MAX_ROWS, ObjectPrivileges, grants_document
from .postgresql_client import USED_ROLES, PostgreSQLClient

_NOT_OF_EXTENSION = (
    "NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = '{0}'::regclass AND d.objid = {1}.oid AND d.deptype = 'e')"
)
_QUERY = f"""
{USED_ROLES},
own AS (
    SELECT oid, nspname, nspowner, nspacl FROM pg_namespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND nspname !~ '^pg_(toast|temp)'),
relations AS (
    SELECT c.oid, c.relname, c.relowner, c.relacl, own.nspname,
        CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END AS kind
    FROM pg_class c JOIN own ON own.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND {_NOT_OF_EXTENSION.format("pg_class", "c")}),
objects (kind, schema, name, col, acl) AS (
    SELECT 'database', '', '', '', coalesce(datacl, acldefault('d', datdba)) FROM this
    UNION ALL SELECT 'schema', nspname, '', '', coalesce(nspacl, acldefault('n', nspowner)) FROM own
    UNION ALL SELECT kind, nspname, relname, '',
        coalesce(relacl, acldefault(CASE kind WHEN 'table' THEN 'r' ELSE 's' END::"char", relowner)) FROM relations
    UNION ALL SELECT 'table', r.nspname, r.relname, a.attname, a.attacl
        FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attacl IS NOT NULL
    UNION ALL SELECT 'function', own.nspname, p.proname || '(' || oidvectortypes(p.proargtypes) || ')', '',
        coalesce(p.proacl, acldefault('f', p.proowner))
        FROM pg_proc p JOIN own ON own.oid = p.pronamespace WHERE {_NOT_OF_EXTENSION.format("pg_proc", "p")}),
granted AS (
    SELECT o.kind, o.schema, o.name, o.col, r.rolname, a.is_grantable AS option,
        json_agg(a.privilege_type ORDER BY a.privilege_type) AS privileges
    FROM objects o, aclexplode(o.acl) a JOIN roles r ON r.oid = a.grantee
    GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 5, 1, 2, 3, 4, 6 LIMIT {MAX_ROWS + 1})
SELECT json_build_object(
    'roles', (
        SELECT coalesce(json_agg(json_build_object(
            'name', r.rolname, 'login', r.rolcanlogin, 'inherit', r.rolinherit, 'createDatabase', r.rolcreatedb,
            'replication', r.rolreplication, 'bypassRowLevelSecurity', r.rolbypassrls,
            'connectionLimit', r.rolconnlimit,
            'validUntil', CASE WHEN isfinite(r.rolvaliduntil)
                THEN to_char(r.rolvaliduntil AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END
        ) ORDER BY r.rolname), '[]')
        FROM pg_roles r JOIN roles USING (oid)),
    'memberships', (
        SELECT coalesce(json_agg(json_build_array(m.rolname, g.rolname, a.admin) ORDER BY m.rolname, g.rolname), '[]')
        FROM (SELECT roleid, member, bool_or(admin_option) AS admin FROM pg_auth_members GROUP BY 1, 2) a
        JOIN roles g ON g.oid = a.roleid JOIN roles m ON m.oid = a.member),
    'privileges', (
        SELECT coalesce(json_agg(json_build_array(rolname, kind, schema, name, col, privileges, option)), '[]')
        FROM granted))
"""  # noqa: S608 - constants


def accounts_document(client: PostgreSQLClient) -> dict[str, object]:
    """Return the roles of the database for the report. Raises ClientFailed."""
    found = client.document(_QUERY)
    privileges: dict[str, list[ObjectPrivileges]] = {}
    rows: list[Any] = found["privileges"]
    for role, kind, schema, name, column, names, option in rows[:MAX_ROWS]:
        privileges.setdefault(role, []).append(
            ObjectPrivileges(kind=kind, schema=schema, name=name, column=column, privileges=names, option=option)
        )
    roles: dict[str, list[dict[str, object]]] = {}
    for member, group, admin in found["memberships"]:
        roles.setdefault(member, []).append({"name": group, "admin": admin})
    accounts: list[Any] = [
        {**each, "roles": roles.get(each["name"], []), **grants_document(privileges.get(each["name"], []))}
        for each in found["roles"]
    ]
    return {
        "accounts": accounts[:MAX_ACCOUNTS],
        "omittedAccounts": len(accounts) - len(accounts[:MAX_ACCOUNTS]),
        "truncated": len(rows) > MAX_ROWS,
    }
