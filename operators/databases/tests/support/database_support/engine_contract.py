"""What every engine keeps, whatever its server: a model or a real one.

tests/unit and tests/integration collect these classes, each with a `server` fixture of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest

from database_support import owned_database
from database_support.owned_database import Desired
from steersman_databases.engines import (
    AdministratorRejected,
    Contents,
    Credentials,
    Endpoint,
    InvalidName,
    ServerUnreachable,
)
from steersman_databases.engines.desired import Claim
from steersman_databases.engines.server import Login, TLSMode, Verification
from steersman_databases.engines.server import Server as Located
from steersman_databases.engines.survey import Scope

CLAIM = Claim("c1", "Database", "shop", "orders")


class Server(Protocol):
    """A running server: how to reach it, what is true on it, and how to spoil it.

    The `administrator` is who engines come as; the `superuser` may do anything. `estrange` is what a database's owner
    may do to it by ALTER DATABASE, so that it is another than was made.
    """

    contents: Contents
    endpoint: Endpoint
    administrator: Credentials
    superuser: Credentials

    async def can_log_in(self, credentials: Credentials, database: str) -> bool: ...
    async def create_table(self, credentials: Credentials, database: str) -> None: ...
    async def reads_table(self, credentials: Credentials, database: str) -> bool: ...
    async def databases(self) -> set[str]: ...
    async def users(self) -> set[str]: ...
    async def writes(self) -> int: ...

    async def drop_user(self, desired: Desired) -> None: ...
    async def drop_database(self, desired: Desired) -> None: ...
    async def change_password(self, desired: Desired, password: str) -> None: ...
    async def revoke(self, desired: Desired) -> None: ...
    async def lock(self, desired: Desired) -> None: ...
    async def estrange(self, desired: Desired) -> None: ...
    async def expire(self, desired: Desired) -> None: ...
    async def create_mighty_user(self, username: str) -> None: ...

    def nowhere(self) -> Endpoint: ...
    def hanging(self) -> AbstractAsyncContextManager[Endpoint]: ...
    def cut_after(self, messages: int) -> AbstractAsyncContextManager[Endpoint]: ...


_numbers = itertools.count(1)


@pytest.fixture
def desired() -> Desired:
    number = next(_numbers)
    return Desired(f"shop{number}", f"clerk{number}", "s3cret-Pa55word")


@pytest.fixture
async def canary(server: Server) -> Desired:
    """A database that no other may reach, and that must outlive whatever is tried."""
    canary = Desired("canary", "canary", "tweet")
    if canary.database not in await server.databases():
        await owned_database.ensure(server.contents, server.endpoint, server.administrator, canary)
    return canary


async def ensure(server: Server, desired: Desired, claim: Claim | None = None) -> list[str]:
    changes = await owned_database.ensure(
        server.contents, server.endpoint, server.administrator, desired, claim=claim
    )
    assert desired.password not in repr(changes)
    return [change.reason for change in changes]


async def assert_settled(server: Server, desired: Desired) -> None:
    assert await server.can_log_in(desired.credentials, desired.database)
    before = await server.writes()
    assert await ensure(server, desired) == []
    assert await server.writes() == before


class TestFresh:
    async def test_makes_user_and_database(self, server: Server, desired: Desired) -> None:
        reasons = await ensure(server, desired)
        assert reasons[:2] == ["UserCreated", "DatabaseCreated"]
        await server.create_table(desired.credentials, desired.database)
        assert await server.reads_table(desired.credentials, desired.database)

    async def test_second_run_writes_nothing(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        await assert_settled(server, desired)

    async def test_opens_with_the_right_password_only(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        assert not await server.can_log_in(Credentials(desired.username, "wrong"), desired.database)

    async def test_several_at_once(self, server: Server, desired: Desired) -> None:
        await asyncio.gather(*(ensure(server, desired) for _ in range(4)))
        await assert_settled(server, desired)

    async def test_tenants_cannot_reach_each_other(self, server: Server, desired: Desired, canary: Desired) -> None:
        await ensure(server, desired)
        assert not await server.can_log_in(desired.credentials, canary.database)
        assert not await server.can_log_in(canary.credentials, desired.database)


class TestDrift:
    async def test_dropped_user_finds_its_data_again(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        await server.create_table(desired.credentials, desired.database)
        await server.drop_user(desired)
        assert "UserCreated" in await ensure(server, desired)
        assert await server.reads_table(desired.credentials, desired.database)
        await assert_settled(server, desired)

    async def test_dropped_database(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        await server.drop_database(desired)
        assert "DatabaseCreated" in await ensure(server, desired)
        await assert_settled(server, desired)

    async def test_changed_password(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        await server.change_password(desired, "stolen")
        assert await ensure(server, desired) == ["PasswordReset"]
        assert not await server.can_log_in(Credentials(desired.username, "stolen"), desired.database)
        await assert_settled(server, desired)

    async def test_new_password(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        rotated = Desired(desired.database, desired.username, "rotated")
        assert await ensure(server, rotated) == ["PasswordReset"]
        await assert_settled(server, rotated)

    async def test_revoked_grants(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        await server.revoke(desired)
        assert not await server.can_log_in(desired.credentials, desired.database)
        assert await ensure(server, desired) == ["GrantsRestored"]
        await assert_settled(server, desired)

    async def test_locked_account(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        await server.lock(desired)
        assert not await server.can_log_in(desired.credentials, desired.database)
        assert await ensure(server, desired) == ["UserUnlocked"]
        await assert_settled(server, desired)

    async def test_expired_account(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired)
        await server.expire(desired)
        assert await ensure(server, desired) in (["UserUnlocked"], ["PasswordReset"])
        await assert_settled(server, desired)

    async def test_what_its_owner_made_of_a_database(self, server: Server, desired: Desired) -> None:
        await ensure(server, desired, CLAIM)
        await server.estrange(desired)
        assert await ensure(server, desired, CLAIM) == ["DatabaseAltered"]
        assert await ensure(server, desired, CLAIM) == []
        await server.estrange(desired)
        await server.revoke(desired)
        assert set(await ensure(server, desired, CLAIM)) == {"DatabaseAltered", "GrantsRestored"}

    async def test_what_its_owner_made_of_a_database_does_not_keep_it_from_going(
        self, server: Server, desired: Desired
    ) -> None:
        await ensure(server, desired, CLAIM)
        await server.estrange(desired)
        login = Login(server.administrator.username, server.administrator.password)
        there = Located(server.contents.name, server.endpoint, login, Verification(TLSMode.REQUIRE))
        sessions = server.contents.connect(there)
        survey = await server.contents.survey(sessions, Scope(databases=frozenset({desired.database})))
        plan = server.contents.plan_drop_database(survey, desired.database, CLAIM)
        assert [change.reason for change in await server.contents.carry_out(sessions, plan)] == ["DatabaseDropped"]
        await sessions.close()
        assert desired.database not in await server.databases()

    async def test_everything_at_once(self, server: Server, desired: Desired) -> None:
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


class TestHostileNames:
    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    async def test_name_is_data(self, server: Server, canary: Desired, name: str) -> None:
        desired = Desired(name, f"u{name}", "s3cret")
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

    async def test_wildcards_reach_one_database_only(self, server: Server) -> None:
        narrow, wide = Desired("a_b%c", "narrow", "one"), Desired("axbyyc", "wide", "two")
        await ensure(server, narrow)
        await ensure(server, wide)
        assert not await server.can_log_in(narrow.credentials, wide.database)
        await assert_settled(server, narrow)

    async def test_case_tells_names_apart(self, server: Server) -> None:
        for name in ("Mixed", "mixed", "MIXED"):
            await ensure(server, Desired(name, name, "s3cret"))
        for name in ("Mixed", "mixed", "MIXED"):
            await assert_settled(server, Desired(name, name, "s3cret"))

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
    async def test_password_is_data(self, server: Server, canary: Desired, desired: Desired, password: str) -> None:
        hostile = Desired(desired.database, desired.username, password)
        await ensure(server, hostile)
        await assert_settled(server, hostile)
        await server.change_password(hostile, "other")
        assert await ensure(server, hostile) == ["PasswordReset"]
        await assert_settled(server, hostile)
        await assert_settled(server, canary)


class TestRefusals:
    async def test_administrator_is_not_an_application(self, server: Server) -> None:
        with pytest.raises(InvalidName) as caught:
            await ensure(server, Desired("shop", server.administrator.username, "s3cret"))
        assert caught.value.field == "username"

    async def test_mighty_user_is_never_touched(self, server: Server) -> None:
        await server.create_mighty_user("mighty")
        before = await server.writes()
        with pytest.raises(InvalidName) as caught:
            await ensure(server, Desired("shop", "mighty", "s3cret"))
        assert caught.value.field == "username"
        assert await server.writes() == before

    async def test_wrong_administrator(self, server: Server, desired: Desired) -> None:
        wrong = Credentials(server.administrator.username, "s3same")
        with pytest.raises(AdministratorRejected) as caught:
            await owned_database.ensure(server.contents, server.endpoint, wrong, desired)
        assert str(caught.value).startswith(f'the server rejected the administrator "{wrong.username}": ')
        assert "s3same" not in _everything(caught.value)


class TestUnreachable:
    async def test_nobody_listens(self, server: Server, desired: Desired) -> None:
        with pytest.raises(ServerUnreachable) as caught:
            await owned_database.ensure(server.contents, server.nowhere(), server.administrator, desired)
        assert server.administrator.password not in _everything(caught.value)

    async def test_server_that_never_answers(self, server: Server, desired: Desired) -> None:
        async with server.hanging() as endpoint:
            started = time.monotonic()
            with pytest.raises(ServerUnreachable, match="in time"):
                await owned_database.ensure(server.contents, endpoint, server.administrator, desired, timeout=0.3)
            assert time.monotonic() - started < 20

    async def test_cut_off_anywhere(self, server: Server) -> None:
        survived, messages = False, 0
        told: set[str] = set()
        while not survived:
            messages += 1
            desired = Desired(f"cut{messages}", f"cutter{messages}", "s3cret")
            async with server.cut_after(messages) as endpoint:
                try:
                    await owned_database.ensure(server.contents, endpoint, server.administrator, desired)
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
