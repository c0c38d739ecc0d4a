"""What is inside a MySQL or MariaDB server: looking, planning and doing, in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

from ..actions import Action, AlterDatabase, DropDatabase, DropUser, MarkDatabase, MarkUser, RevokeLeft
from ..desired import Claim, DesiredDatabase, DesiredUser
from ..errors import DefinerNeeded, LimitReached, LoginRejected, Raced, SqlFailed, StillGranted
from ..plan import Change, Plan, carried_out
from ..server import Credentials, Login, Server
from ..sessions import Sessions
from ..survey import Scope, Survey
from . import databases, names, users, verifiers
from .claims import disown, forget_database, forget_user, mark_database, write_mark
from .pool import MySQLSessions
from .session import ANYWHERE, LOCKED, Session, account, connect, identifier
from .statements import Dialect, statement
from .survey import acting_as, look, names_are_literal, roles_of_mariadb


class MySQL:
    """The `Contents` of MySQL and MariaDB."""

    name = "mysql"
    port = 3306
    uri_scheme = "mysql"

    def second_username(self, username: str) -> str:
        return username

    def check(self, desired: DesiredDatabase | DesiredUser, administrator: str) -> None:
        if isinstance(desired, DesiredDatabase):
            names.check_database(desired)
        else:
            names.check_user(desired, administrator)

    def check_name(self, field: str, name: str) -> None:
        names.check_name(field, name)

    def verifies(self, password: str, verifier: str | None) -> bool:
        return verifiers.opens(password, verifier)

    def new_verifier(self, password: str) -> str:
        return verifiers.sha2(password)

    def connect(self, server: Server) -> Sessions:
        return MySQLSessions(server)

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        return await look(_own(sessions), scope, asyncio.get_running_loop().time() + timeout)

    def plan_database(self, survey: Survey, desired: DesiredDatabase) -> Plan:
        self.check(desired, survey.administrator)
        names.check_letters(desired, survey)
        return databases.plan_database(survey, desired)

    def plan_user(self, survey: Survey, desired: DesiredUser) -> Plan:
        self.check(desired, survey.administrator)
        names.check_letters(desired, survey)
        return users.plan_user(survey, desired)

    def plan_drop_database(self, survey: Survey, name: str, claim: Claim | None) -> Plan:
        return databases.plan_drop_database(survey, name, claim)

    def plan_drop_user(self, survey: Survey, name: str, claim: Claim | None, heir: str | None) -> Plan:
        return users.plan_drop_user(survey, name, claim)

    async def carry_out(self, sessions: Sessions, plan: Plan, timeout: float = 15.0) -> tuple[Change, ...]:
        return await carried_out(plan, _hands(_own(sessions), asyncio.get_running_loop().time() + timeout))

    async def opens(self, server: Server, credentials: Credentials, database: str, timeout: float = 10.0) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        login = Login(credentials.username, credentials.password)
        try:
            session = await connect(server, login, database or None, deadline)
            try:
                # An expired password may still log in, but then do nothing.
                await session.rows("looking in", "SELECT 1")
            finally:
                await session.close()
        except LoginRejected as refusal:
            if refusal.number in LOCKED:
                raise SqlFailed(f"logging in as {credentials.username}", None, str(refusal)) from None
            return False
        except LimitReached:
            return True
        except Raced as raced:
            raise raced.failure from None
        return True

    async def admits_alike(
        self, sessions: Sessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        return one == other


@asynccontextmanager
async def _hands(sessions: MySQLSessions, deadline: float) -> AsyncGenerator[Callable[[Action], Awaitable[None]]]:
    async with sessions.session(deadline) as session:
        roles = await roles_of_mariadb(session) if session.is_mariadb else set[str]()
        dialect = Dialect(session.is_mariadb, await names_are_literal(session), roles)
        yield lambda action: _do(session, action, dialect)


async def _do(session: Session, action: Action, dialect: Dialect) -> None:
    match action:
        case MarkUser():
            await write_mark(session, "user", action.name, action.text)
        case MarkDatabase():
            if action.ahead:
                await _require_absent(session, action.name)
            await mark_database(session, action.name, action.text, action.owner)
        case RevokeLeft():
            try:
                await session.run(*statement(action, dialect))
            except SqlFailed as failure:
                raise StillGranted(failure.doing, failure.sqlstate, failure.message) from None
        case DropDatabase():
            await session.run(*statement(action, dialect))
            await forget_database(session, action.name)
        case DropUser():
            await _drop_user(session, action, dialect)
        case AlterDatabase():
            # Error 1295 where it is to be prepared.
            await session.command(*statement(action, dialect))
        case _:
            await session.run(*statement(action, dialect))


async def _require_absent(session: Session, name: str) -> None:
    """A look does not tell: on what is there and the administrator's in no way, it sees nothing."""
    doing = f"looking for database {name}"
    try:
        await session.command(doing, f"SHOW CREATE DATABASE {identifier(name)}")
    except Raced:
        return
    raise Raced(SqlFailed(doing, None, "it was made meanwhile"))


async def _drop_user(session: Session, action: DropUser, dialect: Dialect) -> None:
    # Nobody is shut out for what is not done then; and who is not out yet may define more.
    await _require_no_definer(session, action.name)
    if not action.role:
        await _shut_out(session, action.name)
        await _require_no_definer(session, action.name)
    # First, since nobody comes back for it: a Database that names it writes it down again.
    await disown(session, action.name)
    await session.run(*statement(action, dialect))
    await forget_user(session, action.name)


async def _require_no_definer(session: Session, name: str) -> None:
    if acting := (await acting_as(session, [name])).get(name):
        raise DefinerNeeded(name, acting)


async def _shut_out(session: Session, name: str) -> None:
    """The server lets whoever is in go on when the account is dropped, for as long as the session lasts.

    Sessions are known by their username: where another host has an account of this name, they may be that one's.
    """
    await session.run(f"locking user {name}", f"ALTER USER IF EXISTS {account(name)} ACCOUNT LOCK")
    alike = "SELECT 1 FROM mysql.user WHERE User = ? AND Host <> ?"
    if await session.rows("looking at accounts", alike, name, ANYWHERE):
        return
    for row in await session.rows("looking at sessions", "SHOW PROCESSLIST"):
        # Not compared by the server, to which "orders" and "Orders" would be the same here.
        if row["User"] == name:
            with suppress(SqlFailed):  # it has ended by itself, or the administrator may not end those of others
                await session.run("ending a session", f"KILL {int(row['Id'])}")


def _own(sessions: Sessions) -> MySQLSessions:
    return cast(MySQLSessions, sessions)
