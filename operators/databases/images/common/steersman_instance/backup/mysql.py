"""The Job of a base backup of MySQL."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence

from ..archive.errors import ArchiveError
from ..jobs import JobFields, JobRefused, Result, log, require_store
from ..mysqld import MysqldProgram
from ..paths import InstancePaths
from .expiry import Retention
from .mysql_base import BackupRequest, apply_retention, back_up, open_archive
from .mysql_copy import Donor

PORT = 3306
MAX_MEMBERS = 9
_SOURCES = ("PreferReplica", "Primary", "Replica")
# Without these a server does not open data that were made with other values.
_DATA_PARAMETERS = ("lower_case_table_names", "innodb_page_size", "innodb_data_file_path")


def run(job: JobFields, paths: InstancePaths, program: MysqldProgram | None = None) -> Result:
    """Back up a member and apply retention. Return the result for the operator.

    Raises:
        JobFailed: no member could be copied, or the copy is damaged.
        JobRefused: job.json is malformed.
        ArchiveError: the store failed.
    """
    store = require_store(paths.store_file)
    fields = job.part("backup") or JobFields({})
    retention = Retention.parse(job)
    request = BackupRequest(
        donors=_donors(job, paths),
        host=store.path,
        name=fields.text("name", ""),
        trigger=fields.text("trigger", "OnDemand"),
        identity=fields.text("uid", ""),
    )
    archive = open_archive(store, paths)
    done = [each for each in archive.catalog.backups() if request.identity and each.job == request.identity]
    if done:
        log(f"backup {done[-1].id} was completed by an earlier pod of this Job")
        backup = done[-1]
    else:
        shutil.rmtree(paths.work / "copy", ignore_errors=True)
        backup = back_up(request, archive, program or server_program(job), paths.work / "copy", paths.run)
    if retention is None:
        return {"backup": backup.entry(), "expired": []}
    try:
        expired = apply_retention(archive, retention, datetime.datetime.now(datetime.UTC))
    except ArchiveError as error:
        # The backup counts all the same; the next one tries again.
        warning = f"Retention failed: {error.reason}: {error.message}"
        return {"backup": backup.entry(), "expired": [], "warning": warning}
    return {"backup": backup.entry(), "expired": list(expired)}


def server_program(job: JobFields) -> MysqldProgram:
    """Return the image's server with parameters that affect the data."""
    given = job.part("parameters") or JobFields({})
    return MysqldProgram(options={name: given.text(name) for name in _DATA_PARAMETERS if name in given.fields})


def _donors(job: JobFields, paths: InstancePaths) -> Sequence[Donor]:
    """Return the members to copy, in order of preference."""
    source = job.choice("source", _SOURCES, "PreferReplica")
    port = job.number("port", 1, 65535, PORT)
    found = [
        (each.text("role", "Replica"), Donor(each.text("instance"), each.text("address"), port, paths.backup_client))
        for each in job.parts("members", 100)
    ]
    wanted = [
        (role, donor)
        for role, donor in found
        if source == "PreferReplica" or (role == "Primary") is (source == "Primary")
    ]
    if not wanted:
        raise JobRefused("InvalidJob", f"job.json: members has no instance for source {source}.")
    return [donor for _, donor in sorted(wanted, key=lambda each: each[0] == "Primary")][:MAX_MEMBERS]
