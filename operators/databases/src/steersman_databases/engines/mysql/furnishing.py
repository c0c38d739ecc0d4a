"""What a cluster itself needs inside its servers: its accounts, and the administrator's password.

The first server makes the accounts as it makes its data; copies have them from there. Here they are given to servers
that were made by another version of the operator, and the administrator to all: his password is in no pod.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache

from ..cluster_names import OPERATOR, REPLICATION, SUPERUSER
from ..errors import AdministratorRejected, LoginRejected
from ..plan import Change
from ..server import Credentials, Server
from . import verifiers
from .claims import read_marks, write_mark
from .session import Session, account, connect

ADMINISTRATOR = "root"
"""The account for people, from everywhere; ``root@localhost`` is the agent's own, and takes no password."""
_SECONDS = 10.0
_MARK = ("cluster", "accounts")

_REPLICATION = ("REPLICATION SLAVE", "CONNECTION_ADMIN", "BACKUP_ADMIN", "GROUP_REPLICATION_STREAM")
"""Source: MySQL 9.7 Reference Manual, "User Credentials For Distributed Recovery", "Cloning Remote Data"."""
_OPERATOR_GIVES = (
    *("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER"),
    *("CREATE TEMPORARY TABLES", "LOCK TABLES", "EXECUTE", "CREATE VIEW", "SHOW VIEW", "CREATE ROUTINE"),
    *("ALTER ROUTINE", "EVENT", "TRIGGER", "PROCESS", "SHOW DATABASES", "REPLICATION SLAVE", "REPLICATION CLIENT"),
    *("RELOAD", "CREATE USER", "CREATE ROLE", "DROP ROLE", "SHUTDOWN"),
    *("ROLE_ADMIN", "APPLICATION_PASSWORD_ADMIN", "CONNECTION_ADMIN", "SET_ANY_DEFINER", "BACKUP_ADMIN"),
)
"""What it holds, and may hand on to users: no SYSTEM_USER, so it cannot touch the administrator."""


@cache
def statements() -> tuple[str, ...]:
    """The SQL that makes the accounts, each statement without its semicolon; they may be run again."""
    return (
        *_made(REPLICATION, f"GRANT {', '.join(_REPLICATION)} ON *.* TO {account(REPLICATION)}"),
        *_made(OPERATOR, f"GRANT {', '.join(_OPERATOR_GIVES)} ON *.* TO {account(OPERATOR)} WITH GRANT OPTION"),
        *_made(SUPERUSER, f"GRANT ALL ON *.* TO {account(SUPERUSER)} WITH GRANT OPTION"),
    )


def _made(name: str, grant: str) -> tuple[str, ...]:
    # By a certificate of the cluster's authority for clients, and by nothing else: the empty password opens nothing.
    means = f"IDENTIFIED WITH caching_sha2_password BY '' REQUIRE SUBJECT '/CN={name}'"
    return (
        f"CREATE USER IF NOT EXISTS {account(name)} {means}",
        f"ALTER USER {account(name)} {means} PASSWORD EXPIRE NEVER ACCOUNT UNLOCK",
        grant,
    )


@cache
def version() -> str:
    """What tells this SQL from that of other versions of the operator."""
    return f"accounts {hashlib.sha256(';'.join(statements()).encode()).hexdigest()[:16]}"


async def furnish(server: Server, administrator: Credentials) -> tuple[Change, ...]:
    """Makes a primary have the accounts, and the administrator with this password; says what was changed.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: it does not do it in 10 s, or refuses.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    try:
        session = await connect(server, server.login, None, deadline)
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
    changes: list[Change] = []
    if (await read_marks(session)).get(_MARK) != version():
        for statement in statements():
            await session.run("making the accounts", statement)
        await write_mark(session, *_MARK, version())
        changes.append(Change("AccountsUpdated", "brought the cluster's own accounts up to date"))
    rows = await session.rows(
        "looking at the administrator",
        "SELECT plugin, authentication_string AS kept, Super_priv AS mighty FROM mysql.user"
        " WHERE User = ? AND Host = '%'",
        name,
    )
    opens = any(verifiers.opens(password, f"{row['plugin']}:{_text(row['kept'])}") for row in rows)
    if not opens:
        kept = verifiers.sha2(password).partition(":")[2].encode("latin-1").hex()
        means = f"IDENTIFIED WITH {verifiers.SHA2} AS 0x{kept}"
        await session.run("making the administrator", f"CREATE USER IF NOT EXISTS {account(name)} {means}")
        await session.run("setting a password", f"ALTER USER {account(name)} {means} ACCOUNT UNLOCK")
        changes.append(Change("PasswordReset", f"set the password of {name} as its Secret has it"))
    if not any(row["mighty"] == "Y" for row in rows):
        await session.run("giving rights", f"GRANT ALL ON *.* TO {account(name)} WITH GRANT OPTION")
    return tuple(changes)


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
