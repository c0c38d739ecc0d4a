"""Base backups of MySQL: copy, verification, storage, and expiry."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..archive.objects import ObjectExists, open_objects
from ..archive.ownership import check_owner
from ..archive.store_file import Store
from ..binlog import chunk_store
from ..binlog.chunk_store import ChunkStore
from ..binlog.chunks import ChunkCipher
from ..jobs import JobFailed
from ..mysqld import MysqldFailed, MysqldProgram
from ..paths import InstancePaths
from . import mysql_catalog
from .expiry import Retention
from .mysql_catalog import MysqlBackup, MysqlCatalog, backup_id
from .mysql_copy import CopyDamaged, CopyFailed, CopyState, Donor, clone_member, prove_copy
from .restic import Restic
from .retention import expirable


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlArchive:
    """The three parts of a cluster's path in the store."""

    restic: Restic
    catalog: MysqlCatalog
    chunks: ChunkStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest:
    """Request for a base backup.

    Args:
        donors: members in the order in which they are tried.
        host: the cluster's path; restic compares with earlier snapshots of the same host.
        name: of the Backup object.
        identity: its UID.
    """

    donors: Sequence[Donor]
    host: str
    name: str = ""
    trigger: str = "OnDemand"
    identity: str = ""


def open_archive(store: Store, paths: InstancePaths, *, read_only: bool = False) -> MysqlArchive:
    """Connect to the archive of a store file. The store is read first, which fails fast where restic would wait.

    Raises:
        ArchiveError: the store cannot be used, or the path belongs to another cluster.
    """
    check_owner(store, paths)
    archive = MysqlArchive(
        restic=Restic(store, read_only=read_only, paths=paths),
        catalog=MysqlCatalog(open_objects(store, mysql_catalog.DIRECTORY, paths)),
        chunks=ChunkStore(open_objects(store, chunk_store.DIRECTORY, paths), ChunkCipher(store.passphrase)),
    )
    archive.catalog.backups()
    return archive


def back_up(
    request: BackupRequest, archive: MysqlArchive, program: MysqldProgram, work: Path, run: Path
) -> MysqlBackup:
    """Make a base backup.

    Args:
        work: empty directory with room for the data of a member.
        run: directory for sockets and logs.

    Raises:
        JobFailed: no member could be copied, or the copy is damaged.
        ArchiveError: the store failed.
    """
    archive.restic.open()  # a store that fails costs no copy
    start = _now()
    donor, data = _copy(request.donors, program, work, run)
    stop = _now()
    try:
        copy = prove_copy(program, data, run)
    except (CopyDamaged, MysqldFailed) as error:
        raise JobFailed("BackupFailed", f"The copy of {donor.instance} is not usable: {error}") from error
    backup = store_directory(archive, data, copy, request, start=start, stop=stop, instance=donor.instance)
    shutil.rmtree(data, ignore_errors=True)
    return backup


def store_directory(
    archive: MysqlArchive,
    data: Path,
    copy: CopyState,
    request: BackupRequest,
    *,
    start: datetime.datetime,
    stop: datetime.datetime,
    instance: str,
) -> MysqlBackup:
    """Store a data directory and add it to the catalog.

    No server runs on it. Raises ArchiveError.
    """
    label = backup_id(start)
    snapshot = archive.restic.backup(data, [label], request.host)
    backup = MysqlBackup(
        id=label,
        snapshot=snapshot.id,
        start=start,
        stop=stop,
        gtids=copy.gtids,
        size=snapshot.size,
        stored=snapshot.added,
        version=copy.version,
        instance=instance,
        name=request.name,
        trigger=request.trigger,
        job=request.identity,
    )
    try:
        archive.catalog.add(backup)
    except ObjectExists:
        raise JobFailed("BackupRunning", f"Another backup started at {label}. Run it again.") from None
    return backup


def remove(archive: MysqlArchive, ids: Sequence[str], *, prune: bool = True) -> None:
    """Remove backups, then the binary log that no remaining one needs.

    Args:
        prune: also remove data from the store. A store with object lock keeps them for its time.

    Raises:
        ArchiveError: the store failed. Earlier removals stay in effect.
    """
    kept = [backup for backup in archive.catalog.backups() if backup.id not in ids]
    archive.catalog.remove(ids)
    # Also what an earlier attempt removed from the catalog only, or never added to it.
    known = {backup.snapshot for backup in kept}
    archive.restic.forget(sorted(archive.restic.snapshots() - known), prune=prune)
    if kept:
        archive.chunks.expire([backup.gtids for backup in kept])


def apply_retention(
    archive: MysqlArchive, retention: Retention, now: datetime.datetime, *, prune: bool = True
) -> tuple[str, ...]:
    """Remove what retention does not need and return the ids. Raises ArchiveError."""
    backups = [backup.retained() for backup in archive.catalog.backups()]
    ids = expirable(backups, retention.policy, now, retain_until=retention.held)
    remove(archive, ids, prune=prune)
    return ids


def _copy(donors: Sequence[Donor], program: MysqldProgram, work: Path, run: Path) -> tuple[Donor, Path]:
    failure = "No instance is ready to be copied."
    for donor in donors:
        try:
            return donor, clone_member(program, donor, work, run)
        except CopyFailed as error:
            failure = str(error)
        except MysqldFailed as error:
            raise JobFailed("BackupFailed", f"The server that receives the copy failed: {error}") from error
    raise JobFailed("MemberUnreachable", failure)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
