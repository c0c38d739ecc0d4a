"""Job that restores a cluster into a new instance's volume. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from steersman.api.apply import core
from steersman.meta import to_builtins
from steersman_databases.api import Restore
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.backup.specs import JobPlan, data_parameters
from steersman_databases.features.recovery.specs import STORE_KEY, recover_job
from steersman_databases.features.restore_in_place.model import overwrites


def in_place_plan(
    cluster: DeclaredCluster, settings: BackupSettings, restore: Restore, new_timeline: int | None
) -> JobPlan:
    """Return the plan of the Job. It does what the confirmed plan says.

    Args:
        settings: ``spec.backup``.
        new_timeline: PostgreSQL: number that is reserved for the restored data.
    """
    plan = restore.status.plan
    assert plan is not None
    overwrite = {"overwrite": restore.metadata.uid} if overwrites(restore) else {}
    fields: Mapping[str, object] = {
        "processes": settings.jobs.processes,
        "target": to_builtins(restore.spec.target),
        "backup_id": plan.backup_id,
        **({} if new_timeline is None else {"timeline": plan.timeline, "new_timeline": new_timeline}),
        **overwrite,
        **data_parameters(cluster),
    }
    # The cluster recovers from its own archive.
    items = [core.KeyToPath(key=STORE_KEY, path=STORE_KEY)]
    secret = core.SecretVolumeSource(secret_name=cluster.names.backup_secret.name, items=items, default_mode=0o440)
    return recover_job(cluster, cluster.names.restore_job(restore.metadata.uid), fields, secret)
