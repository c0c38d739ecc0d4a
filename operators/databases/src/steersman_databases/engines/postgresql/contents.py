"""What is inside a PostgreSQL server: looking, planning and doing, in one place.

Statements run in the maintenance database where they can. Inside databases, to which applications can write, only
catalogs are read and GRANT, REVOKE, ALTER … OWNER, CREATE SCHEMA, CREATE EXTENSION, REASSIGN and DROP OWNED run,
which call nothing of a user's; `search_path` is `pg_catalog` from the first packet on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import cast

from ..actions import Action, CreateExtension, GiveBack, Grant, Revoke, UpdateExtension
from ..desired import Claim, DesiredDatabase, DesiredUser
from ..errors import LimitReached, LoginRejected, Raced, ServerUnreachable, SqlFailed
from ..plan import Change, Plan, carried_out
from ..server import Credentials, Login, Server
from ..sessions import Sessions
from ..survey import Scope, Survey
from . import databases, names, ownership, roles, verifiers
from .admission import told_apart
from .pool import PostgreSQLSessions
from .session import FULL, QUERY_CANCELED, Session, connect
from .statements import Work, by_force, lengthy, let_in, work
from .survey import look


class PostgreSQL:
    """The `Contents` of PostgreSQL."""

    name = "postgresql"
    port = 5432
    uri_scheme = "postgresql"

    def second_username(self, username: str) -> str:
        return names.deputy_name(username)

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
        return verifiers.verifier(password)

    def connect(self, server: Server) -> Sessions:
        return PostgreSQLSessions(server)

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        return await look(_own(sessions), scope, asyncio.get_running_loop().time() + timeout)

    def plan_database(self, survey: Survey, desired: DesiredDatabase) -> Plan:
        self.check(desired, survey.administrator)
        return databases.plan_database(survey, desired)

    def plan_user(self, survey: Survey, desired: DesiredUser) -> Plan:
        self.check(desired, survey.administrator)
        return roles.plan_user(survey, desired)

    def plan_drop_database(self, survey: Survey, name: str, claim: Claim | None) -> Plan:
        return databases.plan_drop_database(survey, name, claim)

    def plan_drop_user(self, survey: Survey, name: str, claim: Claim | None, heir: str | None) -> Plan:
        return roles.plan_drop_user(survey, name, claim, heir)

    async def carry_out(self, sessions: Sessions, plan: Plan, timeout: float = 15.0) -> tuple[Change, ...]:
        deadline = asyncio.get_running_loop().time() + timeout
        return await carried_out(plan, _Hands(_own(sessions), deadline))

    async def opens(self, server: Server, credentials: Credentials, database: str, timeout: float = 10.0) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            session = await connect(server, Login(credentials.username, credentials.password), database, deadline)
        except LoginRejected as refusal:
            # The password was taken before that is looked at. Source: src/backend/utils/init/miscinit.c.
            if "is not permitted to log in" in str(refusal):
                raise SqlFailed(f"logging in as {credentials.username}", None, str(refusal)) from None
            return False
        except LimitReached:
            return True
        except SqlFailed as refused:
            # Who is counted has the right to come in.
            if refused.sqlstate != FULL:
                raise
            return True
        except Raced as raced:
            raise raced.failure from None
        await session.close()
        return True

    async def admits_alike(
        self, sessions: Sessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with _own(sessions).at(None, deadline, elevated=True) as session:
                return not await told_apart(session, one, other, database)
        except SqlFailed:
            # It is nobody's to see who is no superuser.
            return False


LONG_SECONDS = 600.0
"""For one step that has taken longer than others may, and of which that is to be expected: it copies a database, runs
an extension's script, or goes through all that somebody owns. The rest of what is under way waits for it."""

_REST_SECONDS = 15.0

_NOT_TO_ACT_AS = "permission denied to set role"
_NOT_TO_USE = "permission denied for schema "


def _closed(refused: SqlFailed) -> str | None:
    """The schema that a role may not use."""
    found = refused.message.removeprefix(_NOT_TO_USE)
    return found if found != refused.message else None


def _own(sessions: Sessions) -> PostgreSQLSessions:
    return cast(PostgreSQLSessions, sessions)


class _Hands(AbstractAsyncContextManager[Callable[[Action], Awaitable[None]]]):
    """Does one action after the other, and stays in a database as long as the next one is there too."""

    def __init__(self, sessions: PostgreSQLSessions, deadline: float) -> None:
        self._sessions = sessions
        self._deadline = deadline
        self._place: tuple[str | None, bool] | None = None
        self._session: Session | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Callable[[Action], Awaitable[None]]:
        return self._do

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _do(self, action: Action) -> None:
        try:
            await self._done(action)
        except ServerUnreachable as failure:
            place = self._place[0] if self._place is not None else None
            raise await self._sessions.own_trouble(place, failure, self._deadline) from None

    async def _done(self, action: Action) -> None:
        if isinstance(action, GiveBack):
            session = await self._at(action.database, elevated=True)
            await ownership.give_back(session, action)
            return
        todo, long = work(action), lengthy(action)
        if long is not None and self._sessions.takes_long(long.doing):
            await self._run_at_length(action, long)
            return
        try:
            await self._prepare(action)
            await self._run(todo)
        except SqlFailed as refused:
            if refused.sqlstate == QUERY_CANCELED and long is not None:
                await self._run_at_length(action, long)
            elif isinstance(action, Grant | Revoke):
                await self._do_otherwise(action, todo, refused)
            else:
                raise

    async def _prepare(self, action: Action) -> None:
        """Looks at where a script will run as a superuser, each time before it does."""
        if isinstance(action, CreateExtension | UpdateExtension) and action.elevated:
            todo = work(action)
            session = await self._at(todo.database, todo.elevated)
            await ownership.require_unplanted(session, action.schema, todo.doing)

    async def _do_otherwise(self, action: Grant | Revoke, todo: Work, refused: SqlFailed) -> None:
        """Once more, where it was refused though it is the operator's to do. Raises the refusal where it is not."""
        # What somebody mightier granted is taken away as a superuser; given away it would not be.
        if isinstance(action, Revoke) and refused.message.startswith(_NOT_TO_ACT_AS):
            try:
                await self._run(by_force(todo))
            except SqlFailed as once_more:
                refused = once_more
            else:
                return
        await self._let_in(todo, refused)

    async def _let_in(self, todo: Work, refused: SqlFailed) -> None:
        """Once more with each schema opened that is named in a refusal: its own, and those of a function's types."""
        opened: list[str] = []
        while (schema := _closed(refused)) is not None and schema not in opened:
            opened.append(schema)
            try:
                return await self._run(let_in(todo, opened))
            except SqlFailed as once_more:
                refused = once_more
        raise refused

    async def _run(self, todo: Work) -> None:
        session, text = await self._at(todo.database, todo.elevated), todo.text(self._sessions.server.login.username)
        if todo.owned is None:
            await session.run(todo.doing, text)
            return
        async with ownership.as_owner(session, todo.owned, todo.first):
            await session.run(todo.doing, text)

    async def _run_at_length(self, action: Action, long: Work) -> None:
        """With minutes that do not count for what comes after it, the rest of the action included."""
        loop = asyncio.get_running_loop()
        await self._leave()
        async with self._sessions.at_length(long.doing, self._deadline):
            begun = loop.time()
            try:
                session = await self._at(long.database, long.elevated)
                if not await session.begin_use(begun + LONG_SECONDS):
                    raise ServerUnreachable(self._sessions.server.endpoint, f"it has gone while {long.doing}")
                await self._prepare(action)
                await self._run(long)
            finally:
                self._deadline += loop.time() - begun
                await self._leave()
        if long != (todo := work(action)):
            self._deadline = max(self._deadline, loop.time() + _REST_SECONDS)
            await self._run(todo)
        self._sessions.took_long(long.doing)

    async def _leave(self) -> None:
        await self._stack.aclose()
        self._session = None

    async def _at(self, database: str | None, elevated: bool) -> Session:
        place = (database, elevated and self._sessions.can_elevate)
        if self._session is None or place != self._place or not self._session.usable:
            await self._leave()
            self._place = place
            session = await self._stack.enter_async_context(self._sessions.at(database, self._deadline, elevated))
            if database is not None:
                await ownership.require_untriggered(session, database)
            self._session = session
        return self._session
