"""Whose what is on a MySQL or MariaDB server: a table of the operator's own.

MySQL's databases and MariaDB's accounts have no place for a mark, so all marks stand in `steersman`.`claims`. A mark
is written before what it is about, and counts only while that is there.
"""

from __future__ import annotations

from .session import Session

DATABASE = "steersman"

SETUP = (
    f"CREATE DATABASE IF NOT EXISTS `{DATABASE}` CHARACTER SET utf8mb4",
    (
        f"CREATE TABLE IF NOT EXISTS `{DATABASE}`.`claims` (kind VARCHAR(16) CHARACTER SET ascii NOT NULL,"
        " name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, mark VARCHAR(512) NOT NULL,"
        " PRIMARY KEY (kind, name))"
    ),
)


async def read_marks(session: Session) -> dict[tuple[str, str], str]:
    """The marks by kind (`user`, `database`) and name; none before there is the table."""
    there = await session.rows(
        "looking for marks",
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 'claims'",
        DATABASE,
    )
    if not there:
        return {}
    rows = await session.rows("looking at marks", f"SELECT kind, name, mark FROM `{DATABASE}`.`claims`")  # noqa: S608
    return {(row["kind"], row["name"]): row["mark"] for row in rows}


async def write_mark(session: Session, kind: str, name: str, mark: str) -> None:
    """Leave a mark, or another in its place."""
    for statement in SETUP:
        await session.run("making the table of marks", statement)
    statement = f"REPLACE INTO `{DATABASE}`.`claims` (kind, name, mark) VALUES (?, ?, ?)"  # noqa: S608
    await session.rows(f"marking {kind} {name}", statement, kind, name, mark)


async def remove_mark(session: Session, kind: str, name: str) -> None:
    """Take a mark away, where there is one."""
    if (kind, name) in await read_marks(session):
        statement = f"DELETE FROM `{DATABASE}`.`claims` WHERE kind = ? AND name = ?"  # noqa: S608
        await session.rows(f"removing the mark of {kind} {name}", statement, kind, name)
