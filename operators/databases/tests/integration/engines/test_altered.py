"""What ALTER SYSTEM sets on a real server: it is seen by the operator's own role, and taken back."""

from __future__ import annotations

import asyncio

from database_support.postgresql_server import PostgreSQLServer
from steersman_databases.engines.holder import Holder
from steersman_databases.engines.postgresql.accounts import furnish
from steersman_databases.engines.postgresql.altered import take_back
from steersman_databases.engines.postgresql.catalog import catalog
from steersman_databases.engines.server import Login, Server, TLSMode, Verification

HOLDER = Holder("the cluster", "5f0c4a71", {})


async def read_again(postgresql: PostgreSQLServer, commits: str) -> None:
    """Has the server read its files, and waits until those who connect see it."""
    postgresql.administer("SELECT pg_reload_conf()")
    deadline = asyncio.get_running_loop().time() + 30
    while await postgresql.execute("SHOW synchronous_commit") != [(commits,)]:
        assert asyncio.get_running_loop().time() < deadline


async def test_what_was_set_is_seen_without_a_superuser_and_only_what_is_named_is_taken_back(
    postgresql: PostgreSQLServer,
) -> None:
    administrator = postgresql.administrator
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())

    def as_(username: str, password: str) -> Server:
        return Server("postgresql", postgresql.endpoint, Login(username, password), verification)

    superuser = as_(administrator.username, administrator.password)
    await furnish(superuser, administrator, HOLDER)
    # In a cluster it comes by a certificate.
    postgresql.administer("ALTER ROLE steersman_operator PASSWORD 'known'")
    try:
        postgresql.administer("ALTER SYSTEM SET synchronous_commit = 'off'")
        postgresql.administer("ALTER SYSTEM SET \"DateStyle\" = 'German'")
        postgresql.administer("ALTER SYSTEM SET work_mem = '5MB'")
        postgresql.administer("ALTER SYSTEM SET max_files_per_process = 900")
        await read_again(postgresql, "off")
        seen = await catalog(as_("steersman_operator", "known"))
        assert {one.name for one in seen.values() if one.altered} == {"synchronous_commit", "DateStyle", "work_mem"}
        assert seen["max_files_per_process"].pending_restart, "it takes a restart, and is seen before"
        assert "session_preload_libraries" in seen, "which only who may read all settings is shown"
        wanted = ["synchronous_commit", "datestyle", "max_files_per_process", "fsync", "it's.\"none"]
        assert await take_back(superuser, wanted) == ["DateStyle", "max_files_per_process", "synchronous_commit"]
        await read_again(postgresql, "on")
        seen = await catalog(as_("steersman_operator", "known"))
        assert {one.name for one in seen.values() if one.altered} == {"work_mem"}, "nobody named it"
        assert await take_back(superuser, wanted) == []
    finally:
        postgresql.administer("ALTER SYSTEM RESET ALL")
        postgresql.administer("SELECT pg_reload_conf()")
        postgresql.administer("ALTER ROLE steersman_operator PASSWORD NULL")
