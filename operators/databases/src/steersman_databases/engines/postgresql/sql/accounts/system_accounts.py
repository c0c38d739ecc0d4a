"""The cluster's system accounts on its servers, and the administrator's password.

The primary's pod runs the same SQL over its socket, from its ConfigMap: at each promotion, and when accounts are
missing. Here it runs on a serving primary whose accounts were created by another version of the SQL, or were changed
by users.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Literal, LiteralString

from psycopg import sql

from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.naming import OPERATOR_ROLE
from steersman_databases.engines.postgresql.sql.accounts import verifiers
from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession, logged_in
from steersman_databases.engines.server import DatabaseServer, SqlCredentials
from steersman_databases.engines.sql.data_takeover import DataOwner, locked_users_change
from steersman_databases.engines.sql.sql_plan import SqlChange

_TIMEOUT_SECONDS = 10.0
_ACCOUNTS: LiteralString = (
    "('steersman_replication', 'steersman_rewind', 'steersman_operator', 'steersman_superuser',"
    " 'steersman_pooler', 'steersman_monitor', 'steersman_queries')"
)
_DIGEST_QUERY: LiteralString = (
    """
    SELECT pg_catalog.hashtextextended(pg_catalog.concat_ws('; ',
        (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', r.rolname, r.rolcanlogin, r.rolinherit, r.rolsuper,
                r.rolreplication, r.rolcreaterole, r.rolcreatedb, r.rolbypassrls, r.rolconnlimit,
                pg_catalog.date_part('epoch', r.rolvaliduntil),
                (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', s.setdatabase, s.setconfig), ' '
                     ORDER BY s.setdatabase)
                 FROM pg_catalog.pg_db_role_setting s WHERE s.setrole = r.oid)), ', ' ORDER BY r.rolname)
         FROM pg_catalog.pg_roles r WHERE r.rolname IN """  # noqa: S608
    + _ACCOUNTS
    + """),
        (SELECT pg_catalog.concat_ws(' ', r.rolcanlogin,
                (SELECT 'event_triggers=off' OPERATOR(pg_catalog.=) ANY (s.setconfig)
                 FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase
                 WHERE s.setrole = r.oid AND d.datname = pg_catalog.current_database()))
         FROM pg_catalog.pg_roles r WHERE r.oid = 10),
        (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', r.rolname, acl.privilege_type), ', '
             ORDER BY r.rolname, acl.privilege_type)
         FROM pg_catalog.pg_database d CROSS JOIN LATERAL pg_catalog.aclexplode(d.datacl) acl
         JOIN pg_catalog.pg_roles r ON r.oid = acl.grantee
         WHERE d.datname = pg_catalog.current_database() AND r.rolname IN """
    + _ACCOUNTS
    + """),
        (SELECT pg_catalog.count(DISTINCT m.member) FROM pg_catalog.pg_auth_members m
         WHERE m.roleid = pg_catalog.to_regrole('pg_monitor') AND m.member IN (
             pg_catalog.to_regrole('steersman_operator'), pg_catalog.to_regrole('steersman_monitor'),
             pg_catalog.to_regrole('steersman_queries'))),
        (SELECT pg_catalog.string_agg(p.oid::pg_catalog.text, ' ' ORDER BY p.oid)
         FROM pg_catalog.pg_proc p CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) acl
         WHERE acl.grantee = pg_catalog.to_regrole('steersman_rewind')),
        (SELECT pg_catalog.concat_ws(' ', n.nspowner, n.nspacl) FROM pg_catalog.pg_namespace n
         WHERE n.nspname = 'steersman'),
        (SELECT pg_catalog.concat_ws(' ', c.relkind, c.relpersistence, c.relowner, c.relacl)
         FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass('steersman.heartbeat')),
        (SELECT pg_catalog.string_agg(p::pg_catalog.text, ', ' ORDER BY p.oid)
         FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = 'steersman')
    ) COLLATE pg_catalog."C", 0)
"""
)
"""Digest of the objects that the SQL creates, from public catalogs.

It covers roles and their settings, functions and privileges, and the login of the first superuser. Other
memberships are left out, because the operator is also a member of the roles that it created.

The SQL stores the digest next to its version, for comparison on the same server. So it runs once for each change,
whatever changes it does not revert. Passwords are left out, because pg_hba.conf does not accept them for these
roles.
"""
_LOST_RIGHTS_QUERY: LiteralString = (
    """
    SELECT pg_catalog.concat('GRANT ', initial.privilege_type, ' ON ', o.name, ' TO steersman_operator,'
        ' steersman_rewind, steersman_pooler, steersman_monitor, steersman_queries') AS statement
    FROM (
        SELECT 'pg_catalog.pg_class'::pg_catalog.regclass AS class, c.oid,
            pg_catalog.concat('TABLE ', c.oid::pg_catalog.regclass) AS name, c.relacl AS acl, 'r'::"char" AS type
        FROM pg_catalog.pg_class c WHERE c.relnamespace = 'pg_catalog'::pg_catalog.regnamespace
        UNION ALL
        SELECT 'pg_catalog.pg_proc', p.oid, pg_catalog.concat('ROUTINE ', p.oid::pg_catalog.regprocedure),
            p.proacl, 'f'
        FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
        UNION ALL
        SELECT 'pg_catalog.pg_namespace', n.oid, 'SCHEMA pg_catalog', n.nspacl, 'n'
        FROM pg_catalog.pg_namespace n WHERE n.nspname = 'pg_catalog'
    ) o
    LEFT JOIN pg_catalog.pg_init_privs i ON i.classoid = o.class AND i.objoid = o.oid AND i.objsubid = 0
    CROSS JOIN LATERAL pg_catalog.aclexplode(COALESCE(i.initprivs, pg_catalog.acldefault(o.type, 10))) initial
    WHERE o.oid < 16384 AND o.acl IS NOT NULL AND o.acl IS DISTINCT FROM i.initprivs AND initial.grantee = 0 AND 5 > (
        SELECT pg_catalog.count(DISTINCT r.rolname) + 5 * pg_catalog.count(*) FILTER (WHERE acl.grantee = 0)
        FROM pg_catalog.aclexplode(o.acl) acl LEFT JOIN pg_catalog.pg_roles r ON r.oid = acl.grantee
            AND r.rolname IN """  # noqa: S608
    + _ACCOUNTS
    + """
        WHERE acl.privilege_type = initial.privilege_type)
"""
)
"""Statements that grant what PUBLIC had in new data and lacks now.

Some hardening guides revoke it. It covers the system catalogs and their functions in this database. The
accounts get no right that PUBLIC did not have.
"""
_VERSION_QUERY: LiteralString = (
    "pg_catalog.obj_description(pg_catalog.to_regnamespace('steersman')::pg_catalog.oid, 'pg_namespace')"
)
_CURRENT_QUERY: LiteralString = (
    _VERSION_QUERY
    + " = pg_catalog.concat(%s::pg_catalog.text, ' ', ("
    + _DIGEST_QUERY
    + ")) AND NOT EXISTS ("
    + _LOST_RIGHTS_QUERY
    + ")"
)
_SUPERUSER_QUERY: LiteralString = """EXISTS (
    SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = 'steersman_superuser' AND r.rolsuper AND r.rolcanlogin
)"""
_VERIFIER_QUERY = "SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = %s"
_DATA_OWNER_QUERY = "SELECT pg_catalog.shobj_description(pg_catalog.to_regrole(%s)::oid, 'pg_authid')"
_MARKED_ROLES_QUERY = """
    SELECT r.rolname, d.description FROM pg_catalog.pg_roles r JOIN pg_catalog.pg_shdescription d
    ON d.objoid = r.oid AND d.classoid = 'pg_catalog.pg_authid'::pg_catalog.regclass
    WHERE r.rolname <> %s
"""
"""Users with their marks. The role of the operator is not a user: its comment is the owner of the data."""
_MARKED_DATABASES_QUERY = """
    SELECT b.datname, d.description FROM pg_catalog.pg_database b JOIN pg_catalog.pg_shdescription d
    ON d.objoid = b.oid AND d.classoid = 'pg_catalog.pg_database'::pg_catalog.regclass
"""
_TERMINATE_SESSIONS_QUERY = (
    "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = ANY(%s)"
)


@cache
def statements() -> str:
    """Return the SQL that creates the accounts.

    It stores `version` and the digest as the comment of the schema `steersman`.
    """
    rights = f"FOR statement IN {_LOST_RIGHTS_QUERY} LOOP EXECUTE statement; END LOOP;"
    digest = f"pg_catalog.concat('{version()} ', ({_DIGEST_QUERY}))"
    comment = f"EXECUTE pg_catalog.format('COMMENT ON SCHEMA steersman IS %L', {digest});"
    return _source().replace("COMMIT;", f"DO $$ DECLARE statement text; BEGIN {rights} {comment} END $$;\nCOMMIT;")


@cache
def check_statement() -> str:
    """Return the query that shows if the pod must run `statements`.

    Its one value is True if all is as this version creates it. Accounts of another version are left to the operator
    that created them, unless its own login is broken.
    """
    current = _CURRENT_QUERY.replace("%s", f"'{version()}'", 1)
    others = f"{_VERSION_QUERY} NOT LIKE '{version()} %' AND {_SUPERUSER_QUERY}"
    return f"SELECT COALESCE({others} OR ({current}), false);\n"


@cache
def version() -> str:
    """Return an identifier of this version of the SQL."""
    return f"accounts {hashlib.sha256(_source().encode()).hexdigest()[:16]}"


def _source() -> str:
    return files("steersman_databases.engines.postgresql").joinpath("roles.sql").read_text()


async def are_current(session: PostgreSQLSession) -> bool:
    """Return True if the accounts match this version's SQL.

    Any role may run this in the maintenance database.
    """
    [(current,)] = await session.rows("inspecting the accounts", "SELECT " + _CURRENT_QUERY, version())
    return current is True


async def ensure_accounts(
    server: DatabaseServer, administrator: SqlCredentials, data_owner: DataOwner
) -> tuple[SqlChange, ...]:
    """Create or correct a primary's accounts and the administrator's password.

    Returns the changes. If the data belonged to another object before, users without a declaration are locked.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: it does not finish in 10 s, refuses, or is not a primary.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is not the primary, or is stopping")
        return await _ensure_accounts(session, administrator, data_owner)


async def _ensure_accounts(
    session: PostgreSQLSession, administrator: SqlCredentials, data_owner: DataOwner
) -> tuple[SqlChange, ...]:
    name, password = administrator.username, administrator.password
    [(verifier,)] = await session.rows("inspecting the administrator", _VERIFIER_QUERY, name)
    changes: list[SqlChange] = []
    if not await are_current(session):
        # The text comes from the operator's package.
        await session.run("creating the accounts", sql.Composed([sql.SQL(statements())]))  # pyright: ignore[reportArgumentType]
        changes.append(SqlChange("AccountsUpdated", "updated the system accounts of the cluster"))
    changes += await _take_over_data(session, data_owner)
    if not verifiers.matches(password, verifier):
        statement = sql.SQL("ALTER ROLE {} PASSWORD {}")
        made = sql.Literal(verifiers.scram_verifier(password))
        await session.run("setting a password", statement.format(sql.Identifier(name), made))
        changes.append(SqlChange("PasswordReset", f"set the password of {name} from its Secret"))
    return tuple(changes)


async def _take_over_data(session: PostgreSQLSession, data_owner: DataOwner) -> tuple[SqlChange, ...]:
    [(previous,)] = await session.rows("inspecting the owner of the data", _DATA_OWNER_QUERY, OPERATOR_ROLE)
    if previous == data_owner.text:
        return ()
    # Data without an owner are new, or from a version of the operator that did not record it.
    marked_roles = (
        await session.rows("inspecting users' marks", _MARKED_ROLES_QUERY, OPERATOR_ROLE) if previous else []
    )
    orphaned = data_owner.orphaned_users(((name, mark) for name, mark in marked_roles), previous)
    for name in orphaned:
        await session.run(f"locking user {name}", sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(name)))
    await session.rows("ending sessions", _TERMINATE_SESSIONS_QUERY, orphaned)
    if previous:
        marked_databases = await session.rows("inspecting databases' marks", _MARKED_DATABASES_QUERY)
        await _replace_marks(session, data_owner, previous, "ROLE", marked_roles)
        await _replace_marks(session, data_owner, previous, "DATABASE", marked_databases)
    statement = sql.SQL("COMMENT ON ROLE {} IS {}")
    await session.run(
        "marking the data", statement.format(sql.Identifier(OPERATOR_ROLE), sql.Literal(data_owner.text))
    )
    return locked_users_change(orphaned)


async def _replace_marks(
    session: PostgreSQLSession,
    data_owner: DataOwner,
    previous: str,
    kind: Literal["ROLE", "DATABASE"],
    marked: Iterable[tuple[Any, ...]],
) -> None:
    statement = sql.SQL("COMMENT ON {} {} IS {}")
    for name, mark in marked:
        if (replacement := data_owner.replacement_mark(mark, previous)) is not None:
            parts = sql.SQL(kind), sql.Identifier(name), sql.Literal(replacement)
            await session.run(f"marking {kind.lower()} {name}", statement.format(*parts))
