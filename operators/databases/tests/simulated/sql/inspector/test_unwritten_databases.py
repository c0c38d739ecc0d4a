"""Polls connect only to databases with writes since their last inspection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from database_support.fake_server.engine import ADMINISTRATOR, InMemoryServer, InMemorySqlEngine
from database_support.unit.users_harness import HOST
from steersman.meta import ObjectKey
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import DatabaseServer, Login, Verification
from steersman_databases.engines.sql.desired import ANY, DesiredGrant, DesiredUser, OwnershipMark, SecurableKind
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.server_resolver import ResolvedServer
from steersman_testing import virtual_runtime, virtual_time

KIND = "DatabaseUser"
DATABASES = 6


class CountingEngine(InMemorySqlEngine):
    """Server with write counters, which records the databases that polls connect to."""

    def __init__(self) -> None:
        self.held = InMemoryServer()
        self.counters: dict[str, int] = {}
        self.fails = False
        self.visited: list[str] = []
        super().__init__({HOST: self.held}, "postgresql")

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        self.visited += scope.contents
        return await super().inspect(sessions, scope, timeout)

    async def write_counters(self, sessions: ServerSessions, timeout: float = 15.0) -> Mapping[str, int]:
        if self.fails:
            raise ServerUnreachable(HOST, "scripted")
        return dict(self.counters)


class Watched:
    """Users with grants in databases, and the inspector that polls them."""

    def __init__(self, databases: int = DATABASES) -> None:
        self.databases = databases
        self.runtime, self.engine = virtual_runtime(), CountingEngine()
        self.inspector = ServerInspector(self.runtime)
        self.enqueued: list[str] = []

    def enqueue(self, request: ObjectKey, *, priority: int = 0) -> None:
        self.enqueued.append(request.name)

    @asynccontextmanager
    async def polling(self) -> AsyncGenerator[None]:
        server = DatabaseServer(
            "postgresql", HOST, Login(ADMINISTRATOR.username, ADMINISTRATOR.password), Verification()
        )
        tasks = [
            asyncio.create_task(self.inspector.run(self.enqueue, self.runtime)),
            asyncio.create_task(self.inspector.events_for(KIND).run(self.enqueue, self.runtime)),
        ]
        for number in range(self.databases):
            name = f"shop{number}"
            self.engine.held.make_database(name, "orders")
            self.engine.counters[name] = 1
            grant = DesiredGrant(name, frozenset({"SELECT"}), SecurableKind.TABLE, "public", (ANY,))
            mark = OwnershipMark("here", KIND, "default", f"clerk{number}")
            desired = DesiredUser(f"clerk{number}", "s3cret", mark=mark, grants=(grant,))
            key = ObjectKey("default", desired.name)
            await self.inspector.reconcile(ResolvedServer(server, self.engine, None), KIND, key, (desired,))
        await self.runtime.clock.sleep(60)
        self.engine.visited.clear()
        self.enqueued.clear()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_unwritten_databases_are_left_alone() -> None:
    watched = Watched()
    async with watched.polling():
        await watched.runtime.clock.sleep(300)
        assert watched.engine.visited == []


@virtual_time
async def test_written_database_is_inspected_within_a_poll() -> None:
    watched = Watched()
    async with watched.polling():
        watched.engine.held.revoke("clerk3", "shop3")
        watched.engine.counters["shop3"] += 1
        await watched.runtime.clock.sleep(7)
        assert watched.engine.visited == ["shop3"]
        assert watched.enqueued == ["clerk3"]


@virtual_time
async def test_unwritten_databases_are_inspected_every_10_minutes() -> None:
    watched = Watched()
    async with watched.polling():
        # A statistics reset, or settings that disable statistics, may hide a change.
        watched.engine.held.revoke("clerk3", "shop3")
        await watched.runtime.clock.sleep(640)
        assert set(watched.engine.visited) == {f"shop{number}" for number in range(DATABASES)}
        assert watched.enqueued == ["clerk3"]


@virtual_time
async def test_unreadable_counters_have_all_databases_inspected() -> None:
    watched = Watched()
    async with watched.polling():
        watched.engine.fails = True
        watched.engine.held.revoke("clerk3", "shop3")
        await watched.runtime.clock.sleep(21)
        assert set(watched.engine.visited) == {f"shop{number}" for number in range(DATABASES)}
        assert watched.enqueued == ["clerk3"]


@virtual_time
async def test_databases_take_turns_after_a_change_of_all() -> None:
    """A change of a role counts as a write in each database."""
    watched = Watched(40)
    async with watched.polling():
        watched.engine.counters = dict.fromkeys(watched.engine.counters, 2)
        await watched.runtime.clock.sleep(7)
        assert 0 < len(watched.engine.visited) <= 28
        await watched.runtime.clock.sleep(14)
        assert sorted(watched.engine.visited) == sorted(watched.engine.counters)
