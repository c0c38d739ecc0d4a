"""Verification of a backup of MySQL.

The data are restored and replayed as by a recovery to the end of the archive. The servers have no network, and
nothing is written to the object store.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from ..archive.errors import ArchiveError
from ..backup.mysql import server_program
from ..backup.mysql_base import open_archive
from ..backup.mysql_copy import CopyDamaged, base_tables, check_tables
from ..binlog.stream import LocalServer, ServerUnavailable
from ..gtids import NO_GTIDS, GtidSet
from ..jobs import JobFailed, JobFields, JobRefused, Result, require_store
from ..mysqld import MysqldFailed, MysqldProgram, running_server
from ..paths import InstancePaths
from ..recovery.mysql_restore import RecoveryFailed, plan, recover
from ..recovery.plan import RecoveryRefused
from ..recovery.target import Latest
from .measurement import Measurement, damaged, unreadable_object

_SERVER = {"skip-log-bin": "ON", "super-read-only": "OFF"}


def run(job: JobFields, paths: InstancePaths, program: MysqldProgram | None = None) -> Result:
    """Verify a backup. Return the result for the operator.

    Raises:
        JobFailed: it is worth another attempt.
        JobRefused: it is not, for example because data are damaged.
        ArchiveError: the object store cannot be read.
    """
    store = require_store(paths.store_file)
    if store.engine != "mysql":
        raise JobRefused("WrongEngine", f"The archive at {store.root} is of {store.engine}, not of MySQL.")
    version = job.text("version")
    backup_id = job.text("backup_id") if job.fields.get("backup_id") else None
    archived = _gtids(job.text("archived", ""))
    measurement = Measurement()
    archive = open_archive(store, replace(paths, run=paths.run / "source"), read_only=True)
    data, server = paths.volume / "mysql", program or server_program(job)
    try:
        chosen = plan(archive, Latest(), version, backup_id)
        recovery = recover(chosen, archive, server, data, paths.run, lambda: measurement.end("restore"))
        if missing := archived - recovery.gtids:
            raise JobRefused("BinaryLogMissing", f"Transactions were archived and are missing: {str(missing)[:200]}.")
        with running_server(server, data, paths.run, _SERVER) as running:
            measurement.end("replay")
            tables, rows = _check(running)
            measurement.end("check")
    except RecoveryRefused as refused:
        raise _refusal(refused) from None
    except ArchiveError as error:
        raise unreadable_object(error) from None
    except CopyDamaged as error:
        raise damaged(str(error)) from None
    except (RecoveryFailed, MysqldFailed, ServerUnavailable) as failed:
        raise JobFailed("RecoveryFailed", f"MySQL failed: {str(failed).rstrip('.')}.") from None
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return measurement.result(recovery.backup.id, recovery.recovered_to, tables=tables, rows=rows)


def _check(server: LocalServer) -> tuple[int, int]:
    """Check all tables. Return the number of user tables and of their rows."""
    check_tables(server, quick=False)
    tables = base_tables(server, system=False)
    rows = 0
    for name in tables:
        ((count,),) = server.query(f"SELECT COUNT(*) FROM {name}", unbounded=True)  # noqa: S608
        rows += int(count)
    return len(tables), rows


def _refusal(refused: RecoveryRefused) -> JobRefused:
    if refused.reason == "NotEnoughSpace":
        message = refused.message.replace("spec.storage.size", "spec.backup.verification.storage.size")
        return JobRefused(refused.reason, message)
    return JobRefused(refused.reason, refused.message)


def _gtids(text: str) -> GtidSet:
    try:
        return GtidSet.parse(text) if text else NO_GTIDS
    except ValueError:
        return NO_GTIDS
