"""What we say of parameters before Patroni gets them, and what the server says of the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
from psycopg import sql

from database_support.servers.postgresql import RealPostgreSQLServer, initialise
from database_support.servers.process import START_SECONDS, DatabaseServerProcess, data_directory
from steersman_databases.engines.cluster_engine import Setting
from steersman_databases.engines.postgresql.config.parameters import classify, effective_value, rejection_reason
from steersman_databases.engines.postgresql.config.settings_catalog import catalog as catalog_of
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification

CATALOG = """
SELECT name, setting, unit, context, vartype, min_val, max_val, coalesce(enumvals, '{}'), pending_restart
FROM pg_settings
"""
# What the server finds out only by looking at other parameters or at the machine.
BY_LOOKING = {
    "autovacuum_max_workers",
    "max_connections",
    "max_stack_depth",
    "max_wal_senders",
    "max_worker_processes",
    "vacuum_buffer_usage_limit",
    # Since 17: multiples of 16 alone.
    *(f"{what}_buffers" for what in ("commit_timestamp", "multixact_member", "multixact_offset", "notify")),
    *(f"{what}_buffers" for what in ("serializable", "subtransaction", "transaction")),
}
READ_AGAIN = [
    ("min_wal_size", "17MB"),
    ("max_wal_size", "31MB"),
    ("ssl_ciphers", "TLS_AES_256_GCM_SHA384"),
    ("ssl_ecdh_curve", "P-256"),
    ("ssl_ecdh_curve", "X25519"),
]
"""Values that a server takes when it reads its files again, and with which it does not start."""
READ_AGAIN_SINCE_18 = [
    *READ_AGAIN[:3],
    ("ssl_groups", "X25519:P-0"),
    ("ssl_tls13_ciphers", "HIGH"),
]
"""`READ_AGAIN` for 18, where `ssl_groups` replaces `ssl_ecdh_curve`."""


def is_18(server: RealPostgreSQLServer) -> bool:
    """Return True if the server is of version 18 or later."""
    return int(server.programs.parent.name) >= 18


def candidates(one: Setting) -> Iterator[str]:
    """Values at the edges of what is allowed, and beyond."""
    if one.kind == "integer":
        lowest, highest = int(one.minimum or 0), int(one.maximum or 0)
        yield from (str(lowest), str(lowest - 1), str(highest), str(highest + 1), "0x10", "010", "1.5", "1MB", "3min")
    elif one.kind == "real":
        yield from (one.minimum or "", one.maximum or "", "0.5", "1e-1", "2ms")
    elif one.kind == "bool":
        yield from ("on", "OFF", "tr", "o", "2")
    elif one.kind == "enum":
        yield from (*one.choices, "on", "1")
    yield from () if one.kind == "string" else ("banana", "")


def test_rejected_parameters_are_rejected_by_server(postgresql: RealPostgreSQLServer) -> None:
    endpoint, login = postgresql.endpoint, postgresql.administrator
    with psycopg.connect(
        host=endpoint.host,
        port=endpoint.port,
        user=login.username,
        password=login.password,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        catalog = {row[0]: Setting(**dict(zip(FIELDS, row, strict=True))) for row in connection.execute(CATALOG)}
        wrong: list[str] = []
        try:
            for one in catalog.values():
                values = () if one.context == "internal" else candidates(one)
                for value in (value for value in values if not rejection_reason(one.name, value)):
                    ours = classify(one.name, value, catalog)
                    theirs = accepts(connection, one, value)
                    if theirs and ours.kind == "Refused" and one.name in dict(READ_AGAIN + READ_AGAIN_SINCE_18):
                        continue
                    if theirs != (ours.kind != "Refused") and (theirs or one.name not in BY_LOOKING):
                        said = "takes" if theirs else "refuses"
                        wrong.append(f"{one.name} = {value!r}: {ours}, the server {said} it")
        finally:
            connection.execute("ALTER SYSTEM RESET ALL")
    assert not wrong
    assert len(catalog) > 300


def test_parameter_blocking_start_is_rejected(postgresql: RealPostgreSQLServer) -> None:
    segment = Setting(name="wal_segment_size", value=str(16 << 20), unit="B")
    size = Setting(
        name="", value="1024", unit="MB", context="sighup", kind="integer", minimum="2", maximum="2147483647"
    )
    text = Setting(name="", value="", context="sighup")
    with data_directory() as directory:
        command = initialise(directory, postgresql.programs)
        for name, value in READ_AGAIN_SINCE_18 if is_18(postgresql) else READ_AGAIN:
            known = replace(size if name.endswith("_size") else text, name=name)
            assert classify(name, value, {name: known, segment.name: segment}).kind == "Refused", value
            options = [f"-c{name}={value}", "-clisten_addresses="]
            process = DatabaseServerProcess(directory, [*command, *options])
            assert process.ended(START_SECONDS) != 0, value
            assert "FATAL" in process.log.read_text(), value


async def test_settings_catalog_is_read_from_server(postgresql: RealPostgreSQLServer) -> None:
    endpoint, administrator = postgresql.endpoint, postgresql.administrator
    login = Login(administrator.username, administrator.password)
    verification = Verification(TLSMode.VERIFY_CA, (postgresql.log.parent / "cert.pem").read_bytes())
    found = await catalog_of(DatabaseServer("postgresql", endpoint, login, verification))
    assert len(found) > 300
    assert (found["max_connections"].context, found["max_connections"].kind) == ("postmaster", "integer")
    assert found["wal_level"].choices == ["minimal", "replica", "logical"]
    assert found["search_path"].session_settable, "our sessions have one of their own"
    assert [one.name for one in found.values() if effective_value(one.name, one.value, found)] == []
    assert effective_value("work_mem", "17MB", found) == f"{found['work_mem'].value} (in kB)"


FIELDS = ("name", "value", "unit", "context", "kind", "minimum", "maximum", "choices", "pending_restart")


def accepts(connection: psycopg.Connection, one: Setting, value: str) -> bool:
    """Whether the server would take it; it is not told to, but for this session."""
    # Each ALTER SYSTEM is a file written, so it is for what a session cannot have alone.
    # So is what would end this session, or its next statement, after a millisecond.
    kept = one.name.startswith(("client_encoding", "role", "session_")) or one.name.endswith("_timeout")
    own = one.context in ("user", "superuser") and not kept
    statement = "SET {} TO {}" if own else "ALTER SYSTEM SET {} TO {}"
    try:
        connection.execute(sql.SQL(statement).format(sql.Identifier(one.name), sql.Literal(value)))
    except psycopg.Error:
        return False
    if own:
        connection.execute(sql.SQL("RESET {}").format(sql.Identifier(one.name)))
    return True
