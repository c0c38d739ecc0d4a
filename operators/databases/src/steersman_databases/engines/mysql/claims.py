"""Whose what is on a MySQL or MariaDB server: a table of the operator's own.

MySQL's databases and MariaDB's accounts have no place for a mark, so all marks stand in `steersman`.`claims`. A mark
is written before what it is about, and counts only while that is there. Beside a database's stands who is to own it,
which nothing else there says.
"""

from __future__ import annotations

from contextlib import suppress

from ..errors import SqlFailed
from .session import Session

DATABASE = "steersman"
ENGINE = "InnoDB"
"""The server's usual one may be one whose rows are gone when it starts again."""

SETUP = (
    f"CREATE DATABASE IF NOT EXISTS `{DATABASE}` CHARACTER SET utf8mb4",
    (
        f"CREATE TABLE IF NOT EXISTS `{DATABASE}`.`claims` (kind VARCHAR(16) CHARACTER SET ascii NOT NULL,"
        " name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, mark VARCHAR(512) NOT NULL,"
        f" PRIMARY KEY (kind, name)) ENGINE = {ENGINE}"
    ),
)


async def read_marks(session: Session) -> dict[tuple[str, str], str]:
    """The marks by kind (`user`, `database`, `owner`) and name; none before there is the table."""
    if (engine := await _engine(session)) is None:
        return {}
    if engine != ENGINE:
        # An earlier version took the server's usual one. Where this one cannot be had, they are read as they are.
        with suppress(SqlFailed):
            await session.run("moving the table of marks", f"ALTER TABLE `{DATABASE}`.`claims` ENGINE = {ENGINE}")
    rows = await session.rows("looking at marks", f"SELECT kind, name, mark FROM `{DATABASE}`.`claims`")  # noqa: S608
    return {(row["kind"], row["name"]): row["mark"] for row in rows}


async def _engine(session: Session) -> str | None:
    """Who stores the table of marks; nobody before there is one."""
    rows = await session.rows(
        "looking for marks",
        "SELECT ENGINE AS engine FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 'claims'",
        DATABASE,
    )
    return rows[0]["engine"] if rows else None


async def write_mark(session: Session, kind: str, name: str, mark: str) -> None:
    """Leave a mark, or another in its place."""
    await _write(session, name, {kind: mark})


async def mark_database(session: Session, name: str, mark: str, owner: str) -> None:
    """Leave a mark with its database's owner, or others in their place."""
    await _write(session, name, {"database": mark, "owner": owner})


async def _write(session: Session, name: str, marks: dict[str, str]) -> None:
    for statement in SETUP:
        await session.run("making the table of marks", statement)
    values = ", ".join(["(?, ?, ?)"] * len(marks))
    statement = f"REPLACE INTO `{DATABASE}`.`claims` (kind, name, mark) VALUES {values}"  # noqa: S608
    parameters = [value for kind, mark in marks.items() for value in (kind, name, mark)]
    await session.rows(f"marking {next(iter(marks))} {name}", statement, *parameters)


async def forget_database(session: Session, name: str) -> None:
    """Take its mark away with its owner, where there are any."""
    await _remove(session, f"database {name}", "name = ? AND kind IN ('database', 'owner')", name)


async def disown(session: Session, name: str) -> None:
    """A user owns nothing any more."""
    where = "kind = 'owner' AND CONVERT(mark USING utf8mb4) COLLATE utf8mb4_bin = ?"
    await _remove(session, f"owner {name}", where, name)


async def forget_user(session: Session, name: str) -> None:
    """Take a user's mark away, where there is one."""
    await _remove(session, f"user {name}", "kind = 'user' AND name = ?", name)


async def _remove(session: Session, what: str, where: str, name: str) -> None:
    if await _engine(session) is not None:
        statement = f"DELETE FROM `{DATABASE}`.`claims` WHERE {where}"  # noqa: S608
        await session.rows(f"removing the mark of {what}", statement, name)
