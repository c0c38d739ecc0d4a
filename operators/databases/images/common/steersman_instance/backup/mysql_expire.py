"""Removal of one backup of MySQL because its ``Backup`` object is deleted."""

from __future__ import annotations

import datetime

from ..jobs import JobFields, Result, require_store
from ..paths import InstancePaths
from .expiry import expiry_request, require_expirable
from .mysql_base import open_archive, remove


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Remove a backup. One that is not there is removed already.

    Raises:
        JobRefused: retention needs it.
        ArchiveError: the store failed.
    """
    backup_id, retention = expiry_request(job)
    archive = open_archive(require_store(paths.store_file), paths)
    backups = [backup.retained() for backup in archive.catalog.backups()]
    if backup_id not in {backup.id for backup in backups}:
        return {"expired": []}
    removed = require_expirable(backup_id, backups, retention, datetime.datetime.now(datetime.UTC), None)
    archive.restic.open()
    remove(archive, removed)
    return {"expired": list(removed)}
