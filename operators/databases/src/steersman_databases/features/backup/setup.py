"""Watches and rights of the controller of ``Backup``."""

from __future__ import annotations

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Event, Namespace, Pod
from steersman.controller import annotations_changed, any_of, generation_changed
from steersman.manager import Manager
from steersman_databases.api import Backup, Database
from steersman_databases.features.backup.controller import BackupReconciler
from steersman_databases.features.backup.queries import BACKUP_INDEX, index_backup


def setup_backups(manager: Manager, cluster_domain: str) -> None:
    """Add the controller of ``Backup`` to ``manager``.

    Args:
        cluster_domain: DNS domain of the Kubernetes cluster.
    """
    (
        manager.controller(Backup)
        .with_predicate(any_of(generation_changed, annotations_changed))
        .index(Backup, BACKUP_INDEX, index_backup)
        .owns(Job)
        .needs(Job, "create", "delete")
        .needs(ConfigMap, "get", "list", "watch", "create", "patch", "delete")
        .needs(Pod, "get", "list", "watch")
        .needs(Namespace, "get")
        .needs(Database, "get", "list", "watch")
        .needs(Event, "list")
        # One at a time: a Job starts only if no other one of its cluster runs, see `start_job`.
        .max_concurrent_reconciles(1)
        .max_retry_delay(30.0)
        .complete(lambda context: BackupReconciler(context, cluster_domain))
    )
