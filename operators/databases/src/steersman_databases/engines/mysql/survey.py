"""What is on a MySQL or MariaDB server, looked up in its own tables. Accounts are those for every host, `u`@`%`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from ..desired import ObjectKind
from ..survey import DatabaseState, Inside, Privilege, Scope, SecuredObject, Survey, UserState
from .claims import read_marks
from .grants import EVERYWHERE
from .pool import MySQLSessions
from .session import Session

MIGHTY = frozenset(
    {"SUPER", "CREATE USER", "GRANT OPTION", "FILE", "SHUTDOWN", "REPLICATION SLAVE"}
    | {"INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER"}
)
"""Rights over the whole server with which an account could reach beyond its databases."""

_ACCOUNT = "CONCAT('''', ?, '''@''%''')"
"""As the server writes it there: between quotes, and with none of them escaped."""


async def look(sessions: MySQLSessions, scope: Scope, deadline: float) -> Survey:
    """One survey, in one session."""
    async with sessions.session(deadline) as session:
        [row] = await session.rows("looking at the server", "SELECT VERSION() AS v")
        major, minor = re.findall(r"\d+", row["v"])[:2]
        literal = await _names_are_literal(session)
        marks = await read_marks(session)
        users = {name: state for name in sorted(scope.users) if (state := await _user(session, name, marks))}
        narrower = {name: mighty for name in scope.users if (mighty := await _narrower(session, name)) is not None}
        privileges: set[Privilege] = set()
        for name in users:
            privileges |= await _held(session, name, literal)
        held: dict[str, set[Privilege]] = defaultdict(set)
        for one in privileges:
            held[one.on.database].add(one)
        mighty = {one.grantee for one in held[EVERYWHERE] if one.privilege in MIGHTY or one.grantable}
        databases = await _databases(session, scope.databases | held.keys(), marks, held)
        return Survey(
            product="MariaDB" if session.is_mariadb else "MySQL",
            version=(int(major), int(minor)),
            administrator=sessions.server.login.username,
            users={name: _with_might(state, name in mighty) for name, state in users.items()},
            databases=databases,
            narrower=narrower,
            inside={
                name: Inside(
                    objects=await _objects(session, name, sessions.server.login.username)
                    if name in scope.inside
                    else {},
                    privileges=frozenset(one for one in held[name] if one.on.kind is not ObjectKind.DATABASE),
                )
                for name in databases
            },
        )


def _with_might(state: UserState, mighty: bool) -> UserState:
    return replace(state, superuser=mighty)


async def _names_are_literal(session: Session) -> bool:
    """Whether GRANT takes a database's name as it is, rather than as a pattern (MySQL's partial_revokes)."""
    rows = await session.rows("looking at the server's settings", "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
    return any(row["Value"] == "ON" for row in rows)


async def _user(session: Session, name: str, marks: Mapping[tuple[str, str], str]) -> UserState | None:
    find = _mariadb_user if session.is_mariadb else _mysql_user
    fields = await find(session, name)
    return UserState(name, mark=marks.get(("user", name)), **fields) if fields is not None else None


async def _mysql_user(session: Session, name: str) -> dict[str, Any] | None:
    rows = await session.rows(
        "looking for the user",
        "SELECT User, plugin, CONVERT(authentication_string USING latin1) AS kept, account_locked, password_expired,"
        " max_user_connections, JSON_UNQUOTE(JSON_EXTRACT(User_attributes, '$.additional_password')) AS retained"
        " FROM mysql.user WHERE User = ? AND Host = '%'",
        name,
    )
    # Some collations take "orders" and "Orders" for the same.
    for row in rows:
        if row["User"] == name:
            expired = row["password_expired"] == "Y"  # noqa: S105
            kept, retained = row["kept"], row["retained"]
            return {
                "locked": row["account_locked"] == "Y",
                "verifier": f"{row['plugin']}:{kept}" if kept and not expired else None,
                "second_verifier": f"{row['plugin']}:{retained}" if retained else None,
                "connection_limit": row["max_user_connections"] or -1,
            }
    return None


async def _mariadb_user(session: Session, name: str) -> dict[str, Any] | None:
    rows = await session.rows(
        "looking for the user", "SELECT User, Priv FROM mysql.global_priv WHERE User = ? AND Host = '%'", name
    )
    for row in rows:
        if row["User"] == name:
            told = cast("dict[str, Any]", json.loads(row["Priv"]))
            kept, expired = told.get("authentication_string"), told.get("password_last_changed") == 0
            return {
                "locked": bool(told.get("account_locked")),
                "verifier": f"{told.get('plugin')}:{kept}" if kept and not expired else None,
                "connection_limit": told.get("max_user_connections") or -1,
            }
    return None


async def _narrower(session: Session, name: str) -> bool | None:
    """Whether an account of this name for narrower hosts is mighty; `None` where there is none."""
    rows = await session.rows(
        "looking for accounts of other hosts",
        "SELECT PRIVILEGE_TYPE AS privilege FROM information_schema.USER_PRIVILEGES"  # noqa: S608
        " WHERE BINARY LEFT(GRANTEE, CHAR_LENGTH(?) + 4) = BINARY CONCAT('''', ?, '''@''')"
        f" AND BINARY GRANTEE <> BINARY {_ACCOUNT}",
        name,
        name,
        name,
    )
    return any(row["privilege"].upper() in MIGHTY for row in rows) if rows else None


async def _databases(
    session: Session,
    names: Iterable[str],
    marks: Mapping[tuple[str, str], str],
    held: Mapping[str, set[Privilege]],
) -> dict[str, DatabaseState]:
    found: dict[str, DatabaseState] = {}
    for name in sorted(names):
        rows = await session.rows(
            "looking for the database",
            "SELECT SCHEMA_NAME AS name, DEFAULT_CHARACTER_SET_NAME AS encoding, DEFAULT_COLLATION_NAME AS collation"
            " FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?",
            name,
        )
        on = frozenset(one for one in held.get(name, ()) if one.on.kind is ObjectKind.DATABASE)
        for row in rows:
            if row["name"] == name:
                found[name] = DatabaseState(
                    name,
                    encoding=row["encoding"],
                    collation=row["collation"],
                    mark=marks.get(("database", name)),
                    privileges=on,
                )
    # What is held on databases that are not there (or everywhere, or by a pattern) is held nevertheless.
    for name, privileges in held.items():
        if name not in found and privileges:
            found[name] = DatabaseState(name, privileges=frozenset(privileges), exists=False)
    return found


async def _held(session: Session, name: str, literal: bool) -> set[Privilege]:
    held: set[Privilege] = set()
    for table, columns in (
        ("USER_PRIVILEGES", ""),
        ("SCHEMA_PRIVILEGES", ", TABLE_SCHEMA AS place"),
        ("TABLE_PRIVILEGES", ", TABLE_SCHEMA AS place, TABLE_NAME AS named"),
        ("COLUMN_PRIVILEGES", ", TABLE_SCHEMA AS place, TABLE_NAME AS named, COLUMN_NAME AS part"),
    ):
        rows = await session.rows(
            "looking at the user's grants",
            f"SELECT PRIVILEGE_TYPE AS privilege, IS_GRANTABLE AS grantable{columns}"  # noqa: S608
            f" FROM information_schema.{table} WHERE BINARY GRANTEE = BINARY {_ACCOUNT}",
            name,
        )
        for row in rows:
            on = _place(row, literal)
            if row["privilege"] != "USAGE":
                held.add(Privilege(name, on, row["privilege"].upper(), "", row["grantable"] == "YES"))
    rows = await session.rows(
        "looking at the user's routines",
        "SELECT Db, Routine_name, Routine_type, Proc_priv FROM mysql.procs_priv"
        " WHERE Host = '%' AND BINARY User = BINARY ?",
        name,
    )
    for row in rows:
        on = SecuredObject(ObjectKind.FUNCTION, _text(row["Db"]), None, row["Routine_name"], row["Routine_type"])
        words = {word.strip().upper() for word in _words(row["Proc_priv"])}
        held |= {Privilege(name, on, word, "", "GRANT" in words) for word in words - {"GRANT"}}
    return held


def _words(value: object) -> Iterable[str]:
    return value.split(",") if isinstance(value, str) else cast("Iterable[str]", value or ())


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _place(row: Mapping[str, Any], literal: bool) -> SecuredObject:
    if "place" not in row:
        return SecuredObject(ObjectKind.DATABASE, EVERYWHERE)
    if "named" in row:
        return SecuredObject(ObjectKind.TABLE, row["place"], None, row["named"], column=row.get("part"))
    plain = re.sub(r"\\(.)", r"\1", row["place"], flags=re.DOTALL)
    if not literal and re.search(r"(?<!\\)(?:\\\\)*[_%]", row["place"]):
        # A pattern over several databases: kept as it stands, since no database's name may take its place.
        return SecuredObject(ObjectKind.DATABASE, row["place"], name=row["place"])
    return SecuredObject(ObjectKind.DATABASE, row["place"] if literal else plain)


async def _objects(session: Session, database: str, owner: str) -> dict[SecuredObject, str]:
    tables = await session.rows(
        "looking at tables",
        "SELECT TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?",
        database,
    )
    routines = await session.rows(
        "looking at routines",
        "SELECT ROUTINE_NAME AS name, ROUTINE_TYPE AS kind FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = ?",
        database,
    )
    found = [SecuredObject(ObjectKind.TABLE, database, None, row["name"]) for row in tables]
    found += [SecuredObject(ObjectKind.FUNCTION, database, None, row["name"], row["kind"]) for row in routines]
    return dict.fromkeys(found, owner)
