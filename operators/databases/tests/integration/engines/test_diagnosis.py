"""The queries of ``kubectl steersman why`` on real servers with a blocked session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from database_support.servers.mysql import RealMySQLServer
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.kubectl.insight.diagnosis import MYSQL_SQL, POSTGRESQL_SQL, Diagnosis, blocking_tree, parse

_DEADLINE_SECONDS = 10


async def _until_blocked(ask: Callable[[], object]) -> Diagnosis:
    for _ in range(_DEADLINE_SECONDS * 10):
        found = ask()
        diagnosis = parse(str(await found if asyncio.iscoroutine(found) else found))
        if diagnosis.sessions:
            return diagnosis
        await asyncio.sleep(0.1)
    raise AssertionError("no session is blocked")


async def test_postgresql_blocker_and_holders_are_named(postgresql: RealPostgreSQLServer) -> None:
    postgresql.administer("CREATE TABLE IF NOT EXISTS why (coin int)")
    postgresql.administer("SELECT pg_create_physical_replication_slot('why', true)")
    holder = await postgresql.connected(ADMINISTRATOR, "postgres")
    waiter = await postgresql.connected(ADMINISTRATOR, "postgres")
    waiting: asyncio.Task[object] | None = None
    try:
        await holder.execute("BEGIN")
        await holder.execute("INSERT INTO why VALUES (1)")
        await holder.execute("LOCK TABLE why")
        await waiter.execute("BEGIN")
        waiting = asyncio.create_task(waiter.execute("SELECT * FROM why"))
        found = await _until_blocked(lambda: _json(postgresql))
        first, second = [one for _, one in blocking_tree(found.sessions)]
        assert (first.id, second.blocked_by) == (holder.info.backend_pid, (holder.info.backend_pid,))
        assert (second.id, second.statement) == (waiter.info.backend_pid, "SELECT * FROM why")
        assert first.state == "idle in transaction" and first.transaction_seconds is not None
        assert ("session", str(holder.info.backend_pid)) in {(one.kind, one.name) for one in found.horizon}
        assert ("replication slot", "why") in {(one.kind, one.name) for one in found.logs}
    finally:
        await holder.close()
        if waiting is not None:
            await waiting
        await waiter.close()
        postgresql.administer("SELECT pg_drop_replication_slot('why')")
        postgresql.administer("DROP TABLE why")


def _json(server: RealPostgreSQLServer) -> str:
    [(found,)] = server.administer(POSTGRESQL_SQL)
    return json.dumps(found)


async def test_mysql_blocker_and_holders_are_named(mysql: RealMySQLServer) -> None:
    for statement in (
        "CREATE DATABASE why",
        "CREATE TABLE why.t (id INT PRIMARY KEY)",
        "INSERT INTO why.t VALUES (1)",
    ):
        await mysql.execute_unprepared(statement)

    async def ask() -> str:
        [(found,)] = await mysql.execute(MYSQL_SQL, credentials=ADMINISTRATOR)
        return found

    try:
        async with mysql.connected(ADMINISTRATOR, "why") as holder, mysql.connected(ADMINISTRATOR, "why") as waiter:
            await holder.query("BEGIN")
            await holder.query("DELETE FROM t")
            waiting = asyncio.create_task(waiter.query("UPDATE t SET id = 2"))
            found = await _until_blocked(ask)
            first, second = [one for _, one in blocking_tree(found.sessions)]
            assert (first.id, second.blocked_by) == (holder.thread_id(), (holder.thread_id(),))
            assert (second.id, second.statement) == (waiter.thread_id(), "UPDATE t SET id = 2")
            assert str(holder.thread_id()) in {one.name for one in found.horizon}
            await holder.query("ROLLBACK")
            await waiting
            await holder.query("LOCK TABLES t WRITE")
            waiting = asyncio.create_task(waiter.query("SELECT * FROM t"))
            found = await _until_blocked(ask)
            assert [one.id for _, one in blocking_tree(found.sessions)] == [holder.thread_id(), waiter.thread_id()]
            await holder.query("UNLOCK TABLES")
            await waiting
    finally:
        await mysql.execute_unprepared("DROP DATABASE why")
