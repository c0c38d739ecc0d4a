"""Old transaction IDs and inactive replication slots of real servers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest

from database_support.servers.postgresql import RealPostgreSQLServer
from steersman_databases.engines.postgresql.sql.health import wraparound
from steersman_databases.engines.postgresql.sql.health.inactive_slots import drop_inactive_slot
from steersman_databases.engines.postgresql.sql.health.wal_receiver import end_wal_receiver, received_wal
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification

DATABASE = "aged"
LEAST_AGE = 300
TABLE_AGE = "SELECT age(relfrozenxid) FROM pg_class WHERE relname = '{}'"
BURN = "DO $$ BEGIN FOR i IN 1..{} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


def superuser(postgresql: RealPostgreSQLServer) -> DatabaseServer:
    administrator = postgresql.administrator
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
    login = Login(administrator.username, administrator.password)
    return DatabaseServer("postgresql", postgresql.endpoint, login, verification)


async def table_age(postgresql: RealPostgreSQLServer, table: str) -> int:
    ((age,),) = await postgresql.execute(TABLE_AGE.format(table), database=DATABASE)
    return age


async def test_old_tables_are_vacuumed_after_disconnect(
    postgresql: RealPostgreSQLServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server continues a vacuum that the operator does not wait for."""
    server = superuser(postgresql)
    postgresql.administer(f"CREATE DATABASE {DATABASE}")
    try:
        await postgresql.execute("CREATE TABLE ledger AS SELECT generate_series(1, 300000) AS a", database=DATABASE)
        await postgresql.execute("CREATE TABLE tills (a int)", database=DATABASE)
        await postgresql.execute(BURN.replace("{}", str(2 * LEAST_AGE)), database=DATABASE)
        monkeypatch.setattr(wraparound, "_MAX_TABLES", 1)
        monkeypatch.setattr(wraparound, "_VACUUM_SECONDS", 0.0)
        begun: set[str] = set()
        async with asyncio.timeout(60):
            while (
                await table_age(postgresql, "ledger") >= LEAST_AGE
                or await table_age(postgresql, "tills") >= LEAST_AGE
            ):
                if not (await wraparound.inspect_transaction_ids(server)).vacuuming:
                    begun |= set(await wraparound.vacuum_oldest_tables(server, DATABASE, LEAST_AGE))
                await asyncio.sleep(0.05)
        assert {"public.ledger", "public.tills"} <= begun
        monkeypatch.undo()
        assert {*await wraparound.vacuum_oldest_tables(server, DATABASE, 2**31 - 1)} == set()
    finally:
        postgresql.administer(f"DROP DATABASE {DATABASE} WITH (FORCE)")


async def test_locked_table_is_skipped(postgresql: RealPostgreSQLServer) -> None:
    server = superuser(postgresql)
    postgresql.administer(f"CREATE DATABASE {DATABASE}")
    try:
        for table in ("ledger", "tills"):
            await postgresql.execute(f"CREATE TABLE {table} (a int)", database=DATABASE)
        await postgresql.execute(BURN.replace("{}", str(2 * LEAST_AGE)), database=DATABASE)
        async with await postgresql.connected(postgresql.administrator, DATABASE) as other, other.transaction():
            # As autovacuum locks the table that it works on.
            await other.execute("LOCK TABLE ledger IN SHARE UPDATE EXCLUSIVE MODE")
            begun = set[str]()
            async with asyncio.timeout(60):
                # Tables of the catalog are as old.
                while await table_age(postgresql, "tills") >= LEAST_AGE:
                    begun |= {*await wraparound.vacuum_oldest_tables(server, DATABASE, LEAST_AGE)}
            assert "public.tills" in begun and "public.ledger" not in begun
        assert await table_age(postgresql, "ledger") >= LEAST_AGE
    finally:
        postgresql.administer(f"DROP DATABASE {DATABASE} WITH (FORCE)")


async def test_oldest_transaction_is_named_and_ended(postgresql: RealPostgreSQLServer) -> None:
    server = superuser(postgresql)
    async with await postgresql.connected(postgresql.administrator, "postgres") as other:
        await other.execute("SET application_name = 'reports'")
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT pg_current_xact_id()")
        await postgresql.execute(BURN.replace("{}", str(LEAST_AGE)))
        found = await wraparound.inspect_transaction_ids(server)
        holder = found.holders[0]
        assert (holder.kind, holder.name) == ("session", str(other.info.backend_pid))
        assert holder.age >= LEAST_AGE and found.age >= holder.age and found.autovacuum_age >= 10**8
        assert "application reports" in holder.detail and holder.seconds is not None
        assert not await wraparound.end_transaction(server, holder, 3600), "it is younger"
        assert not await wraparound.end_transaction(server, replace(holder, started="another"), 0)
        assert await wraparound.end_transaction(server, holder, 0)
        with pytest.raises(psycopg.OperationalError):
            await other.execute("SELECT 1")


async def test_inactive_slot_is_dropped_if_it_retains_as_much(postgresql: RealPostgreSQLServer) -> None:
    server = superuser(postgresql)
    postgresql.administer("SELECT pg_create_physical_replication_slot('audit', true)")
    try:
        postgresql.administer("SELECT pg_switch_wal()")
        assert not await drop_inactive_slot(server, "audit", 1 << 40), "a client has advanced it"
        assert not await drop_inactive_slot(server, "other", 0)
        assert await drop_inactive_slot(server, "audit", 0)
        assert not await drop_inactive_slot(server, "audit", 0)
    finally:
        postgresql.administer("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


async def test_primary_has_no_wal_receiver_to_end(postgresql: RealPostgreSQLServer) -> None:
    assert not await end_wal_receiver(superuser(postgresql))
    assert await received_wal(superuser(postgresql)) is None
