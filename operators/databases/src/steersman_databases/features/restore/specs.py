"""Job of a ``Restore``, and the Secret of its account. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from steersman.api.apply import core, meta
from steersman.api.core_v1 import Pod
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api import Backup, Restore
from steersman_databases.api.backups.backup_common import BackupSettings, VerificationSettings, VerificationStorage
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.server import SqlCredentials
from steersman_databases.features.backup.jobs import temporary_data_plan, temporary_volume_bytes
from steersman_databases.features.backup.specs import JobPlan, job_labels
from steersman_databases.features.restore import model

_SERVER_MOUNT = "/etc/steersman/server"
_OWNER_MOUNT = "/etc/steersman/owner"
_MODE = 0o440
_DEADLINE_SECONDS = 24 * 3600
_PLAN_DEADLINE_SECONDS = 3600
_PORTS = {"postgresql": 5432, "mysql": 3306}


def restore_plan(
    cluster: DeclaredCluster,
    settings: BackupSettings,
    restore: Restore,
    pods: Sequence[Pod],
    backups: Iterable[Backup],
) -> JobPlan:
    """The Job that restores into a temporary volume and copies from there.

    Args:
        pods: of the cluster's instances that are ready.
        backups: of the cluster. The largest one decides the size of the volume.
    """
    key = cluster.names.restore_job(restore.metadata.uid)
    verification = settings.verification or VerificationSettings(schedule="")
    largest = max((backup.status.size_bytes or 0 for backup in backups), default=0)
    storage = _storage(restore.spec.storage or VerificationStorage(), verification.storage)
    plan = temporary_data_plan(
        cluster,
        settings,
        pods,
        key,
        {
            "target": to_builtins(restore.spec.target),
            "backup_id": None,
            "server": _server(cluster),
            "restore": request_document(restore),
        },
        size=int(storage.size.value) if storage.size is not None else temporary_volume_bytes(cluster, largest),
        storage_class=storage.storage_class,
        resources=restore.spec.resources or verification.resources,
    )
    return dataclasses.replace(
        plan,
        subcommand="restore",
        component="restore",
        deadline_seconds=_DEADLINE_SECONDS,
        volumes=[*plan.volumes, _server_files(cluster.names), _account_files(key)],
        mounts={**plan.mounts, "server": _SERVER_MOUNT, "owner": _OWNER_MOUNT},
    )


def preview_plan(
    cluster: DeclaredCluster, settings: BackupSettings, restore: Restore, pods: Sequence[Pod]
) -> JobPlan:
    """The Job that plans a restore of the whole cluster. It only reads the archive.

    Args:
        pods: of the cluster's instances that are ready.
    """
    plan = temporary_data_plan(
        cluster,
        settings,
        pods,
        cluster.names.restore_plan_job(restore.metadata.uid),
        {"target": to_builtins(restore.spec.target), "backup_id": None},
        size=0,
        storage_class=None,
        resources=None,
    )
    return dataclasses.replace(
        plan,
        subcommand="plan",
        component="restore",
        deadline_seconds=_PLAN_DEADLINE_SECONDS,
        # It keeps one segment of WAL, in its directory for temporary files.
        volumes=[],
        mounts={},
    )


def account_secret(cluster: DeclaredCluster, key: ObjectKey, credentials: SqlCredentials) -> core.Secret:
    """Return the Secret with the temporary account, without an owner."""
    data = {"username": credentials.username.encode(), "password": credentials.password.encode()}
    return core.Secret(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=job_labels(cluster, "restore")),
        type="Opaque",
        data=data,
    )


def _storage(declared: VerificationStorage, default: VerificationStorage) -> VerificationStorage:
    return msgspec.structs.replace(
        default,
        size=declared.size or default.size,
        storage_class=declared.storage_class or default.storage_class,
    )


def _server(cluster: DeclaredCluster) -> Mapping[str, object]:
    """The primary, as the program names it. The database is chosen by the program."""
    service = cluster.names.service("rw")
    return {
        "host": f"{service.name}.{service.namespace}.svc",
        "port": _PORTS[cluster.engine],
        "database": "",
        "tls": "VerifyFull",
    }


def request_document(restore: Restore) -> Mapping[str, object]:
    """The objects to copy, as the program reads them."""
    engine = model.engine_of(restore)
    tables = [
        {"schema": model.schema_of(item, engine) or "", "table": item.table}
        for item in model.items_of(restore)
        if item.table is not None
    ]
    return {"database": model.database_of(restore), "into": model.copy_name(restore), "tables": tables}


def _server_files(names: ClusterNames) -> core.Volume:
    """Return the volume with the authorities of the servers, without any key."""
    items = [core.KeyToPath(key="ca.crt", path="ca.crt")]
    projection = core.SecretProjection(name=names.operator_certificate.name, items=items, optional=True)
    sources = [core.VolumeProjection(secret=projection)]
    return core.Volume(name="server", projected=core.ProjectedVolumeSource(default_mode=_MODE, sources=sources))


def _account_files(key: ObjectKey) -> core.Volume:
    # The program reports a missing file in a sentence; a missing volume would keep the pod from starting.
    source = core.SecretVolumeSource(secret_name=key.name, optional=True, default_mode=_MODE)
    return core.Volume(name="owner", secret=source)
