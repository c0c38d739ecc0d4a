"""What a cluster itself needs inside its servers: its accounts, and the administrator's password.

The first server makes the accounts as it makes its data; copies have them from there. Here they become what is
declared, where another version of the operator or somebody has given them more or less; and the administrator is made
everywhere: his password is in no pod.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache

from ..actions import Revoke
from ..cluster_names import OPERATOR, REPLICATION, SUPERUSER
from ..desired import ObjectKind
from ..errors import ServerUnreachable, SqlFailed
from ..granting import GRANT_OPTION
from ..holder import Holder, locked
from ..plan import Change
from ..server import Credentials, Server
from ..survey import Privilege, SecuredObject
from . import grants, verifiers
from .accounts import Accounts, read_accounts
from .claims import read_marks, write_mark
from .session import ANYWHERE, Session, account, logged_in
from .statements import Dialect, statement
from .survey import held_by, names_are_literal

ADMINISTRATOR = "root"
"""The account for people, from everywhere; ``root@localhost`` is the agent's own, and takes no password."""
_SECONDS = 10.0
_MARK = ("cluster", "accounts")
_HOLDER = ("cluster", "holder")
_UPDATED = Change("AccountsUpdated", "brought the cluster's own accounts up to date")
Marks = Mapping[tuple[str, str], str]

_REPLICATION = ("REPLICATION SLAVE", "CONNECTION_ADMIN", "BACKUP_ADMIN", "GROUP_REPLICATION_STREAM")
"""Source: MySQL 9.7 Reference Manual, "User Credentials For Distributed Recovery", "Cloning Remote Data"."""
_TELLS = ("replication_group_members", "replication_group_member_stats", "replication_connection_status")
_TOLD_IN = "performance_schema"
"""Tables by which a member that is in no group learns what the group has."""
_OPERATOR_GIVES = sorted(grants.ON_DATABASES | grants.ON_SERVER | grants.ON_MYSQL_SERVER | {grants.REPLICATION})
"""All that a user may be declared to have: only who has something gives it.

The server also takes it from who may write its own tables, of dynamic privileges, but does not say that it does.
"""
_OPERATOR_DOES = ("CREATE USER", "SHUTDOWN", "ROLE_ADMIN", "CONNECTION_ADMIN", "ALLOW_NONEXISTENT_DEFINER")
"""It restarts servers, comes in where clients have taken all connections, and makes users as whom views act that are
there already. No SYSTEM_USER: so none of its statements about accounts touches the administrator by mistake.
"""
_UNLIMITED = (
    "WITH MAX_QUERIES_PER_HOUR 0 MAX_UPDATES_PER_HOUR 0 MAX_CONNECTIONS_PER_HOUR 0 MAX_USER_CONNECTIONS 0"
    " PASSWORD EXPIRE NEVER PASSWORD HISTORY DEFAULT PASSWORD REUSE INTERVAL DEFAULT PASSWORD REQUIRE CURRENT DEFAULT"
    " FAILED_LOGIN_ATTEMPTS 0 PASSWORD_LOCK_TIME 0 ACCOUNT UNLOCK"
)
_COMING_IN = """
    SELECT User, plugin, authentication_string, ssl_type, ssl_cipher, x509_issuer, x509_subject,
        max_questions, max_updates, max_connections, max_user_connections, password_expired, password_lifetime,
        Password_reuse_history, Password_reuse_time, Password_require_current, account_locked, User_attributes
    FROM mysql.user WHERE Host = ? AND User IN ? ORDER BY User
"""
"""How the accounts come in."""


@cache
def statements() -> tuple[str, ...]:
    """The SQL that makes the accounts, each statement without its semicolon; they may be run again."""
    return (
        *_made(REPLICATION, _REPLICATION),
        *(f"GRANT SELECT ON {_TOLD_IN}.{table} TO {account(REPLICATION)}" for table in _TELLS),
        *_made(OPERATOR, _OPERATOR_GIVES, " WITH GRANT OPTION"),
        f"GRANT {', '.join(_OPERATOR_DOES)} ON *.* TO {account(OPERATOR)}",
        *_made(SUPERUSER, ["ALL"], " WITH GRANT OPTION"),
    )


@cache
def _declared() -> frozenset[Privilege]:
    """What the accounts have then, but for the superuser's, which has all. Dynamic ones are handed on one by one."""
    server = SecuredObject(ObjectKind.SERVER, grants.EVERYWHERE)
    tables = [SecuredObject(ObjectKind.TABLE, _TOLD_IN, None, table) for table in _TELLS]
    return frozenset(
        {
            *(Privilege(REPLICATION, server, word, "") for word in _REPLICATION),
            *(Privilege(REPLICATION, table, "SELECT", "") for table in tables),
            *(Privilege(OPERATOR, server, word, "", "_" in word) for word in _OPERATOR_GIVES),
            *(Privilege(OPERATOR, server, word, "") for word in (*_OPERATOR_DOES, GRANT_OPTION)),
        }
    )


def _made(name: str, privileges: Iterable[str], option: str = "") -> tuple[str, ...]:
    # By a certificate of the cluster's authority for clients, and by nothing else: the empty password opens nothing.
    means = f"IDENTIFIED WITH caching_sha2_password BY '' REQUIRE SUBJECT '/CN={name}'"
    return (
        f"CREATE USER IF NOT EXISTS {account(name)} {means}",
        f"ALTER USER {account(name)} {means} {_UNLIMITED}",
        f"GRANT {', '.join(privileges)} ON *.* TO {account(name)}{option}",
    )


@cache
def version() -> str:
    """What tells this SQL from that of other versions of the operator."""
    return f"accounts {hashlib.sha256(';'.join(statements()).encode()).hexdigest()[:16]}"


async def furnish(server: Server, administrator: Credentials, holder: Holder) -> tuple[Change, ...]:
    """Makes a primary have the accounts, and the administrator with this password; says what was changed.

    Where the data were another object's before, users whom no object declares are locked.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: it does not do it in 10 s, or refuses.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with logged_in(server, deadline) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is about to stop")
        marks = await read_marks(session)
        return (
            *await _make_accounts(session, marks, server.login.username),
            *await _take_over(session, marks, holder),
            *await _make_administrator(session, administrator),
        )


async def _make_accounts(session: Session, marks: Marks, superuser: str) -> tuple[Change, ...]:
    literal = await names_are_literal(session)
    accounts = await read_accounts(session, (REPLICATION, OPERATOR), superuser)
    held = await _held(session, accounts, literal)
    beside: dict[tuple[str, SecuredObject], list[str]] = defaultdict(list)
    for one in held - _declared():
        beside[one.grantee, one.on].append(one.privilege)
    # Before the rest is given: what may be handed on and should not be is given anew without that.
    for (name, on), words in beside.items():
        doing, text = statement(Revoke(name, on, tuple(sorted(words)), ""), Dialect(mariadb=False, literal=literal))
        await session.run(doing, text)
    narrowed = await _leave_roles(session, accounts) or bool(beside)
    if marks.get(_MARK) == await _as_made(session) and held >= _declared():
        return (_UPDATED,) if narrowed else ()
    for text in statements():
        await session.run("making the accounts", text)
    await write_mark(session, *_MARK, await _as_made(session))
    return (_UPDATED,)


async def _leave_roles(session: Session, accounts: Accounts) -> bool:
    """Takes roles from the accounts, which have none; whether there were any."""
    edges = [edge for name in (REPLICATION, OPERATOR) for edge in accounts.edges.get((name, ANYWHERE), ())]
    for edge in edges:
        await session.run("revoking a role", f"REVOKE {account(*edge.role)} FROM {account(*edge.member)}")
    return bool(edges)


async def _as_made(session: Session) -> str:
    """Which SQL made the accounts, and a digest of how they come in: it runs once for each change of either, whatever
    there is that it does not undo.
    """
    names = [REPLICATION, OPERATOR, SUPERUSER]
    found = await session.rows("looking at the accounts", _COMING_IN, ANYWHERE, names)
    return f"{version()} {hashlib.sha256(repr(found).encode()).hexdigest()[:16]}"


async def _held(session: Session, accounts: Accounts, literal: bool) -> set[Privilege]:
    """What the accounts have now, as `_declared` says what they should."""
    own = {name: one for name in (REPLICATION, OPERATOR) if (one := accounts.own(name)) is not None}
    return {
        replace(one, grantable=one.on.kind is ObjectKind.SERVER and one.privilege in own[one.grantee].hands_on)
        for one in await held_by(session, accounts, list(own.values()), literal=literal)
    }


async def _make_administrator(session: Session, administrator: Credentials) -> tuple[Change, ...]:
    name, password = administrator.username, administrator.password
    changes: list[Change] = []
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


async def _take_over(session: Session, marks: Marks, holder: Holder) -> tuple[Change, ...]:
    former = marks.get(_HOLDER)
    if former == holder.text:
        return ()
    # Data of nobody are new, or of a version of the operator that left no word of it.
    marked = [(name, mark) for (kind, name), mark in marks.items() if kind == "user"] if former else []
    rows = await session.rows("looking at users", "SELECT User FROM mysql.user WHERE Host = ?", ANYWHERE)
    there = {row["User"] for row in rows}
    strangers = [name for name in holder.strangers(marked) if name in there]
    for name in strangers:
        await session.run(f"locking user {name}", f"ALTER USER {account(name)} ACCOUNT LOCK")
    running = "SELECT ID AS id FROM performance_schema.processlist WHERE USER IN ?"
    for row in await session.rows("looking at sessions", running, strangers):
        with suppress(SqlFailed):  # it has ended by itself
            await session.run("ending a session", f"KILL {int(row['id'])}")
    await write_mark(session, *_HOLDER, holder.text)
    return locked(strangers)


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
