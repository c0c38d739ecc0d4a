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

from steersman_testing import fault_point

from .actions import Action, DropUser, Reassign
from .desired import Claim, DesiredDatabase, DesiredUser, ObjectKind
from .errors import AdministratorRejected, LimitReached, LoginRejected, Raced, ServerUnreachable, SqlFailed
from .model_held import ON_DISK, ModelInside
from .model_state import State
from .mysql.grants import HARMLESS, REPLICATION
from .plan import Change, Plan, carried_out
from .port import Contents
from .postgresql.names import NOBODYS
from .server import Credentials, Endpoint, Server
from .sessions import Sessions
from .survey import DatabaseState, Inside, Privilege, Scope, SecuredObject, Survey, UserState

LOCKED = 3118


class ModelServer(State):
    """One server's state, what applications may do with it, and ways to spoil it.

    Args:
        like: the engine that it plays; PostgreSQL has owners, MySQL has not.
        administrator: who may change everything.
        pause: awaited before each statement; the simulation interleaves and cuts here.
        now: the time that validity is measured by.
    """

    def __init__(
        self,
        like: Contents,
        administrator: Credentials,
        pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        mighty = UserState(
            administrator.username,
            superuser=True,
            create_role=True,
            verifier=like.new_verifier(administrator.password),
        )
        super().__init__(like.name == "postgresql", mighty)
        self.like = like
        self.credentials = administrator
        """Who may change everything."""
        self.pause = pause
        self.now = now
        self.up = True
        self.hangs = False
        self.hasty: set[str] = set()
        """For whom it is set that commits wait for no replica."""
        self.accounts_altered = False
        """Whether somebody has changed the accounts of the cluster itself."""
        self.acting: dict[str, tuple[str, ...]] = {}
        """What acts as a user (MySQL), in words."""
        self.writes = 0
        """Statements that changed something or tried to."""

    def log_in(self, credentials: Credentials, database: str | None = None) -> str:
        """Who one then acts as.

        Raises `LoginRejected` for a wrong password or a locked account, `Raced` where one may not enter the database.
        """
        user = self.users.get(credentials.username)
        if user is None or not self._password_opens(user, credentials.password):
            raise LoginRejected(f"access denied for {credentials.username}")
        if user.locked or not user.login:
            raise LoginRejected(f"account {credentials.username} is locked", number=LOCKED)
        acting = next((setting.removeprefix("role=") for setting in user.settings), user.name)
        if database is None or user.superuser:
            return acting
        if not self._enters(user.name, database):
            raise Raced(SqlFailed("logging in", None, f"no access to database {database}"))
        return acting

    def opens(self, credentials: Credentials, database: str | None = None) -> bool:
        """Whether these credentials open this database."""
        try:
            self.log_in(credentials, database)
        except (LoginRejected, Raced):
            return False
        return True

    def create_table(
        self,
        credentials: Credentials,
        database: str,
        table: str,
        schema: str = "public",
        columns: Iterable[str] = (),
    ) -> None:
        """Make a table as the application does. Raises what `log_in` raises."""
        acting = self.log_in(credentials, database)
        place = SecuredObject(ObjectKind.SCHEMA, database, schema)
        if self.owners_matter and not self.holds(acting, "CREATE", place):
            raise Raced(SqlFailed("creating a table", "42501", f"permission denied for schema {schema}"))
        on, owner = self._table(database, schema, table), acting if self.owners_matter else self.administrator
        self.create(on, owner)
        self.inside[database].objects |= {replace(on, column=column): owner for column in columns}

    def reads_table(self, credentials: Credentials, database: str, table: str, schema: str = "public") -> bool:
        """Whether a table is there and its contents can be read. Raises what `log_in` raises."""
        acting = self.log_in(credentials, database)
        on = self._table(database, schema, table)
        usable = not self.owners_matter or self.holds(
            acting, "USAGE", SecuredObject(ObjectKind.SCHEMA, database, schema)
        )
        return on in self.inside[database].objects and usable and self.holds(acting, "SELECT", on)

    def drop_user(self, username: str) -> None:
        """Drop a user. PostgreSQL insists that its things are reassigned first, here to the administrator."""
        owned = {state.name for state in self.databases.values() if state.owner == username}
        for database in sorted(owned | self.stands_in(username)) if self.owners_matter else ():
            self.apply(Reassign(database, username, self.administrator))
        self.apply(DropUser(username))

    def revoke_on_database(self, database: str) -> None:
        """Take from everybody what they hold on a database, behind the operator's back."""
        self.databases[database] = replace(self.databases[database], privileges=frozenset())

    def spoil_user(self, username: str, **changes: object) -> None:
        """Change a user behind the operator's back, by the fields of `UserState`."""
        self.users[username] = replace(self.users[username], **changes)

    def set_password(self, username: str, password: str) -> None:
        """Change a password behind the operator's back."""
        self.spoil_user(username, verifier=self.like.new_verifier(password))

    def seen(self, scope: Scope) -> Survey:
        """What a survey of this scope finds."""
        names = scope.all_users.union(map(self.like.second_username, scope.all_users))
        followed = scope.users.union(map(self.like.second_username, scope.users)) & self.users.keys()
        users = {name: self._seen_user(name) for name in names & self.users.keys()}
        named = set(scope.databases)
        named |= {place for name in followed for place in users[name].stands_in}
        for state in self.databases.values():
            if followed & {state.owner, *(one.grantee for one in state.privileges)}:
                named.add(state.name)
        if not self.owners_matter:
            # There one query shows all that somebody was granted.
            named |= {name for name in self.databases if names & self._grantees(name)}
        databases = {name: self.databases[name] for name in named & self.databases.keys()}
        elsewhere = {one for one in self.on_server if one.grantee in names}
        elsewhere |= {one for one in self.left if one.grantee in names or one.on.database in scope.databases}
        for place in {one.on.database for one in elsewhere}:
            held = frozenset(one for one in elsewhere if one.on.database == place and not one.on.kind.is_inside)
            databases[place] = DatabaseState(place, privileges=held, exists=False)
        for state in databases.values():
            if state.owner in self.users and state.owner not in users:
                users[state.owner] = self._seen_user(state.owner)
        inside = {name: schemas for name, schemas in scope.inside.items() if name in self.inside}
        for place in (place for name in followed for place in users[name].stands_in):
            inside.setdefault(place, frozenset())
        if not self.owners_matter:
            inside |= dict.fromkeys(databases.keys() & self.inside.keys() - inside.keys(), frozenset[str]())
        parts = {one for one in elsewhere if one.on.kind.is_inside}
        left = {
            place: Inside(privileges=frozenset(one for one in parts if one.on.database == place))
            for place in {one.on.database for one in elsewhere}
        }
        return Survey(
            product="PostgreSQL" if self.owners_matter else "MySQL",
            version=(17, 0) if self.owners_matter else (9, 7),
            administrator=self.administrator,
            users=users,
            databases=databases,
            inside=left
            | {
                name: _seen_inside(self.inside[name], schemas, names, scope)
                for name, schemas in inside.items()
                if self.databases[name].allows_connections
            },
            hidden={name: mark for name, mark in self.announced().items() if name in scope.databases},
            hasty=frozenset(self.hasty if scope.commits else ()),
            accounts_altered=scope.accounts and self.accounts_altered,
            acting={name: self.acting[name] for name in scope.dropped if name in self.acting},
        )

    def _seen_user(self, name: str) -> UserState:
        stands_in = self.stands_in(name)
        user = replace(self.users[name], stands_in=stands_in, stands_inside=stands_in, owns_in=self.owns_in(name))
        if self.owners_matter:
            reached = (self.users[role] for role in self.reached_by(name))
            mighty = (one.name for one in reached if one.superuser or one.create_role or one.name in NOBODYS)
            return replace(user, admitted=self.admitted(name), mighty_by=frozenset(mighty))
        reached = self.reached_by(name)
        held = {(one.on.kind, one.privilege) for one in self.on_server if one.grantee in reached}
        harmless = {(ObjectKind.SERVER, privilege) for privilege in HARMLESS | {REPLICATION}}
        replicates = (ObjectKind.SERVER, REPLICATION) in held
        return replace(user, superuser=user.superuser or bool(held - harmless), replication=replicates)

    def _password_opens(self, user: UserState, password: str) -> bool:
        if user.valid_until is not None and user.valid_until <= self.now():
            return False
        return self.like.verifies(password, user.verifier) or self.like.verifies(password, user.second_verifier)

    def _enters(self, name: str, database: str) -> bool:
        state = self.databases.get(database)
        if state is None or not state.allows_connections or state.connection_limit == 0:
            return False
        if self.owners_matter:
            return self.holds(name, "CONNECT", SecuredObject(ObjectKind.DATABASE, database))
        return bool(self.roles_of(name) & self._grantees(database))

    def _grantees(self, database: str) -> set[str]:
        held = (*self.databases[database].privileges, *self.inside[database].privileges)
        return {one.grantee for one in held}

    def _table(self, database: str, schema: str, table: str) -> SecuredObject:
        return SecuredObject(ObjectKind.TABLE, database, schema if self.owners_matter else None, table)


def _seen_inside(inside: ModelInside, schemas: frozenset[str], users: frozenset[str], scope: Scope) -> Inside:
    def seen(one: Privilege) -> bool:
        if one.on.kind is ObjectKind.SCHEMA and one.on.schema == "public" and one.on.creator is None:
            return True
        owner = inside.schemas.get(one.on.schema or "") if one.on.kind is ObjectKind.SCHEMA else None
        owners = (owner, one.on.creator, inside.objects.get(one.on))
        return any(who in users and who not in owners for who in (one.grantee, one.grantor))

    return Inside(
        schemas={name: owner for name, owner in inside.schemas.items() if name in schemas},
        objects={
            on: owner
            for on, owner in inside.objects.items()
            if (on.schema is None or on.schema in schemas) and (on.column is None or on in scope.columns)
        },
        extensions={name: state for name, state in inside.extensions.items() if name in scope.extensions},
        on_disk={name: found for name, found in ON_DISK.items() if name in scope.extensions},
        privileges=frozenset(filter(seen, inside.privileges)),
    )


@dataclass(slots=True)
class ModelSessions:
    """The `Sessions` of the model: nothing is really open."""

    server: Server

    async def close(self) -> None:
        pass


class ModelContents:
    """A `Contents` whose servers are models. An endpoint without a server refuses connections."""

    def __init__(self, like: Contents, servers: Mapping[Endpoint, ModelServer]) -> None:
        self.name = like.name
        self.port = like.port
        self.uri_scheme = like.uri_scheme
        self.like = like
        self._servers = servers

    def second_username(self, username: str) -> str:
        return self.like.second_username(username)

    def check(self, desired: DesiredDatabase | DesiredUser, administrator: str) -> None:
        self.like.check(desired, administrator)

    def check_name(self, field: str, name: str) -> None:
        self.like.check_name(field, name)

    def verifies(self, password: str, verifier: str | None) -> bool:
        return self.like.verifies(password, verifier)

    def new_verifier(self, password: str) -> str:
        return self.like.new_verifier(password)

    def connect(self, server: Server) -> Sessions:
        return ModelSessions(server)

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        async with self._in_time(sessions.server, timeout) as server:
            await self._log_in(server, sessions.server)
            return server.seen(scope)

    def plan_database(self, survey: Survey, desired: DesiredDatabase) -> Plan:
        return self.like.plan_database(survey, desired)

    def plan_user(self, survey: Survey, desired: DesiredUser) -> Plan:
        return self.like.plan_user(survey, desired)

    def plan_drop_database(self, survey: Survey, name: str, claim: Claim | None) -> Plan:
        return self.like.plan_drop_database(survey, name, claim)

    def plan_drop_user(self, survey: Survey, name: str, claim: Claim | None, heir: str | None) -> Plan:
        return self.like.plan_drop_user(survey, name, claim, heir)

    async def carry_out(self, sessions: Sessions, plan: Plan, timeout: float = 15.0) -> tuple[Change, ...]:
        return await carried_out(plan, self._hands(sessions.server, timeout))

    async def opens(self, server: Server, credentials: Credentials, database: str, timeout: float = 10.0) -> bool:
        async with self._in_time(server, timeout) as model:
            await self._statement(model, server.endpoint)
            try:
                model.log_in(credentials, database)
            except LoginRejected as refusal:
                if refusal.number == LOCKED:
                    raise SqlFailed(f"logging in as {credentials.username}", None, str(refusal)) from None
                return False
            except Raced as raced:
                raise raced.failure from None
            return True

    async def admits_alike(
        self, sessions: Sessions, one: str, other: str, database: str, timeout: float = 15.0
    ) -> bool:
        return True

    @asynccontextmanager
    async def _in_time(self, server: Server, timeout: float) -> AsyncGenerator[ModelServer]:
        model = self._servers.get(server.endpoint)
        if model is None or not model.up:
            raise ServerUnreachable(server.endpoint, "connection refused")
        try:
            async with asyncio.timeout(timeout):
                yield model
        except TimeoutError:
            raise ServerUnreachable(server.endpoint, "no answer in time") from None

    @asynccontextmanager
    async def _hands(self, server: Server, timeout: float) -> AsyncGenerator[Callable[[Action], Awaitable[None]]]:
        async with self._in_time(server, timeout) as model:
            await self._log_in(model, server)
            yield lambda action: self._do(model, server.endpoint, action)

    async def _log_in(self, model: ModelServer, server: Server) -> None:
        await self._statement(model, server.endpoint)
        login = server.login
        try:
            model.log_in(Credentials(login.username, login.password or ""))
        except LoginRejected as refusal:
            raise AdministratorRejected(login.username, str(refusal)) from None
        if model.users[login.username].connection_limit == 0:
            raise LimitReached(server.endpoint, f'too many connections for role "{login.username}"')

    async def _do(self, model: ModelServer, endpoint: Endpoint, action: Action) -> None:
        """A statement that changes something, which a simulation may cut short or repeat."""
        await self._statement(model, endpoint)
        lost = ServerUnreachable(endpoint, "connection lost")
        async with fault_point(f"SQL: {type(action).__name__}", lost):
            model.writes += 1
            model.apply(action)

    async def _statement(self, model: ModelServer, endpoint: Endpoint) -> None:
        """A round trip to the server."""
        await model.pause()
        if not model.up:
            raise ServerUnreachable(endpoint, "connection lost")
        if model.hangs:
            await asyncio.Event().wait()
