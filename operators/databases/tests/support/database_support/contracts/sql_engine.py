"""What every engine keeps, whatever its server: a model or a real one.

tests/unit and tests/integration collect these classes, each with a `server` fixture of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

import pytest

from database_support.contracts import owned_database
from database_support.contracts.owned_database import OwnedDatabase
from steersman_databases.engines import (
    AdministratorRejected,
    InvalidName,
    ServerEndpoint,
    ServerUnreachable,
    SqlCredentials,
    SqlEngine,
)
from steersman_databases.engines.errors import AlreadyExists
from steersman_databases.engines.server import DatabaseServer as Located
from steersman_databases.engines.server import Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.ownership_marks import same_namespace

MARK = OwnershipMark("c1", "Database", "shop", "orders")
UID, LATER_UID = "0a4fd1b2-0000-4000-8000-000000000001", "0a4fd1b2-0000-4000-8000-000000000002"
"""UIDs of two namespaces of the same name."""


class ContractServer(Protocol):
    """A running server: how to reach it, what is true on it, and how to spoil it.

    The `administrator` is who engines come as; the `superuser` may do anything. `estrange` is what a database's owner
    may do to it by ALTER DATABASE, so that it is another than was made.
    """

    sql_engine: SqlEngine
    endpoint: ServerEndpoint
    administrator: SqlCredentials
    superuser: SqlCredentials

    async def can_log_in(self, credentials: SqlCredentials, database: str) -> bool: ...
    async def create_table(self, credentials: SqlCredentials, database: str) -> None: ...
    async def reads_table(self, credentials: SqlCredentials, database: str) -> bool: ...
    async def databases(self) -> set[str]: ...
    async def users(self) -> set[str]: ...
    async def writes(self) -> int: ...

    async def drop_user(self, desired: OwnedDatabase) -> None: ...
    async def drop_database(self, desired: OwnedDatabase) -> None: ...
    async def change_password(self, desired: OwnedDatabase, password: str) -> None: ...
    async def revoke(self, desired: OwnedDatabase) -> None: ...
    async def lock(self, desired: OwnedDatabase) -> None: ...
    async def make_superuser_owned(self, desired: OwnedDatabase) -> None: ...
    async def expire(self, desired: OwnedDatabase) -> None: ...
    async def create_superuser(self, username: str) -> None: ...

    def closed_endpoint(self) -> ServerEndpoint: ...
    def hanging(self) -> AbstractAsyncContextManager[ServerEndpoint]: ...
    def cut_after(self, messages: int) -> AbstractAsyncContextManager[ServerEndpoint]: ...


_numbers = itertools.count(1)


@pytest.fixture
def desired() -> OwnedDatabase:
    number = next(_numbers)
    return OwnedDatabase(f"shop{number}", f"clerk{number}", "s3cret-Pa55word")


@pytest.fixture
async def canary(server: ContractServer) -> OwnedDatabase:
    """A database that no other may reach, and that must outlive whatever is tried."""
    canary = OwnedDatabase("canary", "canary", "tweet")
    if canary.database not in await server.databases():
        await owned_database.ensure(server.sql_engine, server.endpoint, server.administrator, canary)
    return canary


async def ensure(
    server: ContractServer, desired: OwnedDatabase, claim: OwnershipMark | None = None, *, adopt: bool = False
) -> list[str]:
    changes = await owned_database.ensure(
        server.sql_engine, server.endpoint, server.administrator, desired, claim=claim, adopt=adopt
    )
    assert desired.password not in repr(changes)
    return [change.reason for change in changes]


async def assert_settled(server: ContractServer, desired: OwnedDatabase) -> None:
    assert await server.can_log_in(desired.credentials, desired.database)
    before = await server.writes()
    assert await ensure(server, desired) == []
    assert await server.writes() == before


class TestFresh:
    async def test_missing_user_and_database_are_created(
        self, server: ContractServer, desired: OwnedDatabase
    ) -> None:
        reasons = await ensure(server, desired)
        assert reasons[:2] == ["UserCreated", "DatabaseCreated"]
        await server.create_table(desired.credentials, desired.database)
        assert await server.reads_table(desired.credentials, desired.database)

    async def test_second_run_writes_nothing(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        await assert_settled(server, desired)

    async def test_only_the_right_password_logs_in(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        assert not await server.can_log_in(SqlCredentials(desired.username, "wrong"), desired.database)

    async def test_concurrent_runs_succeed(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await asyncio.gather(*(ensure(server, desired) for _ in range(4)))
        await assert_settled(server, desired)

    async def test_tenants_cannot_access_each_other(
        self, server: ContractServer, desired: OwnedDatabase, canary: OwnedDatabase
    ) -> None:
        await ensure(server, desired)
        assert not await server.can_log_in(desired.credentials, canary.database)
        assert not await server.can_log_in(canary.credentials, desired.database)


class TestDrift:
    async def test_dropped_user_is_recreated_with_its_data(
        self, server: ContractServer, desired: OwnedDatabase
    ) -> None:
        await ensure(server, desired)
        await server.create_table(desired.credentials, desired.database)
        await server.drop_user(desired)
        assert "UserCreated" in await ensure(server, desired)
        assert await server.reads_table(desired.credentials, desired.database)
        await assert_settled(server, desired)

    async def test_dropped_database_is_recreated(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        await server.drop_database(desired)
        assert "DatabaseCreated" in await ensure(server, desired)
        await assert_settled(server, desired)

    async def test_changed_password_is_restored(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        await server.change_password(desired, "stolen")
        assert await ensure(server, desired) == ["PasswordReset"]
        assert not await server.can_log_in(SqlCredentials(desired.username, "stolen"), desired.database)
        await assert_settled(server, desired)

    async def test_new_password_is_applied(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        rotated = OwnedDatabase(desired.database, desired.username, "rotated")
        assert await ensure(server, rotated) == ["PasswordReset"]
        await assert_settled(server, rotated)

    async def test_revoked_grants_are_restored(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        await server.revoke(desired)
        assert not await server.can_log_in(desired.credentials, desired.database)
        assert await ensure(server, desired) == ["GrantsRestored"]
        await assert_settled(server, desired)

    async def test_locked_account_is_unlocked(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        await server.lock(desired)
        assert not await server.can_log_in(desired.credentials, desired.database)
        assert await ensure(server, desired) == ["UserUnlocked"]
        await assert_settled(server, desired)

    async def test_expired_account_is_renewed(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        await server.expire(desired)
        assert await ensure(server, desired) in (["UserUnlocked"], ["PasswordReset"])
        await assert_settled(server, desired)

    async def test_owner_changes_to_database_are_reverted(
        self, server: ContractServer, desired: OwnedDatabase
    ) -> None:
        await ensure(server, desired, MARK)
        await server.make_superuser_owned(desired)
        assert await ensure(server, desired, MARK) == ["DatabaseAltered"]
        assert await ensure(server, desired, MARK) == []
        await server.make_superuser_owned(desired)
        await server.revoke(desired)
        assert set(await ensure(server, desired, MARK)) == {"DatabaseAltered", "GrantsRestored"}

    async def test_owner_changes_do_not_block_drop(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired, MARK)
        await server.make_superuser_owned(desired)
        login = Login(server.administrator.username, server.administrator.password)
        there = Located(server.sql_engine.name, server.endpoint, login, Verification(TLSMode.REQUIRE))
        sessions = server.sql_engine.connect(there)
        survey = await server.sql_engine.inspect(sessions, InspectionScope(databases=frozenset({desired.database})))
        plan = server.sql_engine.plan_drop_database(survey, desired.database, MARK)
        assert [change.reason for change in await server.sql_engine.execute(sessions, plan)] == ["DatabaseDropped"]
        await sessions.close()
        assert desired.database not in await server.databases()

    async def test_all_drift_at_once_is_reverted(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired)
        await server.change_password(desired, "stolen")
        await server.lock(desired)
        await server.revoke(desired)
        assert set(await ensure(server, desired)) == {"PasswordReset", "UserUnlocked", "GrantsRestored"}
        await assert_settled(server, desired)


HOSTILE_NAMES = (
    'it\'s "quoted"',
    "back`tick\\slash",
    '"; DROP DATABASE canary; --',
    "`; DROP DATABASE canary; --",
    "'; DROP USER canary; #",
    "%s %(x)s ? $1 {0} {}",
    "50%",
    "under_score",
    " leading space",
    "dash-ed.UPPER",
    "select",
    "user",
    "host=evil dbname=x",
    "postgresql://evil/",
    "../etc/passwd",
    "naïve データ",
    "*@%",
)


class TestOwnershipMarks:
    async def test_mark_without_namespace_uid_is_completed(
        self, server: ContractServer, desired: OwnedDatabase
    ) -> None:
        await ensure(server, desired, MARK)
        complete = replace(MARK, namespace_uid=UID)
        assert await ensure(server, desired, complete) == []
        inspection = await inspect(server, desired)
        assert inspection.users[desired.username].mark == complete.text
        assert inspection.databases[desired.database].mark == complete.text
        before = await server.writes()
        assert await ensure(server, desired, complete) == []
        assert await server.writes() == before

    async def test_later_namespace_inherits_nothing(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired, replace(MARK, namespace_uid=UID))
        later, before = replace(MARK, namespace_uid=LATER_UID), await server.writes()
        other_password = replace(desired, password="other-Pa55word")
        with pytest.raises(AlreadyExists, match="deleted namespace that had the name of this one"):
            await ensure(server, other_password, later)
        inspection, engine = await inspect(server, desired), server.sql_engine
        assert not same_namespace(inspection.users[desired.username].mark, later)
        assert not engine.plan_drop_database(inspection, desired.database, later)
        assert not engine.plan_drop_user(inspection, desired.username, later, None)
        assert await server.writes() == before
        assert await server.can_log_in(desired.credentials, desired.database)

    async def test_later_namespace_adopts_with_consent(self, server: ContractServer, desired: OwnedDatabase) -> None:
        await ensure(server, desired, replace(MARK, namespace_uid=UID))
        later = replace(MARK, namespace_uid=LATER_UID)
        assert await ensure(server, desired, later, adopt=True) == ["UserAdopted", "DatabaseAdopted"]
        assert await ensure(server, desired, later) == []


async def inspect(server: ContractServer, desired: OwnedDatabase) -> Inspection:
    login = Login(server.administrator.username, server.administrator.password)
    located = Located(server.sql_engine.name, server.endpoint, login, Verification(TLSMode.REQUIRE))
    sessions = server.sql_engine.connect(located)
    try:
        scope = InspectionScope(frozenset({desired.username}), databases=frozenset({desired.database}))
        return await server.sql_engine.inspect(sessions, scope)
    finally:
        await sessions.close()


class TestHostileNames:
    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    async def test_hostile_name_is_quoted(self, server: ContractServer, canary: OwnedDatabase, name: str) -> None:
        desired = OwnedDatabase(name, f"u{name}", "s3cret")
        databases, users = await server.databases(), await server.users()
        await ensure(server, desired)
        assert await server.databases() == databases | {desired.database}
        assert await server.users() == users | {desired.username}
        await server.create_table(desired.credentials, desired.database)
        assert not await server.can_log_in(desired.credentials, canary.database)
        await server.revoke(desired)
        await ensure(server, desired)
        await assert_settled(server, desired)
        assert await server.can_log_in(canary.credentials, canary.database)

    async def test_wildcard_name_matches_one_database(self, server: ContractServer) -> None:
        narrow, wide = OwnedDatabase("a_b%c", "narrow", "one"), OwnedDatabase("axbyyc", "wide", "two")
        await ensure(server, narrow)
        await ensure(server, wide)
        assert not await server.can_log_in(narrow.credentials, wide.database)
        await assert_settled(server, narrow)

    async def test_names_are_case_sensitive(self, server: ContractServer) -> None:
        for name in ("Mixed", "mixed", "MIXED"):
            await ensure(server, OwnedDatabase(name, name, "s3cret"))
        for name in ("Mixed", "mixed", "MIXED"):
            await assert_settled(server, OwnedDatabase(name, name, "s3cret"))

    @pytest.mark.parametrize(
        "password",
        [
            "'; DROP DATABASE canary; --",
            '"quoted" back\\slash\\',
            "per%cent%s `$(id)`",
            "пароль-密码-😀",
            " spaces\nline\ttab ",
            "x" * 200,
        ],
    )
    async def test_hostile_password_is_quoted(
        self, server: ContractServer, canary: OwnedDatabase, desired: OwnedDatabase, password: str
    ) -> None:
        hostile = OwnedDatabase(desired.database, desired.username, password)
        await ensure(server, hostile)
        await assert_settled(server, hostile)
        await server.change_password(hostile, "other")
        assert await ensure(server, hostile) == ["PasswordReset"]
        await assert_settled(server, hostile)
        await assert_settled(server, canary)


class TestRefusals:
    async def test_administrator_as_application_is_rejected(self, server: ContractServer) -> None:
        with pytest.raises(InvalidName) as caught:
            await ensure(server, OwnedDatabase("shop", server.administrator.username, "s3cret"))
        assert caught.value.field == "username"

    async def test_superuser_is_not_changed(self, server: ContractServer) -> None:
        await server.create_superuser("mighty")
        before = await server.writes()
        with pytest.raises(InvalidName) as caught:
            await ensure(server, OwnedDatabase("shop", "mighty", "s3cret"))
        assert caught.value.field == "username"
        assert await server.writes() == before

    async def test_wrong_administrator_password_is_reported(
        self, server: ContractServer, desired: OwnedDatabase
    ) -> None:
        wrong = SqlCredentials(server.administrator.username, "s3same")
        with pytest.raises(AdministratorRejected) as caught:
            await owned_database.ensure(server.sql_engine, server.endpoint, wrong, desired)
        assert str(caught.value).startswith(f'the server rejected the administrator "{wrong.username}": ')
        assert "s3same" not in _everything(caught.value)


class TestUnreachable:
    async def test_closed_port_is_unreachable(self, server: ContractServer, desired: OwnedDatabase) -> None:
        with pytest.raises(ServerUnreachable) as caught:
            await owned_database.ensure(server.sql_engine, server.closed_endpoint(), server.administrator, desired)
        assert server.administrator.password not in _everything(caught.value)

    async def test_silent_server_times_out(self, server: ContractServer, desired: OwnedDatabase) -> None:
        async with server.hanging() as endpoint:
            started = time.monotonic()
            with pytest.raises(ServerUnreachable, match="in time"):
                await owned_database.ensure(server.sql_engine, endpoint, server.administrator, desired, timeout=0.3)
            assert time.monotonic() - started < 20

    async def test_connection_cut_at_any_message_recovers(self, server: ContractServer) -> None:
        survived, messages = False, 0
        told: set[str] = set()
        while not survived:
            messages += 1
            desired = OwnedDatabase(f"cut{messages}", f"cutter{messages}", "s3cret")
            async with server.cut_after(messages) as endpoint:
                try:
                    await owned_database.ensure(server.sql_engine, endpoint, server.administrator, desired)
                    survived = True
                except ServerUnreachable as error:
                    told |= {change.reason for change in error.changes}
            await ensure(server, desired)
            assert await server.can_log_in(desired.credentials, desired.database)
        assert {"UserCreated", "DatabaseCreated"} <= told, "what was changed before the cut is told"


def _everything(error: BaseException | None) -> str:
    """All that a log could show of an error: itself, its attributes, and what it is chained to."""
    shown = ""
    while error is not None:
        shown += f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return shown
