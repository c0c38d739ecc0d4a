from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from database_support.owned_database import Desired
from steersman_databases.engines import Credentials, Endpoint, MySQL, PostgreSQL
from steersman_databases.engines.actions import AlterDatabase, DropDatabase
from steersman_databases.engines.model import ModelContents, ModelServer
from steersman_databases.engines.survey import UserState

pytest.register_assert_rewrite("engine_contract", "accounts_contract", "roles_contract")


class Model:
    """The contract's server, played by the model."""

    def __init__(self, like: PostgreSQL | MySQL) -> None:
        self.endpoint = Endpoint("model", like.port)
        self.superuser = self.administrator = Credentials("the-administrator", "4dmin-s3cret")
        self.model = ModelServer(like, self.administrator, self._pause)
        self.servers = {self.endpoint: self.model}
        self.contents = ModelContents(like, self.servers)
        self._statements_left: int | None = None

    async def can_log_in(self, credentials: Credentials, database: str) -> bool:
        return self.model.opens(credentials, database)

    async def create_table(self, credentials: Credentials, database: str) -> None:
        self.model.create_table(credentials, database, "till", columns=("coin",))

    async def reads_table(self, credentials: Credentials, database: str) -> bool:
        return self.model.reads_table(credentials, database, "till")

    async def databases(self) -> set[str]:
        return set(self.model.databases)

    async def users(self) -> set[str]:
        return set(self.model.users)

    async def writes(self) -> int:
        return self.model.writes

    async def drop_user(self, desired: Desired) -> None:
        self.model.drop_user(desired.username)

    async def drop_database(self, desired: Desired) -> None:
        self.model.apply(DropDatabase(desired.database))

    async def change_password(self, desired: Desired, password: str) -> None:
        self.model.set_password(desired.username, password)

    async def revoke(self, desired: Desired) -> None:
        self.model.revoke_on_database(desired.database)

    async def lock(self, desired: Desired) -> None:
        if self.model.owners_matter:
            self.model.spoil_user(desired.username, login=False)
        else:
            self.model.spoil_user(desired.username, locked=True)

    async def estrange(self, desired: Desired) -> None:
        if self.model.owners_matter:
            self.model.apply(AlterDatabase(desired.database, "", is_template=True))
        else:
            self.model.apply(AlterDatabase(desired.database, "", encoding="latin1"))

    async def expire(self, desired: Desired) -> None:
        if self.model.owners_matter:
            self.model.spoil_user(desired.username, valid_until=datetime(2001, 1, 1, tzinfo=UTC))
        else:
            self.model.spoil_user(desired.username, verifier=None)

    async def create_mighty_user(self, username: str) -> None:
        self.model.users[username] = replace(UserState(username), superuser=True)

    def nowhere(self) -> Endpoint:
        return Endpoint("nowhere", 1)

    @asynccontextmanager
    async def hanging(self) -> AsyncGenerator[Endpoint]:
        self.model.hangs = True
        yield self.endpoint
        self.model.hangs = False

    @asynccontextmanager
    async def cut_after(self, messages: int) -> AsyncGenerator[Endpoint]:
        self._statements_left = messages
        yield self.endpoint
        self._statements_left = None
        self.model.up = True

    async def _pause(self) -> None:
        if self._statements_left is not None:
            self._statements_left -= 1
            self.model.up = self._statements_left >= 0


@pytest.fixture(params=[PostgreSQL, MySQL], ids=["postgresql-model", "mysql-model"])
def server(request: pytest.FixtureRequest) -> Model:
    return Model(request.param())


@pytest.fixture
def model_of() -> Callable[[PostgreSQL | MySQL], Model]:
    return Model
