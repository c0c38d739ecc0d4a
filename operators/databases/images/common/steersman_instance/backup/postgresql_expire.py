"""Removal of one backup of PostgreSQL because its ``Backup`` object is deleted."""

from __future__ import annotations

import datetime

from ..jobs import JobFields, Result, require_store
from ..paths import InstancePaths
from .expiry import expiry_request, lineage_of, remove, require_expirable
from .repository import Repository


def run(job: JobFields, paths: InstancePaths) -> Result:
    """Remove a backup with its dependants. A backup that is not there is removed already.

    Raises:
        JobRefused: retention needs it.
        ArchiveError: the store failed.
    """
    backup_id, retention = expiry_request(job)
    repository = Repository(require_store(paths.store_file), paths)
    repository.check_ownership()
    catalog = repository.catalog()
    if catalog.find(backup_id) is None:
        return {"expired": []}
    now = datetime.datetime.now(datetime.UTC)
    backups = catalog.all_backups
    removed = require_expirable(backup_id, backups, retention, now, lineage_of(repository, catalog))
    remove(repository, removed, retention, now)
    return {"expired": list(removed)}
