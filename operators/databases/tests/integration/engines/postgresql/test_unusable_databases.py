"""What the owner of one database does to whoever comes to it is no matter of the others, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg
import pytest

from database_support.servers.postgresql import RealPostgreSQLServer, administered
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.connection.input_limits import MAX_OBJECTS
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import ObjectsMissing, SqlFailed
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.postgresql.sql.pool import PostgreSQLSessions
from steersman_databases.engines.postgresql.sql.session import PostgreSQLSession
from steersman_databases.engines.sql.desired import (
    DesiredDatabase,
    DesiredGrant,
    DesiredUser,
    OwnershipMark,
    SecurableKind,
)
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope, SecuredObject
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_databases.engines.sql.sql_actions import GrantPrivileges, TerminateSessions
from steersman_databases.engines.sql.sql_plan import SqlPlan, SqlStep

CONTENTS = PostgreSQLSqlEngine()
CLAIM = OwnershipMark("c1", "Database", "shop", "archive")
OWNER = SqlCredentials("archive's owner", "0wner")
# The broken one is looked at first.
BROKEN = DesiredDatabase("a \\ broken one", OWNER.username, mark=CLAIM)
SOUND = DesiredDatabase("the catalogue", OWNER.username, mark=CLAIM)
BOTH = frozenset({BROKEN.name, SOUND.name})
SCOPE = InspectionScope(frozenset({OWNER.username}), BOTH, dict.fromkeys(BOTH, frozenset({"public"})))


@pytest.fixture
async def administrator(postgresql: RealPostgreSQLServer) -> AsyncGenerator[ServerSessions]:
    async with administered(postgresql, OWNER, BROKEN) as sessions:
        await reconcile(CONTENTS, sessions, BROKEN)
        await reconcile(CONTENTS, sessions, SOUND)
        yield sessions
        postgresql.administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", SOUND.name)
        postgresql.administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", BROKEN.name)


async def seen(sessions: ServerSessions) -> Inspection:
    return await CONTENTS.inspect(sessions, SCOPE)


async def as_owner(postgresql: RealPostgreSQLServer, statement: str, *names: str) -> None:
    await postgresql.execute(statement, BROKEN.name, *names, credentials=OWNER, database=SOUND.name)


WORST = """
SELECT name, CASE vartype WHEN 'bool' THEN ARRAY['on', 'off'] WHEN 'enum' THEN enumvals
                          WHEN 'string' THEN ARRAY['nonsense', 'SQL, DMY', '+13', 'it''s, \\ x']
                          ELSE ARRAY['1', max_val, min_val] END
FROM pg_settings WHERE context = 'user' AND name NOT LIKE 'default\\_t%%'
"""


async def test_database_settings_do_not_affect_operator(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    """All at once: the first of the worst values that ALTER DATABASE takes for each parameter."""
    normal = await seen(administrator)
    taken: set[str] = set()
    async with await postgresql.connected(OWNER, SOUND.name) as owner:
        for name, values in postgresql.administer(WORST):
            for value in values:
                literal = value.replace("'", "''")
                try:
                    await owner.execute(
                        f"ALTER DATABASE \"{BROKEN.name}\" SET {name} = '{literal}'".encode(), prepare=False
                    )
                except psycopg.Error:
                    continue
                taken.add(name)
                break
        for name in ("role", "session_authorization"):
            await owner.execute(f'ALTER DATABASE "{BROKEN.name}" SET {name} = "{OWNER.username}"'.encode())
    assert len(taken) > 100 and {"local_preload_libraries", "statement_timeout"} <= taken
    assert ("transaction_timeout" in taken) is (normal.version[0] >= 17)
    assert await seen(administrator) == normal
    grant = DesiredGrant(BROKEN.name, frozenset({"USAGE"}), SecurableKind.SCHEMA, "public")
    changes = await reconcile(CONTENTS, administrator, DesiredUser("guest", "gu3st", grants=(grant,)))
    assert [change.reason for change in changes] == ["UserCreated", "PrivilegesGranted"]
    heirs = CONTENTS.plan_drop_user(
        await CONTENTS.inspect(administrator, InspectionScope(frozenset({"guest"}))), "guest", None, None
    )
    await CONTENTS.execute(administrator, heirs)


async def test_database_without_login_is_not_unreachable_server(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    """Superusers can break more than owners can."""
    postgresql.administer("ALTER DATABASE {} SET session_preload_libraries = 'nonsense'", BROKEN.name)
    found = await seen(administrator)
    assert found.contents.keys() == {SOUND.name}
    assert "nonsense" in found.uninspected[BROKEN.name]
    assert CONTENTS.plan_database(found, SOUND) == SqlPlan()
    with pytest.raises(SqlFailed, match=r"inspecting database .*nonsense"):
        await reconcile(CONTENTS, administrator, BROKEN)
    grants = tuple(
        DesiredGrant(name, frozenset({"USAGE"}), SecurableKind.SCHEMA, "public") for name in (BROKEN.name, SOUND.name)
    )
    guest = DesiredUser("guest", "gu3st", grants=grants)
    with pytest.raises(ObjectsMissing, match=r"cannot be inspected: .*nonsense") as waiting:
        await reconcile(CONTENTS, administrator, guest)
    assert [change.reason for change in waiting.value.changes] == ["UserCreated", "PrivilegesGranted"]
    # A plan that was made before it broke.
    usage = GrantPrivileges(
        "guest", SecuredObject(SecurableKind.SCHEMA, BROKEN.name, "public"), ("USAGE",), OWNER.username
    )
    with pytest.raises(SqlFailed, match=r"working in database .*nonsense"):
        await CONTENTS.execute(administrator, SqlPlan((SqlStep(usage), SqlStep(TerminateSessions("guest")))))
    postgresql.administer("ALTER DATABASE {} RESET ALL", BROKEN.name)
    await reconcile(CONTENTS, administrator, guest)
    plan = CONTENTS.plan_drop_user(
        await CONTENTS.inspect(administrator, InspectionScope(frozenset({"guest"}))), "guest", None, None
    )
    await CONTENTS.execute(administrator, plan)


async def test_hanging_database_delays_others_once(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await postgresql.connected(postgresql.administrator, BROKEN.name) as holder:
        await holder.execute("BEGIN")
        await holder.execute("LOCK TABLE pg_catalog.pg_class IN ACCESS EXCLUSIVE MODE")
        found = await seen(administrator)
        assert found.contents.keys() == {SOUND.name} and "no response in time" in found.uninspected[BROKEN.name]
        assert isinstance(administrator, PostgreSQLSessions)
        at, visited = administrator.at, list[str | None]()

        def watched(
            database: str | None, *arguments: Any, **more: Any
        ) -> AbstractAsyncContextManager[PostgreSQLSession]:
            visited.append(database)
            return at(database, *arguments, **more)

        monkeypatch.setattr(administrator, "at", watched)
        assert await seen(administrator) == found
        assert SOUND.name in visited and BROKEN.name not in visited


async def test_schema_with_too_many_objects_is_not_inspected(
    postgresql: RealPostgreSQLServer, administrator: ServerSessions
) -> None:
    async with await postgresql.connected(OWNER, BROKEN.name) as owner:
        await owner.execute(
            f"DO $$ BEGIN FOR i IN 0..{MAX_OBJECTS} LOOP"
            " EXECUTE format('CREATE FUNCTION f%s() RETURNS int RETURN 1', i); END LOOP; END $$".encode(),
            prepare=False,
        )
    found = await seen(administrator)
    assert BROKEN.name not in found.contents
    assert "(public) have more than 20,000 tables, sequences and functions" in found.uninspected[BROKEN.name]
    assert SOUND.name in found.contents
