"""Connections of the operator while clients hold all others."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from database_support.servers.postgresql import RealPostgreSQLServer, start_postgresql
from database_support.unit.declared_clusters import declared_cluster
from devcluster import database_servers
from steersman_databases.engines.postgresql.ha.patroni import server_parameters
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import statements

RESERVED = "reserved_connections"


def connect(server: RealPostgreSQLServer, user: str) -> psycopg.Connection:
    host, port = server.endpoint.host, server.endpoint.port
    return psycopg.connect(host=host, port=port, user=user, password="secret", dbname="postgres", sslmode="require")


def test_operator_connects_while_clients_hold_all_others() -> None:
    root = database_servers.root(database_servers.TRIXIE)
    if root is None:
        pytest.skip(f"{database_servers.TRIXIE.title} cannot be had: python -m devcluster servers says why")
    reserved = server_parameters(declared_cluster(version="17"))[RESERVED]
    parameters = {RESERVED: reserved, "max_connections": "25"}
    with (
        contextmanager(start_postgresql)(root / "usr/lib/postgresql/17/bin", parameters) as server,
        ExitStack() as clients,
    ):
        server.run(statements())
        server.administer("CREATE ROLE clerk LOGIN PASSWORD 'secret'")
        server.administer("ALTER ROLE steersman_operator PASSWORD 'secret'")
        with pytest.raises(psycopg.OperationalError, match="remaining connection slots are reserved"):
            while True:
                clients.enter_context(connect(server, "clerk"))
        for _ in range(int(reserved)):
            clients.enter_context(connect(server, "steersman_operator"))
