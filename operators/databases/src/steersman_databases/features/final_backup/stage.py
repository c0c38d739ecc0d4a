"""Final backup of a deleted cluster, from the stopped primary's volume.

The ``Backup`` object records what was found before the servers stopped, and how the Job ended. StatefulSets and
volumes go only after it is completed. Everything is derived from both, so an interruption at any API call is
harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Namespace, PersistentVolumeClaim, Secret
from steersman.controller import Builder
from steersman.errors import AlreadyExists
from steersman.meta import Object, ObjectKey, find_condition
from steersman_databases.api import Backup, Cluster
from steersman_databases.api.backups.backup_common import (
    ARCHIVE_PATH_ANNOTATION,
    BackupSettings,
    StoreReference,
    is_final_backup_skipped,
)
from steersman_databases.cluster.declared import engine_of
from steersman_databases.cluster.state import MAJOR_LABEL, ClusterState, ordinal_of, requested_image
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import DatabaseOutcome, truncated
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.errors import UnsupportedVersion
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.versions import image
from steersman_databases.features.backup.archive_objects import ArchiveLocation, ArchiveObjects
from steersman_databases.features.backup.catalog import backup_from
from steersman_databases.features.backup.declared_backups import cluster_kind
from steersman_databases.features.backup.instance_jobs import JobObservation, create_job, instance_job, observe_job
from steersman_databases.features.backup.model import is_finished, status_from
from steersman_databases.features.backup.progress import COMPLETE, Progress, with_progress
from steersman_databases.features.backup.specs import JobResult
from steersman_databases.features.backup_store.access import StoreProblem
from steersman_databases.features.backup_store.layout import archive_path
from steersman_databases.features.backup_store.model import find_store, store_document
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.features.final_backup import model
from steersman_databases.features.final_backup.specs import final_backup_plan
from steersman_databases.features.storage.stage import VolumeReconciler

T = TypeVar("T", bound=Object)
_FAILED = "FinalBackupFailed"


@dataclass(frozen=True, slots=True)
class FinalBackup:
    """Takes the final backup of one cluster.

    Args:
        secrets: reads the Secrets of object stores.
        served: a server of this cluster has run.
    """

    context: ClusterContext
    cluster: Cluster
    engine: ClusterEngine
    secrets: SecretReader
    served: bool

    async def decide(self, pvcs: Sequence[PersistentVolumeClaim]) -> model.Decision:
        """Decide whether a final backup is still to be taken.

        Args:
            pvcs: of the cluster, all that exist.
        """
        retained = VolumeReconciler(self.context).retained(pvcs)
        if not model.is_enabled(self.cluster) or not model.has_data(pvcs, served=self.served, retained=retained):
            return "NotNeeded"
        if await self._is_namespace_deleted():
            return "NamespaceDeleted"
        backup = await self._backup()
        if backup is not None and backup.status.phase == "Completed":
            return "Completed"
        if is_final_backup_skipped(self.cluster):
            return "Skipped"
        if model.has_timed_out(self.cluster, self.context.clock.now()):
            job = await get_live(self.context.client, Job, self._job_key)
            if job is None or not (await observe_job(self.context, job)).runs:
                return "Skipped"
        return "Due"

    async def record(self, state: ClusterState, pvcs: Sequence[PersistentVolumeClaim]) -> Backup:
        """Create the ``Backup``, and record the primary while it is known."""
        backup = await self._backup() or await self._create_backup()
        recorded = None if backup.status.instance is None else self._names.ordinal(backup.status.instance)
        ordinal = model.last_primary(state, recorded, pvcs)
        if backup.status.phase is not None and ordinal == recorded:
            return backup
        progress = Progress("Pending", "Waiting", "waiting for the servers to stop")
        fields = dict[str, object](
            engine=engine_of(type(self.cluster)),
            instance=None if ordinal is None else self._names.instance(ordinal),
            store=self._store_reference,
            path=self._path(pvcs),
            version=_version(pvcs, ordinal),
        )
        return await self._report(backup, progress, **fields)

    async def take(
        self, state: ClusterState, pvcs: Sequence[PersistentVolumeClaim], backup: Backup
    ) -> DatabaseOutcome | None:
        """Advance the backup by one step, without a running server.

        None once it is completed.
        """
        ordinal = None if backup.status.instance is None else self._names.ordinal(backup.status.instance)
        pvc = next((p for p in model.data_pvcs(pvcs) if ordinal_of(p) == ordinal), None)
        if ordinal is None or pvc is None or pvc.metadata.deletion_timestamp is not None:
            return _failed(f"the volume of the last primary {backup.status.instance or ''} no longer exists")
        if (upgrade := await self._stop_upgrade()) is not None:
            return upgrade
        job = await get_cached_or_live(self.context.client, Job, self._job_key)
        if job is None:
            return await self._start(state, pvcs, backup, ordinal)
        self.context.require_controlled(job)
        if job.metadata.deletion_timestamp is not None or ordinal_of(job) != ordinal:
            await self._delete_job(job)
            return _waiting(f"waiting for Job {job.key.name} to be deleted")
        observed = await observe_job(self.context, job)
        if observed.state == "Complete":
            return await self._complete(job, observed.result, backup)
        if observed.state == "Failed":
            return await self._retry(job, observed.result, backup)
        return self._running(job, observed, backup)

    async def clean_up(self) -> DatabaseOutcome | None:
        """Delete the Job, whose pod uses the volume. None once it does not exist."""
        backup = await self._backup()
        if backup is not None and not is_finished(backup):
            await self._report(backup, Progress("Failed", "Skipped", "the deletion continued without this backup"))
        job = await get_live(self.context.client, Job, self._job_key)
        if job is None or not self.context.controls(job):
            return None
        await self._delete_job(job)
        return _waiting(f"waiting for Job {job.key.name} to be deleted")

    async def _start(
        self, state: ClusterState, pvcs: Sequence[PersistentVolumeClaim], backup: Backup, ordinal: int
    ) -> DatabaseOutcome:
        settings = self._settings
        try:
            location = await self._ensure_store(settings, pvcs)
        except StoreProblem as problem:
            return _failed(str(problem))
        instance = state.instance(ordinal)
        stateful = None if instance is None else instance.statefulset
        used = (stateful and requested_image(stateful.spec.template)) or self._default_image(backup)
        if used is None:
            return _failed(f"no image exists for version {backup.status.version or ''}. Set spec.image")
        plan = final_backup_plan(self.context.declared, settings, backup, used, location.uid)
        parts = self.engine.pod_contribution(self.context.declared, ordinal, fenced=True)
        await create_job(self.context, plan, instance_job(self.context.declared, plan, ordinal, parts))
        return _waiting(f"Job {plan.key.name} takes the final backup")

    async def _ensure_store(self, settings: BackupSettings, pvcs: Sequence[PersistentVolumeClaim]) -> ArchiveLocation:
        """Update the Secret of the store.

        Credentials may be corrected while the deletion waits.

        Raises:
            StoreProblem: the store cannot be used, and no Secret from before exists.
        """
        objects = ArchiveObjects(self.context, [p for p in pvcs if p.metadata.deletion_timestamp is None])
        location = await objects.ensure_location()
        try:
            store = await find_store(self.context.client, settings.store_ref, self.context.declared.key.namespace)
            document = await store_document(
                self.secrets,
                store,
                engine=engine_of(type(self.cluster)),
                path=location.path,
                cluster_uid=location.uid,
                archive=settings.archive,
            )
        except StoreProblem:
            if not await objects.present_store():
                raise
            return location
        await objects.ensure_store(document)
        return location

    async def _complete(self, job: Job, result: JobResult | None, backup: Backup) -> DatabaseOutcome | None:
        found = None if result is None else backup_from(result.document.get("backup"))
        if found is None:
            # The report is lost with the pod. The program returns a complete backup again and does not repeat it.
            await self._delete_job(job)
            return _waiting(f"the report of Job {job.key.name} is lost; the Job runs again")
        progress = Progress("Completed", "Completed", "the backup is complete")
        await self._report(backup, progress, **status_from(found, backup.status))
        name = backup.metadata.name
        self.context.events.normal(self.cluster, "FinalBackupCompleted", f"the final backup is Backup {name}")
        return None

    async def _retry(self, job: Job, result: JobResult | None, backup: Backup) -> DatabaseOutcome:
        message = _message(job, result)
        if backup.status.message != truncated(message):
            await self._report(backup, Progress("Pending", _FAILED, message))
        if model.is_due_again(job, self.context.clock.now()):
            await self._delete_job(job)
        return _failed(message)

    def _running(self, job: Job, observed: JobObservation, backup: Backup) -> DatabaseOutcome:
        if observed.problem is not None:
            return _failed(f"Job {job.key.name} does not run: {observed.problem.message}")
        reported = find_condition(backup.status.conditions, COMPLETE)
        if reported is not None and reported.reason == _FAILED:
            return _failed(f"{backup.status.message}; Job {job.key.name} tries again")
        return _waiting(f"Job {job.key.name} takes the final backup")

    async def _report(self, backup: Backup, progress: Progress, **fields: object) -> Backup:
        status = with_progress(backup, progress, self.context.clock.now(), **fields)
        return await self.context.client.apply_status(backup, status)

    async def _stop_upgrade(self) -> DatabaseOutcome | None:
        """Wait until no Job of a major upgrade writes to the volume."""
        job = await get_cached_or_live(self.context.client, Job, self._names.upgrade_job)
        if job is None or not self.context.controls(job):
            return None
        await self._delete_job(job)
        return _waiting(f"waiting for Job {job.key.name} to be deleted")

    async def _delete_job(self, job: Job) -> None:
        if job.metadata.deletion_timestamp is None:
            # With its pods: two must not write to the volume at once.
            await self.context.delete(Job, job, propagation="Foreground")

    async def _is_namespace_deleted(self) -> bool:
        namespace = await get_live(self.context.client, Namespace, ObjectKey("", self.context.declared.key.namespace))
        return namespace is not None and namespace.metadata.deletion_timestamp is not None

    async def _backup(self) -> Backup | None:
        key = ObjectKey(self.context.declared.key.namespace, model.backup_name(self.cluster))
        return await get_live(self.context.client, Backup, key)

    async def _create_backup(self) -> Backup:
        now, kind = self.context.clock.now(), cluster_kind(self.cluster)
        backup = model.final_backup(self.cluster, kind, self._settings, now)
        try:
            return await self.context.client.create(backup)
        except AlreadyExists:
            return await self.context.client.live.get(Backup, backup.key)

    def _path(self, pvcs: Sequence[PersistentVolumeClaim]) -> str:
        paths = (pvc.metadata.annotations.get(ARCHIVE_PATH_ANNOTATION) for pvc in model.data_pvcs(pvcs))
        declared = self.context.declared
        return next(filter(None, paths), archive_path(declared.kind, declared.key, declared.uid))

    def _default_image(self, backup: Backup) -> str | None:
        try:
            return self.cluster.spec.image or image(self.engine.name, backup.status.version or "")
        except UnsupportedVersion:
            return None

    @property
    def _settings(self) -> BackupSettings:
        assert self.cluster.spec.backup is not None
        return self.cluster.spec.backup

    @property
    def _store_reference(self) -> StoreReference:
        reference = self._settings.store_ref
        return StoreReference(
            name=reference.name, namespace=reference.namespace or self.context.declared.key.namespace
        )

    @property
    def _names(self) -> ClusterNames:
        return self.context.declared.names

    @property
    def _job_key(self) -> ObjectKey:
        return self._names.final_backup_job


def _version(pvcs: Sequence[PersistentVolumeClaim], ordinal: int | None) -> str | None:
    pvc = next((p for p in model.data_pvcs(pvcs) if ordinal_of(p) == ordinal), None)
    return None if pvc is None else pvc.metadata.labels.get(MAJOR_LABEL)


def _message(job: Job, result: JobResult | None) -> str:
    """The sentence of a program that failed."""
    if result is None or not result.message:
        return f"Job {job.key.name} failed without a report. Read the logs of its pods"
    return f"{result.reason}: {result.message}" if result.reason else result.message


def _waiting(message: str) -> DatabaseOutcome:
    return DatabaseOutcome(phase="Deleting", reason="Deleting", message=message, retry_after=2.0)


def _failed(message: str) -> DatabaseOutcome:
    return DatabaseOutcome(
        phase="Deleting", reason=_FAILED, message=f"the final backup is not possible: {message}", retry_after=10.0
    )


def permit(builder: Builder[T]) -> Builder[T]:
    """Declare what the stage does at the API server."""
    return (
        builder.owns(Job)
        .needs(Job, "delete")
        .needs(Backup, "get", "create", "patch")
        .needs(Backup, "patch", subresource="status")
        .needs(Namespace, "get")
        .needs(ConfigMap, "create", "patch")
        .needs(Secret, "get", "create", "patch")
        .needs(PersistentVolumeClaim, "patch")
    )
