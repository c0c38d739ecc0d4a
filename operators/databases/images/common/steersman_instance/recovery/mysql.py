"""The Job of a recovery of MySQL.

It fills an empty volume, or overwrites present data.

The source is only read. Data are made in `mysql.recovering`; a Job that was cut begins again, and one that was
complete returns the same result.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from steersman_pod.volumes import VolumeInUse, lock_volume

from ..archive.store_file import Store
from ..backup.mysql import server_program
from ..backup.mysql_base import open_archive
from ..files import read_json, replace_file
from ..jobs import JobFailed, JobFields, JobRefused, Result, log, require_store
from ..mysqld import MysqldProgram
from ..paths import InstancePaths
from .gtid_plan import GtidTarget, parse_gtid_target
from .mysql_restore import RecoveryFailed, plan, recover
from .plan import RecoveryRefused
from .staging import FORMAT, MARKER, fsync
from .target import InvalidTarget

# Not hidden: InnoDB finds no tablespaces below a directory whose name begins with a dot.
_STAGING = "mysql.recovering"
# Of the agent, on the volume next to the data.
_RECORDS = ("epoch", "maybeErrant")
_LEFTOVERS = ("mysql.former", "mysql.unfinished", "mysql.helper")


def run(job: JobFields, paths: InstancePaths, program: MysqldProgram | None = None) -> Result:
    """Recover into the volume. Return the result for the operator.

    Raises:
        JobFailed: it is worth another attempt.
        JobRefused: it is not.
        ArchiveError: the source cannot be read.
    """
    source = require_store(paths.source_store_file)
    if source.engine != "mysql":
        raise JobRefused("WrongEngine", f"The archive at {source.root} is of {source.engine}, not of MySQL.")
    target, fields = parse_target_fields(job)
    backup_id = job.text("backup_id") if job.fields.get("backup_id") else None
    version = job.text("version")
    try:
        lock_volume(paths.volume)
    except VolumeInUse as error:
        raise JobFailed("VolumeNotEmpty", f"The data volume cannot be used: {error}.") from None
    # An earlier restore over the same volume may have had the same target.
    overwrite = [job.text("overwrite")] if job.fields.get("overwrite") else []
    digest = _digest(source, [version, job.text("cluster_uid", ""), fields, backup_id, *overwrite])
    if found := _completed(paths, digest, overwrites=bool(overwrite)):
        return {"recovery": found}
    archive = open_archive(source, replace(paths, run=paths.run / "source"), read_only=True)
    try:
        chosen = plan(archive, target, version, backup_id)
        log(f"restoring backup {chosen.backup.id} and applying {len(chosen.chunks)} chunks of the binary log")
        staging = paths.volume / _STAGING
        if overwrite:
            _remove_present(paths)
        recovery = recover(chosen, archive, program or server_program(job), staging, paths.run)
    except RecoveryRefused as refused:
        raise JobRefused(refused.reason, refused.message) from None
    except RecoveryFailed as failed:
        raise JobFailed("RecoveryFailed", str(failed)) from None
    result = {**recovery.entry(), "path": source.path, "target": fields}
    _complete(paths, staging, {"format": FORMAT, "job": digest, "recovery": result})
    return {"recovery": result}


def parse_target_fields(job: JobFields) -> tuple[GtidTarget, Mapping[str, Any]]:
    """Return the target of job.json, and its fields. Raises JobRefused."""
    given = job.part("target")
    fields: Mapping[str, Any] = given.fields if given else {"latest": {}}
    fields = {name: value for name, value in fields.items() if value is not None}
    try:
        return parse_gtid_target(fields), fields
    except InvalidTarget as error:
        raise JobRefused("InvalidJob", f"{error}.") from None


def _digest(source: Store, parts: list[object]) -> str:
    """Identify what is recovered: another digest is another recovery."""
    return hashlib.sha256(json.dumps([source.identity, *parts], sort_keys=True).encode()).hexdigest()


def _remove_present(paths: InstancePaths) -> None:
    """Remove data that are replaced, and records of them. The volume has no room for two copies."""
    for file in (MARKER, *_RECORDS):
        (paths.volume / file).unlink(missing_ok=True)
    fsync(paths.volume)
    for directory in (paths.mysql_data, *(paths.volume / name for name in _LEFTOVERS)):
        shutil.rmtree(directory, ignore_errors=True)


def _completed(paths: InstancePaths, digest: str, *, overwrites: bool) -> Mapping[str, Any] | None:
    """Return the result of a complete recovery, after its last step.

    Args:
        overwrites: True if present data are replaced.

    Raises JobRefused.
    """
    marker = read_json(paths.volume / MARKER)
    if marker.get("job") == digest and (paths.mysql_data.is_dir() or (paths.volume / _STAGING).is_dir()):
        _adopt(paths, paths.volume / _STAGING)
        return cast("Mapping[str, Any]", marker["recovery"])
    if overwrites:
        return None
    if paths.mysql_data.is_dir() and any(paths.mysql_data.iterdir()):
        raise JobRefused(
            "VolumeNotEmpty", "The data volume has data of a database already. A recovery needs an empty volume."
        )
    # A marker without data is of another recovery that was discarded.
    (paths.volume / MARKER).unlink(missing_ok=True)
    return None


def _complete(paths: InstancePaths, staging: Path, marker: Mapping[str, object]) -> None:
    replace_file(paths.volume / MARKER, json.dumps(marker), 0o640)
    fsync(paths.volume / MARKER)
    fsync(paths.volume)
    _adopt(paths, staging)


def _adopt(paths: InstancePaths, staging: Path) -> None:
    if staging.is_dir():
        shutil.rmtree(paths.mysql_data, ignore_errors=True)
        staging.rename(paths.mysql_data)
        fsync(paths.volume)
