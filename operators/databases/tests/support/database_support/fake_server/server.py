"""A database server in memory, for unit tests and the simulation: no sockets, no time but the event loop's.

It is held to the real servers by the same contract tests. It carries out the same plans as they do and models what
the operator and an application can tell apart: who may log in where, with which password, and who may read which
table. It does not model SQL.

```python
server = ModelServer(PostgreSQL(), Credentials("postgres", "s3cret"))
contents = ModelContents(PostgreSQL(), {Endpoint("orders-primary.shop.svc", 5432): server})
sessions = contents.connect(Server("postgresql", endpoint, login, verification))
await settle(contents, sessions, DesiredUser("clerk", password))
server.drop_user("clerk")  # and see it healed
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import (
    AdministratorRejected,
    ConcurrentChange,
    LimitReached,
    LoginRejected,
    ServerUnreachable,
    SqlFailed,
)
from steersman_databases.engines.mysql.planning.grants import HARMLESS, REPLICATION
from steersman_databases.engines.postgresql.planning.identifiers import FORBIDDEN_ROLES
from steersman_databases.engines.server import DatabaseServer, ServerEndpoint, SqlCredentials
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, OwnershipMark, SecurableKind
from steersman_databases.engines.sql.inspection import (
    DatabaseContents,
    DatabaseState,
    HeldPrivilege,
    Inspection,
    InspectionScope,
    SecuredObject,
    UserState,
)
from steersman_databases.engines.sql.sql_actions import DropRole, ReassignOwned, SqlAction
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, execute
from steersman_testing import fault_point

from .contents import ON_DISK, FakeDatabaseContents
from .state import FakeServerState

ACCOUNT_LOCKED = 3118


_ADMINISTRATOR_VERIFIERS: dict[tuple[str, str], str] = {}


def _administrator_verifier(engine: SqlEngine, password: str) -> str:
    """Return a verifier, which all servers of an engine share. To derive one takes milliseconds."""
    key = engine.name, password
    if key not in _ADMINISTRATOR_VERIFIERS:
        _ADMINISTRATOR_VERIFIERS[key] = engine.new_verifier(password)
    return _ADMINISTRATOR_VERIFIERS[key]


class FakeServer(FakeServerState):
    """One server's state, what applications may do with it, and ways to spoil it.

    Args:
        like: the engine that it plays; PostgreSQL has owners, MySQL has not.
        administrator: who may change everything.
        pause: awaited before each statement; the simulation interleaves and cuts here.
        now: the time that validity is measured by.
    """

    def __init__(
        self,
        like: SqlEngine,
        administrator: SqlCredentials,
        pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        superuser = UserState(
            administrator.username,
            superuser=True,
            create_role=True,
            verifier=_administrator_verifier(like, administrator.password),
        )
        super().__init__(like.name == "postgresql", superuser)
        self.like = like
        self.credentials = administrator
        """Who may change everything."""
        self.latency = pause
        self.now = now
        self.up = True
        self.hangs = False
        self.async_commit_roles: set[str] = set()
        """For whom it is set that commits wait for no replica."""
        self.accounts_altered = False
        """Whether somebody has changed the accounts of the cluster itself."""
        self.definers: dict[str, tuple[str, ...]] = {}
        """What acts as a user (MySQL), in words."""
        self.writes = 0
        """Statements that changed something or tried to."""

    def log_in(self, credentials: SqlCredentials, database: str | None = None) -> str:
        """Who one then acts as.

        Raises `LoginRejected` for a wrong password or a locked account, `Raced` where one may not enter the database.
        """
        user = self.users.get(credentials.username)
        if user is None or not self._password_opens(user, credentials.password):
            raise LoginRejected(f"access denied for {credentials.username}")
        if user.locked or not user.login:
            raise LoginRejected(f"account {credentials.username} is locked", number=ACCOUNT_LOCKED)
        acting = next((setting.removeprefix("role=") for setting in user.settings), user.name)
        if database is None or user.superuser:
            return acting
        if not self._may_connect(user.name, database):
            raise ConcurrentChange(SqlFailed("logging in", None, f"no access to database {database}"))
        return acting

    def can_log_in(self, credentials: SqlCredentials, database: str | None = None) -> bool:
        """Whether these credentials open this database."""
        try:
            self.log_in(credentials, database)
        except (LoginRejected, ConcurrentChange):
            return False
        return True

    def create_table(
        self,
        credentials: SqlCredentials,
        database: str,
        table: str,
        schema: str = "public",
        columns: Iterable[str] = (),
    ) -> None:
        """Make a table as the application does. Raises what `log_in` raises."""
        acting = self.log_in(credentials, database)
        place = SecuredObject(SecurableKind.SCHEMA, database, schema)
        if self.has_owners and not self.holds(acting, "CREATE", place):
            raise ConcurrentChange(SqlFailed("creating a table", "42501", f"permission denied for schema {schema}"))
        on, owner = self._table(database, schema, table), acting if self.has_owners else self.administrator
        self.create(on, owner)
        self.contents[database].objects |= {replace(on, column=column): owner for column in columns}

    def reads_table(self, credentials: SqlCredentials, database: str, table: str, schema: str = "public") -> bool:
        """Whether a table is there and its contents can be read. Raises what `log_in` raises."""
        acting = self.log_in(credentials, database)
        on = self._table(database, schema, table)
        usable = not self.has_owners or self.holds(
            acting, "USAGE", SecuredObject(SecurableKind.SCHEMA, database, schema)
        )
        return on in self.contents[database].objects and usable and self.holds(acting, "SELECT", on)

    def drop_user(self, username: str) -> None:
        """Drop a user. PostgreSQL insists that its things are reassigned first, here to the administrator."""
        owned = {state.name for state in self.databases.values() if state.owner == username}
        for database in sorted(owned | self.has_privileges_in(username)) if self.has_owners else ():
            self.apply(ReassignOwned(database, username, self.administrator))
        self.apply(DropRole(username))

    def revoke_on_database(self, database: str) -> None:
        """Take from everybody what they hold on a database, behind the operator's back."""
        self.databases[database] = replace(self.databases[database], privileges=frozenset())

    def spoil_user(self, username: str, **changes: object) -> None:
        """Change a user behind the operator's back, by the fields of `UserState`."""
        self.users[username] = replace(self.users[username], **changes)

    def set_password(self, username: str, password: str) -> None:
        """Change a password behind the operator's back."""
        self.spoil_user(username, verifier=self.like.new_verifier(password))

    def inspect(self, scope: InspectionScope) -> Inspection:
        """What a survey of this scope finds."""
        names = scope.all_users.union(map(self.like.rotation_username, scope.all_users))
        followed = scope.users.union(map(self.like.rotation_username, scope.users)) & self.users.keys()
        users = {name: self._inspect_user(name) for name in names & self.users.keys()}
        named = set(scope.databases)
        named |= {place for name in followed for place in users[name].has_privileges_in}
        for state in self.databases.values():
            if followed & {state.owner, *(one.grantee for one in state.privileges)}:
                named.add(state.name)
        if not self.has_owners:
            # There one query shows all that somebody was granted.
            named |= {name for name in self.databases if names & self._grantees(name)}
        databases = {name: self.databases[name] for name in named & self.databases.keys()}
        elsewhere = {one for one in self.on_server if one.grantee in names}
        elsewhere |= {one for one in self.orphaned if one.grantee in names or one.target.database in scope.databases}
        for place in {one.target.database for one in elsewhere}:
            held = frozenset(
                one for one in elsewhere if one.target.database == place and not one.target.kind.is_in_database
            )
            databases[place] = DatabaseState(place, privileges=held, exists=False)
        for state in databases.values():
            if state.owner in self.users and state.owner not in users:
                users[state.owner] = self._inspect_user(state.owner)
        inside = {name: schemas for name, schemas in scope.contents.items() if name in self.contents}
        for place in (place for name in followed for place in users[name].has_privileges_in):
            inside.setdefault(place, frozenset())
        if not self.has_owners:
            inside |= dict.fromkeys(databases.keys() & self.contents.keys() - inside.keys(), frozenset[str]())
        parts = {one for one in elsewhere if one.target.kind.is_in_database}
        left = {
            place: DatabaseContents(privileges=frozenset(one for one in parts if one.target.database == place))
            for place in {one.target.database for one in elsewhere}
        }
        return Inspection(
            product="PostgreSQL" if self.has_owners else "MySQL",
            version=(17, 0) if self.has_owners else (9, 7),
            administrator=self.administrator,
            users=users,
            databases=databases,
            contents=left
            | {
                name: _visible_contents(self.contents[name], schemas, names, scope)
                for name, schemas in inside.items()
                if self.databases[name].allows_connections
            },
            invisible_databases={
                name: mark for name, mark in self.pending_marks().items() if name in scope.databases
            },
            async_commit_roles=frozenset(self.async_commit_roles if scope.commit_settings else ()),
            accounts_altered=scope.system_accounts and self.accounts_altered,
            definers={name: self.definers[name] for name in scope.dropped_databases if name in self.definers},
        )

    def _inspect_user(self, name: str) -> UserState:
        stands_in = self.has_privileges_in(name)
        user = replace(
            self.users[name], has_privileges_in=stands_in, has_privileges_inside=stands_in, owns_in=self.owns_in(name)
        )
        if self.has_owners:
            reached = (self.users[role] for role in self.reachable_roles(name))
            mighty = (one.name for one in reached if one.superuser or one.create_role or one.name in FORBIDDEN_ROLES)
            return replace(user, granted_members=self.granted_members(name), superuser_via=frozenset(mighty))
        reached = self.reachable_roles(name)
        held = {(one.target.kind, one.privilege) for one in self.on_server if one.grantee in reached}
        harmless = {(SecurableKind.SERVER, privilege) for privilege in HARMLESS | {REPLICATION}}
        replicates = (SecurableKind.SERVER, REPLICATION) in held
        return replace(user, superuser=user.superuser or bool(held - harmless), replication=replicates)

    def _password_opens(self, user: UserState, password: str) -> bool:
        if user.valid_until is not None and user.valid_until <= self.now():
            return False
        return self.like.verifies(password, user.verifier) or self.like.verifies(password, user.second_verifier)

    def _may_connect(self, name: str, database: str) -> bool:
        state = self.databases.get(database)
        if state is None or not state.allows_connections or state.connection_limit == 0:
            return False
        if self.has_owners:
            return self.holds(name, "CONNECT", SecuredObject(SecurableKind.DATABASE, database))
        return bool(self.roles_of(name) & self._grantees(database))

    def _grantees(self, database: str) -> set[str]:
        held = (*self.databases[database].privileges, *self.contents[database].privileges)
        return {one.grantee for one in held}

    def _table(self, database: str, schema: str, table: str) -> SecuredObject:
        return SecuredObject(SecurableKind.TABLE, database, schema if self.has_owners else None, table)


def _visible_contents(
    inside: FakeDatabaseContents, schemas: frozenset[str], users: frozenset[str], scope: InspectionScope
) -> DatabaseContents:
    def seen(one: HeldPrivilege) -> bool:
        if one.target.kind is SecurableKind.SCHEMA and one.target.schema == "public" and one.target.creator is None:
            return True
        owner = inside.schemas.get(one.target.schema or "") if one.target.kind is SecurableKind.SCHEMA else None
        owners = (owner, one.target.creator, inside.objects.get(one.target))
        return any(who in users and who not in owners for who in (one.grantee, one.grantor))

    return DatabaseContents(
        schemas={name: owner for name, owner in inside.schemas.items() if name in schemas},
        objects={
            on: owner
            for on, owner in inside.objects.items()
            if (on.schema is None or on.schema in schemas) and (on.column is None or on in scope.columns)
        },
        extensions={name: state for name, state in inside.extensions.items() if name in scope.extensions},
        available_extensions={name: found for name, found in ON_DISK.items() if name in scope.extensions},
        privileges=frozenset(filter(seen, inside.privileges)),
    )


@dataclass(slots=True)
class FakeConnections:
    """The `Sessions` of the model: nothing is really open."""

    server: DatabaseServer

    async def close(self) -> None:
        pass


class FakeSqlEngine:
    """A `Contents` whose servers are models. An endpoint without a server refuses connections."""

    def __init__(self, like: SqlEngine, servers: Mapping[ServerEndpoint, FakeServer]) -> None:
        self.name = like.name
        self.port = like.port
        self.uri_scheme = like.uri_scheme
        self.like = like
        self._servers = servers

    def rotation_username(self, username: str) -> str:
        return self.like.rotation_username(username)

    def check(self, desired: DesiredDatabase | DesiredUser, administrator: str) -> None:
        self.like.check(desired, administrator)

    def check_name(self, field: str, name: str) -> None:
        self.like.check_name(field, name)

    def verifies(self, password: str, verifier: str | None) -> bool:
        return self.like.verifies(password, verifier)

    def is_expensive(self, verifier: str) -> bool:
        return self.like.is_expensive(verifier)

    def new_verifier(self, password: str) -> str:
        return self.like.new_verifier(password)

    def connect(self, server: DatabaseServer) -> ServerSessions:
        return FakeConnections(server)

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        async with self._with_timeout(sessions.server, timeout) as server:
            await self._log_in(server, sessions.server)
            return server.inspect(scope)

    async def write_counters(self, sessions: ServerSessions, timeout: float = 15.0) -> Mapping[str, int]:
        return {}

    def plan_database(self, inspection: Inspection, desired: DesiredDatabase) -> SqlPlan:
        return self.like.plan_database(inspection, desired)

    def plan_user(self, inspection: Inspection, desired: DesiredUser) -> SqlPlan:
        return self.like.plan_user(inspection, desired)

    def plan_drop_database(self, inspection: Inspection, name: str, mark: OwnershipMark | None) -> SqlPlan:
        return self.like.plan_drop_database(inspection, name, mark)

    def plan_drop_user(
        self, inspection: Inspection, name: str, mark: OwnershipMark | None, new_owner: str | None
    ) -> SqlPlan:
        return self.like.plan_drop_user(inspection, name, mark, new_owner)

    async def execute(self, sessions: ServerSessions, plan: SqlPlan, timeout: float = 15.0) -> tuple[SqlChange, ...]:
        return await execute(plan, self._executor(sessions.server, timeout))

    async def can_log_in(
        self, server: DatabaseServer, credentials: SqlCredentials, database: str, timeout: float = 10.0
    ) -> bool:
        async with self._with_timeout(server, timeout) as model:
            await self._round_trip(model, server.endpoint)
            try:
                model.log_in(credentials, database)
            except LoginRejected as refusal:
                if refusal.number == ACCOUNT_LOCKED:
                    raise SqlFailed(f"logging in as {credentials.username}", None, str(refusal)) from None
                return False
            except ConcurrentChange as raced:
                raise raced.failure from None
            return True

    async def same_hba_access(
        self, sessions: ServerSessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        return True

    @asynccontextmanager
    async def _with_timeout(self, server: DatabaseServer, timeout: float) -> AsyncGenerator[FakeServer]:
        model = self._servers.get(server.endpoint)
        if model is None or not model.up:
            raise ServerUnreachable(server.endpoint, "connection refused")
        try:
            async with asyncio.timeout(timeout):
                yield model
        except TimeoutError:
            raise ServerUnreachable(server.endpoint, "no response in time") from None

    @asynccontextmanager
    async def _executor(
        self, server: DatabaseServer, timeout: float
    ) -> AsyncGenerator[Callable[[SqlAction], Awaitable[None]]]:
        async with self._with_timeout(server, timeout) as model:
            await self._log_in(model, server)
            yield lambda action: self._apply(model, server.endpoint, action)

    async def _log_in(self, model: FakeServer, server: DatabaseServer) -> None:
        await self._round_trip(model, server.endpoint)
        login = server.login
        try:
            model.log_in(SqlCredentials(login.username, login.password or ""))
        except LoginRejected as refusal:
            raise AdministratorRejected(login.username, str(refusal)) from None
        if model.users[login.username].connection_limit == 0:
            raise LimitReached(server.endpoint, f'too many connections for role "{login.username}"')

    async def _apply(self, model: FakeServer, endpoint: ServerEndpoint, action: SqlAction) -> None:
        """A statement that changes something, which a simulation may cut short or repeat."""
        await self._round_trip(model, endpoint)
        lost = ServerUnreachable(endpoint, "connection lost")
        async with fault_point(f"SQL: {type(action).__name__}", lost):
            model.writes += 1
            model.apply(action)

    async def _round_trip(self, model: FakeServer, endpoint: ServerEndpoint) -> None:
        """A round trip to the server."""
        await model.latency()
        if not model.up:
            raise ServerUnreachable(endpoint, "connection lost")
        if model.hangs:
            await asyncio.Event().wait()
