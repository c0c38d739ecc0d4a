from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from database_support.contracts.owned_database import OwnedDatabase
from database_support.fake_server.server import FakeServer, FakeSqlEngine
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.mysql.sql.engine import MySQLSqlEngine
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.sql.inspection import UserState
from steersman_databases.engines.sql.sql_actions import AlterDatabase, DropDatabase

pytest.register_assert_rewrite("engine_contract", "accounts_contract", "roles_contract")


class Model:
    """The contract's server, played by the model."""

    def __init__(self, like: PostgreSQLSqlEngine | MySQLSqlEngine) -> None:
        self.endpoint = ServerEndpoint("model", like.port)
        self.superuser = self.administrator = SqlCredentials("the-administrator", "4dmin-s3cret")
        self.model = FakeServer(like, self.administrator, self._pause)
        self.servers = {self.endpoint: self.model}
        self.sql_engine = FakeSqlEngine(like, self.servers)
        self._statements_left: int | None = None

    async def can_log_in(self, credentials: SqlCredentials, database: str) -> bool:
        return self.model.can_log_in(credentials, database)

    async def create_table(self, credentials: SqlCredentials, database: str) -> None:
        self.model.create_table(credentials, database, "till", columns=("coin",))

    async def reads_table(self, credentials: SqlCredentials, database: str) -> bool:
        return self.model.reads_table(credentials, database, "till")

    async def databases(self) -> set[str]:
        return set(self.model.databases)

    async def users(self) -> set[str]:
        return set(self.model.users)

    async def writes(self) -> int:
        return self.model.writes

    async def drop_user(self, desired: OwnedDatabase) -> None:
        self.model.drop_user(desired.username)

    async def drop_database(self, desired: OwnedDatabase) -> None:
        self.model.apply(DropDatabase(desired.database))

    async def change_password(self, desired: OwnedDatabase, password: str) -> None:
        self.model.set_password(desired.username, password)

    async def revoke(self, desired: OwnedDatabase) -> None:
        self.model.revoke_on_database(desired.database)

    async def lock(self, desired: OwnedDatabase) -> None:
        if self.model.has_owners:
            self.model.spoil_user(desired.username, login=False)
        else:
            self.model.spoil_user(desired.username, locked=True)

    async def make_superuser_owned(self, desired: OwnedDatabase) -> None:
        if self.model.has_owners:
            self.model.apply(AlterDatabase(desired.database, "", is_template=True))
        else:
            self.model.apply(AlterDatabase(desired.database, "", encoding="latin1"))

    async def expire(self, desired: OwnedDatabase) -> None:
        if self.model.has_owners:
            self.model.spoil_user(desired.username, valid_until=datetime(2001, 1, 1, tzinfo=UTC))
        else:
            self.model.spoil_user(desired.username, verifier=None)

    async def create_superuser(self, username: str) -> None:
        self.model.users[username] = replace(UserState(username), superuser=True)

    def closed_endpoint(self) -> ServerEndpoint:
        return ServerEndpoint("nowhere", 1)

    @asynccontextmanager
    async def hanging(self) -> AsyncGenerator[ServerEndpoint]:
        self.model.hangs = True
        yield self.endpoint
        self.model.hangs = False

    @asynccontextmanager
    async def cut_after(self, messages: int) -> AsyncGenerator[ServerEndpoint]:
        self._statements_left = messages
        yield self.endpoint
        self._statements_left = None
        self.model.up = True

    async def _pause(self) -> None:
        if self._statements_left is not None:
            self._statements_left -= 1
            self.model.up = self._statements_left >= 0


@pytest.fixture(params=[PostgreSQLSqlEngine, MySQLSqlEngine], ids=["postgresql-model", "mysql-model"])
def server(request: pytest.FixtureRequest) -> Model:
    return Model(request.param())


@pytest.fixture
def model_of() -> Callable[[PostgreSQLSqlEngine | MySQLSqlEngine], Model]:
    return Model
