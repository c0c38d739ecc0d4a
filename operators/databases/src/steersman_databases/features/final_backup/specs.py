"""The Job that takes the final backup. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from steersman_databases.api import Backup
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.backup.specs import JobPlan, data_parameters


def final_backup_plan(
    cluster: DeclaredCluster, settings: BackupSettings, backup: Backup, image: str, archive_uid: str
) -> JobPlan:
    """Return the plan of the Job.

    Args:
        settings: ``spec.backup``.
        backup: with the version of the data, which may differ from the declared one.
        image: of the last primary.
        archive_uid: UID of the cluster that began the archive.
    """
    document: Mapping[str, object] = {
        "format": 1,
        "operation": "final-backup",
        "engine": cluster.engine,
        "version": backup.status.version or cluster.version,
        "cluster": {
            "namespace": cluster.key.namespace,
            "name": cluster.key.name,
            "kind": cluster.kind,
            "uid": cluster.uid,
        },
        "cluster_uid": archive_uid,
        "processes": settings.jobs.processes,
        "backup": {"name": backup.metadata.name},
        **data_parameters(cluster),
    }
    return JobPlan(
        key=cluster.names.final_backup_job,
        subcommand="final-backup",
        image=image,
        document=document,
        settings=settings.jobs,
    )
