"""A look at a server is shared: what it refuses to look for, for one object, is no other's trouble."""

from __future__ import annotations

from database_support.fake_server.engine import InMemorySqlEngine
from database_support.unit.users_harness import UsersHarness
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import SqlFailed
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_testing import virtual_time


class Latin(InMemorySqlEngine):
    """One whose database has an encoding without some letters, as PostgreSQL's LATIN1."""

    knows_all = False

    async def inspect(self, sessions: ServerSessions, scope: InspectionScope, timeout: float = 15.0) -> Inspection:
        unknown = [name for name in sorted(scope.all_users) if not name.isascii()]
        if unknown and not self.knows_all:
            raise SqlFailed("inspecting users", "22P05", "has no equivalent in encoding LATIN1")
        return await super().inspect(sessions, scope, timeout)


class LatinWorld(UsersHarness):
    """With such a server."""

    latin: Latin | None = None

    def sql_engine(self, engine: str) -> SqlEngine:
        if self.latin is None:
            self.latin = Latin(self.servers, engine)
        return self.latin


@virtual_time
async def test_invisible_name_is_reported_to_its_object_only() -> None:
    world = LatinWorld()
    async with world.operator():
        for name in ("clerk", "cook"):
            await world.user(name)
            await world.ready(name)
        await world.namespace("guest")
        await world.user("foreign", "guest", user="名前")
        await world.wait_failed("no equivalent in encoding", "foreign", "guest")
        statuses = {name: world.condition(name, "default") for name in ("clerk", "cook")}
        for second in range(600):
            if second % 100 == 0:
                world.sql.drop_user("clerk")
            await world.runtime.clock.sleep(1)
            assert statuses == {name: world.condition(name, "default") for name in statuses}
            assert "clerk" in world.sql.users or second % 100 < 30, "drift is healed in time"
        assert world.latin is not None
        world.latin.knows_all = True
        await world.ready("foreign", "guest", seconds=60)


@virtual_time
async def test_server_rejecting_one_scope_is_reported_to_all() -> None:
    """Nobody reconciles then, and the look for all fails; who is not concerned goes on being watched over."""
    world = LatinWorld()
    async with world.operator():
        await world.user()
        await world.ready()
        assert world.latin is not None
        world.latin.knows_all = True
        await world.user("foreign", user="名前")
        await world.ready("foreign")
        world.latin.knows_all = False
        await world.wait_failed("no equivalent in encoding", "foreign")
        world.sql.drop_user("clerk")
        await world.until("healed", lambda: "clerk" in world.sql.users, 30)
