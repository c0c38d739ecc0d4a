"""A database server in memory, for unit tests and the simulation: no sockets, no time but the event loop's.

It is held to the real servers by the same contract tests. It models what the operator and an application can
tell apart: who may log in where, with which password, and who may read which table. It does not model SQL.

```python
server = ModelServer(PostgreSQL(), Credentials("postgres", "s3cret"))
engine = ModelEngine(PostgreSQL(), {Endpoint("orders-primary.shop.svc", 5432): server})
await engine.ensure(...)
server.drop_user("orders")  # and see it healed
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from steersman.testing import fault_point

from .errors import AdministratorRejected, InvalidName, ServerUnreachable, SqlFailed
from .port import Change, Credentials, Desired, Endpoint, Engine
from .work import LoginRejected, Raced, Work


@dataclass(slots=True)
class ModelUser:
    """An account. `mighty` accounts hold rights over the whole server."""

    password: str
    locked: bool = False
    expired: bool = False
    mighty: bool = False


@dataclass(slots=True)
class ModelDatabase:
    """A database, who owns it (PostgreSQL only), who holds all privileges on it, and its tables by owner."""

    owner: str
    granted: set[str] = field(default_factory=set[str])
    public: bool = False
    schema_usable: bool = True
    tables: dict[str, str] = field(default_factory=dict[str, str])


class ModelServer:
    """One server's state, what applications may do with it, and ways to spoil it.

    Args:
        like: the engine that it plays; PostgreSQL has owners, MySQL has not.
        administrator: who may change everything.
        pause: awaited before each statement; the simulation interleaves and cuts here.
    """

    def __init__(
        self,
        like: Engine,
        administrator: Credentials,
        pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
    ) -> None:
        self.owners_matter = like.name == "postgresql"
        self.users = {administrator.username: ModelUser(administrator.password, mighty=True)}
        self.databases: dict[str, ModelDatabase] = {}
        self.up = True
        self.hangs = False
        self.writes = 0
        """Statements that changed something or tried to."""
        self.pause = pause

    def log_in(self, credentials: Credentials, database: str | None = None) -> None:
        """Raises `LoginRejected` for a wrong password or a locked account, `Raced` for a missing database."""
        user = self.users.get(credentials.username)
        if user is None or user.password != credentials.password or user.expired:
            raise LoginRejected(f"access denied for {credentials.username}")
        if user.locked:
            raise LoginRejected(f"account {credentials.username} is locked", number=LOCKED)
        if database is None or user.mighty:
            return
        held = self.databases.get(database)
        if held is None or not (held.public or credentials.username in held.granted):
            raise Raced(SqlFailed("logging in", None, f"no access to database {database}"))

    def create_table(self, credentials: Credentials, database: str, table: str) -> None:
        """Make a table as the application does. Raises what `log_in` raises."""
        self.log_in(credentials, database)
        if not self.databases[database].schema_usable:
            raise Raced(SqlFailed("creating a table", "42501", "permission denied for schema public"))
        self.databases[database].tables[table] = credentials.username

    def reads_table(self, credentials: Credentials, database: str, table: str) -> bool:
        """Whether a table is there and its contents can be read. Raises what `log_in` raises."""
        self.log_in(credentials, database)
        owner = self.databases[database].tables.get(table)
        return owner is not None and (not self.owners_matter or owner == credentials.username)

    def drop_user(self, username: str) -> None:
        """Drop a user. PostgreSQL insists that its things are reassigned first, here to the administrator."""
        administrator = next(name for name, user in self.users.items() if user.mighty)
        del self.users[username]
        for database in self.databases.values():
            database.granted.discard(username)
            if database.owner == username:
                database.owner = administrator
            for table, owner in database.tables.items():
                if owner == username:
                    database.tables[table] = administrator


LOCKED = 3118


class ModelEngine:
    """An `Engine` whose servers are models. An endpoint without a server refuses connections."""

    def __init__(self, like: Engine, servers: Mapping[Endpoint, ModelServer]) -> None:
        self.name = like.name
        self.port = like.port
        self.uri_scheme = like.uri_scheme
        self._like = like
        self._servers = servers

    def check_names(self, database: str, username: str, administrator: str) -> None:
        self._like.check_names(database, username, administrator)

    async def ensure(
        self, endpoint: Endpoint, administrator: Credentials, desired: Desired, timeout: float = 30.0
    ) -> tuple[Change, ...]:
        self.check_names(desired.database, desired.username, administrator.username)
        work = _Work(endpoint, administrator, desired, timeout)
        server = self._servers.get(endpoint)
        if server is None or not server.up:
            raise ServerUnreachable(endpoint, "connection refused")
        try:
            async with asyncio.timeout(timeout):
                return await work.on(server).settle()
        except TimeoutError:
            raise ServerUnreachable(endpoint, "no answer in time") from None


class _Work(Work):
    """One call of `ensure`, in the steps of the real engines."""

    server: ModelServer

    def on(self, server: ModelServer) -> _Work:
        self.server = server
        return self

    async def look_and_repair(self) -> None:
        await self._statement()
        try:
            self.server.log_in(self.administrator)
        except LoginRejected:
            raise AdministratorRejected(self.administrator.username) from None
        await self._user_exists()
        await self._database_exists()
        if self.server.owners_matter:
            await self._database_is_owned()
        await self._privileges_are_held()
        await self._account_opens()

    async def _user_exists(self) -> None:
        name = self.desired.username
        await self._statement()
        user = self.server.users.get(name)
        if user is None:
            async with self._write("create the user"):
                if name in self.server.users:
                    raise Raced(SqlFailed("creating the user", "42710", "it exists already"))
                self.server.users[name] = ModelUser(self.desired.password)
            self.changed("UserCreated", f"created user {name}")
        elif user.mighty:
            raise InvalidName("username", name, "it has rights over the whole server; choose another username")
        elif user.locked or (self.server.owners_matter and user.expired):
            await self._unlock()

    async def _database_exists(self) -> None:
        name, owner = self.desired.database, self.desired.username
        await self._statement()
        if name in self.server.databases:
            return
        async with self._write("create the database"):
            if name in self.server.databases:
                raise Raced(SqlFailed("creating the database", "42P04", "it exists already"))
            made = ModelDatabase(owner)
            if self.server.owners_matter:
                made.granted, made.public = {owner}, True
            self.server.databases[name] = made
        self.changed("DatabaseCreated", f"created database {name}")

    async def _database_is_owned(self) -> None:
        username = self.desired.username
        await self._statement()
        former = self._database().owner
        if former == username:
            return
        async with self._write("give the database back"):
            database = self._database()
            given = {table: username if owner == former else owner for table, owner in database.tables.items()}
            database.tables, database.owner = given, username
            if former in database.granted:
                database.granted = database.granted - {former} | {username}
        self.changed("OwnerRestored", f"gave database {self.desired.database} back to {username} from {former}")

    async def _privileges_are_held(self) -> None:
        name, username = self.desired.database, self.desired.username
        await self._statement()
        if username not in self._database().granted:
            async with self._write("grant"):
                self._database().granted.add(username)
            self.changed("GrantsRestored", f"granted ALL on database {name} to {username}")
        await self._statement()
        if self._database().public:
            async with self._write("revoke from public"):
                self._database().public = False
            self.changed("PublicAccessRevoked", f"closed database {name} to other users")
        await self._statement()
        if not self._database().schema_usable:
            async with self._write("grant on the schema"):
                self._database().schema_usable = True
            self.changed("GrantsRestored", f"granted ALL on schema public of database {name} to {username}")

    async def _account_opens(self) -> None:
        await self._statement()
        try:
            self.server.log_in(self.desired.credentials, self.desired.database)
        except LoginRejected as rejected:
            if rejected.number == LOCKED:
                await self._unlock()
            else:
                async with self._write("set the password"):
                    user = self._user()
                    user.password, user.expired = self.desired.password, False
                self.changed("PasswordReset", f"reset the password of user {self.desired.username}")
            await self._account_opens()

    async def _unlock(self) -> None:
        async with self._write("unlock the user"):
            user = self._user()
            user.locked = False
            if self.server.owners_matter:
                user.expired = False
        self.changed("UserUnlocked", f"unlocked user {self.desired.username}")

    def _user(self) -> ModelUser:
        user = self.server.users.get(self.desired.username)
        if user is None:
            raise Raced(SqlFailed("changing the user", "42704", "it was dropped meanwhile"))
        return user

    def _database(self) -> ModelDatabase:
        database = self.server.databases.get(self.desired.database)
        if database is None:
            raise Raced(SqlFailed("changing the database", "3D000", "it was dropped meanwhile"))
        return database

    async def _statement(self) -> None:
        """A round trip to the server."""
        await self.server.pause()
        if not self.server.up:
            raise ServerUnreachable(self.endpoint, "connection lost")
        if self.server.hangs:
            await asyncio.Event().wait()

    @asynccontextmanager
    async def _write(self, what: str) -> AsyncGenerator[None]:
        """A statement that changes something in its block, which a simulation may cut short or repeat."""
        await self._statement()
        async with fault_point(f"SQL: {what}", ServerUnreachable(self.endpoint, "connection lost")):
            self.server.writes += 1
            yield
