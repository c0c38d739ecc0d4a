"""Whether a real primary still has the log that a replica needs."""

from __future__ import annotations

from database_support.servers.postgresql import RealPostgreSQLServer
from steersman_databases.engines.postgresql.ha.wal_retention import is_wal_missing
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import ensure_accounts
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.data_takeover import DataOwner

FIRST = """
    SELECT min(right(name, 16)) FROM pg_ls_waldir() WHERE length(name) = 24
"""
SEGMENT = 16 << 20
HOLDER = DataOwner("the cluster", "5f0c4a71", {})


async def test_wal_before_oldest_segment_is_missing(postgresql: RealPostgreSQLServer) -> None:
    administrator = postgresql.administrator
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
    superuser = Login(administrator.username, administrator.password)
    await ensure_accounts(
        DatabaseServer("postgresql", postgresql.endpoint, superuser, verification), administrator, HOLDER
    )
    postgresql.administer("ALTER ROLE steersman_operator PASSWORD 'known'")
    server = DatabaseServer("postgresql", postgresql.endpoint, Login("steersman_operator", "known"), verification)
    try:
        [(name,)] = postgresql.administer(FIRST)
        # 256 of them have one number of the upper half.
        begins = (int(name[:8], 16) << 32) + int(name[8:], 16) * SEGMENT
        assert not await is_wal_missing(server, begins), "the segment begins there"
        assert not await is_wal_missing(server, begins + SEGMENT // 2)
        assert await is_wal_missing(server, begins - 1)
        assert await is_wal_missing(server, begins - SEGMENT)
        [(now,)] = postgresql.administer("SELECT pg_current_wal_lsn() - '0/0'")
        assert not await is_wal_missing(server, int(now))
        postgresql.administer("SELECT pg_switch_wal()")
        postgresql.administer("CREATE TABLE written AS SELECT 1")
        postgresql.administer("SELECT pg_switch_wal()")
        postgresql.administer("CHECKPOINT")
        postgresql.administer("CHECKPOINT")
        assert await is_wal_missing(server, int(now)), "nobody kept it"
        [(now,)] = postgresql.administer("SELECT pg_current_wal_lsn() - '0/0'")
        assert not await is_wal_missing(server, int(now))
    finally:
        postgresql.administer("DROP TABLE IF EXISTS written")
        postgresql.administer("ALTER ROLE steersman_operator PASSWORD NULL")
