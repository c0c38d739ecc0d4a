"""What the owner of one database does to whoever comes to it is no matter of the others, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg
import pytest

from database_support.postgresql_server import PostgreSQLServer, administered
from steersman_databases.engines import Credentials, PostgreSQL
from steersman_databases.engines.actions import EndSessions, Grant
from steersman_databases.engines.desired import Claim, DesiredDatabase, DesiredGrant, DesiredUser, ObjectKind
from steersman_databases.engines.errors import ObjectsMissing, SqlFailed
from steersman_databases.engines.plan import Plan, Step
from steersman_databases.engines.postgresql.pool import PostgreSQLSessions
from steersman_databases.engines.postgresql.session import Session
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.settle import settle
from steersman_databases.engines.survey import Scope, SecuredObject, Survey

CONTENTS = PostgreSQL()
CLAIM = Claim("c1", "Database", "shop", "archive")
OWNER = Credentials("archive's owner", "0wner")
# The broken one is looked at first.
BROKEN = DesiredDatabase("a \\ broken one", OWNER.username, claim=CLAIM)
SOUND = DesiredDatabase("the catalogue", OWNER.username, claim=CLAIM)
BOTH = frozenset({BROKEN.name, SOUND.name})
SCOPE = Scope(frozenset({OWNER.username}), BOTH, dict.fromkeys(BOTH, frozenset({"public"})))


@pytest.fixture
async def administrator(postgresql: PostgreSQLServer) -> AsyncGenerator[Sessions]:
    async with administered(postgresql, OWNER, BROKEN) as sessions:
        await settle(CONTENTS, sessions, BROKEN)
        await settle(CONTENTS, sessions, SOUND)
        yield sessions
        postgresql.administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", SOUND.name)
        postgresql.administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", BROKEN.name)


async def seen(sessions: Sessions) -> Survey:
    return await CONTENTS.survey(sessions, SCOPE)


async def as_owner(postgresql: PostgreSQLServer, statement: str, *names: str) -> None:
    await postgresql.execute(statement, BROKEN.name, *names, credentials=OWNER, database=SOUND.name)


WORST = """
SELECT name, CASE vartype WHEN 'bool' THEN ARRAY['on', 'off'] WHEN 'enum' THEN enumvals
                          WHEN 'string' THEN ARRAY['nonsense', 'SQL, DMY', '+13', 'it''s, \\ x']
                          ELSE ARRAY['1', max_val, min_val] END
FROM pg_settings WHERE context = 'user' AND name NOT LIKE 'default\\_t%%'
"""


async def test_nothing_that_its_owner_sets_for_a_database_is_in_the_operators_way(
    postgresql: PostgreSQLServer, administrator: Sessions
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
    grant = DesiredGrant(BROKEN.name, frozenset({"USAGE"}), ObjectKind.SCHEMA, "public")
    changes = await settle(CONTENTS, administrator, DesiredUser("guest", "gu3st", grants=(grant,)))
    assert [change.reason for change in changes] == ["UserCreated", "Granted"]
    heirs = CONTENTS.plan_drop_user(
        await CONTENTS.survey(administrator, Scope(frozenset({"guest"}))), "guest", None, None
    )
    await CONTENTS.carry_out(administrator, heirs)


async def test_a_database_that_nobody_can_log_in_to_is_no_server_that_is_away(
    postgresql: PostgreSQLServer, administrator: Sessions
) -> None:
    """Superusers can break more than owners can."""
    postgresql.administer("ALTER DATABASE {} SET session_preload_libraries = 'nonsense'", BROKEN.name)
    found = await seen(administrator)
    assert found.inside.keys() == {SOUND.name}
    assert "nonsense" in found.unseen[BROKEN.name]
    assert CONTENTS.plan_database(found, SOUND) == Plan()
    with pytest.raises(SqlFailed, match=r"looking inside database .*nonsense"):
        await settle(CONTENTS, administrator, BROKEN)
    grants = tuple(
        DesiredGrant(name, frozenset({"USAGE"}), ObjectKind.SCHEMA, "public") for name in (BROKEN.name, SOUND.name)
    )
    guest = DesiredUser("guest", "gu3st", grants=grants)
    with pytest.raises(ObjectsMissing, match=r"does not let the operator look inside: .*nonsense") as waiting:
        await settle(CONTENTS, administrator, guest)
    assert [change.reason for change in waiting.value.changes] == ["UserCreated", "Granted"]
    # A plan that was made before it broke.
    usage = Grant("guest", SecuredObject(ObjectKind.SCHEMA, BROKEN.name, "public"), ("USAGE",), OWNER.username)
    with pytest.raises(SqlFailed, match=r"working in database .*nonsense"):
        await CONTENTS.carry_out(administrator, Plan((Step(usage), Step(EndSessions("guest")))))
    postgresql.administer("ALTER DATABASE {} RESET ALL", BROKEN.name)
    await settle(CONTENTS, administrator, guest)
    plan = CONTENTS.plan_drop_user(
        await CONTENTS.survey(administrator, Scope(frozenset({"guest"}))), "guest", None, None
    )
    await CONTENTS.carry_out(administrator, plan)


async def test_a_database_that_hangs_lets_the_others_wait_only_once(
    postgresql: PostgreSQLServer, administrator: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await postgresql.connected(postgresql.administrator, BROKEN.name) as holder:
        await holder.execute("BEGIN")
        await holder.execute("LOCK TABLE pg_catalog.pg_class IN ACCESS EXCLUSIVE MODE")
        found = await seen(administrator)
        assert found.inside.keys() == {SOUND.name} and "no answer in time" in found.unseen[BROKEN.name]
        assert isinstance(administrator, PostgreSQLSessions)
        at, visited = administrator.at, list[str | None]()

        def watched(database: str | None, *arguments: Any, **more: Any) -> AbstractAsyncContextManager[Session]:
            visited.append(database)
            return at(database, *arguments, **more)

        monkeypatch.setattr(administrator, "at", watched)
        assert await seen(administrator) == found
        assert SOUND.name in visited and BROKEN.name not in visited
