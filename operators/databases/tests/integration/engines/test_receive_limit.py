"""Servers that send more than the operator can keep."""

from __future__ import annotations

import asyncio

import pytest

from database_support.servers.mysql import RealMySQLServer
from database_support.servers.postgresql import RealPostgreSQLServer
from steersman_databases.engines import ServerUnreachable
from steersman_databases.engines.connection.input_limits import MAX_RECEIVED_BYTES
from steersman_databases.engines.mysql.sql import session as mysql_session
from steersman_databases.engines.postgresql.sql import session as postgresql_session
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification

ROW_BYTES = 1_000_000
ROWS = 4 * MAX_RECEIVED_BYTES // ROW_BYTES
REASON = "the server sends more than 32 MiB for one statement, while reading rows"


def server_of(engine: str, real: RealPostgreSQLServer | RealMySQLServer) -> DatabaseServer:
    login = Login(real.administrator.username, real.administrator.password)
    return DatabaseServer(engine, real.endpoint, login, Verification(TLSMode.REQUIRE))


def deadline() -> float:
    return asyncio.get_running_loop().time() + 60


async def test_oversized_result_of_postgresql_is_refused(postgresql: RealPostgreSQLServer) -> None:
    server = server_of("postgresql", postgresql)
    query = "SELECT repeat('x', %s) FROM generate_series(1, %s)"
    async with postgresql_session.logged_in(server, deadline()) as session:
        assert len(await session.rows("reading rows", query, ROW_BYTES, 10)) == 10
        with pytest.raises(ServerUnreachable, match=REASON):
            await session.rows("reading rows", query, ROW_BYTES, ROWS)
        assert not session.usable


async def test_oversized_result_of_mysql_is_refused(mysql: RealMySQLServer) -> None:
    server = server_of("mysql", mysql)
    query = (
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT REPEAT('x', ?) FROM n"
    )
    async with mysql_session.logged_in(server, deadline()) as session:
        assert len(await session.rows("reading rows", query, 10, ROW_BYTES)) == 10
        with pytest.raises(ServerUnreachable, match=REASON):
            await session.rows("reading rows", query, ROWS, ROW_BYTES)
        assert not session.usable
