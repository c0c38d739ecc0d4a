"""Parts of the Jobs of dumps that both engines share."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..archive.errors import ArchiveError
from ..archive.pod_identity import require_gcp_account
from ..archive.store_file import Store
from ..backup.expiry import Retention
from ..backup.restic import Restic
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..paths import InstancePaths
from .archive import DIRECTORY, DumpArchive, DumpInfo, StoredDump, dump_id
from .processes import ClientFailed
from .server import Login


def require_login(login: Login | None, secret: str) -> Login:
    """Return an account that a Job needs. Raises JobRefused."""
    if login is None:
        raise JobRefused("InvalidSecret", f"The Secret of {secret} has no user name or password.")
    return login


def open_dumps(store: Store, paths: InstancePaths, *, read_only: bool = False) -> DumpArchive:
    """Return the dumps in a path of a store. Raises ArchiveError."""
    require_gcp_account(store)
    return DumpArchive(Restic(store, directory=DIRECTORY, read_only=read_only, paths=paths))


def make_dump(
    job: JobFields,
    store: Store,
    archive: DumpArchive,
    version: str,
    accounts: Mapping[str, object],
    chunks: Iterable[bytes],
) -> Result:
    """Store a dump unless an earlier pod of this Job did.

    It applies retention, and returns the result for the operator.

    Raises:
        JobFailed: the dump program failed.
        JobRefused: job.json is malformed.
        ArchiveError: the store failed.
    """
    retention = Retention.parse(job)
    archive.open()
    backup = completed(job, archive)
    if backup is None:
        fields = job.part("backup") or JobFields({})
        info = DumpInfo(
            id=dump_id(datetime.datetime.now(datetime.UTC)),
            engine=store.engine,
            version=version,
            name=fields.text("name", ""),
            trigger=fields.text("trigger", "OnDemand"),
            job=fields.text("uid", ""),
        )
        try:
            backup = archive.add(info, accounts, chunks, store.path)
        except ClientFailed as error:
            raise JobFailed("DumpFailed", f"The database cannot be dumped: {error}.") from None
    if retention is None:
        return {"backup": backup.entry(), "expired": []}
    try:
        expired = archive.apply_retention(retention, datetime.datetime.now(datetime.UTC))
    except ArchiveError as error:
        # The dump counts all the same; the next one tries again.
        warning = f"Retention failed: {error.reason}: {error.message}"
        return {"backup": backup.entry(), "expired": [], "warning": warning}
    return {"backup": backup.entry(), "expired": list(expired)}


def completed(job: JobFields, archive: DumpArchive) -> StoredDump | None:
    """Return the dump that an earlier pod of this Job made. Raises ArchiveError."""
    identity = (job.part("backup") or JobFields({})).text("uid", "")
    done = [each for each in archive.dumps() if identity and each.info.job == identity]
    if done:
        log(f"dump {done[-1].id} was completed by an earlier pod of this Job")
    return done[-1] if done else None


def source_archive(job: JobFields, paths: InstancePaths, engine: str) -> tuple[DumpArchive, StoredDump]:
    """Return the dumps of the source, and the one to restore.

    It is `backup_id`, otherwise the last one.

    Raises:
        JobRefused: the source has another engine, or not this dump.
        ArchiveError: the store failed.
    """
    store = require_store(paths.source_store_file)
    if store.engine != engine:
        raise JobRefused("SourceMismatch", f"{store.root} has dumps of {store.engine}, not of {engine}.")
    archive = open_dumps(store, replace(paths, run=paths.run / "source"), read_only=True)
    try:
        dumps = archive.dumps()
    except ArchiveError as error:
        if error.reason == "ArchiveDamaged":
            raise JobRefused("BackupNotFound", f"{store.root} has no dumps. Check the path.") from None
        raise
    wanted = job.text("backup_id", "")
    chosen = [dump for dump in dumps if dump.id == wanted] if wanted else dumps
    if not chosen:
        raise JobRefused("BackupNotFound", f"{store.root} has no dump{f' {wanted}' if wanted else ''}.")
    return archive, chosen[-1]
