"""SQL engine of PostgreSQL: inspection, planning and execution.

Statements run in the maintenance database if possible. Applications can write to other databases. There the
operator only reads catalogs and runs GRANT, REVOKE, ALTER … OWNER, CREATE SCHEMA, CREATE EXTENSION, REASSIGN and
DROP OWNED, which call no functions of users. `search_path` is `pg_catalog` from the startup packet on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import cast

from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import (
    ConcurrentChange,
    LimitReached,
    LoginRejected,
    ServerUnreachable,
    SqlFailed,
)
from steersman_databases.engines.postgresql.sql.accounts import ownership, verifiers
from steersman_databases.engines.server import DatabaseServer, Login, SqlCredentials
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, OwnershipMark
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.sql_actions import (
    CreateExtension,
    GrantPrivileges,
    RestoreOwnership,
    RevokePrivileges,
    SqlAction,
    UpdateExtension,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, execute

from ..planning import databases, identifiers, roles
from .hba_equivalence import is_distinguished
from .inspection import WRITE_COUNTERS_QUERY, inspect
from .pool import PostgreSQLSessions
from .session import QUERY_CANCELED, TOO_MANY_CONNECTIONS, PostgreSQLSession, connect
from .statements import StatementBatch, as_superuser, lengthy_part, statements_for, with_schema_usage


class PostgreSQLSqlEngine:
    """The `SqlEngine` of PostgreSQL."""

    name = "postgresql"
    port = 5432
    uri_scheme = "postgresql"

    def rotation_username(self, username: str) -> str:
        return identifiers.rotation_role_name(username)

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
        return verifiers.scram_verifier(password)

    def connect(self, server: DatabaseServer) -> ServerSessions:
        return PostgreSQLSessions(server)

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        return await inspect(_typed_sessions(sessions), scope, asyncio.get_running_loop().time() + timeout)

    async def write_counters(self, sessions: ServerSessions, timeout: float = 15.0) -> Mapping[str, int]:
        deadline = asyncio.get_running_loop().time() + timeout
        async with _typed_sessions(sessions).at(None, deadline) as session:
            return dict(await session.rows("inspecting statistics", WRITE_COUNTERS_QUERY))

    def plan_database(self, inspection: Inspection, desired: DesiredDatabase) -> SqlPlan:
        self.check(desired, inspection.administrator)
        return databases.plan_database(inspection, desired)

    def plan_user(self, inspection: Inspection, desired: DesiredUser) -> SqlPlan:
        self.check(desired, inspection.administrator)
        return roles.plan_user(inspection, desired)

    def plan_drop_database(self, inspection: Inspection, name: str, mark: OwnershipMark | None) -> SqlPlan:
        return databases.plan_drop_database(inspection, name, mark)

    def plan_drop_user(
        self, inspection: Inspection, name: str, mark: OwnershipMark | None, new_owner: str | None
    ) -> SqlPlan:
        return roles.plan_drop_user(inspection, name, mark, new_owner)

    async def execute(self, sessions: ServerSessions, plan: SqlPlan, timeout: float = 15.0) -> tuple[SqlChange, ...]:
        deadline = asyncio.get_running_loop().time() + timeout
        return await execute(plan, _Executor(_typed_sessions(sessions), deadline))

    async def can_log_in(
        self, server: DatabaseServer, credentials: SqlCredentials, database: str, timeout: float = 10.0
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            session = await connect(server, Login(credentials.username, credentials.password), database, deadline)
        except LoginRejected as refusal:
            # The server checks this after the password. Source: src/backend/utils/init/miscinit.c.
            if "is not permitted to log in" in str(refusal):
                raise SqlFailed(f"logging in as {credentials.username}", None, str(refusal)) from None
            return False
        except LimitReached:
            return True
        except SqlFailed as refused:
            # The limit applies only to users with the right to connect.
            if refused.sqlstate != TOO_MANY_CONNECTIONS:
                raise
            return True
        except ConcurrentChange as raced:
            raise raced.failure from None
        await session.close()
        return True

    async def same_hba_access(
        self, sessions: ServerSessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with _typed_sessions(sessions).at(None, deadline, elevated=True) as session:
                return not await is_distinguished(session, one, other, database)
        except SqlFailed:
            # Only superusers may read the rules.
            return False


LENGTHY_TIMEOUT_SECONDS = 600.0
"""Limit for one lengthy step after a first attempt timed out.

Such a step copies a database, runs an extension's script, or visits all objects that a role owns. Other steps of
the same plan wait for it.
"""

_REMAINING_TIMEOUT_SECONDS = 15.0

_SET_ROLE_DENIED = "permission denied to set role"
_SCHEMA_USAGE_DENIED = "permission denied for schema "


def _denied_schema(rejected: SqlFailed) -> str | None:
    """Return the schema that a role may not use."""
    found = rejected.message.removeprefix(_SCHEMA_USAGE_DENIED)
    return found if found != rejected.message else None


def _typed_sessions(sessions: ServerSessions) -> PostgreSQLSessions:
    return cast(PostgreSQLSessions, sessions)


class _Executor(AbstractAsyncContextManager[Callable[[SqlAction], Awaitable[None]]]):
    """Executes actions in order, and reuses the session within a database."""

    def __init__(self, sessions: PostgreSQLSessions, deadline: float) -> None:
        self._sessions = sessions
        self._deadline = deadline
        self._location: tuple[str | None, bool] | None = None
        self._session: PostgreSQLSession | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Callable[[SqlAction], Awaitable[None]]:
        return self._execute

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _execute(self, action: SqlAction) -> None:
        try:
            await self._execute_once(action)
        except ServerUnreachable as failure:
            location = self._location[0] if self._location is not None else None
            raise await self._sessions.database_failure(location, failure, self._deadline) from None

    async def _execute_once(self, action: SqlAction) -> None:
        if isinstance(action, RestoreOwnership):
            session = await self._session_at(action.database, elevated=True)
            await ownership.restore_ownership(session, action)
            return
        work, long = statements_for(action), lengthy_part(action)
        if long is not None and self._sessions.is_lengthy(long.operation):
            await self._run_lengthy(action, long)
            return
        try:
            await self._prepare(action)
            await self._run(work)
        except SqlFailed as rejected:
            if rejected.sqlstate == QUERY_CANCELED and long is not None:
                await self._run_lengthy(action, long)
            elif isinstance(action, GrantPrivileges | RevokePrivileges):
                await self._retry_elevated(action, work, rejected)
            else:
                raise

    async def _prepare(self, action: SqlAction) -> None:
        """Check the schema before a script runs there as superuser."""
        if isinstance(action, CreateExtension | UpdateExtension) and action.elevated:
            work = statements_for(action)
            session = await self._session_at(work.database, work.elevated)
            await ownership.require_no_planted_objects(session, action.schema, work.operation)

    async def _retry_elevated(
        self, action: GrantPrivileges | RevokePrivileges, work: StatementBatch, rejected: SqlFailed
    ) -> None:
        """Retry a refused statement with more rights.

        Raises the refusal if that fails, too.
        """
        # A superuser may revoke the grants of a role with more rights. Such grants are not made this way.
        if isinstance(action, RevokePrivileges) and rejected.message.startswith(_SET_ROLE_DENIED):
            try:
                await self._run(as_superuser(work))
            except SqlFailed as retry:
                rejected = retry
            else:
                return
        await self._retry_with_schema_usage(work, rejected)

    async def _retry_with_schema_usage(self, work: StatementBatch, rejected: SqlFailed) -> None:
        """Retry with USAGE on each schema that a refusal names.

        This may be the schema of the object and those of a function's argument types.
        """
        granted_schemas: list[str] = []
        while (schema := _denied_schema(rejected)) is not None and schema not in granted_schemas:
            granted_schemas.append(schema)
            try:
                return await self._run(with_schema_usage(work, granted_schemas))
            except SqlFailed as retry:
                rejected = retry
        raise rejected

    async def _run(self, work: StatementBatch) -> None:
        session, text = (
            await self._session_at(work.database, work.elevated),
            work.text(self._sessions.server.login.username),
        )
        if work.owner_check is None:
            await session.run(work.operation, text)
            return
        async with ownership.as_owner(session, work.owner_check, work.precondition):
            await session.run(work.operation, text)

    async def _run_lengthy(self, action: SqlAction, long: StatementBatch) -> None:
        """Run a step that may take minutes.

        Its time does not count for the following steps. The rest of the action counts as a following step.
        """
        loop = asyncio.get_running_loop()
        await self._leave()
        async with self._sessions.lengthy(long.operation, self._deadline):
            begun = loop.time()
            try:
                session = await self._session_at(long.database, long.elevated)
                if not await session.begin_use(begun + LENGTHY_TIMEOUT_SECONDS):
                    raise ServerUnreachable(self._sessions.server.endpoint, f"it disappeared while {long.operation}")
                await self._prepare(action)
                await self._run(long)
            finally:
                self._deadline += loop.time() - begun
                await self._leave()
        if long != (work := statements_for(action)):
            self._deadline = max(self._deadline, loop.time() + _REMAINING_TIMEOUT_SECONDS)
            await self._run(work)
        self._sessions.record_completed(long.operation)

    async def _leave(self) -> None:
        await self._stack.aclose()
        self._session = None

    async def _session_at(self, database: str | None, elevated: bool) -> PostgreSQLSession:
        location = (database, elevated and self._sessions.can_elevate)
        if self._session is None or location != self._location or not self._session.usable:
            await self._leave()
            self._location = location
            session = await self._stack.enter_async_context(self._sessions.at(database, self._deadline, elevated))
            if database is not None:
                await ownership.require_no_event_triggers(session, database)
            self._session = session
        return self._session
