"""What is on a MySQL or MariaDB server, looked up in its own tables. Accounts are those for every host, `u`@`%`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, cast

from ..desired import ObjectKind
from ..granting import GRANT_OPTION
from ..survey import PUBLIC, DatabaseState, Inside, Privilege, Scope, SecuredObject, Survey
from .accounts import NOWHERE, TABLES, Account, Accounts, Key, read_accounts
from .claims import read_marks
from .grants import EVERYBODY, EVERYWHERE, HISTORY, MARIADBS_PUBLIC
from .pool import MySQLSessions
from .session import ANYWHERE, Session, pattern


async def look(sessions: MySQLSessions, scope: Scope, deadline: float) -> Survey:
    """One survey, in one session."""
    async with sessions.session(deadline) as session:
        [row] = await session.rows("looking at the server", "SELECT VERSION() AS v, @@lower_case_table_names AS l")
        major, minor = re.findall(r"\d+", row["v"])[:2]
        administrator = sessions.server.login.username
        accounts = await read_accounts(session, scope.all_users, administrator)
        own = [account for name in sorted(scope.all_users) if (account := accounts.own(name)) is not None]
        held: dict[str, set[Privilege]] = defaultdict(set)
        literal = await names_are_literal(session)
        for one in await held_by(session, accounts, own, literal=literal):
            held[one.on.database].add(one)
        # They are written before what they are about: read later, whatever was seen has its mark, and its owner.
        marks = await read_marks(session)
        there = await _schemata(session, sorted(scope.databases | held.keys()))
        absent = sorted(scope.databases - there.keys())
        for one in await _left_on(session, absent, accounts.given(marks), administrator, literal=literal):
            held[one.on.database].add(one)
        for one in await _open_to_all(session, sorted(there), literal=literal):
            held[one.on.database].add(one)
        databases = _databases(sorted(scope.databases | held.keys()), there, marks, held)
        missing = sorted(scope.all_users - {account.key[0] for account in own})
        objects = await _objects(session, sorted(scope.inside), scope, administrator)
        acting = await acting_as(session, sorted({*missing, *scope.dropped}))
        return Survey(
            product="MariaDB" if session.is_mariadb else "MySQL",
            version=(int(major), int(minor)),
            administrator=administrator,
            users={account.key[0]: accounts.state(account, marks.get(("user", account.key[0]))) for account in own},
            databases=databases,
            hidden={
                name: mark
                for name in scope.databases - there.keys()
                if (mark := marks.get(("database", name))) is not None
            },
            lowers=row["l"] != 0,
            acts_by=frozenset(name for name, _ in accounts.acting),
            narrower={
                name: any(accounts.might(one) != (False, False) for one in others)
                for name in scope.all_users
                if (others := accounts.others(name))
            },
            orphaned={name: marks.get(("user", name)) for name in missing if name in acting},
            acting={name: acting[name] for name in scope.dropped if name in acting},
            inside={
                name: Inside(
                    objects=objects.get(name, {}),
                    privileges=frozenset(one for one in held[name] if one.on.kind.is_inside),
                )
                for name in databases
            },
        )


async def names_are_literal(session: Session) -> bool:
    """Whether GRANT takes a database's name as it is, rather than as a pattern (MySQL's partial_revokes)."""
    rows = await session.rows("looking at the server's settings", "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
    return any(row["Value"] == "ON" for row in rows)


async def roles_of_mariadb(session: Session) -> set[str]:
    """All that are no accounts, and have no account of their name beside them."""
    rows = await session.rows(
        "looking at roles",
        "SELECT User, Host FROM mysql.global_priv WHERE Host IN ?",
        [ANYWHERE, NOWHERE],
    )
    named = {host: {row["User"] for row in rows if row["Host"] == host} for host in (ANYWHERE, NOWHERE)}
    return named[NOWHERE] - named[ANYWHERE]


async def _schemata(session: Session, names: list[str]) -> dict[str, Mapping[str, Any]]:
    """Which of some databases are there."""
    rows = await session.rows(
        "looking for databases",
        "SELECT SCHEMA_NAME AS name, DEFAULT_CHARACTER_SET_NAME AS encoding, DEFAULT_COLLATION_NAME AS collation"
        " FROM information_schema.SCHEMATA WHERE SCHEMA_NAME IN ?",
        names,
    )
    return {row["name"]: row for row in rows}


def _databases(
    names: list[str],
    there: Mapping[str, Mapping[str, Any]],
    marks: Mapping[tuple[str, str], str],
    held: Mapping[str, set[Privilege]],
) -> dict[str, DatabaseState]:
    found: dict[str, DatabaseState] = {}
    for name in names:
        on = frozenset(one for one in held.get(name, ()) if not one.on.kind.is_inside)
        if (row := there.get(name)) is not None:
            mark = marks.get(("database", name))
            found[name] = DatabaseState(
                name,
                encoding=row["encoding"],
                collation=row["collation"],
                mark=mark,
                marked_owner=marks.get(("owner", name), "") if mark is not None else "",
                privileges=on,
            )
        elif held.get(name):
            # What is held on databases that are not there (or everywhere, or by a pattern) is held nevertheless.
            found[name] = DatabaseState(name, privileges=on, exists=False)
    return found


async def held_by(session: Session, accounts: Accounts, own: list[Account], *, literal: bool) -> set[Privilege]:
    """What they were granted. By the server's own tables: those of information_schema say of a role of MariaDB's also
    what it has by other roles.
    """
    server = SecuredObject(ObjectKind.SERVER, EVERYWHERE)
    held = {
        Privilege(one.key[0], server, word, "") for one in own for word in one.on_server - accounts.out_of_reach(one)
    }
    keys = {one.key for one in own}
    names = sorted({name for name, _ in keys})
    for table in TABLES:
        for row in await session.rows(
            "looking at grants",
            f"SELECT * FROM mysql.{table} WHERE User IN ?",  # noqa: S608
            names,
        ):
            if (row["User"], row["Host"]) in keys:
                on = _granted_on(row, literal)
                held |= {Privilege(row["User"], on, word, "") for word in _granted(row)}
    return held


async def _left_on(
    session: Session, names: list[str], given: AbstractSet[Key], administrator: str, *, literal: bool
) -> set[Privilege]:
    """What anybody whom the operator could have made was granted on databases that are not there.

    But for what it has everywhere; and for the administrator, who may have been given a database before it is there,
    and would lock itself out.
    """
    rows: list[tuple[Key, SecuredObject, set[str]]] = []
    spelled = sorted({*names, *map(pattern, names)})
    for table in TABLES if names else ():
        for row in await session.rows(
            "looking for grants that a database left",
            f"SELECT * FROM mysql.{table} WHERE Db IN ? AND Host IN ?",  # noqa: S608
            spelled,
            [ANYWHERE, NOWHERE],
        ):
            key, on = (row["User"], row["Host"]), _granted_on(row, literal)
            if on.database in names and key not in given:
                rows.append((key, on, _granted(row)))
    if not rows:
        return set()
    others = await read_accounts(session, {name for (name, _), _, _ in rows}, administrator)
    return {
        Privilege(key[0], on, word, "", namesake=key[1] == NOWHERE and (key[0], ANYWHERE) in others.found)
        for key, on, words in rows
        if key in others.found or _is_everybodys(key, on)
        for word in words - others.everywhere(key)
    }


def _is_everybodys(key: Key, on: SecuredObject) -> bool:
    """On whole databases no user means each, but elsewhere the one without a name."""
    return key[0] == PUBLIC and on.kind is ObjectKind.DATABASE


async def _open_to_all(session: Session, names: list[str], *, literal: bool) -> set[Privilege]:
    """What everybody has on databases that are there, but by a pattern, which means others, too: not so one that is
    spelled as the database, as `my_app`, by somebody who thought of that alone.
    """
    found: set[Privilege] = set()
    public = {(PUBLIC, ANYWHERE), *([(MARIADBS_PUBLIC, NOWHERE)] if session.is_mariadb else [])}
    for row in await session.rows(
        "looking for what everybody may do",
        "SELECT * FROM mysql.db WHERE Db IN ? AND User IN ? AND Host IN ?",
        sorted({*names, *map(pattern, names)}),
        list(EVERYBODY),
        [ANYWHERE, NOWHERE],
    ):
        on = _granted_on(row, literal)
        if (row["User"], row["Host"]) in public and on.database in names:
            found |= {Privilege(row["User"], on, word, "") for word in _granted(row)}
    return found


_ACTING = {
    "EVENTS": "'EVENT' AS kind, EVENT_SCHEMA AS place, EVENT_NAME AS name",
    "ROUTINES": "ROUTINE_TYPE AS kind, ROUTINE_SCHEMA AS place, ROUTINE_NAME AS name",
    "TRIGGERS": "'TRIGGER' AS kind, TRIGGER_SCHEMA AS place, TRIGGER_NAME AS name",
    "VIEWS": "'VIEW' AS kind, TABLE_SCHEMA AS place, TABLE_NAME AS name",
}
"""What has a definer, by the table that tells it."""


async def acting_as(session: Session, names: list[str]) -> dict[str, tuple[str, ...]]:
    """What acts as some users and roles, in words, of what the operator may see: whoever gets the name acts for
    whoever calls it, and without anybody of the name it fails.
    """
    accounts = {f"{name}@{ANYWHERE}": name for name in names}
    if session.is_mariadb:
        # Of roles, which have no host: those of routines are told without the @.
        accounts |= {told: name for name in names for told in (name, f"{name}@{NOWHERE}")}
    found: dict[str, set[str]] = defaultdict(set)
    for table, columns in _ACTING.items():
        for row in await session.rows(
            "looking for what acts as its definer",
            f"SELECT DEFINER AS definer, {columns} FROM information_schema.{table} WHERE DEFINER IN ?",  # noqa: S608
            sorted(accounts),
        ):
            # Not compared by the server alone, to which "orders" and "Orders" may be the same here.
            if row["definer"] in accounts:
                found[accounts[row["definer"]]].add(f"{row['kind'].lower()} {row['place']}.{row['name']}")
    return {name: tuple(sorted(acting)) for name, acting in found.items()}


def _granted_on(row: Mapping[str, Any], literal: bool) -> SecuredObject:
    place = _text(row["Db"])
    if "Routine_name" in row:
        return SecuredObject(ObjectKind.FUNCTION, place, None, row["Routine_name"], row["Routine_type"])
    if "Table_name" in row:
        column = row.get("Column_name")
        return SecuredObject(
            ObjectKind.TABLE, place, None, _text(row["Table_name"]), column=_text(column) if column else None
        )
    if not literal and re.search(r"(?<!\\)(?:\\\\)*[_%]", place):
        # A pattern over several databases: kept as it stands, since no database's name may take its place.
        return SecuredObject(ObjectKind.DATABASE, place, name=place)
    plain = place if literal else re.sub(r"\\(.)", r"\1", place, flags=re.DOTALL)
    return SecuredObject(ObjectKind.DATABASE, plain)


def _granted(row: Mapping[str, Any]) -> set[str]:
    """The privileges of one row: a column each, or one set of words."""
    if "Table_name" in row or "Routine_name" in row:
        told = next(row[name] for name in ("Table_priv", "Column_priv", "Proc_priv") if name in row)
        words = told.split(",") if isinstance(told, str) else cast("Iterable[str]", told or ())
    else:
        ending = "_priv"
        words = [name.removesuffix(ending) for name, value in row.items() if name.endswith(ending) and value == "Y"]
    return {_WORDS.get(word, word.upper()) for word in (word.strip().replace("_", " ") for word in words) if word}


_WORDS = {"Grant": GRANT_OPTION, "Create tmp table": "CREATE TEMPORARY TABLES", "Delete versioning rows": HISTORY}
"""Privileges whose names in the tables are not those in statements."""


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def _objects(
    session: Session, databases: list[str], scope: Scope, owner: str
) -> dict[str, dict[SecuredObject, str]]:
    """What is in each database. Nobody owns it, so the administrator stands in the owner's place."""
    found: dict[str, dict[SecuredObject, str]] = defaultdict(dict)
    for row in await session.rows(
        "looking at tables",
        "SELECT TABLE_SCHEMA AS place, TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_SCHEMA IN ?",
        databases,
    ):
        found[row["place"]][SecuredObject(ObjectKind.TABLE, row["place"], None, row["name"])] = owner
    for row in await session.rows(
        "looking at routines",
        "SELECT ROUTINE_SCHEMA AS place, ROUTINE_NAME AS name, ROUTINE_TYPE AS kind FROM information_schema.ROUTINES"
        " WHERE ROUTINE_SCHEMA IN ?",
        databases,
    ):
        found[row["place"]][SecuredObject(ObjectKind.FUNCTION, row["place"], None, row["name"], row["kind"])] = owner
    for row in await session.rows(
        "looking at columns",
        "SELECT TABLE_SCHEMA AS place, TABLE_NAME AS name, COLUMN_NAME AS part FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA IN ? AND TABLE_NAME IN ?",
        databases,
        sorted({on.name for on in scope.columns if on.name}),
    ):
        table = SecuredObject(ObjectKind.TABLE, row["place"], None, row["name"])
        if table in found[row["place"]]:
            found[row["place"]][replace(table, column=row["part"])] = owner
    return found
