"""What a real server's databases have that an upgrade must bring along, or cannot."""

from __future__ import annotations

import psycopg

from database_support.servers.postgresql import RealPostgreSQLServer
from steersman_databases.engines.postgresql.sql.upgrade_inventory import upgrade_inventory
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification


async def test_upgrade_blockers_are_listed(postgresql: RealPostgreSQLServer) -> None:
    endpoint, login = postgresql.endpoint, postgresql.administrator

    def run(database: str, *statements: str) -> None:
        with psycopg.connect(
            host=endpoint.host,
            port=endpoint.port,
            user=login.username,
            password=login.password,
            dbname=database,
            autocommit=True,
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    run("postgres", 'CREATE DATABASE "we ird\'="', "CREATE DATABASE nobody ALLOW_CONNECTIONS false")
    try:
        run("we ird'=", "CREATE TABLE odd (a aclitem, b regproc, c regclass)", "CREATE EXTENSION pgcrypto")
        verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
        own = Login(login.username, login.password)
        used = await upgrade_inventory(DatabaseServer("postgresql", endpoint, own, verification))
        words = "\n".join(used.problems)
        assert "column a of public.odd in database 'we ird''=' is of type aclitem" in words
        assert "column b of public.odd" in words and "column c" not in words
        assert "database 'nobody' lets nobody in" in words
        assert "pgcrypto" in used.extensions and "$libdir/pgcrypto" in used.libraries
        # Loaded at the start, and of no function in a database.
        assert "pg_stat_statements" in used.libraries
        assert used.size > 20_000_000
    finally:
        run("postgres", 'DROP DATABASE "we ird\'="', "DROP DATABASE nobody")
