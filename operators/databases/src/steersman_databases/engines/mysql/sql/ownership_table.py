"""Ownership marks on a server, in the operator's own table.

Databases of MySQL and accounts of MariaDB have no comment, so all marks are in `steersman`.`claims`. A mark is
written before its object and counts only while the object exists. The mark of a database is stored with the
database's owner, because the server has no owners.
"""

from __future__ import annotations

from contextlib import suppress

from steersman_databases.engines.errors import SqlFailed

from .session import MySQLSession

DATABASE = "steersman"
ENGINE = "InnoDB"
"""The server's default engine may lose rows at a restart."""

SETUP = (
    f"CREATE DATABASE IF NOT EXISTS `{DATABASE}` CHARACTER SET utf8mb4",
    (
        f"CREATE TABLE IF NOT EXISTS `{DATABASE}`.`claims` (kind VARCHAR(16) CHARACTER SET ascii NOT NULL,"
        " name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, mark VARCHAR(512) NOT NULL,"
        f" PRIMARY KEY (kind, name)) ENGINE = {ENGINE}"
    ),
)


async def read_marks(session: MySQLSession) -> dict[tuple[str, str], str]:
    """Return the marks by kind (`user`, `database`, `owner`) and name.

    Empty if the table does not exist yet.
    """
    if (engine := await _engine(session)) is None:
        return {}
    if engine != ENGINE:
        # Earlier versions used the server's default engine. If the conversion fails, the marks are read as they are.
        with suppress(SqlFailed):
            await session.run("moving the table of marks", f"ALTER TABLE `{DATABASE}`.`claims` ENGINE = {ENGINE}")
    rows = await session.rows("inspecting marks", f"SELECT kind, name, mark FROM `{DATABASE}`.`claims`")  # noqa: S608
    return {(row["kind"], row["name"]): row["mark"] for row in rows}


async def _engine(session: MySQLSession) -> str | None:
    """Return the storage engine of the table, or None without a table."""
    rows = await session.rows(
        "searching for marks",
        "SELECT ENGINE AS engine FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 'claims'",
        DATABASE,
    )
    return rows[0]["engine"] if rows else None


async def write_mark(session: MySQLSession, kind: str, name: str, mark: str) -> None:
    """Write or replace a mark."""
    await _upsert(session, name, {kind: mark})


async def mark_database(session: MySQLSession, name: str, mark: str, owner: str) -> None:
    """Write or replace the mark of a database with its owner."""
    await _upsert(session, name, {"database": mark, "owner": owner})


async def _upsert(session: MySQLSession, name: str, marks: dict[str, str]) -> None:
    for statement in SETUP:
        await session.run("creating the table of marks", statement)
    values = ", ".join(["(?, ?, ?)"] * len(marks))
    statement = f"REPLACE INTO `{DATABASE}`.`claims` (kind, name, mark) VALUES {values}"  # noqa: S608
    parameters = [value for kind, mark in marks.items() for value in (kind, name, mark)]
    await session.rows(f"marking {next(iter(marks))} {name}", statement, *parameters)


async def delete_database_marks(session: MySQLSession, name: str) -> None:
    """Delete the mark of a database, and its owner."""
    await _delete(session, f"database {name}", "name = ? AND kind IN ('database', 'owner')", name)


async def remove_owner(session: MySQLSession, name: str) -> None:
    """Delete the ownership of a user in all databases."""
    where = "kind = 'owner' AND CONVERT(mark USING utf8mb4) COLLATE utf8mb4_bin = ?"
    await _delete(session, f"owner {name}", where, name)


async def delete_user_mark(session: MySQLSession, name: str) -> None:
    """Delete the mark of a user."""
    await _delete(session, f"user {name}", "kind = 'user' AND name = ?", name)


async def _delete(session: MySQLSession, operation: str, where: str, name: str) -> None:
    if await _engine(session) is not None:
        statement = f"DELETE FROM `{DATABASE}`.`claims` WHERE {where}"  # noqa: S608
        await session.rows(f"removing the mark of {operation}", statement, name)
