"""Inspection of a PostgreSQL server through its catalogs.

It calls no functions of users.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

from steersman_databases.engines.errors import AdministratorRejected, ConcurrentChange, ServerUnreachable, SqlFailed
from steersman_databases.engines.postgresql.sql.accounts.other_grants import other_grants as held_otherwise
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import are_current
from steersman_databases.engines.postgresql.sql.database_inspection import (
    DATABASE_OWNER,
    UNASSUMABLE_ROLES_QUERY,
    TooManyObjects,
    array_literal,
    inspect_database,
)
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import (
    NOT_INSPECTED,
    DatabaseContents,
    DatabaseState,
    HeldPrivilege,
    Inspection,
    InspectionScope,
    RoleMembership,
    SecuredObject,
    UserState,
)

from ..config.parameters import ASYNCHRONOUS_COMMIT_VALUES
from ..planning.identifiers import FORBIDDEN_ROLES, ROTATION_SUFFIX, rotation_role_name
from .database_settings import session_overrides
from .pool import PostgreSQLSessions
from .session import TOO_MANY_CONNECTIONS, PostgreSQLSession

EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
"""Range of times that Python represents in any time zone. Later ones mean no expiry."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SERVER_QUERY = """
    SELECT pg_catalog.current_setting('server_version_num')::int, session_user, r.rolsuper,
           pg_catalog.current_database(),
           EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                   JOIN pg_catalog.pg_roles maker ON maker.oid = p.proowner AND maker.rolsuper
                   JOIN pg_catalog.pg_roles keeper ON keeper.oid = n.nspowner AND keeper.rolsuper
                   WHERE n.nspname = 'steersman' AND p.proname = 'verifiers'
                   AND pg_catalog.oidvectortypes(p.proargtypes) = 'name[]'
                   AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                   AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
    FROM pg_catalog.pg_roles r WHERE r.rolname = session_user
"""
"""Version, login and rights of the operator.

The function for verifiers must be a superuser's, in a superuser's schema, so that only superusers can replace it.
Its argument types must match exactly, so that no overload of users runs with the operator's rights.
"""

_ROLES = """
    SELECT r.rolname, r.rolcanlogin, r.rolinherit, r.rolsuper, r.rolcreaterole, r.rolcreatedb, r.rolreplication,
           r.rolbypassrls, r.rolconnlimit,
           (EXTRACT(epoch FROM CASE WHEN r.rolvaliduntil >= '9999-01-01T00:00:00Z' THEN NULL
                                    WHEN r.rolvaliduntil < '0002-01-01T00:00:00Z'
                                    THEN '0002-01-01T00:00:00Z'::pg_catalog.timestamptz
                                    ELSE r.rolvaliduntil END) * 1000000)::int8,
           pg_catalog.shobj_description(r.oid, 'pg_authid'),
           (SELECT s.setconfig FROM pg_catalog.pg_db_role_setting s WHERE s.setrole = r.oid AND s.setdatabase = 0),
           ARRAY(SELECT DISTINCT d.datname::text
                 FROM pg_catalog.pg_shdepend u JOIN pg_catalog.pg_database d ON d.oid = u.dbid
                   OR u.dbid = 0 AND CASE u.classid
                       WHEN 'pg_catalog.pg_database'::pg_catalog.regclass THEN d.oid = u.objid
                       WHEN 'pg_catalog.pg_auth_members'::pg_catalog.regclass
                       THEN d.datname = pg_catalog.current_database()
                            AND EXISTS (SELECT FROM pg_catalog.pg_auth_members a WHERE a.grantor = r.oid)
                       ELSE d.datname = pg_catalog.current_database() END
                 WHERE u.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND u.refobjid = r.oid),
           ARRAY(SELECT DISTINCT d.datname::text
                 FROM pg_catalog.pg_shdepend u JOIN pg_catalog.pg_database d ON d.oid = u.dbid
                 WHERE u.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND u.refobjid = r.oid),
           ARRAY(SELECT DISTINCT d.datname::text
                 FROM pg_catalog.pg_shdepend u JOIN pg_catalog.pg_database d ON d.oid = u.dbid
                 WHERE u.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND u.refobjid = r.oid
                   AND u.deptype = 'o' AND u.classid NOT IN ('pg_catalog.pg_default_acl'::pg_catalog.regclass,
                                                             'pg_catalog.pg_user_mapping'::pg_catalog.regclass)),
           ARRAY(SELECT m.rolname::text FROM pg_catalog.pg_roles m
                 WHERE (m.rolsuper OR m.rolcreaterole OR m.rolname = ANY(%s))
                   AND pg_catalog.pg_has_role(r.oid, m.oid, 'MEMBER'))
    FROM pg_catalog.pg_roles r WHERE r.rolname = ANY(%s)
"""
"""State of roles.

An expiry is in microseconds, because it depends neither on `TimeZone` nor on `DateStyle`. The driver parses only
one `DateStyle`. Privileges outside databases (on parameters or tablespaces, or as grantor of memberships) count as
privileges in the current database.
"""

_ASYNC_COMMIT_QUERY = """
    SELECT pg_catalog.concat_ws(' in ', 'role ' || r.rolname, 'database ' || d.datname)
    FROM pg_catalog.pg_db_role_setting s
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole LEFT JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase
    WHERE EXISTS (SELECT FROM pg_catalog.unnest(s.setconfig) AS said
                  WHERE pg_catalog.lower(said) = ANY (%s))
"""
"""Roles, databases, or roles in databases with a setting.

`ALTER ROLE ALL` has no name.
"""

_MEMBERSHIPS = """
    SELECT m.rolname, r.rolname, g.rolname, a.admin_option,
           (pg_catalog.to_jsonb(a) ->> 'inherit_option')::bool, (pg_catalog.to_jsonb(a) ->> 'set_option')::bool
    FROM pg_catalog.pg_auth_members a
    JOIN pg_catalog.pg_roles m ON m.oid = a.member
    JOIN pg_catalog.pg_roles r ON r.oid = a.roleid
    JOIN pg_catalog.pg_roles g ON g.oid = a.grantor
    WHERE m.rolname = ANY(%s) OR r.rolname = ANY(%s) OR g.rolname = ANY(%s)
"""

_DATABASES = """
    SELECT d.datname, pg_catalog.pg_get_userbyid(d.datdba), pg_catalog.pg_encoding_to_char(d.encoding),
           d.datcollate, d.datctype,
           CASE pg_catalog.to_jsonb(d) ->> 'datlocprovider'
               WHEN 'b' THEN 'builtin' WHEN 'i' THEN 'icu' ELSE 'libc' END,
           d.datconnlimit, d.datallowconn, d.datistemplate,
           pg_catalog.shobj_description(d.oid, 'pg_database')
    FROM pg_catalog.pg_database d
    WHERE d.datname = ANY(%s) OR d.oid IN (
        SELECT u.objid FROM pg_catalog.pg_shdepend u JOIN pg_catalog.pg_roles r ON r.oid = u.refobjid
        WHERE u.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
          AND u.classid = 'pg_catalog.pg_database'::pg_catalog.regclass AND r.rolname = ANY(%s))
"""

_DATABASE_PRIVILEGES = """
    SELECT d.datname, CASE acl.grantee WHEN 0 THEN '' ELSE pg_catalog.pg_get_userbyid(acl.grantee)::text END,
           acl.privilege_type, pg_catalog.pg_get_userbyid(acl.grantor), acl.is_grantable
    FROM pg_catalog.pg_database d,
         pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) acl
    WHERE d.datname = ANY(%s)
"""

WRITE_COUNTERS_QUERY = """
    SELECT d.datname, (s.tup_inserted + s.tup_updated + s.tup_deleted
                       + shared.tup_inserted + shared.tup_updated + shared.tup_deleted)::int8
    FROM pg_catalog.pg_stat_database s JOIN pg_catalog.pg_database d ON d.oid = s.datid
    JOIN pg_catalog.pg_stat_database shared ON shared.datid = 0
    WHERE pg_catalog.current_setting('track_counts')::bool
"""
"""Written tuples of each database and of shared catalogs.

DDL and GRANT write tuples of catalogs. Sessions report them within ten seconds.

Source: PostgreSQL 17 documentation, 27.2 "The Cumulative Statistics System".
"""

_VERIFIERS: Mapping[bool, LiteralString] = {
    True: "SELECT rolname, rolpassword FROM pg_catalog.pg_authid WHERE rolname = ANY(%s)",
    False: "SELECT name, verifier FROM steersman.verifiers(%s::pg_catalog.name[])",
}
"""Query by superuser status of the administrator."""


"""Roles that another role cannot act as."""


_PER_DATABASE_CODES = frozenset({"42501", TOO_MANY_CONNECTIONS, "22P05"})
"""SQLSTATEs that concern one database only.

These are insufficient_privilege, too_many_connections and untranslatable_character.
"""

_DATABASE_TIMEOUT_SECONDS = 6.0
"""Longest delay of other databases by one that has not just hung."""
_MIN_TIMEOUT_SECONDS = 1.0
"""Least remaining time to inspect one more database.

Databases that are left out come next time, before those that hung.
"""


async def inspect(sessions: PostgreSQLSessions, scope: InspectionScope, deadline: float) -> Inspection:
    """Inspect a server.

    A few queries run in the maintenance database, and one visit leads to each database with contents in the scope.
    """
    scope = replace(
        scope,
        users=scope.users.union(map(rotation_role_name, scope.users)),
        without_contents=scope.without_contents.union(map(rotation_role_name, scope.without_contents)),
    )
    async with sessions.at(None, deadline) as session:
        [(number, administrator, superuser, maintenance, reader)] = await session.rows(
            "inspecting the server", _SERVER_QUERY
        )
        users = await _users(session, scope.all_users)
        if superuser or reader:
            for name, verifier in await session.rows("inspecting verifiers", _VERIFIERS[superuser], sorted(users)):
                users[name]["verifier"] = verifier
        named_users = scope.databases.union(
            *(users[name]["has_privileges_in"] for name in scope.users & users.keys())
        )
        databases = await _databases(session, scope, sorted(named_users))
        settings = [f"synchronous_commit={value}" for value in ASYNCHRONOUS_COMMIT_VALUES]
        async_commit_roles = (
            await session.rows("inspecting synchronous_commit", _ASYNC_COMMIT_QUERY, settings)
            if scope.commit_settings
            else []
        )
        accounts_altered = scope.system_accounts and not await are_current(session)
        if owners := {state.owner for state in databases.values()} - users.keys():
            users |= await _users(session, owners)
    found = {name: UserState(name, **state) for name, state in users.items()}
    followed = [found[name] for name in scope.users & found.keys()]
    # Since version 16 a member may act as a role only with the option SET.
    effective_role = "MEMBER" if number < 160000 else "SET"
    contents, uninspected = await _inspect_databases(sessions, scope, followed, databases, effective_role, deadline)
    unassumable_roles = await _unassumable_roles(
        sessions, _granted_to_rotation_roles(databases, contents), effective_role, deadline
    )
    return Inspection(
        product="PostgreSQL",
        version=divmod(number, 10000),
        administrator=administrator,
        superuser=superuser,
        can_elevate=sessions.can_elevate,
        verifiers_readable=superuser or reader,
        users=found,
        databases=databases,
        contents=contents,
        async_commit_roles=frozenset(name or "all roles" for (name,) in async_commit_roles),
        accounts_altered=accounts_altered,
        uninspected=uninspected,
        maintenance_database=maintenance,
        unassumable_roles=unassumable_roles,
    )


def _granted_to_rotation_roles(
    databases: Mapping[str, DatabaseState], contents: Mapping[str, DatabaseContents]
) -> set[str]:
    """Return the grantors of rotation roles.

    Usually there are none, because their users hold all grants.
    """
    found: set[str] = set()
    for name, state in databases.items():
        contents_privileges = contents.get(name, DatabaseContents())
        held = state.privileges | contents_privileges.privileges | contents_privileges.other_privileges
        grantors = {one.grantor for one in held if one.grantee.endswith(ROTATION_SUFFIX)}
        found |= {state.owner if grantor == DATABASE_OWNER else grantor for grantor in grantors}
    return found


async def _unassumable_roles(
    sessions: PostgreSQLSessions, roles: set[str], effective_role: str, deadline: float
) -> frozenset[str]:
    if not roles:
        return frozenset()
    async with sessions.at(None, deadline) as session:
        return frozenset(
            name
            for (name,) in await session.rows(
                "inspecting grantors", UNASSUMABLE_ROLES_QUERY, sorted(roles), [], effective_role
            )
        )


async def _users(session: PostgreSQLSession, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    desired = sorted(names)
    fields = (
        *("login", "inherit", "superuser", "create_role", "create_database", "replication"),
        *("bypass_row_level_security", "connection_limit", "valid_until", "mark"),
    )
    users: dict[str, dict[str, Any]] = {}
    looked_up = await session.rows("inspecting users", _ROLES, sorted(FORBIDDEN_ROLES), desired)
    for name, *values, settings, has_privileges_in, has_privileges_inside, owns_in, superuser_via in looked_up:
        state = dict(zip(fields, values, strict=True))
        if (end := state["valid_until"]) is not None:
            state["valid_until"] = _EPOCH + timedelta(microseconds=end)
        privileged_in = {
            "has_privileges_in": frozenset(has_privileges_in),
            "has_privileges_inside": frozenset(has_privileges_inside),
        }
        unrevocable = {**privileged_in, "owns_in": frozenset(owns_in), "superuser_via": frozenset(superuser_via)}
        users[name] = {**state, "settings": frozenset(settings or ()), **unrevocable}
    memberships: dict[str, set[RoleMembership]] = defaultdict(set)
    members: dict[str, set[RoleMembership]] = defaultdict(set)
    granted_members: dict[str, set[tuple[str, str]]] = defaultdict(set)
    looked_up = await session.rows("inspecting memberships", _MEMBERSHIPS, desired, desired, desired)
    for member, role, grantor, admin, inherit, set_role in looked_up:
        memberships[member].add(RoleMembership(role, grantor, admin, inherit, set_role))
        members[role].add(RoleMembership(member, grantor, admin, inherit, set_role))
        if set_role is not None:
            # Older servers store the grantor without any effect.
            granted_members[grantor].add((role, member))
    for name, state in users.items():
        state["memberships"], state["members"] = frozenset(memberships[name]), frozenset(members[name])
        state["granted_members"] = frozenset(granted_members[name])
    return users


async def _databases(
    session: PostgreSQLSession, scope: InspectionScope, names: list[str]
) -> dict[str, DatabaseState]:
    found = await session.rows("inspecting databases", _DATABASES, names, sorted(scope.users))
    privileges: dict[str, set[HeldPrivilege]] = defaultdict(set)
    for name, grantee, privilege, grantor, grantable in await session.rows(
        "inspecting databases' grants", _DATABASE_PRIVILEGES, [row[0] for row in found]
    ):
        on = SecuredObject(SecurableKind.DATABASE, name)
        privileges[name].add(HeldPrivilege(grantee, on, privilege, grantor, grantable))
    return {row[0]: DatabaseState(*row[:10], privileges=frozenset(privileges[row[0]])) for row in found}


async def _inspect_databases(
    sessions: PostgreSQLSessions,
    scope: InspectionScope,
    followed: Iterable[UserState],
    databases: Mapping[str, DatabaseState],
    effective_role: str,
    deadline: float,
) -> tuple[dict[str, DatabaseContents], dict[str, str]]:
    """Return contents of databases, and reasons for missing ones.

    Databases that the operator may not enter are in neither. Problems of one database do not affect the others.
    """
    desired = dict(scope.contents)
    rotation_roles: dict[str, list[str]] = defaultdict(list)
    for user in followed:
        for name in user.has_privileges_in:
            desired.setdefault(name, frozenset())
            rotation_roles[name] += [user.name] if user.name.endswith(ROTATION_SUFFIX) else []
    connectable = [
        name
        for name in sorted(desired)
        if (state := databases.get(name)) is None or (state.allows_connections and state.connection_limit != -2)
    ]
    contents: dict[str, DatabaseContents] = {}
    uninspected: dict[str, str] = {}
    if not connectable:
        return contents, uninspected
    visited, users = replace(scope, contents=desired), array_literal(sorted(scope.all_users))
    async with sessions.at(None, deadline) as session:
        session_settings = await session_overrides(session, connectable)
    now = asyncio.get_running_loop().time
    order = sessions.by_last_hang(connectable)
    for name in order:
        if (failure_reason := sessions.hang_reason(name)) is not None:
            uninspected[name] = failure_reason
            continue
        started = now()
        if deadline - started < _MIN_TIMEOUT_SECONDS and (contents or uninspected):
            uninspected[name] = NOT_INSPECTED
            continue
        timeout_seconds = None if name == order[-1] else _DATABASE_TIMEOUT_SECONDS
        try:
            async with sessions.at(
                name, deadline, session_settings=session_settings.get(name, {}), timeout_seconds=timeout_seconds
            ) as session:
                inspected = await inspect_database(session, name, visited, users, effective_role)
                if seconds := rotation_roles[name]:
                    with_shared = name == sessions.server.maintenance_database
                    inspected = replace(
                        inspected, other_privileges=await held_otherwise(session, seconds, with_shared)
                    )
            contents[name] = inspected
            sessions.record_hang(name, None)
        except ConcurrentChange:
            pass  # Dropped or closed meanwhile.
        except TooManyObjects as error:
            uninspected[name] = str(error)
        except SqlFailed as failed:
            # The database has no free connection, refuses the operator, or lacks a character of a user's name. Such
            # states change and need no error.
            if failed.sqlstate not in _PER_DATABASE_CODES:
                uninspected[name] = str(failed)
        except (ServerUnreachable, AdministratorRejected) as failure:
            took_long = now() - started > _DATABASE_TIMEOUT_SECONDS / 2
            uninspected[name] = (await sessions.database_failure(name, failure, deadline)).message
            sessions.record_hang(name, uninspected[name] if took_long else None)
    return contents, uninspected
