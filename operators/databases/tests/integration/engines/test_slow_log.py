"""Real servers log slow statements in the form that the plugin reads."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from database_support.servers.matrix import postgresqls
from database_support.servers.mysql import start_mysql
from database_support.servers.postgresql import RealPostgreSQLServer, initialise, wait_ready
from database_support.servers.process import DatabaseServerProcess, data_directory, free_port
from database_support.servers.real_server import ADMINISTRATOR
from database_support.unit.planned_cluster import DECLARED
from devcluster import database_servers
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.mysql.config.parameters import server_parameters
from steersman_databases.engines.postgresql.config import logging
from steersman_databases.kubectl.slow_log import MySQLSlowLog, PostgreSQLSlowLog, SlowLog, SlowStatement

POSTGRESQL: dict[str, Path] = {
    name: start.args[0] for name, start in postgresqls(whole=True).items() if isinstance(start, partial)
}
SLOW_LOG_VARIABLES = ("slow_query_log", "long_query_time", "log_slow_extra")


def sleeping(parser: SlowLog, text: str) -> SlowStatement:
    """Return the statement that sleeps. On a busy machine, others may be slow as well."""
    statements = [each for line in text.splitlines() for each in parser.feed(line)] + list(parser.finish())
    (found,) = [each for each in statements if "two lines" in " ".join(each.statement.split())]
    return found


@pytest.mark.parametrize("name", POSTGRESQL)
async def test_postgresql_slow_statement_is_found(name: str) -> None:
    endpoint = ServerEndpoint("127.0.0.1", free_port())
    with data_directory() as directory:
        command = initialise(directory, POSTGRESQL[name])
        options = [f"-cport={endpoint.port}", "-clisten_addresses=127.0.0.1", "-clog_statement=none"]
        options += [f"-c{name}={value}" for name, value in logging.parameters(0.3).items()]
        process = DatabaseServerProcess(directory, [*command, *options])
        try:
            process.wait_for(endpoint)
            server = RealPostgreSQLServer(endpoint, process.log, POSTGRESQL[name])
            await wait_ready(server)
            server.administer("SELECT pg_sleep(0.5),\n 'two lines'")
            [(threshold,)] = await server.execute("SHOW log_min_duration_statement")
            server.close()
        finally:
            process.stop(signal.SIGINT)
        found = sleeping(PostgreSQLSlowLog(), process.log.read_text())
    assert threshold == "300ms"
    assert found.statement.split() == ["SELECT", "pg_sleep(0.5),", "'two", "lines'"]
    assert (found.user, found.database) == (ADMINISTRATOR.username, "postgres")
    assert found.milliseconds >= 500
    assert int(found.query_id)


async def test_mysql_slow_statement_is_found() -> None:
    root = database_servers.root(database_servers.SID)
    if root is None:
        pytest.skip(f"{database_servers.SID.title} cannot be had: python -m devcluster servers says why")
    parameters = server_parameters(replace(DECLARED, slow_statement_seconds=0.3))
    with contextmanager(start_mysql)(root) as server:
        for name in SLOW_LOG_VARIABLES:
            await server.execute_unprepared(f"SET GLOBAL {name} = {parameters[name]}")
        await server.execute_unprepared("SELECT sleep(0.5),\n 'two lines'", database="mysql")
        [(threshold,)] = await server.execute("SELECT @@GLOBAL.long_query_time")
        [(data, file)] = await server.execute("SELECT @@datadir, @@slow_query_log_file")
        text = (Path(data) / file).read_text()
    found = sleeping(MySQLSlowLog(), text)
    assert float(threshold) == 0.3
    assert found.statement == "SELECT sleep(0.5),\n 'two lines'"
    assert found.database == "mysql"
    assert found.user
    assert found.milliseconds >= 500
