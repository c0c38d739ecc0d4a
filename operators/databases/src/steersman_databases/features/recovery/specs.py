"""Job that recovers the data of a new cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steersman.api.apply import core, meta
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api.backups.backup_common import BackupSettings, RecoverySettings
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.backup.specs import JobPlan, data_parameters, job_labels
from steersman_databases.features.recovery.source import RecoverySource

SOURCE_MOUNT = "/etc/steersman/source"
STORE_KEY = "store.json"
_SOURCE_VOLUME = "source"


def recovery_plan(
    cluster: DeclaredCluster, settings: RecoverySettings, backup: BackupSettings | None, source: RecoverySource
) -> JobPlan:
    """Return the plan of the Job.

    Args:
        settings: ``spec.bootstrap.recovery``.
        backup: ``spec.backup``.
    """
    key = cluster.names.recovery_job
    target: Mapping[str, object] = {} if settings.target is None else to_builtins(settings.target)
    fields: Mapping[str, object] = {
        "processes": 1 if backup is None else backup.jobs.processes,
        "target": target or {"latest": {}},
        "backup_id": source.backup_id,
        **data_parameters(cluster),
    }
    return recover_job(cluster, key, fields, core.SecretVolumeSource(secret_name=key.name, default_mode=0o440))


def recover_job(
    cluster: DeclaredCluster, key: ObjectKey, fields: Mapping[str, object], secret: core.SecretVolumeSource
) -> JobPlan:
    """Return a Job that fills a volume from an archive.

    Args:
        fields: further members of the Job's document.
        secret: document of the object store with the archive.
    """
    document: Mapping[str, object] = {
        "format": 1,
        "operation": "recover",
        "engine": cluster.engine,
        "version": cluster.version,
        "cluster": cluster_document(cluster),
        "cluster_uid": cluster.uid,
        **fields,
    }
    return JobPlan(
        key=key,
        subcommand="recover",
        image=cluster.image,
        document=document,
        volumes=[core.Volume(name=_SOURCE_VOLUME, secret=secret)],
        mounts={_SOURCE_VOLUME: SOURCE_MOUNT},
        component="recovery",
    )


def source_secret(cluster: DeclaredCluster, document: Mapping[str, object]) -> core.Secret:
    """Return the Secret with the source's object store. The cluster owns it, and it lasts as long as the Job."""
    key: ObjectKey = cluster.names.recovery_job
    return core.Secret(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=job_labels(cluster, "recovery")),
        type="Opaque",
        data={STORE_KEY: msgspec.json.encode(document, order="deterministic")},
    )


def cluster_document(cluster: DeclaredCluster) -> Mapping[str, str]:
    """Return the cluster as ``job.json`` names it."""
    return {
        "namespace": cluster.key.namespace,
        "name": cluster.key.name,
        "kind": cluster.kind,
        "uid": cluster.uid,
    }
