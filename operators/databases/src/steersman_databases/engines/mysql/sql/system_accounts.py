"""System accounts of a cluster, and the administrator's password.

The first server creates the accounts when it initializes its data, and clones have them. This module reverts
differences, for example of another version of the operator. It creates the administrator, whose password is in no
pod.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache

from steersman_databases.engines.errors import ServerUnreachable, SqlFailed
from steersman_databases.engines.naming import (
    BACKUP_ROLE,
    MONITOR_ROLE,
    OPERATOR_ROLE,
    QUERIES_ROLE,
    REPLICATION_ROLE,
    SUPERUSER_ROLE,
)
from steersman_databases.engines.server import DatabaseServer, SqlCredentials
from steersman_databases.engines.sql.data_takeover import DataOwner, locked_users_change
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.grant_planner import GRANT_OPTION
from steersman_databases.engines.sql.inspection import HeldPrivilege, SecuredObject
from steersman_databases.engines.sql.sql_actions import RevokePrivileges
from steersman_databases.engines.sql.sql_plan import SqlChange

from ..planning import grants
from . import verifiers
from .account_catalog import AccountCatalog, read_accounts
from .inspection import held_privileges, names_are_literal
from .ownership_table import DATABASE, ENGINE, SETUP, read_marks, write_mark
from .session import ANY_HOST, MySQLSession, logged_in, quoted_account
from .statements import StatementDialect, statement

ADMINISTRATOR = "root"
"""Account of users, from any host. ``root@localhost`` belongs to the agent and has no password."""
_TIMEOUT_SECONDS = 10.0
_VERSION_MARK = ("cluster", "accounts")
_DATA_OWNER_MARK = ("cluster", "holder")
_UPDATED = SqlChange("AccountsUpdated", "updated the system accounts of the cluster")
Marks = Mapping[tuple[str, str], str]

_REPLICATION = ("REPLICATION SLAVE", "CONNECTION_ADMIN", "BACKUP_ADMIN", "GROUP_REPLICATION_STREAM")
"""Source: MySQL 9.7 Reference Manual, distributed recovery credentials and cloning."""
_BACKUP = ("BACKUP_ADMIN",)
"""Base backups clone a member and read no table by SQL."""
_GROUP_TABLES = ("replication_group_members", "replication_group_member_stats", "replication_connection_status")
_MONITOR = ("PROCESS", "REPLICATION CLIENT")
_MONITOR_TABLES = (
    *("replication_group_members", "replication_group_member_stats", "replication_applier_status_by_worker"),
    *("global_status", "global_variables"),
)
_PERFORMANCE_SCHEMA = "performance_schema"
"""Schema whose tables report the transactions of a group."""
_OPERATOR_GRANTABLE = sorted(grants.ON_DATABASES | grants.ON_SERVER | grants.ON_MYSQL_SERVER | {grants.REPLICATION})
"""Privileges that a user can declare. A grantor needs them itself.

The server also accepts dynamic privileges from accounts that can write its system tables, but does not document
it.
"""
_OPERATOR_PRIVILEGES = ("CREATE USER", "SHUTDOWN", "ROLE_ADMIN", "CONNECTION_ADMIN", "ALLOW_NONEXISTENT_DEFINER")
"""Privileges of the operator's account.

They permit restarts, logins without free connections, and definers that do not exist yet. It lacks SYSTEM_USER,
so its statements cannot change the administrator.
"""
_INSPECTED = (REPLICATION_ROLE, BACKUP_ROLE, MONITOR_ROLE, OPERATOR_ROLE)
"""Accounts whose privileges are compared. The superuser has all, and users grant to that of user queries."""
_UNLIMITED = (
    "WITH MAX_QUERIES_PER_HOUR 0 MAX_UPDATES_PER_HOUR 0 MAX_CONNECTIONS_PER_HOUR 0 MAX_USER_CONNECTIONS 0"
    " PASSWORD EXPIRE NEVER PASSWORD HISTORY DEFAULT PASSWORD REUSE INTERVAL DEFAULT PASSWORD REQUIRE CURRENT DEFAULT"
    " FAILED_LOGIN_ATTEMPTS 0 PASSWORD_LOCK_TIME 0 ACCOUNT UNLOCK"
)
_AUTHENTICATION_QUERY = """
    SELECT User, plugin, authentication_string, ssl_type, ssl_cipher, x509_issuer, x509_subject,
        max_questions, max_updates, max_connections, max_user_connections, password_expired, password_lifetime,
        Password_reuse_history, Password_reuse_time, Password_require_current, account_locked, User_attributes
    FROM mysql.user WHERE Host = ? AND User IN ? ORDER BY User
"""
"""Query for the authentication of the accounts."""


@cache
def statements() -> tuple[str, ...]:
    """Return the idempotent SQL that creates the accounts, one statement each."""
    return (
        *_account_statements(REPLICATION_ROLE, _REPLICATION),
        *(
            f"GRANT SELECT ON {_PERFORMANCE_SCHEMA}.{table} TO {quoted_account(REPLICATION_ROLE)}"
            for table in _GROUP_TABLES
        ),
        *_account_statements(BACKUP_ROLE, _BACKUP),
        *_account_statements(MONITOR_ROLE, _MONITOR, subject=REPLICATION_ROLE),
        *(
            f"GRANT SELECT ON {_PERFORMANCE_SCHEMA}.{table} TO {quoted_account(MONITOR_ROLE)}"
            for table in _MONITOR_TABLES
        ),
        # Users grant to it what their queries read. The pod writes to the table as an account without privileges.
        *_account_statements(QUERIES_ROLE, ["USAGE"], subject=REPLICATION_ROLE),
        SETUP[0],
        (
            f"CREATE TABLE IF NOT EXISTS `{DATABASE}`.`heartbeat` (id TINYINT PRIMARY KEY, at TIMESTAMP NOT NULL)"
            f" ENGINE = {ENGINE}"
        ),
        f"GRANT SELECT, INSERT, UPDATE ON `{DATABASE}`.`heartbeat` TO {quoted_account(QUERIES_ROLE)}",
        *_account_statements(OPERATOR_ROLE, _OPERATOR_GRANTABLE, " WITH GRANT OPTION"),
        f"GRANT {', '.join(_OPERATOR_PRIVILEGES)} ON *.* TO {quoted_account(OPERATOR_ROLE)}",
        *_account_statements(SUPERUSER_ROLE, ["ALL"], " WITH GRANT OPTION"),
    )


@cache
def _desired_privileges() -> frozenset[HeldPrivilege]:
    """Return the declared privileges of the accounts, without the superuser.

    Dynamic privileges have a grant option of their own.
    """
    server = SecuredObject(SecurableKind.SERVER, grants.ANY_DATABASE)
    readable = {REPLICATION_ROLE: _GROUP_TABLES, MONITOR_ROLE: _MONITOR_TABLES}
    return frozenset(
        {
            *(HeldPrivilege(REPLICATION_ROLE, server, word, "") for word in _REPLICATION),
            *(HeldPrivilege(BACKUP_ROLE, server, word, "") for word in _BACKUP),
            *(HeldPrivilege(MONITOR_ROLE, server, word, "") for word in _MONITOR),
            *(
                HeldPrivilege(
                    role, SecuredObject(SecurableKind.TABLE, _PERFORMANCE_SCHEMA, None, table), "SELECT", ""
                )
                for role, tables in readable.items()
                for table in tables
            ),
            *(HeldPrivilege(OPERATOR_ROLE, server, word, "", "_" in word) for word in _OPERATOR_GRANTABLE),
            *(HeldPrivilege(OPERATOR_ROLE, server, word, "") for word in (*_OPERATOR_PRIVILEGES, GRANT_OPTION)),
        }
    )


def _account_statements(name: str, privileges: Iterable[str], option: str = "", subject: str = "") -> tuple[str, ...]:
    # By a certificate of the cluster's authority for clients, and by nothing else: the empty password opens nothing.
    authentication = f"IDENTIFIED WITH caching_sha2_password BY '' REQUIRE SUBJECT '/CN={subject or name}'"
    return (
        f"CREATE USER IF NOT EXISTS {quoted_account(name)} {authentication}",
        f"ALTER USER {quoted_account(name)} {authentication} {_UNLIMITED}",
        f"GRANT {', '.join(privileges)} ON *.* TO {quoted_account(name)}{option}",
    )


@cache
def version() -> str:
    """Return a version of this SQL, to compare operators."""
    return f"accounts {hashlib.sha256(';'.join(statements()).encode()).hexdigest()[:16]}"


async def ensure_accounts(
    server: DatabaseServer, administrator: SqlCredentials, data_owner: DataOwner
) -> tuple[SqlChange, ...]:
    """Ensure the accounts and the administrator on a primary. Return the changes.

    Users of adopted data that no object declares are locked.

    Args:
        server: with a superuser's login.

    Raises:
        EngineError: the server does not respond within 10 s, or rejects a statement.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        if not await session.begin_use(deadline):
            raise ServerUnreachable(server.endpoint, "it is stopping")
        marks = await read_marks(session)
        return (
            *await _ensure_accounts(session, marks, server.login.username),
            *await _take_over_data(session, marks, data_owner),
            *await _ensure_administrator(session, administrator),
        )


async def _ensure_accounts(session: MySQLSession, marks: Marks, superuser: str) -> tuple[SqlChange, ...]:
    literal = await names_are_literal(session)
    accounts = await read_accounts(session, _INSPECTED, superuser)
    held_privileges = await _held_privileges(session, accounts, literal)
    other_accounts: dict[tuple[str, SecuredObject], list[str]] = defaultdict(list)
    for one in held_privileges - _desired_privileges():
        other_accounts[one.grantee, one.target].append(one.privilege)
    # Revoked before the grants: a privilege with an unwanted grant option is granted again without it.
    for (name, on), description in other_accounts.items():
        operation, text = statement(
            RevokePrivileges(name, on, tuple(sorted(description)), ""),
            StatementDialect(mariadb=False, literal=literal),
        )
        await session.run(operation, text)
    host_specific = await _revoke_roles(session, accounts) or bool(other_accounts)
    if marks.get(_VERSION_MARK) == await _stored_version(session) and held_privileges >= _desired_privileges():
        return (_UPDATED,) if host_specific else ()
    for text in statements():
        await session.run("creating the accounts", text)
    await write_mark(session, *_VERSION_MARK, await _stored_version(session))
    return (_UPDATED,)


async def _revoke_roles(session: MySQLSession, accounts: AccountCatalog) -> bool:
    """Revoke roles from the accounts, which should have none. Return True if there were any."""
    edges = [edge for name in _INSPECTED for edge in accounts.edges.get((name, ANY_HOST), ())]
    for edge in edges:
        await session.run(
            "revoking a role", f"REVOKE {quoted_account(*edge.role)} FROM {quoted_account(*edge.member)}"
        )
    return bool(edges)


async def _stored_version(session: MySQLSession) -> str:
    """Return the version of the SQL and a digest of the authentication.

    The SQL runs once for each change of either, even if it cannot revert the change.
    """
    names = [*_INSPECTED, QUERIES_ROLE, SUPERUSER_ROLE]
    found = await session.rows("inspecting the accounts", _AUTHENTICATION_QUERY, ANY_HOST, names)
    return f"{version()} {hashlib.sha256(repr(found).encode()).hexdigest()[:16]}"


async def _held_privileges(session: MySQLSession, accounts: AccountCatalog, literal: bool) -> set[HeldPrivilege]:
    """Return the current privileges of the accounts, as `_desired_privileges` lists them."""
    own = {name: one for name in _INSPECTED if (one := accounts.anywhere(name)) is not None}
    return {
        replace(
            one, grantable=one.target.kind is SecurableKind.SERVER and one.privilege in own[one.grantee].grantable
        )
        for one in await held_privileges(session, accounts, list(own.values()), literal=literal)
    }


async def _ensure_administrator(session: MySQLSession, administrator: SqlCredentials) -> tuple[SqlChange, ...]:
    name, password = administrator.username, administrator.password
    changes: list[SqlChange] = []
    rows = await session.rows(
        "inspecting the administrator",
        "SELECT plugin, authentication_string AS kept, Super_priv AS mighty FROM mysql.user"
        " WHERE User = ? AND Host = '%'",
        name,
    )
    matches = any(verifiers.matches(password, f"{row['plugin']}:{_text(row['kept'])}") for row in rows)
    if not matches:
        kept = verifiers.sha2_verifier(password).partition(":")[2].encode("latin-1").hex()
        authentication = f"IDENTIFIED WITH {verifiers.SHA2} AS 0x{kept}"
        await session.run(
            "creating the administrator", f"CREATE USER IF NOT EXISTS {quoted_account(name)} {authentication}"
        )
        await session.run("setting a password", f"ALTER USER {quoted_account(name)} {authentication} ACCOUNT UNLOCK")
        changes.append(SqlChange("PasswordReset", f"set the password of {name} from its Secret"))
    if not any(row["mighty"] == "Y" for row in rows):
        await session.run("granting privileges", f"GRANT ALL ON *.* TO {quoted_account(name)} WITH GRANT OPTION")
    return tuple(changes)


async def _take_over_data(session: MySQLSession, marks: Marks, data_owner: DataOwner) -> tuple[SqlChange, ...]:
    previous = marks.get(_DATA_OWNER_MARK)
    if previous == data_owner.text:
        return ()
    # Data without an owner are new, or come from a version of the operator that stored none.
    marked_users = [(name, mark) for (kind, name), mark in marks.items() if kind == "user"] if previous else []
    rows = await session.rows("inspecting users", "SELECT User FROM mysql.user WHERE Host = ?", ANY_HOST)
    there = {row["User"] for row in rows}
    orphaned = [name for name in data_owner.orphaned_users(marked_users, previous) if name in there]
    for name in orphaned:
        await session.run(f"locking user {name}", f"ALTER USER {quoted_account(name)} ACCOUNT LOCK")
    running = "SELECT ID AS id FROM performance_schema.processlist WHERE USER IN ?"
    for row in await session.rows("inspecting sessions", running, orphaned):
        with suppress(SqlFailed):  # it has ended by itself
            await session.run("ending a session", f"KILL {int(row['id'])}")
    for (kind, name), mark in marks.items() if previous else ():
        replacement = data_owner.replacement_mark(mark, previous or "") if kind in ("user", "database") else None
        if replacement is not None:
            await write_mark(session, kind, name, replacement)
    await write_mark(session, *_DATA_OWNER_MARK, data_owner.text)
    return locked_users_change(orphaned)


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
