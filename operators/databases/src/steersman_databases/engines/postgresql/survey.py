"""What is on a PostgreSQL server, looked up in its catalogs. Nothing that a user planted is called."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

from ..desired import ObjectKind
from ..errors import AdministratorRejected, Raced, ServerUnreachable, SqlFailed
from ..survey import (
    NOT_YET,
    DatabaseState,
    ExtensionOnDisk,
    ExtensionState,
    Inside,
    Membership,
    Privilege,
    Scope,
    SecuredObject,
    Survey,
    UserState,
)
from .accounts import are_as_made
from .names import DEPUTY, NOBODYS, deputy_name
from .overriding import overridden
from .parameters import NOT_WAITING
from .pool import PostgreSQLSessions
from .session import FULL, Session
from .unnamed import held as held_otherwise

DATABASE_OWNER = "pg_database_owner"
"""The predefined role whose one member is the owner of the database that one is in."""

EARLIEST, LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
"""Python has every moment in between, whatever the time zone; what is later on a server counts as no end."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ME = """
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
"""The function for verifiers is a superuser's, in the schema of one, who alone can replace it, and of exactly the
types that it is called with, which none beside it has: what others left there would run as the operator."""

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
"""An end in microseconds: no `TimeZone` of a server moves it, and the driver reads no `DateStyle` but one.

What is held in no database (of parameters, tablespaces, as who let somebody into a role) counts as in this one."""

_HASTY = """
    SELECT pg_catalog.concat_ws(' in ', 'role ' || r.rolname, 'database ' || d.datname)
    FROM pg_catalog.pg_db_role_setting s
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole LEFT JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase
    WHERE EXISTS (SELECT FROM pg_catalog.unnest(s.setconfig) AS said
                  WHERE pg_catalog.lower(said) = ANY (%s))
"""
"""For whom something is set: roles, databases, roles in databases; for nobody's name, `ALTER ROLE ALL`."""

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
           d.datcollate, d.datctype, d.datconnlimit, d.datallowconn, d.datistemplate,
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

_VERIFIERS: Mapping[bool, LiteralString] = {
    True: "SELECT rolname, rolpassword FROM pg_catalog.pg_authid WHERE rolname = ANY(%s)",
    False: "SELECT name, verifier FROM steersman.verifiers(%s::pg_catalog.name[])",
}
"""By whether the administrator is a superuser."""

_SCHEMAS = """
    SELECT n.nspname, pg_catalog.pg_get_userbyid(n.nspowner) FROM pg_catalog.pg_namespace n WHERE n.nspname = ANY(%s)
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
"""
"""What is in some schemas and whose it is, in one order; nobody's, where it belongs to an extension."""

_COLUMNS = """
    SELECT n.nspname, c.relname, a.attname
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE a.attnum > 0 AND NOT a.attisdropped
      AND (n.nspname, c.relname, a.attname) IN (SELECT * FROM ROWS FROM (
          pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[]),
          pg_catalog.unnest(%s::pg_catalog.text[])))
"""
"""Which of some columns are there, by schema, table and name."""

_STRANGERS = """
    SELECT r.rolname FROM pg_catalog.pg_roles r
    WHERE r.rolname = ANY(%s) AND NOT pg_catalog.pg_has_role(r.oid, %s)
"""
"""As which of some roles one may not act."""

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
    WHERE (acl.grantee <> held.owner AND pg_catalog.pg_get_userbyid(acl.grantee) = ANY(%s))
       OR (acl.grantor <> held.owner AND pg_catalog.pg_get_userbyid(acl.grantor) = ANY(%s))
       OR (held.kind = 'schema' AND n.nspname = 'public' AND held.creator IS NULL)
"""
"""What some hold in the connected database or passed on, owners aside; but all that is on the schema `public`."""

_EXTENSIONS = """
    SELECT e.extname, e.extversion, n.nspname, pg_catalog.pg_get_userbyid(e.extowner)
    FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = ANY(%s)
"""

_ON_DISK = """
    SELECT a.name, a.default_version, pg_catalog.array_agg(v.version), pg_catalog.bool_or(v.trusted)
    FROM pg_catalog.pg_available_extensions() a JOIN pg_catalog.pg_available_extension_versions() v ON v.name = a.name
    WHERE a.name = ANY(%s) GROUP BY a.name, a.default_version
"""


_ITS_OWN = frozenset({"42501", FULL, "22P05"})
"""SQLSTATEs of one database: insufficient_privilege, too_many_connections, untranslatable_character."""

_VISIT_SECONDS = 6.0
"""The longest that one database may let those that come after it wait, where it has not just done so."""
_LEAST_SECONDS = 1.0
"""With less, no more visits are begun: whose are left out is looked at the next time, before those that hung."""


async def look(sessions: PostgreSQLSessions, scope: Scope, deadline: float) -> Survey:
    """One survey: a few queries in the maintenance database, and one visit to each database to look inside of."""
    scope = replace(
        scope,
        users=scope.users.union(map(deputy_name, scope.users)),
        unfollowed=scope.unfollowed.union(map(deputy_name, scope.unfollowed)),
    )
    async with sessions.at(None, deadline) as session:
        [(number, administrator, superuser, maintenance, reader)] = await session.rows("looking at the server", _ME)
        users = await _users(session, scope.all_users)
        if superuser or reader:
            for name, verifier in await session.rows("looking at verifiers", _VERIFIERS[superuser], sorted(users)):
                users[name]["verifier"] = verifier
        named = scope.databases.union(*(users[name]["stands_in"] for name in scope.users & users.keys()))
        databases = await _databases(session, scope, sorted(named))
        settings = [f"synchronous_commit={value}" for value in NOT_WAITING]
        hasty = await session.rows("looking at how commits wait", _HASTY, settings) if scope.commits else []
        accounts_altered = scope.accounts and not await are_as_made(session)
        if owners := {state.owner for state in databases.values()} - users.keys():
            users |= await _users(session, owners)
    found = {name: UserState(name, **state) for name, state in users.items()}
    followed = [found[name] for name in scope.users & found.keys()]
    # Since version 16 a member may act as a role only if it was said so.
    acting = "MEMBER" if number < 160000 else "SET"
    inside, unseen = await _visits(sessions, scope, followed, databases, acting, deadline)
    strangers = await _strangers(sessions, _granted_to_deputies(databases, inside), acting, deadline)
    return Survey(
        product="PostgreSQL",
        version=divmod(number, 10000),
        administrator=administrator,
        superuser=superuser,
        elevates=sessions.can_elevate,
        verifiers_readable=superuser or reader,
        users=found,
        databases=databases,
        inside=inside,
        hasty=frozenset(name or "all roles" for (name,) in hasty),
        accounts_altered=accounts_altered,
        unseen=unseen,
        maintenance=maintenance,
        strangers=strangers,
    )


def _granted_to_deputies(databases: Mapping[str, DatabaseState], inside: Mapping[str, Inside]) -> set[str]:
    """By whom: mostly by nobody, as all is granted to their users."""
    found: set[str] = set()
    for name, state in databases.items():
        within = inside.get(name, Inside())
        held = state.privileges | within.privileges | within.others
        grantors = {one.grantor for one in held if one.grantee.endswith(DEPUTY)}
        found |= {state.owner if grantor == DATABASE_OWNER else grantor for grantor in grantors}
    return found


async def _strangers(sessions: PostgreSQLSessions, roles: set[str], acting: str, deadline: float) -> frozenset[str]:
    if not roles:
        return frozenset()
    async with sessions.at(None, deadline) as session:
        return frozenset(
            name for (name,) in await session.rows("looking at grantors", _STRANGERS, sorted(roles), acting)
        )


async def _users(session: Session, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    wanted = sorted(names)
    fields = (
        *("login", "inherit", "superuser", "create_role", "create_database", "replication"),
        *("bypass_row_level_security", "connection_limit", "valid_until", "mark"),
    )
    users: dict[str, dict[str, Any]] = {}
    looked = await session.rows("looking at users", _ROLES, sorted(NOBODYS), wanted)
    for name, *values, settings, stands_in, stands_inside, owns_in, mighty_by in looked:
        state = dict(zip(fields, values, strict=True))
        if (end := state["valid_until"]) is not None:
            state["valid_until"] = _EPOCH + timedelta(microseconds=end)
        stands = {"stands_in": frozenset(stands_in), "stands_inside": frozenset(stands_inside)}
        reach = {**stands, "owns_in": frozenset(owns_in), "mighty_by": frozenset(mighty_by)}
        users[name] = {**state, "settings": frozenset(settings or ()), **reach}
    memberships: dict[str, set[Membership]] = defaultdict(set)
    members: dict[str, set[Membership]] = defaultdict(set)
    admitted: dict[str, set[tuple[str, str]]] = defaultdict(set)
    looked = await session.rows("looking at memberships", _MEMBERSHIPS, wanted, wanted, wanted)
    for member, role, grantor, admin, inherit, set_role in looked:
        memberships[member].add(Membership(role, grantor, admin, inherit, set_role))
        members[role].add(Membership(member, grantor, admin, inherit, set_role))
        if set_role is not None:
            # Older servers remember who it was, and make nothing of it.
            admitted[grantor].add((role, member))
    for name, state in users.items():
        state["memberships"], state["members"] = frozenset(memberships[name]), frozenset(members[name])
        state["admitted"] = frozenset(admitted[name])
    return users


async def _databases(session: Session, scope: Scope, names: list[str]) -> dict[str, DatabaseState]:
    found = await session.rows("looking at databases", _DATABASES, names, sorted(scope.users))
    privileges: dict[str, set[Privilege]] = defaultdict(set)
    for name, grantee, privilege, grantor, grantable in await session.rows(
        "looking at databases' grants", _DATABASE_PRIVILEGES, [row[0] for row in found]
    ):
        on = SecuredObject(ObjectKind.DATABASE, name)
        privileges[name].add(Privilege(grantee, on, privilege, grantor, grantable))
    return {row[0]: DatabaseState(*row[:9], privileges=frozenset(privileges[row[0]])) for row in found}


async def _visits(
    sessions: PostgreSQLSessions,
    scope: Scope,
    followed: Iterable[UserState],
    databases: Mapping[str, DatabaseState],
    acting: str,
    deadline: float,
) -> tuple[dict[str, Inside], dict[str, str]]:
    """What is inside of databases; and of which nothing is known though the operator may come in, and why.

    What one database does to whoever comes to it is no matter of the others on the server.
    """
    wanted = dict(scope.inside)
    deputies: dict[str, list[str]] = defaultdict(list)
    for user in followed:
        for name in user.stands_in:
            wanted.setdefault(name, frozenset())
            deputies[name] += [user.name] if user.name.endswith(DEPUTY) else []
    open_ones = [
        name
        for name in sorted(wanted)
        if (state := databases.get(name)) is None or (state.allows_connections and state.connection_limit != -2)
    ]
    inside: dict[str, Inside] = {}
    unseen: dict[str, str] = {}
    if not open_ones:
        return inside, unseen
    async with sessions.at(None, deadline) as session:
        over = await overridden(session, open_ones)
    now = asyncio.get_running_loop().time
    turn = sessions.in_turn(open_ones)
    for name in turn:
        if (trouble := sessions.hangs(name)) is not None:
            unseen[name] = trouble
            continue
        begun = now()
        if deadline - begun < _LEAST_SECONDS and (inside or unseen):
            unseen[name] = NOT_YET
            continue
        within = None if name == turn[-1] else _VISIT_SECONDS
        try:
            async with sessions.at(name, deadline, over=over.get(name, {}), within=within) as session:
                seen = await _inside(session, name, wanted[name], scope, acting)
                if seconds := deputies[name]:
                    common = name == sessions.server.maintenance_database
                    seen = replace(seen, others=await held_otherwise(session, seconds, common))
            inside[name] = seen
            sessions.hung(name, None)
        except Raced:
            pass  # Gone meanwhile, or closed.
        except SqlFailed as failed:
            # Full, not open to us, or in an encoding that has not all names of users: that comes and goes, and is
            # nobody's fault.
            if failed.sqlstate not in _ITS_OWN:
                unseen[name] = str(failed)
        except (ServerUnreachable, AdministratorRejected) as failure:
            took_long = now() - begun > _VISIT_SECONDS / 2
            unseen[name] = (await sessions.own_trouble(name, failure, deadline)).message
            sessions.hung(name, unseen[name] if took_long else None)
    return inside, unseen


async def _inside(session: Session, database: str, schemas: frozenset[str], scope: Scope, acting: str) -> Inside:
    names, extensions = sorted(schemas), sorted(scope.extensions)
    objects = await _objects(session, database, schemas, scope) if names else {}
    owned = dict(await session.rows("looking at schemas", _SCHEMAS, names))
    owners = sorted({*owned.values(), *objects.values(), *scope.all_users} - {"", DATABASE_OWNER}) if names else []
    strangers = await session.rows("looking at owners", _STRANGERS, owners, acting) if owners else []
    users = sorted(scope.all_users)
    held = await session.rows("looking at grants", _PRIVILEGES, users, users)
    return Inside(
        schemas=owned,
        objects=objects,
        strangers=frozenset(name for (name,) in strangers),
        extensions={
            name: ExtensionState(*state)
            for name, *state in (
                await session.rows("looking at extensions", _EXTENSIONS, extensions) if extensions else []
            )
        },
        on_disk={
            name: ExtensionOnDisk(default, frozenset(versions), trusted)
            for name, default, versions, trusted in (
                await session.rows("looking at extensions on disk", _ON_DISK, extensions) if extensions else []
            )
        },
        privileges=frozenset(
            Privilege(
                grantee,
                SecuredObject(ObjectKind(kind), database, schema, name, arguments, column, creator),
                *rest,
            )
            for kind, schema, name, arguments, column, creator, grantee, *rest in held
        ),
    )


async def _objects(
    session: Session, database: str, schemas: frozenset[str], scope: Scope
) -> dict[SecuredObject, str]:
    found = {
        SecuredObject(ObjectKind(kind), database, schema, name, arguments): owner
        for kind, schema, name, arguments, owner in await session.rows(
            "looking at objects", _OBJECTS, sorted(schemas)
        )
    }
    asked = sorted(
        (on.schema, on.name, on.column)
        for on in scope.columns
        if on.database == database and on.schema and on.name and on.column
    )
    if asked:
        for schema, table, column in await session.rows(
            "looking at columns", _COLUMNS, *map(list, zip(*asked, strict=True))
        ):
            on = SecuredObject(ObjectKind.TABLE, database, schema, table)
            if on in found:
                found[replace(on, column=column)] = found[on]
    return found
