"""The Job that copies tables of MySQL from an archive.

They come into a new database of the serving cluster.

The new database is empty, and only a temporary account may use it. Tables come with their rows. Views, routines,
triggers and events stay in the archive: their definer would be the temporary account. A repeated run replaces the
tables that an earlier one has created.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..archive.errors import ArchiveError
from ..backup.mysql import server_program
from ..backup.mysql_base import open_archive
from ..binlog.stream import LocalServer, ServerUnavailable
from ..dump.mysql_client import MysqlClient, quoted
from ..dump.processes import ClientFailed, ClientProgram
from ..dump.program import require_login
from ..dump.server import read_login, read_server
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..mysqld import MysqldFailed, MysqldProgram, running_server
from ..paths import InstancePaths
from ..recovery.mysql import parse_target_fields
from ..recovery.mysql_restore import RecoveryFailed, plan, recover
from ..recovery.plan import RecoveryRefused
from ..recovery.target import format_time
from ..verification.measurement import unreadable_object
from .request import VOLUME_FIELD, CopyRequest, TableName, database_missing, reached, table_missing

_SERVER = {"skip-log-bin": "ON", "super-read-only": "OFF"}
_ERRORS = ("ERROR ", "error:", "Got error", "Couldn't")
# Syntax, privileges, constraints and values, by their SQLSTATE.
_SQL_ERROR = re.compile(r"ERROR \d+ \([24]")
_DATABASES = """
    SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA
    WHERE SCHEMA_NAME NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY SCHEMA_NAME
"""
_TABLES = """
    SELECT TABLE_NAME FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = {} AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME
"""
_FOREIGN_KEYS = """
    SELECT TABLE_NAME, CONSTRAINT_NAME, REFERENCED_TABLE_SCHEMA FROM information_schema.KEY_COLUMN_USAGE
    WHERE TABLE_SCHEMA = {} AND REFERENCED_TABLE_NAME IS NOT NULL GROUP BY 1, 2, 3
"""
_SIZE = """
    SELECT JSON_ARRAY(COALESCE(SUM(DATA_LENGTH + INDEX_LENGTH), 0)) FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE()
"""


def run(job: JobFields, paths: InstancePaths, program: MysqldProgram | None = None) -> Result:
    """Copy the requested tables. Return the result for the operator.

    Raises:
        JobFailed: it is worth another attempt.
        JobRefused: it is not, for example because a table did not exist.
        ArchiveError: the object store cannot be read.
    """
    request = CopyRequest.parse(job)
    store = require_store(paths.store_file)
    if store.engine != "mysql":
        raise JobRefused("WrongEngine", f"The archive at {store.root} is of {store.engine}, not of MySQL.")
    target, _ = parse_target_fields(job)
    version = job.text("version")
    live = _client(job, request, paths)
    _require_server(live)
    archive = open_archive(store, replace(paths, run=paths.run / "source"), read_only=True)
    data, server = paths.volume / "mysql", program or server_program(job)
    try:
        chosen = reached(lambda: plan(archive, target, version), target)
        recovery = recover(chosen, archive, server, data, paths.run)
        with running_server(server, data, paths.run, _SERVER) as running:
            copied = _copy(running, request, live, paths.run)
    except RecoveryRefused as refused:
        message = refused.message.replace("spec.storage.size", VOLUME_FIELD)
        raise JobRefused(refused.reason, message) from None
    except ArchiveError as error:
        raise unreadable_object(error) from None
    except (RecoveryFailed, MysqldFailed, ServerUnavailable) as failed:
        raise JobFailed("RecoveryFailed", f"MySQL failed: {str(failed).rstrip('.')}.") from None
    return {
        "restore": {
            "backup": recovery.backup.id,
            "recoveredTo": format_time(recovery.recovered_to),
            **copied,
        }
    }


def _client(job: JobFields, request: CopyRequest, paths: InstancePaths) -> MysqlClient:
    server = replace(read_server(job, paths.server), database=request.into)
    login = require_login(read_login(paths.owner), "the temporary account")
    return MysqlClient(server, login, paths.run, dict(os.environ))


def _require_server(live: MysqlClient) -> None:
    """Check that the copy can be written, before the restore begins."""
    try:
        live.version()
    except ClientFailed as error:
        raise JobFailed("ServerUnreachable", f"The cluster cannot be reached: {error}.") from None


def _copy(server: LocalServer, request: CopyRequest, live: MysqlClient, run: Path) -> Mapping[str, object]:
    databases = {str(name): (str(charset), str(collation)) for name, charset, collation in server.query(_DATABASES)}
    if request.database not in databases:
        raise database_missing(request.database, list(databases))
    tables = _tables(server, request)
    _drop_foreign_keys(server, request, tables)
    log(f"copying {len(tables)} tables to {request.into}")
    charset, collation = databases[request.database]
    try:
        live.script().run(f"ALTER DATABASE {quoted(request.into)} CHARACTER SET {charset} COLLATE {collation};\n")
        if tables:
            with live.script().sink() as write:
                for chunk in _dump(run, request.database, tables).output():
                    write(chunk)
        (size,) = live.rows(_SIZE)[0]
    except ClientFailed as error:
        raise copy_failed(error) from None
    return {"sizeBytes": int(size)}


def copy_failed(error: ClientFailed) -> JobFailed:
    """Return the failure of the copy. A lost connection, as in a failover, is worth another attempt."""
    failure = JobRefused if _SQL_ERROR.match(str(error)) else JobFailed
    return failure("RestoreFailed", f"The copy failed: {error}.")


def _tables(server: LocalServer, request: CopyRequest) -> Sequence[str]:
    """Return the names of the tables to copy. Raises JobRefused."""
    found = [str(name) for (name,) in server.query(_TABLES.format(_literal(request.database)))]
    for table in request.tables:
        if table.table not in found:
            raise table_missing(TableName(request.database, table.table), found)
    return [table.table for table in request.tables] or found


def _drop_foreign_keys(server: LocalServer, request: CopyRequest, tables: Sequence[str]) -> None:
    """Drop foreign keys that lead out of the copy."""
    for table, name, referenced in server.query(_FOREIGN_KEYS.format(_literal(request.database))):
        is_inner = not request.tables and str(referenced) == request.database
        if str(table) in tables and not is_inner:
            place = f"{quoted(request.database)}.{quoted(str(table))}"
            server.query(f"ALTER TABLE {place} DROP FOREIGN KEY {quoted(str(name))}", unbounded=True)


def _dump(run: Path, database: str, tables: Sequence[str]) -> ClientProgram:
    options = (
        *("--no-defaults", f"--socket={run / 'job.sock'}", "--user=root"),
        *("--single-transaction", "--quick", "--no-tablespaces", "--set-gtid-purged=OFF", "--column-statistics=0"),
        *("--skip-triggers", "--skip-comments", "--hex-blob", "--default-character-set=utf8mb4", "--"),
    )
    return ClientProgram(("mysqldump", *options, database, *tables), dict(os.environ), _ERRORS)


def _literal(text: str) -> str:
    # In this form nothing is special, whatever the ``sql_mode``.
    return f"_utf8mb4 0x{text.encode().hex()}"
