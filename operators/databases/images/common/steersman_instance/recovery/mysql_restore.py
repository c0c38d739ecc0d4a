"""Recovery of MySQL from a base backup and the binary log.

The result is verified.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..archive.errors import ArchiveError
from ..backup.mysql_base import MysqlArchive
from ..backup.mysql_catalog import MysqlBackup
from ..binlog.chunks import Chunk, ChunkHeader
from ..binlog.events import BinaryLogDamaged
from ..binlog.relay_logs import BATCH_BYTES, RelayLogBatch, RelayLogWriter
from ..binlog.stream import LocalServer, ServerUnavailable
from ..gtids import GtidSet
from ..mysqld import MysqldFailed, MysqldProgram, running_server
from .gtid_plan import GtidPlan, GtidTarget, complete, plan_gtid_recovery, served_end
from .plan import RecoveryRefused
from .target import Latest, format_time

_PREFETCHED_CHUNKS = 8
_WAIT_SECONDS = 5
_UNUSED_SERVER_ID = (1 << 32) - 1  # members are numbered from 1
_FAST = {
    # A recovery that is cut begins again with the restored backup, so nothing needs to survive a crash.
    "skip-log-bin": "ON",
    "innodb-flush-log-at-trx-commit": "0",
    "replica-parallel-workers": "4",
    "super-read-only": "OFF",
    "local-infile": "OFF",
}
_APPLIER_ERRORS = """
    SELECT LAST_ERROR_NUMBER, LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker
    WHERE LAST_ERROR_NUMBER <> 0
    UNION ALL SELECT LAST_ERROR_NUMBER, LAST_ERROR_MESSAGE
    FROM performance_schema.replication_applier_status_by_coordinator WHERE LAST_ERROR_NUMBER <> 0
"""
_APPLIER_BUSY = """
    SELECT 1 FROM performance_schema.threads
    WHERE NAME = 'thread/sql/replica_sql' AND PROCESSLIST_STATE NOT LIKE 'Replica has read all relay log%'
"""


class RecoveryFailed(Exception):
    """The recovery failed; another attempt may succeed. The message is one sentence for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlRecovery:
    """Result of a recovery.

    Args:
        recovered_to: the last commit; the backup's stop if nothing was applied after it.
    """

    backup: MysqlBackup
    recovered_to: datetime.datetime
    gtids: GtidSet

    def entry(self) -> dict[str, Any]:
        """Return the result of the Job."""
        return {
            "backup": self.backup.id,
            "recoveredTo": format_time(self.recovered_to),
            "gtidExecuted": str(self.gtids),
            "version": self.backup.version,
        }


def plan(archive: MysqlArchive, target: GtidTarget, version: str, backup_id: str | None = None) -> GtidPlan:
    """Read the archive and choose what leads to the target.

    Args:
        version: of the server that will run on the data, for example `9.7`.

    Raises:
        RecoveryRefused: the archive has no way to the target.
        ArchiveError: the store failed.
    """
    backups = archive.catalog.backups()
    usable = [backup for backup in backups if _same_series(backup.version, version)]
    others = [backup for backup in backups if backup not in usable]
    named = next((backup for backup in others if backup.id == backup_id), None)
    if named is not None or (others and not usable):
        given, found = (f"Backup {named.id} is", named) if named is not None else ("The backups are", others[-1])
        raise RecoveryRefused(
            "WrongEngineVersion",
            f"{given} of MySQL {found.version}, and the cluster runs {version}. Set spec.version.",
        )
    planned = [backup.planned() for backup in usable]
    oldest = min(planned, key=lambda backup: len(backup.gtids), default=None)
    chunks: list[ChunkHeader] = []
    ends: list[ChunkHeader] = []
    for session in archive.chunks.sessions():
        runs = archive.chunks.runs(session)
        if not runs or (oldest is not None and oldest.gtids >= archive.chunks.header(session, runs[-1].last).after):
            continue
        headers = archive.chunks.headers(session)
        chunks += complete(headers)
        ends += headers[-1:]
    end = served_end(ends, archive.chunks.newest(), target)
    return plan_gtid_recovery(planned, chunks, end, target, backup_id=backup_id)


def recover(
    chosen: GtidPlan,
    archive: MysqlArchive,
    program: MysqldProgram,
    data: Path,
    run: Path,
    restored: Callable[[], None] = lambda: None,
) -> MysqlRecovery:
    """Carry out a plan. `data` then has a data directory of a server that was stopped cleanly.

    Args:
        data: does not exist, or is what an interrupted recovery left. The directory next to it has the relay logs.
        restored: runs between restore and replay.

    Raises:
        RecoveryRefused: the volume is too small, or the result differs from the plan.
        RecoveryFailed: a server failed.
        ArchiveError: the store failed.
    """
    backup = next(each for each in archive.catalog.backups() if each.id == chosen.backup.id)
    shutil.rmtree(data, ignore_errors=True)
    data.parent.mkdir(parents=True, exist_ok=True)
    _check_room(data.parent, backup.size)
    data.mkdir()
    archive.restic.restore(backup.snapshot, data)
    # Two servers of the same identity cannot replicate from each other.
    (data / "auto.cnf").unlink(missing_ok=True)
    restored()
    relay = data.with_name(f"{data.name}.relay")
    writer = RelayLogWriter(relay, backup.gtids, chosen.target, history=chosen.history)
    try:
        executed = _replay(writer, chunk_contents(archive, chosen.chunks), program, data, run)
    except BinaryLogDamaged as error:
        raise ArchiveError("ArchiveDamaged", f"A binary log chunk is damaged: {error}.") from error
    except (MysqldFailed, ServerUnavailable) as error:
        raise RecoveryFailed(f"The server that applies the binary log failed: {error}") from error
    finally:
        shutil.rmtree(relay, ignore_errors=True)
    _check_result(chosen, writer, executed)
    last = datetime.datetime.fromtimestamp(writer.last_commit / 1e6, datetime.UTC)
    return MysqlRecovery(backup=backup, recovered_to=last if writer.last_commit else backup.stop, gtids=executed)


def _check_result(chosen: GtidPlan, writer: RelayLogWriter, executed: GtidSet) -> None:
    if isinstance(chosen.target, Latest) and writer.reached != chosen.reached:
        missing = chosen.reached - writer.reached
        raise RecoveryRefused("BinaryLogMissing", f"The archive lacks transactions that it lists: {missing}.")
    if executed != writer.reached:
        raise RecoveryRefused(
            "RecoveryFailed",
            f"The server has other transactions than planned: missing {writer.reached - executed or 'none'},"
            f" unexpected {executed - writer.reached or 'none'}.",
        )


def _replay(
    writer: RelayLogWriter, chunks: Iterator[Chunk], program: MysqldProgram, data: Path, run: Path
) -> GtidSet:
    """Apply the chunks and return what the server has then."""
    executed: GtidSet | None = None
    for chunk in chunks:
        writer.add(chunk)
        if writer.ended:
            break
        if writer.batch_full and (batch := writer.finish_batch()):
            executed = _apply(batch, program, data, run)
            writer.next_batch()
    if batch := writer.finish_batch():
        executed = _apply(batch, program, data, run)
    return _executed(program, data, run) if executed is None else executed


def _apply(batch: RelayLogBatch, program: MysqldProgram, data: Path, run: Path) -> GtidSet:
    """Run a server until it has applied a batch. The index is read when a server starts, so each has its own."""
    options = {
        **_FAST,
        "relay-log": str(batch.base),
        "relay-log-index": f"{batch.base}.index",
        "relay-log-recovery": "OFF",
        # An applier skips the events of its own number, without a word.
        "server-id": str(_UNUSED_SERVER_ID),
    }
    with running_server(program, data, run, options) as server:
        server.query(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'archive', SOURCE_AUTO_POSITION = 0,"
            f" RELAY_LOG_FILE = '{batch.first}', RELAY_LOG_POS = 4"
        )
        server.query("START REPLICA SQL_THREAD")
        while not _applied(server, batch.reached):
            if errors := server.query(_APPLIER_ERRORS):
                raise RecoveryFailed(f"A transaction cannot be applied: {str(errors[0][1])[:300]}")
            if _has_read_all(server) and not _applied(server, batch.reached):
                raise RecoveryFailed("The applier has read its log and left out transactions.")
        server.query("STOP REPLICA")
        server.query("RESET REPLICA ALL")
        return server.state().executed


def _has_read_all(server: LocalServer) -> bool:
    return not server.query(_APPLIER_BUSY)


def _applied(server: LocalServer, gtids: GtidSet) -> bool:
    ((timed_out,),) = server.query(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {_WAIT_SECONDS})")
    return not timed_out


def _executed(program: MysqldProgram, data: Path, run: Path) -> GtidSet:
    with running_server(program, data, run, _FAST) as server:
        return server.state().executed


def chunk_contents(archive: MysqlArchive, headers: Sequence[ChunkHeader]) -> Iterator[Chunk]:
    """Yield chunks in order, with those of their first transaction. Raises ArchiveError."""
    names: list[tuple[str, int]] = []
    seen: set[tuple[str, int]] = set()
    for header in headers:
        for number in range(header.starts_in, header.number + 1):
            if (name := (header.session, number)) not in seen:
                seen.add(name)
                names.append(name)
    with ThreadPoolExecutor(_PREFETCHED_CHUNKS) as pool:
        pending = [pool.submit(archive.chunks.read, *name) for name in names[:_PREFETCHED_CHUNKS]]
        for position in range(len(names)):
            chunk = pending.pop(0).result()
            if (ahead := position + _PREFETCHED_CHUNKS) < len(names):
                pending.append(pool.submit(archive.chunks.read, *names[ahead]))
            yield chunk


def _check_room(volume: Path, size: int) -> None:
    needed = size + BATCH_BYTES
    if (free := shutil.disk_usage(volume).free) < needed:
        raise RecoveryRefused(
            "NotEnoughSpace",
            f"The volume has {free >> 20} MiB, and the recovery needs {needed >> 20} MiB. Set spec.storage.size.",
        )


def _same_series(backup: str, server: str) -> bool:
    return backup.split(".")[:2] == server.split(".")[:2]
