"""The queries of ``kubectl steersman top`` on real servers with a load."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from database_support.servers.mysql import RealMySQLServer
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.kubectl.insight.instance import MYSQL_SETTINGS, PSQL_SETTINGS, decode
from steersman_databases.kubectl.insight.load import LoadSample, measure
from steersman_databases.kubectl.insight.load_queries import (
    MYSQL_SAMPLE_SQL,
    POSTGRESQL_SOURCE_SQL,
    StatementSource,
    mysql_texts,
    postgresql_sample,
    postgresql_texts,
)

_DEADLINE_SECONDS = 10
_CALLS = 20


async def test_postgresql_load_has_sessions_and_statements(postgresql: RealPostgreSQLServer) -> None:
    postgresql.administer("CREATE EXTENSION pg_stat_statements")
    postgresql.administer("CREATE TABLE load_rows AS SELECT generate_series(1, 1000) AS id")
    session = await postgresql.connected(ADMINISTRATOR, "postgres")
    client = await postgresql.connected(ADMINISTRATOR, "postgres")

    async def ask(sql: str) -> Any:
        [(found,)] = await (await session.execute(cast(Any, sql))).fetchall()
        return found

    async def sample() -> LoadSample:
        return decode(json.dumps(await ask(postgresql_sample(source.schema))), LoadSample)

    try:
        await session.execute(cast(Any, PSQL_SETTINGS))
        source = decode(json.dumps(await ask(POSTGRESQL_SOURCE_SQL)), StatementSource)
        assert source == StatementSource(loaded=True, schema="public")
        before = await sample()
        for number in range(_CALLS):
            await client.execute("SELECT * FROM load_rows WHERE id < %s", (number + 2,))
        waiting = asyncio.create_task(client.execute("SELECT pg_sleep(60) /* slow */"))
        after = await sample()
        for _ in range(_DEADLINE_SECONDS * 10):
            if any("slow" in (one.statement or "") and one.wait == "Timeout: PgSleep" for one in after.running):
                break
            await asyncio.sleep(0.1)
            after = await sample()
        [running] = [one for one in after.running if "slow" in (one.statement or "")]
        assert (running.session, running.wait, running.database) == (
            client.info.backend_pid,
            "Timeout: PgSleep",
            "postgres",
        )
        postgresql.administer(f"SELECT pg_cancel_backend({client.info.backend_pid})")
        await asyncio.gather(waiting, return_exceptions=True)
        load = measure("it", before, after, limit=1000)
        texts = json.loads(json.dumps(await ask(postgresql_texts("public", [one.id for one in load.statements]))))
        [found] = [one for one in load.statements if "load_rows" in texts[one.id]]
        assert found.increases["calls"] == _CALLS and found.increases["rows"] == sum(range(1, _CALLS + 1))
        assert found.increases["blocksHit"] > 0 and found.database == "postgres"
        assert texts[found.id] == "SELECT * FROM load_rows WHERE id < $1"
        without = decode(json.dumps(await ask(postgresql_sample(None))), LoadSample)
        assert without.statements is None and without.sessions
    finally:
        await session.close()
        await client.close()
        postgresql.administer("DROP TABLE load_rows")
        postgresql.administer("DROP EXTENSION pg_stat_statements")


async def test_mysql_load_has_sessions_and_statements(mysql: RealMySQLServer) -> None:
    for statement in (
        "CREATE DATABASE top",
        "CREATE TABLE top.load_rows (id INT)",
        "INSERT INTO top.load_rows VALUES (1), (2), (3)",
    ):
        await mysql.execute_unprepared(statement)
    try:
        async with mysql.connected(ADMINISTRATOR, None) as session, mysql.connected(ADMINISTRATOR, "top") as client:

            async def ask(sql: str) -> str:
                async with await session.prepare(sql) as prepared:
                    [(found,)] = (await prepared.execute()).rows
                return found

            await session.query(MYSQL_SETTINGS)
            before = decode(await ask(MYSQL_SAMPLE_SQL), LoadSample)
            for number in range(_CALLS):
                await client.query(f"SELECT * FROM load_rows WHERE id = {number}")
            waiting = asyncio.create_task(client.query("SELECT SLEEP(60)"))
            after = decode(await ask(MYSQL_SAMPLE_SQL), LoadSample)
            for _ in range(_DEADLINE_SECONDS * 10):
                if after.running:
                    break
                await asyncio.sleep(0.1)
                after = decode(await ask(MYSQL_SAMPLE_SQL), LoadSample)
            [running] = after.running
            assert (running.session, running.statement) == (client.thread_id(), "SELECT SLEEP(60)")
            assert (running.database, running.wait) == ("top", "User sleep")
            await mysql.execute_unprepared(f"KILL QUERY {client.thread_id()}")
            await asyncio.gather(waiting, return_exceptions=True)
            load = measure("it", before, after, limit=1000)
            texts = json.loads(await ask(mysql_texts([one.id for one in load.statements])))
            [found] = [one for one in load.statements if "load_rows" in texts[one.id]]
            assert found.database == "top" and "WHERE `id` = ?" in texts[found.id]
            assert found.increases["calls"] == _CALLS and found.increases["rowsExamined"] == 3 * _CALLS
            assert found.increases["rows"] == 3
    finally:
        await mysql.execute_unprepared("DROP DATABASE top")
