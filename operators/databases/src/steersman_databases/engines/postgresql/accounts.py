"""What the cluster itself needs inside its servers: its accounts, and the administrator's password.

The primary's callback runs the same SQL at each promotion, from its ConfigMap. Here it is given to one that serves
already, and was made for another version of it, or on which somebody has changed what it makes.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from importlib.resources import files
from typing import LiteralString

from psycopg import sql

from ..cluster_names import OPERATOR
from ..errors import ServerUnreachable
from ..holder import Holder, locked
from ..plan import Change
from ..server import Credentials, Server
from . import verifiers
from .session import Session, logged_in

_SECONDS = 10.0
_MADE: LiteralString = """
    SELECT pg_catalog.hashtextextended(pg_catalog.concat_ws('; ',
        (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', r.rolname, r.rolcanlogin, r.rolinherit, r.rolsuper,
                r.rolreplication, r.rolcreaterole, r.rolcreatedb, r.rolbypassrls, r.rolconnlimit,
                pg_catalog.date_part('epoch', r.rolvaliduntil),
                (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', s.setdatabase, s.setconfig), ' '
                     ORDER BY s.setdatabase)
                 FROM pg_catalog.pg_db_role_setting s WHERE s.setrole = r.oid)), ', ' ORDER BY r.rolname)
         FROM pg_catalog.pg_roles r WHERE r.rolname IN ('steersman_replication', 'steersman_rewind',
             'steersman_operator', 'steersman_superuser', 'steersman_pooler')),
        EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = pg_catalog.to_regrole('pg_monitor')
                AND m.member = pg_catalog.to_regrole('steersman_operator')),
        (SELECT pg_catalog.string_agg(p.oid::pg_catalog.text, ' ' ORDER BY p.oid)
         FROM pg_catalog.pg_proc p CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) acl
         WHERE acl.grantee = pg_catalog.to_regrole('steersman_rewind')),
        (SELECT pg_catalog.concat_ws(' ', n.nspowner, n.nspacl) FROM pg_catalog.pg_namespace n
         WHERE n.nspname = 'steersman'),
        (SELECT pg_catalog.string_agg(p::pg_catalog.text, ', ' ORDER BY p.oid)
         FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = 'steersman')
    ) COLLATE pg_catalog."C", 0)
"""
"""A digest of what the SQL makes, as the catalogs have it, which anybody may read: roles and what is set for them,
functions, privileges. Other memberships have no part in it: of roles that the operator made it is a member, too.

The SQL leaves it beside its version, to be compared on the same server: so it runs once for each change, whatever
there is that it does not undo. Passwords have no part in it: pg_hba lets none of these in by one.
"""
_AS_MADE: LiteralString = (
    "SELECT pg_catalog.obj_description(pg_catalog.to_regnamespace('steersman')::pg_catalog.oid, 'pg_namespace')"
    " = pg_catalog.concat(%s::pg_catalog.text, ' ', (" + _MADE + "))"
)
_VERIFIER = "SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = %s"
_HOLDER = "SELECT pg_catalog.shobj_description(pg_catalog.to_regrole(%s)::oid, 'pg_authid')"
_MARKED = """
    SELECT r.rolname, d.description FROM pg_catalog.pg_roles r JOIN pg_catalog.pg_shdescription d
    ON d.objoid = r.oid AND d.classoid = 'pg_catalog.pg_authid'::pg_catalog.regclass
"""
_END = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = ANY(%s)"


@cache
def statements() -> str:
    """The SQL that makes the accounts, and leaves `version` and digest as the comment of the schema ``steersman``."""
    made = f"pg_catalog.concat('{version()} ', ({_MADE}))"
    comment = f"EXECUTE pg_catalog.format('COMMENT ON SCHEMA steersman IS %L', {made});"
    return _source().replace("COMMIT;", f"DO $$ BEGIN {comment} END $$;\nCOMMIT;")


@cache
def version() -> str:
    """What tells this SQL from that of other versions of the operator."""
    return f"accounts {hashlib.sha256(_source().encode()).hexdigest()[:16]}"


def _source() -> str:
    return files("steersman_databases.engines.postgresql").joinpath("roles.sql").read_text()


async def are_as_made(session: Session) -> bool:
    """Whether the accounts are what this version's SQL has made of them. In the maintenance database, for anybody."""
    [(as_made,)] = await session.rows("looking at the accounts", _AS_MADE, version())
    return as_made is True


async def furnish(server: Server, administrator: Credentials, holder: Holder) -> tuple[Change, ...]:
    """Makes a primary have the accounts, and the administrator this password; says what was changed.

    Where the data were another object's before, users whom no object declares are locked.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: it does not do it in 10 s, refuses, or is no primary.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with logged_in(server, deadline) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is no primary, or about to stop")
        return await _furnish(session, administrator, holder)


async def _furnish(session: Session, administrator: Credentials, holder: Holder) -> tuple[Change, ...]:
    name, password = administrator.username, administrator.password
    [(verifier,)] = await session.rows("looking at the administrator", _VERIFIER, name)
    changes: list[Change] = []
    if not await are_as_made(session):
        # The text is the operator's own, from its package.
        await session.run("making the accounts", sql.Composed([sql.SQL(statements())]))  # pyright: ignore[reportArgumentType]
        changes.append(Change("AccountsUpdated", "brought the cluster's own accounts up to date"))
    changes += await _take_over(session, holder)
    if not verifiers.opens(password, verifier):
        statement = sql.SQL("ALTER ROLE {} PASSWORD {}")
        made = sql.Literal(verifiers.verifier(password))
        await session.run("setting a password", statement.format(sql.Identifier(name), made))
        changes.append(Change("PasswordReset", f"set the password of {name} as its Secret has it"))
    return tuple(changes)


async def _take_over(session: Session, holder: Holder) -> tuple[Change, ...]:
    [(former,)] = await session.rows("looking at whose data these are", _HOLDER, OPERATOR)
    if former == holder.text:
        return ()
    # Data of nobody are new, or of a version of the operator that left no word of it.
    marked = await session.rows("looking at users' marks", _MARKED) if former else []
    strangers = holder.strangers((name, mark) for name, mark in marked)
    for name in strangers:
        await session.run(f"locking user {name}", sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(name)))
    await session.rows("ending sessions", _END, strangers)
    statement = sql.SQL("COMMENT ON ROLE {} IS {}")
    await session.run("marking the data", statement.format(sql.Identifier(OPERATOR), sql.Literal(holder.text)))
    return locked(strangers)
