"""Inspection of a MySQL or MariaDB server through its system tables.

The inspected accounts are those for all hosts, `u`@`%`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, cast

from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.grant_planner import GRANT_OPTION
from steersman_databases.engines.sql.inspection import (
    PUBLIC,
    DatabaseContents,
    DatabaseState,
    HeldPrivilege,
    Inspection,
    InspectionScope,
    SecuredObject,
)

from ..planning.grants import ANY_DATABASE, DELETE_HISTORY, MARIADB_PUBLIC, PUBLIC_ROLES
from .account_catalog import ROLE_HOST, TABLES, AccountCatalog, AccountKey, AccountRecord, read_accounts
from .ownership_table import read_marks
from .pool import MySQLSessions
from .session import ANY_HOST, MySQLSession, grant_pattern


async def inspect(sessions: MySQLSessions, scope: InspectionScope, deadline: float) -> Inspection:
    """Inspect a server in one session."""
    async with sessions.session(deadline) as session:
        [row] = await session.rows("inspecting the server", "SELECT VERSION() AS v, @@lower_case_table_names AS l")
        major, minor = re.findall(r"\d+", row["v"])[:2]
        administrator = sessions.server.login.username
        accounts = await read_accounts(session, scope.all_users, administrator)
        own_accounts = [
            account for name in sorted(scope.all_users) if (account := accounts.anywhere(name)) is not None
        ]
        privileges_by_database: dict[str, set[HeldPrivilege]] = defaultdict(set)
        literal = await names_are_literal(session)
        for one in await held_privileges(session, accounts, own_accounts, literal=literal):
            privileges_by_database[one.target.database].add(one)
        # Marks are written before their objects. So they are read later: each object seen then has its mark and
        # owner.
        marks = await read_marks(session)
        there = await _schemata(session, sorted(scope.databases | privileges_by_database.keys()))
        absent = sorted(scope.databases - there.keys())
        for one in await _orphaned_privileges(
            session, absent, accounts.assumable(marks), administrator, literal=literal
        ):
            privileges_by_database[one.target.database].add(one)
        for one in await _public_privileges(session, sorted(there), literal=literal):
            privileges_by_database[one.target.database].add(one)
        databases = _databases(
            sorted(scope.databases | privileges_by_database.keys()), there, marks, privileges_by_database
        )
        missing = sorted(scope.all_users - {account.key[0] for account in own_accounts})
        objects = await _objects(session, sorted(scope.contents), scope, administrator)
        definers = await definers_of(session, sorted({*missing, *scope.dropped_databases}))
        return Inspection(
            product="MariaDB" if session.is_mariadb else "MySQL",
            version=(int(major), int(minor)),
            administrator=administrator,
            users={
                account.key[0]: accounts.state(account, marks.get(("user", account.key[0])))
                for account in own_accounts
            },
            databases=databases,
            invisible_databases={
                name: mark
                for name in scope.databases - there.keys()
                if (mark := marks.get(("database", name))) is not None
            },
            lower_case_names=row["l"] != 0,
            effective_roles=frozenset(name for name, _ in accounts.effective_roles),
            host_accounts={
                name: any(accounts.can_escalate(one) != (False, False) for one in others)
                for name in scope.all_users
                if (others := accounts.host_specific(name))
            },
            orphaned={name: marks.get(("user", name)) for name in missing if name in definers},
            definers={name: definers[name] for name in scope.dropped_databases if name in definers},
            contents={
                name: DatabaseContents(
                    objects=objects.get(name, {}),
                    privileges=frozenset(
                        one for one in privileges_by_database[name] if one.target.kind.is_in_database
                    ),
                )
                for name in databases
            },
        )


async def names_are_literal(session: MySQLSession) -> bool:
    """Return True if GRANT takes a database's name literally.

    Otherwise it is a pattern. This depends on MySQL's partial_revokes.
    """
    rows = await session.rows("inspecting the server's settings", "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
    return any(row["Value"] == "ON" for row in rows)


async def mariadb_roles(session: MySQLSession) -> set[str]:
    """Return all roles without an account of the same name."""
    rows = await session.rows(
        "inspecting roles",
        "SELECT User, Host FROM mysql.global_priv WHERE Host IN ?",
        [ANY_HOST, ROLE_HOST],
    )
    named = {host: {row["User"] for row in rows if row["Host"] == host} for host in (ANY_HOST, ROLE_HOST)}
    return named[ROLE_HOST] - named[ANY_HOST]


async def _schemata(session: MySQLSession, names: list[str]) -> dict[str, Mapping[str, Any]]:
    """Return the existing ones of some databases."""
    rows = await session.rows(
        "searching for databases",
        "SELECT SCHEMA_NAME AS name, DEFAULT_CHARACTER_SET_NAME AS encoding, DEFAULT_COLLATION_NAME AS collation"
        " FROM information_schema.SCHEMATA WHERE SCHEMA_NAME IN ?",
        names,
    )
    return {row["name"]: row for row in rows}


def _databases(
    names: list[str],
    there: Mapping[str, Mapping[str, Any]],
    marks: Mapping[tuple[str, str], str],
    held_privileges: Mapping[str, set[HeldPrivilege]],
) -> dict[str, DatabaseState]:
    found: dict[str, DatabaseState] = {}
    for name in names:
        target = frozenset(one for one in held_privileges.get(name, ()) if not one.target.kind.is_in_database)
        if (row := there.get(name)) is not None:
            mark = marks.get(("database", name))
            found[name] = DatabaseState(
                name,
                encoding=row["encoding"],
                collation=row["collation"],
                mark=mark,
                marked_owner=marks.get(("owner", name), "") if mark is not None else "",
                privileges=target,
            )
        elif held_privileges.get(name):
            # Privileges on databases that do not exist (or on all, or by a pattern) count nevertheless.
            found[name] = DatabaseState(name, privileges=target, exists=False)
    return found


async def held_privileges(
    session: MySQLSession, accounts: AccountCatalog, own_accounts: list[AccountRecord], *, literal: bool
) -> set[HeldPrivilege]:
    """Return the privileges of accounts, from the server's system tables.

    For roles of MariaDB, information_schema would include the privileges of their roles.
    """
    server = SecuredObject(SecurableKind.SERVER, ANY_DATABASE)
    held_privileges = {
        HeldPrivilege(one.key[0], server, word, "")
        for one in own_accounts
        for word in one.global_privileges - accounts.unrevocable(one)
    }
    keys = {one.key for one in own_accounts}
    names = sorted({name for name, _ in keys})
    for table in TABLES:
        for row in await session.rows(
            "inspecting grants",
            f"SELECT * FROM mysql.{table} WHERE User IN ?",  # noqa: S608
            names,
        ):
            if (row["User"], row["Host"]) in keys:
                target = _target_of(row, literal)
                held_privileges |= {HeldPrivilege(row["User"], target, word, "") for word in _privileges_of(row)}
    return held_privileges


async def _orphaned_privileges(
    session: MySQLSession, names: list[str], assumable: AbstractSet[AccountKey], administrator: str, *, literal: bool
) -> set[HeldPrivilege]:
    """Return privileges of other accounts on databases that do not exist.

    Accounts are left out that the operator cannot have created. So are privileges on all databases, and those of the
    administrator: it may have received a database in advance and would lock itself out.
    """
    rows: list[tuple[AccountKey, SecuredObject, set[str]]] = []
    patterns = sorted({*names, *map(grant_pattern, names)})
    for table in TABLES if names else ():
        for row in await session.rows(
            "searching for grants of dropped databases",
            f"SELECT * FROM mysql.{table} WHERE Db IN ? AND Host IN ?",  # noqa: S608
            patterns,
            [ANY_HOST, ROLE_HOST],
        ):
            key, target = (row["User"], row["Host"]), _target_of(row, literal)
            if target.database in names and key not in assumable:
                rows.append((key, target, _privileges_of(row)))
    if not rows:
        return set()
    others = await read_accounts(session, {name for (name, _), _, _ in rows}, administrator)
    return {
        HeldPrivilege(
            key[0], on, word, "", owner_has_same_name=key[1] == ROLE_HOST and (key[0], ANY_HOST) in others.accounts
        )
        for key, on, message in rows
        if key in others.accounts or _is_public(key, on)
        for word in message - others.global_privileges(key)
    }


def _is_public(key: AccountKey, target: SecuredObject) -> bool:
    """Return True if the grant applies to all users.

    For whole databases this is the empty username. For other objects the empty username is a separate account.
    """
    return key[0] == PUBLIC and target.kind is SecurableKind.DATABASE


async def _public_privileges(session: MySQLSession, names: list[str], *, literal: bool) -> set[HeldPrivilege]:
    """Return privileges of all users on existing databases.

    Patterns that match further databases are left out. A pattern spelled like the database (`my_app`) counts,
    because
    its author meant only this database.
    """
    found: set[HeldPrivilege] = set()
    public = {(PUBLIC, ANY_HOST), *([(MARIADB_PUBLIC, ROLE_HOST)] if session.is_mariadb else [])}
    for row in await session.rows(
        "searching for privileges of all users",
        "SELECT * FROM mysql.db WHERE Db IN ? AND User IN ? AND Host IN ?",
        sorted({*names, *map(grant_pattern, names)}),
        list(PUBLIC_ROLES),
        [ANY_HOST, ROLE_HOST],
    ):
        target = _target_of(row, literal)
        if (row["User"], row["Host"]) in public and target.database in names:
            found |= {HeldPrivilege(row["User"], target, word, "") for word in _privileges_of(row)}
    return found


_DEFINER_QUERIES = {
    "EVENTS": "'EVENT' AS kind, EVENT_SCHEMA AS place, EVENT_NAME AS name",
    "ROUTINES": "ROUTINE_TYPE AS kind, ROUTINE_SCHEMA AS place, ROUTINE_NAME AS name",
    "TRIGGERS": "'TRIGGER' AS kind, TRIGGER_SCHEMA AS place, TRIGGER_NAME AS name",
    "VIEWS": "'VIEW' AS kind, TABLE_SCHEMA AS place, TABLE_NAME AS name",
}
"""Objects with a definer, by the table that lists them."""


async def definers_of(session: MySQLSession, names: list[str]) -> dict[str, tuple[str, ...]]:
    """Return descriptions of objects that act as some users or roles.

    Only objects that the operator may see are included. They fail without an account of the name, and otherwise act
    as this account for any caller.
    """
    accounts = {f"{name}@{ANY_HOST}": name for name in names}
    if session.is_mariadb:
        # Roles have no host. The tables report the roles of routines without the @.
        accounts |= {descriptions: name for name in names for descriptions in (name, f"{name}@{ROLE_HOST}")}
    found: dict[str, set[str]] = defaultdict(set)
    for table, columns in _DEFINER_QUERIES.items():
        for row in await session.rows(
            "searching for objects with it as definer",
            f"SELECT DEFINER AS definer, {columns} FROM information_schema.{table} WHERE DEFINER IN ?",  # noqa: S608
            sorted(accounts),
        ):
            # The server's comparison does not suffice: it may treat "orders" and "Orders" as equal.
            if row["definer"] in accounts:
                found[accounts[row["definer"]]].add(f"{row['kind'].lower()} {row['place']}.{row['name']}")
    return {name: tuple(sorted(definers)) for name, definers in found.items()}


def _target_of(row: Mapping[str, Any], literal: bool) -> SecuredObject:
    place = _text(row["Db"])
    if "Routine_name" in row:
        return SecuredObject(SecurableKind.FUNCTION, place, None, row["Routine_name"], row["Routine_type"])
    if "Table_name" in row:
        column = row.get("Column_name")
        return SecuredObject(
            SecurableKind.TABLE, place, None, _text(row["Table_name"]), column=_text(column) if column else None
        )
    if not literal and re.search(r"(?<!\\)(?:\\\\)*[_%]", place):
        # A pattern for several databases keeps its spelling, because no database can have this name.
        return SecuredObject(SecurableKind.DATABASE, place, name=place)
    plain = place if literal else re.sub(r"\\(.)", r"\1", place, flags=re.DOTALL)
    return SecuredObject(SecurableKind.DATABASE, plain)


def _privileges_of(row: Mapping[str, Any]) -> set[str]:
    """Return the privileges of a row.

    There is a column for each privilege, or a set of words.
    """
    if "Table_name" in row or "Routine_name" in row:
        columns = next(row[name] for name in ("Table_priv", "Column_priv", "Proc_priv") if name in row)
        words = columns.split(",") if isinstance(columns, str) else cast("Iterable[str]", columns or ())
    else:
        suffix = "_priv"
        words = [name.removesuffix(suffix) for name, value in row.items() if name.endswith(suffix) and value == "Y"]
    return {
        _PRIVILEGE_WORDS.get(word, word.upper())
        for word in (word.strip().replace("_", " ") for word in words)
        if word
    }


_PRIVILEGE_WORDS = {
    "Grant": GRANT_OPTION,
    "Create tmp table": "CREATE TEMPORARY TABLES",
    "Delete versioning rows": DELETE_HISTORY,
}
"""Privileges with another name in the tables than in statements."""


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def _objects(
    session: MySQLSession, databases: list[str], scope: InspectionScope, owner: str
) -> dict[str, dict[SecuredObject, str]]:
    """Return the objects of each database.

    They have no owners, so the administrator takes this place.
    """
    found: dict[str, dict[SecuredObject, str]] = defaultdict(dict)
    for row in await session.rows(
        "inspecting tables",
        "SELECT TABLE_SCHEMA AS place, TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_SCHEMA IN ?",
        databases,
    ):
        found[row["place"]][SecuredObject(SecurableKind.TABLE, row["place"], None, row["name"])] = owner
    for row in await session.rows(
        "inspecting routines",
        "SELECT ROUTINE_SCHEMA AS place, ROUTINE_NAME AS name, ROUTINE_TYPE AS kind FROM information_schema.ROUTINES"
        " WHERE ROUTINE_SCHEMA IN ?",
        databases,
    ):
        found[row["place"]][SecuredObject(SecurableKind.FUNCTION, row["place"], None, row["name"], row["kind"])] = (
            owner
        )
    for row in await session.rows(
        "inspecting columns",
        "SELECT TABLE_SCHEMA AS place, TABLE_NAME AS name, COLUMN_NAME AS part FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA IN ? AND TABLE_NAME IN ?",
        databases,
        sorted({target.name for target in scope.columns if target.name}),
    ):
        table = SecuredObject(SecurableKind.TABLE, row["place"], None, row["name"])
        if table in found[row["place"]]:
            found[row["place"]][replace(table, column=row["part"])] = owner
    return found
