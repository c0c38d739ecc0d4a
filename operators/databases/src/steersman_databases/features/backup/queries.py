"""Reads and writes of the controller and the finalizer of ``Backup``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steersman.api.apply import batch, core
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.cache import CachedClient
from steersman.errors import AlreadyExists
from steersman.meta import Object, ObjectKey
from steersman_databases.api import CLUSTER_KINDS, Backup, Cluster, Database
from steersman_databases.api.backups.backup_common import StoreReference
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.status.pod_problems import problem_of
from steersman_databases.cluster.status.pod_rejections import find_pod_rejection
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.backup.specs import (
    Component,
    JobPlan,
    config_map_of,
    job_config_map,
    job_labels,
    job_state,
    program_job,
)
from steersman_databases.features.backup_store.pod_identity import with_present_identity

BACKUP_INDEX = "cluster"
"""The index of ``Backup`` objects by their cluster or Database, see `cluster_index`."""


def cluster_index(kind: str, key: ObjectKey) -> str:
    """The value of `BACKUP_INDEX` for a cluster."""
    return f"{kind}/{key}"


def index_backup(backup: Backup) -> tuple[str, ...]:
    """The values of `BACKUP_INDEX` of an object."""
    return (cluster_index(backup.source_kind, cluster_key(backup)),)


def cluster_key(backup: Backup) -> ObjectKey:
    """Namespace and name of the cluster or Database of a backup."""
    return ObjectKey(backup.metadata.namespace, backup.source_name)


def kind_of(backup: Backup) -> type[Cluster]:
    """Kind of the cluster of a backup."""
    return next(kind for kind in CLUSTER_KINDS if kind.api_resource.kind == backup.source_kind)


async def source_of(client: CachedClient, backup: Backup) -> Cluster | Database | None:
    """The cluster or Database of a backup."""
    if backup.spec.cluster_ref is None:
        return await client.get_or_none(Database, cluster_key(backup))
    return await client.get_or_none(kind_of(backup), cluster_key(backup))


def store_of(cluster: Cluster | Database | None) -> StoreReference | None:
    """The ``BackupStore`` of a cluster or Database, its namespace filled in. None without ``spec.backup``."""
    if cluster is None or cluster.spec.backup is None:
        return None
    reference = cluster.spec.backup.store_ref
    return StoreReference(name=reference.name, namespace=reference.namespace or cluster.metadata.namespace)


def controls(owner: Object, obj: Object) -> bool:
    """Return True if ``owner`` is the controller of ``obj``."""
    reference = obj.controller_reference
    return reference is not None and reference.uid == owner.metadata.uid


async def backups_of(client: CachedClient, backup: Backup) -> Sequence[Backup]:
    """All backups of the cluster of ``backup``, itself included."""
    value = cluster_index(backup.source_kind, cluster_key(backup))
    return await client.list(Backup, index=(BACKUP_INDEX, value))


async def pods_of(client: CachedClient, job: Job, cluster: ObjectKey) -> Sequence[Pod]:
    """Pods of a Job of the cluster."""
    found = await client.list(Pod, index=(CLUSTER_INDEX, str(cluster)))
    return [pod for pod in found if controls(job, pod)]


async def job_problem(client: CachedClient, job: Job, pods: Sequence[Pod]) -> str:
    """Return why a user must act to run a Job's pod, or ""."""
    if problem := next((found for pod in pods if (found := problem_of(pod))), None):
        return problem.message
    if pods:
        return ""
    rejection = await find_pod_rejection(client.live, job)
    return "" if rejection is None else rejection.problem.message


async def running_job(
    client: CachedClient, declared: DeclaredCluster, components: Iterable[Component], but: ObjectKey | None = None
) -> str:
    """Name of a running Job of the cluster, or "".

    Args:
        components: of the Job.
        but: key of a Job that does not count.
    """
    for component in components:
        if running := await _running_with(client, declared.key.namespace, job_labels(declared, component), but):
            return running
    return ""


async def _running_with(
    client: CachedClient, namespace: str, labels: Mapping[str, str], but: ObjectKey | None
) -> str:
    """Name of a running Job with these labels, or ""."""
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    # The cache may not show a Job that was created a moment ago.
    jobs = await client.live.list(Job, namespace=namespace, label_selector=selector)
    return next((j.metadata.name for j in jobs.items if job_state(j) == "Running" and j.key != but), "")


async def start_job(
    client: CachedClient,
    owner: Object,
    declared: DeclaredCluster,
    plan: JobPlan,
    excluded: Iterable[Component] = ("backup",),
) -> str:
    """Create the Job of a plan, unless another one runs.

    It is not called twice at once for a kind of objects: no other Job may be created between check and creation.

    Args:
        excluded: components of Jobs that must not run at the same time.

    Returns:
        Why the Job was not created. Empty if it was.
    """
    if running := await running_job(client, declared, excluded, plan.key):
        return f"Job {running} runs first"
    declared = await with_present_identity(client, declared)
    return await _create_job(client, owner, plan, program_job(declared, plan), job_config_map(declared, plan))


async def start_dump_job(
    client: CachedClient, owner: Backup, plan: JobPlan, job: batch.Job, labels: Mapping[str, str]
) -> str:
    """Create the Job of a dump, unless one with these labels runs. As `start_job`.

    Args:
        labels: of the Jobs that exclude each other, and of the ConfigMap.
    """
    if running := await _running_with(client, plan.key.namespace, labels, plan.key):
        return f"Job {running} runs first"
    return await _create_job(client, owner, plan, job, config_map_of(plan, labels))


async def _create_job(
    client: CachedClient, owner: Object, plan: JobPlan, job: batch.Job, config: core.ConfigMap
) -> str:
    present = await get_cached_or_live(client, ConfigMap, plan.key)
    if present is not None and not controls(owner, present):
        return f"ConfigMap {plan.key.name} belongs to another object. Delete or rename it"
    await client.apply(config, owner=owner)
    try:
        # Jobs are immutable: this one is created, not applied.
        await client.create(job, owner=owner)
    except AlreadyExists:
        found = await client.live.get(Job, plan.key)
        if not controls(owner, found):
            return f"Job {plan.key.name} belongs to another object. Delete or rename it"
    return ""
