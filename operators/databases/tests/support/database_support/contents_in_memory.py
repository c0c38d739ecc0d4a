"""Servers that are models, with what tests of the controllers ask of them besides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from steersman_databases.engines import Credentials, Endpoint, engine_named
from steersman_databases.engines.actions import CreateDatabase, FinishDatabase
from steersman_databases.engines.desired import ObjectKind
from steersman_databases.engines.errors import SqlFailed
from steersman_databases.engines.model import ModelContents, ModelServer
from steersman_databases.engines.plan import Change, Plan
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.survey import Scope, SecuredObject, Survey

ADMINISTRATOR = Credentials("admin", "s3cret")


class ServerInMemory(ModelServer):
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
        administrator: Credentials = ADMINISTRATOR,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        hangs: bool = False,
    ) -> None:
        super().__init__(engine_named(engine), administrator, lambda: asyncio.sleep(0.001), now)
        self.hangs = hangs
        self.refuses = ""
        """Words with which it refuses whatever would change it."""
        self.attempts = self.looks = self.refusals = 0

    @property
    def others(self) -> set[str]:
        """Who is there beside the administrator."""
        return set(self.users) - {self.administrator}

    def lets_in(self, username: str, password: str) -> bool:
        """Whether this is the user's password."""
        return self.opens(Credentials(username, password))

    def make_database(self, name: str, *tables: str) -> None:
        """A database that somebody made, with tables in the schema public."""
        self.apply(CreateDatabase(name, "UTF8", None, None, "template0"))
        self.apply(FinishDatabase(name, self.administrator, -1, None))
        for table in tables:
            self.make_table(name, table)

    def make_table(self, database: str, table: str) -> None:
        """One more table."""
        self.create(SecuredObject(ObjectKind.TABLE, database, "public", table), self.administrator)

    def granted(self, username: str, database: str) -> set[tuple[str, str | None]]:
        """Privileges inside a database, and the names of what they are on."""
        return {(p.privilege, p.on.name) for p in self.inside[database].privileges if p.grantee == username}

    def revoke(self, username: str, database: str) -> None:
        """All that a user was granted inside a database, behind the operator's back."""
        inside = self.inside[database]
        inside.privileges = {p for p in inside.privileges if p.grantee != username}


class ContentsInMemory(ModelContents):
    """What is inside servers that are models."""

    def __init__(self, servers: dict[Endpoint, ServerInMemory], engine: str) -> None:
        super().__init__(engine_named(engine), servers)
        self._all = servers

    async def survey(self, sessions: Sessions, scope: Scope, timeout: float = 15.0) -> Survey:
        if (held := self._all.get(sessions.server.endpoint)) is not None:
            held.attempts += 1
        survey = await super().survey(sessions, scope, timeout)
        self._all[sessions.server.endpoint].looks += 1
        return survey

    async def carry_out(self, sessions: Sessions, plan: Plan, timeout: float = 15.0) -> tuple[Change, ...]:
        held = self._all.get(sessions.server.endpoint)
        if held is not None and held.refuses:
            held.refusals += 1
            raise SqlFailed("changing it", "42501", held.refuses)
        return await super().carry_out(sessions, plan, timeout)
