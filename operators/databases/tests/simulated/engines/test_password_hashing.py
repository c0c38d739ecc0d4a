"""Verifiers with many iterations are compared outside of the event loop."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from database_support.fake_server.engine import ADMINISTRATOR, InMemoryServer
from database_support.fake_server.server import FakeSqlEngine
from database_support.unit.users_harness import UsersHarness
from steersman_databases.engines import ServerEndpoint, SqlEngine, password_hashing
from steersman_databases.engines.mysql.sql import verifiers as mysql_verifiers
from steersman_databases.engines.mysql.sql.engine import MySQLSqlEngine
from steersman_databases.engines.postgresql.sql.accounts import verifiers as postgresql_verifiers
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import DesiredUser
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_testing import virtual_time

HOST = ServerEndpoint("db.example.com", 5432)
CLERK = DesiredUser("clerk", "s3cret")


class RecordedHashes:
    """Records the threads that hash a password with more than the default iterations."""

    def __init__(self, patch: pytest.MonkeyPatch, module: ModuleType, name: str, default: int) -> None:
        self.threads: list[str] = []
        hash_password = getattr(module, name)

        def recorded(password: str, salt: bytes | None = None, iterations: int = default) -> str:
            if iterations > default:
                self.threads.append(threading.current_thread().name)
            return hash_password(password, salt, iterations)

        patch.setattr(module, name, recorded)


ENGINES: Any = [
    (PostgreSQLSqlEngine(), postgresql_verifiers, "scram_verifier", postgresql_verifiers.ITERATIONS),
    (MySQLSqlEngine(), mysql_verifiers, "sha2_verifier", mysql_verifiers.ROUNDS),
]


@pytest.mark.parametrize(("like", "module", "name", "default"), ENGINES, ids=["postgresql", "mysql"])
@pytest.mark.parametrize("password", ["s3cret", "other"])
async def test_expensive_verifier_is_compared_in_a_thread(
    like: SqlEngine, module: ModuleType, name: str, default: int, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = InMemoryServer(like.name)
    engine = FakeSqlEngine(like, {HOST: model})
    login = Login(ADMINISTRATOR.username, ADMINISTRATOR.password)
    sessions = engine.connect(DatabaseServer(like.name, HOST, login, Verification(TLSMode.REQUIRE)))
    await reconcile(engine, sessions, CLERK)
    planted = getattr(module, name)(password, None, 2 * default)
    model.users["clerk"] = replace(model.users["clerk"], verifier=planted)
    hashes = RecordedHashes(monkeypatch, module, name, default)
    changes = await reconcile(engine, sessions, CLERK)
    assert [change.reason for change in changes] == ([] if password == "s3cret" else ["PasswordReset"])
    assert hashes.threads == ["password hashing_0"]


@virtual_time
async def test_poll_compares_expensive_verifiers_before_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    world, compared, uncached = UsersHarness(), list[str](), list[str]()

    async def verifies(sql_engine: SqlEngine, password: str, verifier: str) -> bool:
        compared.append(verifier)
        uncached.extend(hashes.threads)
        found = sql_engine.verifies(password, verifier)
        hashes.threads.clear()  # a plan finds the result in the cache
        return found

    planted = postgresql_verifiers.scram_verifier("other", None, 2 * postgresql_verifiers.ITERATIONS)
    monkeypatch.setattr(password_hashing, "verifies", verifies)
    name, default = "scram_verifier", postgresql_verifiers.ITERATIONS
    hashes = RecordedHashes(monkeypatch, postgresql_verifiers, name, default)
    async with world.operator():
        await world.user()
        await world.ready()
        world.sql.users["clerk"] = replace(world.sql.users["clerk"], verifier=planted)
        await world.until("reset", lambda: world.sql.users["clerk"].verifier != planted)
    assert set(compared) == {planted}
    assert [*uncached, *hashes.threads] == []
