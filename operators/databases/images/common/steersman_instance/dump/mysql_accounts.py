"""Accounts of a MySQL or MariaDB database with limits, roles and privileges. Passwords are not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .account_grants import MAX_ACCOUNTS, MAX_ROWS, ObjectPrivileges, grants_document
from .mysql_client import MysqlClient, MysqlGrant, is_mariadb, version_number

_Account = tuple[str, str]
_Edge = tuple[_Account, _Account, bool]
_FIRST_WITH_ROLES = (8, 0)
_LIMITS = "max_questions, max_updates, max_connections, max_user_connections"
# An account without a login is a role.
_MYSQL_ACCOUNTS = f"SELECT JSON_ARRAY(User, Host, account_locked <> 'Y', {_LIMITS}) FROM mysql.user"  # noqa: S608
_MARIADB_ACCOUNTS = f"SELECT JSON_ARRAY(User, Host, is_role <> 'Y', {_LIMITS}) FROM mysql.user"  # noqa: S608
_MYSQL_ROLES = """
SELECT JSON_ARRAY(TO_USER, TO_HOST, FROM_USER, FROM_HOST, WITH_ADMIN_OPTION = 'Y') FROM mysql.role_edges
"""
_MARIADB_ROLES = "SELECT JSON_ARRAY(User, Host, Role, '', Admin_option = 'Y') FROM mysql.roles_mapping"
_ROUTINES = """
SELECT JSON_ARRAY(User, Host, Routine_name, Proc_priv) FROM mysql.procs_priv WHERE Db = DATABASE()
"""
_ROUTINE_PRIVILEGES = {"Execute": "EXECUTE", "Alter Routine": "ALTER ROUTINE"}


def accounts_document(client: MysqlClient, version: str, but: str) -> dict[str, object]:
    """Return the accounts of the database for the report.

    Args:
        version: of the server.
        but: user name that is left out.

    Raises:
        ClientFailed: the account cannot read the tables of accounts.
    """
    mariadb = is_mariadb(version)
    attributes = {
        (str(user), str(host)): (bool(login), limits)
        for user, host, login, *limits in client.rows(_MARIADB_ACCOUNTS if mariadb else _MYSQL_ACCOUNTS)
    }
    privileges = _privileges([each for each in client.grants() if each.account[0] != but])
    for user, host, name, found in client.rows(_ROUTINES):
        names = str(found).split(",")
        granted = [word for each in names if (word := _ROUTINE_PRIVILEGES.get(each)) is not None]
        if granted and user != but:
            privileges.setdefault((str(user), str(host)), []).append(
                ObjectPrivileges(kind="function", name=str(name), privileges=granted, option="Grant" in names)
            )
    roles = _roles(privileges, _edges(client, version))
    found = sorted({*privileges, *roles})
    count = sum(map(len, privileges.values()))
    return {
        "accounts": [
            {
                "name": user,
                "host": host,
                **_attributes(attributes.get((user, host))),
                "roles": roles.get((user, host), []),
                **grants_document(privileges.get((user, host), [])),
            }
            for user, host in found[:MAX_ACCOUNTS]
        ],
        "omittedAccounts": max(len(found) - MAX_ACCOUNTS, 0),
        "truncated": count > MAX_ROWS,
    }


def _attributes(found: tuple[bool, list[Any]] | None) -> Mapping[str, object]:
    if found is None:
        return {"login": True}
    login, (queries, updates, connections, sessions) = found
    return {
        "login": login,
        "connectionLimit": int(sessions) or -1,
        "limits": {"queries": int(queries), "updates": int(updates), "connections": int(connections)},
    }


def _privileges(grants: Iterable[MysqlGrant]) -> dict[_Account, list[ObjectPrivileges]]:
    """Return the privileges on each object."""
    found: dict[tuple[_Account, str, str, bool], list[str]] = {}
    for each in list(grants)[:MAX_ROWS]:
        if each.privilege != "USAGE":
            found.setdefault((each.account, each.table, each.column, each.option), []).append(each.privilege)
    privileges: dict[_Account, list[ObjectPrivileges]] = {}
    for (account, table, column, option), names in found.items():
        privileges.setdefault(account, []).append(
            ObjectPrivileges(
                kind="table" if table else "database", name=table, column=column, privileges=names, option=option
            )
        )
    return privileges


def _edges(client: MysqlClient, version: str) -> list[_Edge]:
    """Return all memberships: member, role, and True with admin option."""
    if not is_mariadb(version) and version_number(version) < _FIRST_WITH_ROLES:
        return []
    return [
        ((str(user), str(host)), (str(role), str(role_host)), bool(admin))
        for user, host, role, role_host, admin in client.rows(_MARIADB_ROLES if is_mariadb(version) else _MYSQL_ROLES)
    ]


def _roles(privileges: Iterable[_Account], edges: Sequence[_Edge]) -> dict[_Account, list[dict[str, object]]]:
    """Return the roles that give accounts privileges on the database."""
    reached, previous = set(privileges), 0
    while len(reached) != previous:
        previous = len(reached)
        reached |= {member for member, role, _ in edges if role in reached}
    roles: dict[_Account, list[dict[str, object]]] = {}
    for member, role, admin in edges:
        if role in reached and member != role:
            roles.setdefault(member, []).append({"name": role[0], "admin": admin})
    return roles
