"""The queries of ``kubectl steersman advise`` on real servers, up to the advice."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, cast

import pytest

from database_support.servers.mysql import RealMySQLServer
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.real_server import ADMINISTRATOR
from steersman_databases.kubectl.insight.advice import Advice, Catalog, IndexUsage, advise
from steersman_databases.kubectl.insight.catalog_queries import (
    MYSQL_CATALOG_SQL,
    MYSQL_USAGE_SQL,
    POSTGRESQL_CATALOG_SQL,
    POSTGRESQL_DATABASES_SQL,
    POSTGRESQL_USAGE_SQL,
)
from steersman_databases.kubectl.insight.instance import MYSQL_SETTINGS, decode, each_database

DATABASE = "advice = 'it'"
POSTGRESQL_TABLES = """
    CREATE TABLE customer (id int PRIMARY KEY, email text UNIQUE, name text, note text);
    CREATE INDEX customer_name ON customer (name);
    CREATE INDEX customer_name_again ON customer (name);
    CREATE INDEX customer_name_backwards ON customer (name DESC);
    CREATE INDEX customer_email_again ON customer (email);
    CREATE INDEX customer_note ON customer (note);
    CREATE INDEX customer_lower ON customer (lower(name)) WHERE note IS NOT NULL;
    CREATE TABLE "Order" (id serial PRIMARY KEY, customer int REFERENCES customer, other int REFERENCES customer,
        part int, at date, FOREIGN KEY (part) REFERENCES customer);
    CREATE INDEX ON "Order" (other, customer) INCLUDE (id);
    CREATE INDEX ON "Order" (part) WHERE part IS NOT NULL;
    CREATE INDEX order_at ON "Order" (at);
    CREATE TABLE event (id bigint GENERATED ALWAYS AS IDENTITY, at date, customer int REFERENCES customer)
        PARTITION BY RANGE (at);
    CREATE TABLE event_2030 PARTITION OF event FOR VALUES FROM ('2030-01-01') TO ('2031-01-01');
    CREATE INDEX ON event (at);
    CREATE SEQUENCE spare MAXVALUE 100;
    CREATE SEQUENCE around MAXVALUE 100 CYCLE;
    CREATE SEQUENCE down INCREMENT -1 MINVALUE -100;
    SELECT setval('spare', 80), setval('around', 99), setval('down', -76), setval('"Order_id_seq"', 2000000000);
    INSERT INTO customer SELECT n, n::text, n::text, n::text FROM generate_series(1, 100) n;
    SET enable_seqscan = off;
    SELECT FROM customer WHERE note = '7';
"""
MYSQL_TABLES = (
    "CREATE DATABASE `ad``vice`",
    (
        "CREATE TABLE `ad``vice`.customer (id INT PRIMARY KEY, email VARCHAR(50) UNIQUE, name VARCHAR(50), born DATE,"
        " INDEX by_name (name), INDEX by_name_again (name), INDEX by_prefix (name(5)), INDEX by_email (email),"
        " INDEX by_born (born), INDEX by_lower ((LOWER(name))))"
    ),
    (
        "CREATE TABLE `ad``vice`.orders (id TINYINT AUTO_INCREMENT PRIMARY KEY, customer INT,"
        " FOREIGN KEY (customer) REFERENCES customer (id))"
    ),
    "CREATE TABLE `ad``vice`.keyless (id INT)",
    "CREATE TABLE `ad``vice`.counted (id INT AUTO_INCREMENT, KEY (id))",
    "CREATE TABLE `ad``vice`.unique_key (id INT NOT NULL UNIQUE)",
    "ALTER TABLE `ad``vice`.customer ADD INDEX a_born (born) INVISIBLE",
    "INSERT INTO `ad``vice`.customer (id, name) VALUES (1, 'a')",
    "INSERT INTO `ad``vice`.orders VALUES (100, 1)",
    "SELECT * FROM `ad``vice`.customer FORCE INDEX (by_name) WHERE name = 'a'",
)


def objects(advice: list[Advice], rule: str) -> list[str]:
    return [one.object for one in advice if one.rule == rule]


@pytest.fixture
def postgresql_advice(postgresql: RealPostgreSQLServer, request: pytest.FixtureRequest) -> Any:
    """Return what runs the queries by psql, as in a pod."""
    postgresql.administer("CREATE ROLE postgres SUPERUSER LOGIN PASSWORD 'postgres'")
    postgresql.administer("CREATE DATABASE {}", DATABASE)
    environment = {
        "PATH": os.environ["PATH"],
        "PGHOSTADDR": postgresql.endpoint.host,
        "PGPORT": str(postgresql.endpoint.port),
        "PGPASSWORD": "postgres",
    }

    def query(sql: str, *databases: str) -> subprocess.CompletedProcess[str]:
        command = each_database(sql, databases)
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    yield query
    postgresql.administer("DROP DATABASE {}", DATABASE)
    postgresql.administer("DROP ROLE postgres")


async def test_postgresql_advice(postgresql: RealPostgreSQLServer, postgresql_advice: Any) -> None:
    client = await postgresql.connected(ADMINISTRATOR, DATABASE)
    await client.execute(POSTGRESQL_TABLES)
    await client.close()
    assert DATABASE in decode(postgresql_advice(POSTGRESQL_DATABASES_SQL, "postgres").stdout, tuple[str, ...])
    catalog = decode(postgresql_advice(POSTGRESQL_CATALOG_SQL, DATABASE).stdout, Catalog)
    usage = decode(postgresql_advice(POSTGRESQL_USAGE_SQL, DATABASE).stdout, IndexUsage)
    assert usage.since is not None and 0 < usage.at - usage.since < 86400
    found, reason = advise(catalog, {"it": usage}, minimum_days=0)
    assert not reason and {one.database for one in found} == {DATABASE}
    assert objects(found, "SequenceNearEnd") == ['public."Order_id_seq"', "public.spare", "public.down"]
    assert objects(found, "ForeignKeyWithoutIndex") == ['public."Order"', "public.event"]
    assert objects(found, "DuplicateIndex") == ["public.customer_email_again", "public.customer_name_again"]
    assert set(objects(found, "UnusedIndex")) == {
        "public.customer_name",
        "public.customer_name_backwards",
        "public.customer_lower",
        "public.order_at",
    }
    # The advice is complete: after its SQL, only what was kept is left.
    client = await postgresql.connected(ADMINISTRATOR, DATABASE)
    for one in found:
        for statement in filter(None, one.sql.split("; ")):
            await client.execute(cast(Any, statement))
    await client.close()
    catalog = decode(postgresql_advice(POSTGRESQL_CATALOG_SQL, DATABASE).stdout, Catalog)
    assert advise(catalog, {}, minimum_days=0)[0] == []


def test_postgresql_failing_database_hides_no_other(postgresql_advice: Any) -> None:
    done = postgresql_advice(POSTGRESQL_USAGE_SQL, "missing", DATABASE)
    assert done.returncode and '"missing" does not exist' in done.stderr
    assert json.loads(done.stdout)["database"] == DATABASE


async def test_mysql_advice(mysql: RealMySQLServer) -> None:
    try:
        async with mysql.connected(ADMINISTRATOR, None) as session:
            for statement in MYSQL_TABLES:
                await session.query(statement)

            async def ask(sql: str, name: str) -> str:
                async with await session.prepare(sql) as prepared:
                    [found] = [
                        line for (line,) in (await prepared.execute()).rows if json.loads(line)["database"] == name
                    ]
                return found

            await session.query(MYSQL_SETTINGS)
            catalog = decode(await ask(MYSQL_CATALOG_SQL, "ad`vice"), Catalog)
            usage = decode(await ask(MYSQL_USAGE_SQL, "ad`vice"), IndexUsage)
        assert usage.since is not None and 0 < usage.at - usage.since < 86400
        found, reason = advise(catalog, {"it": usage}, minimum_days=0)
        assert not reason
        place = "`ad``vice`"
        assert objects(found, "AutoIncrementNearEnd") == [f"{place}.`orders`.`id`"]
        assert set(objects(found, "TableWithoutPrimaryKey")) == {f"{place}.`keyless`", f"{place}.`counted`"}
        assert set(objects(found, "DuplicateIndex")) == {
            f"{place}.`customer`.`a_born`",
            f"{place}.`customer`.`by_email`",
            f"{place}.`customer`.`by_name_again`",
        }
        assert set(objects(found, "UnusedIndex")) == {
            f"{place}.`customer`.`by_prefix`",
            f"{place}.`customer`.`by_born`",
            f"{place}.`customer`.`by_lower`",
            f"{place}.`counted`.`id`",
        }
        for one in found:
            await mysql.execute_unprepared(one.sql)
        async with mysql.connected(ADMINISTRATOR, None) as session:
            await session.query(MYSQL_SETTINGS)
            catalog = decode(await ask(MYSQL_CATALOG_SQL, "ad`vice"), Catalog)
        again, _ = advise(catalog, {"it": usage}, minimum_days=0)
        assert {one.rule for one in again} <= {"DuplicateIndex", "UnusedIndex"}
        assert all(" DROP INDEX " in one.sql for one in again if one.object != f"{place}.`counted`.`id`")
        for one in again:
            await mysql.execute_unprepared(one.sql)
    finally:
        await mysql.execute_unprepared("DROP DATABASE `ad``vice`")
