"""What the cluster itself needs inside its servers: its accounts, and the administrator's password.

The primary's callback runs the same SQL at each promotion, from its ConfigMap. Here it is given to one that serves
already and was made for another version of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from importlib.resources import files

from psycopg import sql

from ..errors import AdministratorRejected, LoginRejected
from ..plan import Change
from ..server import Credentials, Server
from . import verifiers
from .session import Session, connect

_SECONDS = 10.0
_STATE = """
    SELECT pg_catalog.obj_description(pg_catalog.to_regnamespace('steersman')::oid, 'pg_namespace'),
           (SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = %s)
"""


@cache
def statements() -> str:
    """The SQL that makes the accounts, and leaves `version` as the comment of the schema ``steersman``."""
    return _source().replace("COMMIT;", f"COMMENT ON SCHEMA steersman IS '{version()}';\nCOMMIT;")


@cache
def version() -> str:
    """What tells this SQL from that of other versions of the operator."""
    return f"accounts {hashlib.sha256(_source().encode()).hexdigest()[:16]}"


def _source() -> str:
    return files("steersman_databases.engines.postgresql").joinpath("roles.sql").read_text()


async def furnish(server: Server, administrator: Credentials) -> tuple[Change, ...]:
    """Makes a primary have the accounts, and the administrator this password; says what was changed.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: it does not do it in 10 s, or refuses.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    try:
        session = await connect(server, server.login, server.maintenance_database, deadline)
    except LoginRejected as refusal:
        raise AdministratorRejected(server.login.username, str(refusal)) from None
    try:
        if not await session.begin_use(deadline):
            return ()
        return await _furnish(session, administrator)
    finally:
        await session.close()


async def _furnish(session: Session, administrator: Credentials) -> tuple[Change, ...]:
    name, password = administrator.username, administrator.password
    [(found, verifier)] = await session.rows("looking at the accounts", _STATE, name)
    changes: list[Change] = []
    if found != version():
        # The text is the operator's own, from its package.
        await session.run("making the accounts", sql.Composed([sql.SQL(statements())]))  # pyright: ignore[reportArgumentType]
        changes.append(Change("AccountsUpdated", "brought the cluster's own accounts up to date"))
    if not verifiers.opens(password, verifier):
        statement = sql.SQL("ALTER ROLE {} PASSWORD {}")
        made = sql.Literal(verifiers.verifier(password))
        await session.run("setting a password", statement.format(sql.Identifier(name), made))
        changes.append(Change("PasswordReset", f"set the password of {name} as its Secret has it"))
    return tuple(changes)
