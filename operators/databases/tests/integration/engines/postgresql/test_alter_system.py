"""What ALTER SYSTEM sets on a real server: it is seen by the operator's own role, and taken back."""

from __future__ import annotations

import asyncio

from database_support.servers.postgresql import RealPostgreSQLServer
from steersman_databases.engines.postgresql.config.alter_system import reset
from steersman_databases.engines.postgresql.config.settings_catalog import catalog
from steersman_databases.engines.postgresql.sql.accounts.system_accounts import ensure_accounts
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.data_takeover import DataOwner

HOLDER = DataOwner("the cluster", "5f0c4a71", {})


async def read_again(postgresql: RealPostgreSQLServer, commits: str) -> None:
    """Has the server read its files, and waits until those who connect see it."""
    postgresql.administer("SELECT pg_reload_conf()")
    deadline = asyncio.get_running_loop().time() + 30
    while await postgresql.execute("SHOW synchronous_commit") != [(commits,)]:
        assert asyncio.get_running_loop().time() < deadline


async def test_alter_system_is_seen_and_only_named_are_reset(
    postgresql: RealPostgreSQLServer,
) -> None:
    administrator = postgresql.administrator
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())

    def as_(username: str, password: str) -> DatabaseServer:
        return DatabaseServer("postgresql", postgresql.endpoint, Login(username, password), verification)

    superuser = as_(administrator.username, administrator.password)
    await ensure_accounts(superuser, administrator, HOLDER)
    # In a cluster it comes by a certificate.
    postgresql.administer("ALTER ROLE steersman_operator PASSWORD 'known'")
    try:
        postgresql.administer("ALTER SYSTEM SET synchronous_commit = 'off'")
        postgresql.administer("ALTER SYSTEM SET \"DateStyle\" = 'German'")
        postgresql.administer("ALTER SYSTEM SET work_mem = '5MB'")
        postgresql.administer("ALTER SYSTEM SET max_files_per_process = 900")
        await read_again(postgresql, "off")
        seen = await catalog(as_("steersman_operator", "known"))
        assert {one.name for one in seen.values() if one.overridden} == {
            "synchronous_commit",
            "DateStyle",
            "work_mem",
        }
        assert seen["max_files_per_process"].pending_restart, "it takes a restart, and is seen before"
        assert "session_preload_libraries" in seen, "which only who may read all settings is shown"
        wanted = ["synchronous_commit", "datestyle", "max_files_per_process", "fsync", "it's.\"none"]
        assert await reset(superuser, wanted) == ["DateStyle", "max_files_per_process", "synchronous_commit"]
        await read_again(postgresql, "on")
        seen = await catalog(as_("steersman_operator", "known"))
        assert {one.name for one in seen.values() if one.overridden} == {"work_mem"}, "nobody named it"
        assert await reset(superuser, wanted) == []
    finally:
        postgresql.administer("ALTER SYSTEM RESET ALL")
        postgresql.administer("SELECT pg_reload_conf()")
        postgresql.administer("ALTER ROLE steersman_operator PASSWORD NULL")
