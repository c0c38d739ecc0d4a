"""Whether a real primary still has the log that a replica needs."""

from __future__ import annotations

from database_support.postgresql_server import PostgreSQLServer
from steersman_databases.engines.holder import Holder
from steersman_databases.engines.postgresql.accounts import furnish
from steersman_databases.engines.postgresql.outpaced import log_is_gone
from steersman_databases.engines.server import Login, Server, TLSMode, Verification

FIRST = """
    SELECT min(right(name, 16)) FROM pg_ls_waldir() WHERE length(name) = 24
"""
SEGMENT = 16 << 20
HOLDER = Holder("the cluster", "5f0c4a71", {})


async def test_the_log_before_the_oldest_segment_is_gone_and_nothing_else(postgresql: PostgreSQLServer) -> None:
    administrator = postgresql.administrator
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
    superuser = Login(administrator.username, administrator.password)
    await furnish(Server("postgresql", postgresql.endpoint, superuser, verification), administrator, HOLDER)
    postgresql.administer("ALTER ROLE steersman_operator PASSWORD 'known'")
    server = Server("postgresql", postgresql.endpoint, Login("steersman_operator", "known"), verification)
    try:
        [(name,)] = postgresql.administer(FIRST)
        # 256 of them have one number of the upper half.
        begins = (int(name[:8], 16) << 32) + int(name[8:], 16) * SEGMENT
        assert not await log_is_gone(server, begins), "the segment begins there"
        assert not await log_is_gone(server, begins + SEGMENT // 2)
        assert await log_is_gone(server, begins - 1)
        assert await log_is_gone(server, begins - SEGMENT)
        [(now,)] = postgresql.administer("SELECT pg_current_wal_lsn() - '0/0'")
        assert not await log_is_gone(server, int(now))
        postgresql.administer("SELECT pg_switch_wal()")
        postgresql.administer("CREATE TABLE written AS SELECT 1")
        postgresql.administer("SELECT pg_switch_wal()")
        postgresql.administer("CHECKPOINT")
        postgresql.administer("CHECKPOINT")
        assert await log_is_gone(server, int(now)), "nobody kept it"
        [(now,)] = postgresql.administer("SELECT pg_current_wal_lsn() - '0/0'")
        assert not await log_is_gone(server, int(now))
    finally:
        postgresql.administer("DROP TABLE IF EXISTS written")
        postgresql.administer("ALTER ROLE steersman_operator PASSWORD NULL")
