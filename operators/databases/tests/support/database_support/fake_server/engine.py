"""Servers that are models, with what tests of the controllers ask of them besides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from database_support.fake_server.server import FakeServer, FakeSqlEngine
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import SqlFailed
from steersman_databases.engines.registry import sql_engine_named
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope, SecuredObject
from steersman_databases.engines.sql.sql_actions import CreateDatabase, FinishDatabase
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan

ADMINISTRATOR = SqlCredentials("admin", "s3cret")


class InMemoryServer(FakeServer):
    """One server.

    Args:
        engine: which one it plays.
        administrator: who may change everything.
        now: the time that validity is measured by.
        hangs: it takes connections, and answers nothing.
    """

    def __init__(
        self,
        engine: str = "postgresql",
        administrator: SqlCredentials = ADMINISTRATOR,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        hangs: bool = False,
    ) -> None:
        super().__init__(sql_engine_named(engine), administrator, lambda: asyncio.sleep(0.001), now)
        self.hangs = hangs
        self.rejects = ""
        """Words with which it refuses whatever would change it."""
        self.attempts = self.inspections = self.rejections = 0

    @property
    def other_users(self) -> set[str]:
        """Who is there beside the administrator."""
        return set(self.users) - {self.administrator}

    def accepts_password(self, username: str, password: str) -> bool:
        """Whether this is the user's password."""
        return self.can_log_in(SqlCredentials(username, password))

    def make_database(self, name: str, *tables: str) -> None:
        """A database that somebody made, with tables in the schema public."""
        self.apply(CreateDatabase(name, "UTF8", None, None, "template0"))
        self.apply(FinishDatabase(name, self.administrator, -1, None))
        for table in tables:
            self.make_table(name, table)

    def make_table(self, database: str, table: str) -> None:
        """One more table."""
        self.create(SecuredObject(SecurableKind.TABLE, database, "public", table), self.administrator)

    def privileges_in(self, username: str, database: str) -> set[tuple[str, str | None]]:
        """Privileges inside a database, and the names of what they are on."""
        return {(p.privilege, p.target.name) for p in self.contents[database].privileges if p.grantee == username}

    def revoke(self, username: str, database: str) -> None:
        """All that a user was granted inside a database, behind the operator's back."""
        inside = self.contents[database]
        inside.privileges = {p for p in inside.privileges if p.grantee != username}


class InMemorySqlEngine(FakeSqlEngine):
    """What is inside servers that are models."""

    def __init__(self, servers: dict[ServerEndpoint, InMemoryServer], engine: str) -> None:
        super().__init__(sql_engine_named(engine), servers)
        self._all = servers

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        if (held := self._all.get(sessions.server.endpoint)) is not None:
            held.attempts += 1
        survey = await super().inspect(sessions, scope, timeout)
        self._all[sessions.server.endpoint].inspections += 1
        return survey

    async def execute(self, sessions: ServerSessions, plan: SqlPlan, timeout: float = 15.0) -> tuple[SqlChange, ...]:
        held = self._all.get(sessions.server.endpoint)
        if held is not None and held.rejects:
            held.rejections += 1
            raise SqlFailed("changing it", "42501", held.rejects)
        return await super().execute(sessions, plan, timeout)
