"""SQL engine of MySQL and MariaDB: inspection, planning and execution."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import cast

from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import (
    ConcurrentChange,
    DefinerInUse,
    LimitReached,
    LoginRejected,
    PrivilegeNotRevocable,
    SqlFailed,
)
from steersman_databases.engines.server import DatabaseServer, Login, SqlCredentials
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, OwnershipMark
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.sql_actions import (
    AlterDatabase,
    DropDatabase,
    DropRole,
    RevokeOrphaned,
    SqlAction,
    TagDatabase,
    TagUser,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, execute

from ..planning import databases, identifiers, users
from . import verifiers
from .inspection import definers_of, inspect, mariadb_roles, names_are_literal
from .ownership_table import delete_database_marks, delete_user_mark, mark_database, remove_owner, write_mark
from .pool import MySQLSessions
from .session import ACCOUNT_LOCKED_CODES, ANY_HOST, MySQLSession, connect, identifier, quoted_account
from .statements import StatementDialect, statement


class MySQLSqlEngine:
    """The `SqlEngine` of MySQL and MariaDB."""

    name = "mysql"
    port = 3306
    uri_scheme = "mysql"

    def rotation_username(self, username: str) -> str:
        return username

    def check(self, desired: DesiredDatabase | DesiredUser, administrator: str) -> None:
        if isinstance(desired, DesiredDatabase):
            identifiers.check_database(desired)
        else:
            identifiers.check_user(desired, administrator)

    def check_name(self, field: str, name: str) -> None:
        identifiers.check_name(field, name)

    def verifies(self, password: str, verifier: str | None) -> bool:
        return verifiers.matches(password, verifier)

    def is_expensive(self, verifier: str) -> bool:
        return verifiers.is_expensive(verifier)

    def new_verifier(self, password: str) -> str:
        return verifiers.sha2_verifier(password)

    def connect(self, server: DatabaseServer) -> ServerSessions:
        return MySQLSessions(server)

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        return await inspect(_typed_sessions(sessions), scope, asyncio.get_running_loop().time() + timeout)

    async def write_counters(self, sessions: ServerSessions, timeout: float = 15.0) -> Mapping[str, int]:
        return {}

    def plan_database(self, inspection: Inspection, desired: DesiredDatabase) -> SqlPlan:
        self.check(desired, inspection.administrator)
        identifiers.check_lower_case(desired, inspection)
        return databases.plan_database(inspection, desired)

    def plan_user(self, inspection: Inspection, desired: DesiredUser) -> SqlPlan:
        self.check(desired, inspection.administrator)
        identifiers.check_lower_case(desired, inspection)
        return users.plan_user(inspection, desired)

    def plan_drop_database(self, inspection: Inspection, name: str, mark: OwnershipMark | None) -> SqlPlan:
        return databases.plan_drop_database(inspection, name, mark)

    def plan_drop_user(
        self, inspection: Inspection, name: str, mark: OwnershipMark | None, new_owner: str | None
    ) -> SqlPlan:
        return users.plan_drop_user(inspection, name, mark)

    async def execute(self, sessions: ServerSessions, plan: SqlPlan, timeout: float = 15.0) -> tuple[SqlChange, ...]:
        return await execute(plan, _executor(_typed_sessions(sessions), asyncio.get_running_loop().time() + timeout))

    async def can_log_in(
        self, server: DatabaseServer, credentials: SqlCredentials, database: str, timeout: float = 10.0
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        login = Login(credentials.username, credentials.password)
        try:
            session = await connect(server, login, database or None, deadline)
            try:
                # A login with an expired password succeeds, but no other statement does.
                await session.rows("inspecting", "SELECT 1")
            finally:
                await session.close()
        except LoginRejected as refusal:
            if refusal.number in ACCOUNT_LOCKED_CODES:
                raise SqlFailed(f"logging in as {credentials.username}", None, str(refusal)) from None
            return False
        except LimitReached:
            return True
        except ConcurrentChange as raced:
            raise raced.failure from None
        return True

    async def same_hba_access(
        self, sessions: ServerSessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        return one == other


@asynccontextmanager
async def _executor(
    sessions: MySQLSessions, deadline: float
) -> AsyncGenerator[Callable[[SqlAction], Awaitable[None]]]:
    async with sessions.session(deadline) as session:
        roles = await mariadb_roles(session) if session.is_mariadb else set[str]()
        dialect = StatementDialect(session.is_mariadb, await names_are_literal(session), roles)
        yield lambda action: _execute(session, action, dialect)


async def _execute(session: MySQLSession, action: SqlAction, dialect: StatementDialect) -> None:
    match action:
        case TagUser():
            await write_mark(session, "user", action.name, action.text)
        case TagDatabase():
            if action.before_creation:
                await _require_absent(session, action.name)
            await mark_database(session, action.name, action.text, action.owner)
        case RevokeOrphaned():
            try:
                await session.run(*statement(action, dialect))
            except SqlFailed as failure:
                raise PrivilegeNotRevocable(failure.operation, failure.sqlstate, failure.message) from None
        case DropDatabase():
            await session.run(*statement(action, dialect))
            await delete_database_marks(session, action.name)
        case DropRole():
            await _drop_user(session, action, dialect)
        case AlterDatabase():
            # The server refuses to prepare it with error 1295.
            await session.command(*statement(action, dialect))
        case _:
            await session.run(*statement(action, dialect))


async def _require_absent(session: MySQLSession, name: str) -> None:
    """Raise `ConcurrentChange` if the database exists.

    An inspection does not suffice: it does not see databases on which the administrator has no privileges.
    """
    operation = f"searching for database {name}"
    try:
        await session.command(operation, f"SHOW CREATE DATABASE {identifier(name)}")
    except ConcurrentChange:
        return
    raise ConcurrentChange(SqlFailed(operation, None, "it was created meanwhile"))


async def _drop_user(session: MySQLSession, action: DropRole, dialect: StatementDialect) -> None:
    # The check comes before the lock, so that a refusal locks no user. It is repeated afterwards, because open
    # sessions may create more definers.
    await _require_no_definer(session, action.name)
    if not action.is_role:
        await _terminate_sessions(session, action.name)
        await _require_no_definer(session, action.name)
    # First, because an interruption would leave it behind. A Database that names this owner writes it again.
    await remove_owner(session, action.name)
    await session.run(*statement(action, dialect))
    await delete_user_mark(session, action.name)


async def _require_no_definer(session: MySQLSession, name: str) -> None:
    if definers := (await definers_of(session, [name])).get(name):
        raise DefinerInUse(name, definers)


async def _terminate_sessions(session: MySQLSession, name: str) -> None:
    """Lock an account and terminate its sessions.

    A session would otherwise survive the account. Sessions show only a username. If an account of this name exists
    for another host, the session may belong to that account.
    """
    await session.run(f"locking user {name}", f"ALTER USER IF EXISTS {quoted_account(name)} ACCOUNT LOCK")
    same_user = "SELECT 1 FROM mysql.user WHERE User = ? AND Host <> ?"
    if await session.rows("inspecting accounts", same_user, name, ANY_HOST):
        return
    for row in await session.rows("inspecting sessions", "SHOW PROCESSLIST"):
        # The server may treat "orders" and "Orders" as equal, so the comparison is done here.
        if row["User"] == name:
            with suppress(SqlFailed):  # the session has ended, or the administrator may not end sessions of others
                await session.run("ending a session", f"KILL {int(row['Id'])}")


def _typed_sessions(sessions: ServerSessions) -> MySQLSessions:
    return cast(MySQLSessions, sessions)
