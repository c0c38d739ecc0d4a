"""Jobs of a ``Backup``: one makes it, one removes it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET

from steersman.api.apply import core
from steersman.api.core_v1 import Pod, ResourceRequirements
from steersman.meta import FrozenDict, ObjectKey, is_true
from steersman_databases.api import Backup
from steersman_databases.api.backups.backup_common import BackupSettings, VerificationStorage, period
from steersman_databases.cluster.state import requested_image
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import BACKUP_PORTS, CLUSTER_LABEL, ROLE_LABEL, VERSION_LABEL
from steersman_databases.features.backup.model import is_finished, trigger_of
from steersman_databases.features.backup.specs import JobPlan, data_parameters

_DEADLINE_SECONDS = 24 * 3600
_EXPIRE_DEADLINE_SECONDS = 3600
_SPARE_BYTES = 1 << 30
_MAX_ARCHIVED_LENGTH = 1000
_DATA_MOUNT = "/var/lib/steersman/data"
_WORK_MOUNT = "/var/lib/steersman/work"
_SERVER_RESOURCES = ResourceRequirements(
    requests=FrozenDict[str, int | str]({"cpu": "100m", "memory": "512Mi"}),
    limits=FrozenDict[str, int | str]({"memory": "1Gi"}),
)


def backup_plan(
    cluster: DeclaredCluster,
    settings: BackupSettings,
    backup: Backup,
    pods: Sequence[Pod],
    others: Iterable[Backup],
    *,
    retention: bool = True,
) -> JobPlan:
    """The Job that makes a backup.

    Args:
        pods: of the cluster's instances that are ready.
        others: all ``Backup`` objects of the cluster: retention keeps what they declare.
        retention: False to remove nothing from the store.
    """
    source = backup.spec.source or settings.source
    kept = _document(cluster, settings, pods, others)
    document = {
        **(kept if retention else {name: value for name, value in kept.items() if name != "retention"}),
        "backup": {"name": backup.metadata.name, "uid": backup.metadata.uid, "trigger": trigger_of(backup)},
        "type": backup.spec.type,
        "source": source,
        "processes": settings.jobs.processes,
        "members": _members(cluster, pods, primary_first=source == "Primary"),
        "port": BACKUP_PORTS[cluster.engine],
    }
    plan = _plan(cluster, settings, pods, cluster.names.backup_job(backup.metadata.uid), document)
    return _with_work_volume(cluster, plan) if cluster.engine == "mysql" else plan


def expire_plan(
    cluster: DeclaredCluster, settings: BackupSettings, backup: Backup, pods: Sequence[Pod], others: Iterable[Backup]
) -> JobPlan:
    """The Job that removes a backup, unless retention needs it.

    Arguments as of `backup_plan`.
    """
    kept = [other for other in others if other.metadata.uid != backup.metadata.uid]
    document = {**_document(cluster, settings, pods, kept), "backup_id": backup.status.backup_id}
    plan = _plan(cluster, settings, pods, cluster.names.expire_job(backup.metadata.uid), document)
    return dataclasses.replace(plan, subcommand="expire", deadline_seconds=_EXPIRE_DEADLINE_SECONDS)


def ready_instances(pods: Iterable[Pod]) -> Sequence[Pod]:
    """Pods of instances that take connections."""
    return [
        pod
        for pod in pods
        if CLUSTER_LABEL in pod.metadata.labels
        and pod.metadata.deletion_timestamp is None
        and is_true(pod.status.conditions, "Ready")
    ]


def primary_pod(pods: Iterable[Pod]) -> Pod | None:
    """The pod of the primary, by the label that the members write."""
    return next((pod for pod in pods if _is_primary(pod)), None)


def _plan(
    cluster: DeclaredCluster,
    settings: BackupSettings,
    pods: Sequence[Pod],
    key: ObjectKey,
    document: Mapping[str, object],
) -> JobPlan:
    primary = primary_pod(pods)
    return JobPlan(
        key=key,
        subcommand="backup",
        # The programs of both sides must have one version.
        image=cluster.image if primary is None else requested_image(primary),
        document=document,
        settings=settings.jobs,
        deadline_seconds=_DEADLINE_SECONDS,
    )


def verification_plan(
    cluster: DeclaredCluster,
    settings: BackupSettings,
    backup: Backup,
    pods: Sequence[Pod],
    key: ObjectKey,
    archived: str,
) -> JobPlan:
    """The Job that verifies a backup.

    Args:
        pods: of the cluster's instances that are ready.
        key: name of the Job.
        archived: the last WAL segment or the transactions that the primary reported as archived.
    """
    latest: Mapping[str, object] = {}
    declared = settings.verification
    storage = VerificationStorage() if declared is None else declared.storage
    size = temporary_volume_bytes(cluster, backup.status.size_bytes or 0)
    return temporary_data_plan(
        cluster,
        settings,
        pods,
        key,
        {
            "target": {"latest": latest},
            "backup_id": backup.status.backup_id,
            "archived": archived if len(archived) <= _MAX_ARCHIVED_LENGTH else "",
        },
        size=int(storage.size.value) if storage.size is not None else size,
        storage_class=storage.storage_class,
        resources=None if declared is None else declared.resources,
    )


def temporary_data_plan(
    cluster: DeclaredCluster,
    settings: BackupSettings,
    pods: Sequence[Pod],
    key: ObjectKey,
    fields: Mapping[str, object],
    *,
    size: int,
    storage_class: str | None,
    resources: ResourceRequirements | None,
) -> JobPlan:
    """The plan of a verification: it restores into a temporary volume.

    Args:
        pods: of the cluster's instances that are ready.
        key: name of the Job.
        fields: of the document, besides those of every recovery.
        size: of the volume in bytes.
        storage_class: defaults to that of the cluster.
        resources: defaults to those of a small server.
    """
    document: Mapping[str, object] = {
        "format": 1,
        "engine": cluster.engine,
        "version": _version(cluster, pods),
        "cluster_uid": cluster.uid,
        "processes": settings.jobs.processes,
        **fields,
        **data_parameters(cluster),
    }
    volume = _ephemeral_volume("data", size, storage_class or cluster.storage_class)
    return dataclasses.replace(
        _plan(cluster, settings, pods, key, document),
        subcommand="verify",
        component="verification",
        settings=msgspec.structs.replace(settings.jobs, resources=resources or _SERVER_RESOURCES),
        volumes=[volume],
        mounts={"data": _DATA_MOUNT},
    )


def temporary_volume_bytes(cluster: DeclaredCluster, backup_bytes: int) -> int:
    """Size for the data of a backup and for its WAL.

    Volumes may have grown since they were declared.
    """
    wal = 0 if cluster.wal_size is None else int(cluster.wal_size.value)
    return max(int(cluster.storage_size.value) + wal, _with_spare(backup_bytes) + _SPARE_BYTES)


def _with_spare(size: int) -> int:
    return size * 12 // 10


def _ephemeral_volume(name: str, size: int, storage_class: str | None) -> core.Volume:
    """Volume that is created and deleted with its pod."""
    claim = core.PersistentVolumeClaimTemplate(
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name=storage_class or UNSET,
            resources=core.VolumeResourceRequirements(requests={"storage": str(size)}),
        )
    )
    return core.Volume(name=name, ephemeral=core.EphemeralVolumeSource(volume_claim_template=claim))


def _with_work_volume(cluster: DeclaredCluster, plan: JobPlan) -> JobPlan:
    """Resources of a MySQL backup.

    It starts a copy of the data, which needs a volume and memory for a server.
    """
    volume = _ephemeral_volume("work", _with_spare(int(cluster.storage_size.value)), cluster.storage_class)
    settings = plan.settings
    if settings.resources is None:
        settings = msgspec.structs.replace(settings, resources=_SERVER_RESOURCES)
    return dataclasses.replace(
        plan,
        document={**plan.document, **data_parameters(cluster)},
        settings=settings,
        volumes=[volume],
        mounts={"work": _WORK_MOUNT},
    )


def _document(
    cluster: DeclaredCluster, settings: BackupSettings, pods: Sequence[Pod], others: Iterable[Backup]
) -> Mapping[str, object]:
    window = period(settings.retention.window)
    assert window is not None
    key = cluster.key
    return {
        "format": 1,
        "engine": cluster.engine,
        "version": _version(cluster, pods),
        "cluster": {"namespace": key.namespace, "name": key.name, "kind": cluster.kind, "uid": cluster.uid},
        "retention": {
            "window_seconds": int(window.total_seconds()),
            "minimum_full_backups": settings.retention.minimum_full_backups,
        },
        "retain_until": {
            other.status.backup_id: other.spec.retain_until.isoformat()
            for other in others
            if is_finished(other) and other.status.backup_id and other.spec.retain_until is not None
        },
    }


def _version(cluster: DeclaredCluster, pods: Sequence[Pod]) -> str:
    """Version of the data. Before a major upgrade it is not the declared one."""
    primary = primary_pod(pods)
    return cluster.version if primary is None else primary.metadata.labels.get(VERSION_LABEL, cluster.version)


def _members(cluster: DeclaredCluster, pods: Sequence[Pod], *, primary_first: bool) -> list[Mapping[str, object]]:
    """The instances in the order in which a program should try them."""
    ordered = sorted(pods, key=lambda pod: (_is_primary(pod) != primary_first, pod.metadata.name))
    return [_member(cluster, pod) for pod in ordered]


def _member(cluster: DeclaredCluster, pod: Pod) -> Mapping[str, object]:
    service = cluster.names.headless_service
    instance = pod.metadata.name.removesuffix("-0")
    # The servers' certificates are for names, not for addresses of pods.
    return {
        "instance": instance,
        "ordinal": cluster.names.ordinal(instance),
        "address": f"{pod.metadata.name}.{service.name}.{service.namespace}.svc.{cluster.cluster_domain}",
        "role": "Primary" if _is_primary(pod) else "Replica",
    }


def _is_primary(pod: Pod) -> bool:
    return pod.metadata.labels.get(ROLE_LABEL) == "primary"
