"""Recovery of a new cluster's first volume by a Job.

It runs before any server starts. The PVC is created with the label ``awaiting-recovery``, and no server starts on
it. The Job fills the volume. One write then removes the label, and from there on the data are like retained data.
Everything is derived from PVC and Job, so an interruption at any API call is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.controller import Builder
from steersman.meta import Object
from steersman_databases.api import Backup, BackupStore, Cluster
from steersman_databases.api.backups.backup_common import RecoverySettings
from steersman_databases.api.group import GROUP
from steersman_databases.cluster.actions import Action, Wait
from steersman_databases.cluster.declared import engine_of, recovery_of
from steersman_databases.cluster.state import AWAITING_RECOVERY, ClusterState, Instance, awaits_recovery
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.features.backup.instance_jobs import JobObservation, create_job, instance_job, observe_job
from steersman_databases.features.backup.specs import JobResult
from steersman_databases.features.backup_store.access import StoreProblem
from steersman_databases.features.backup_store.model import store_document
from steersman_databases.features.backup_store.pod_identity import require_same_identity
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.features.recovery.source import SourceUnavailable, resolve_source
from steersman_databases.features.recovery.specs import recovery_plan, source_secret
from steersman_databases.features.storage.stage import VolumeReconciler

T = TypeVar("T", bound=Object)

CONDITION = "Recovered"
RECOVERED_ANNOTATION = f"{GROUP}/recovered"
"""Annotation of a recovered PVC: the Job's report, in JSON."""
_MAX_ANNOTATION_BYTES = 2048


class RecoveryStage:
    """Recovery of one cluster, if declared and no server has run.

    Args:
        secrets: reads the Secrets of object stores.
    """

    def __init__(
        self, context: ClusterContext, cluster: Cluster, engine: ClusterEngine, secrets: SecretReader
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._engine = engine
        self._secrets = secrets
        self._names = context.declared.names

    async def ensure(
        self, state: ClusterState, conditions: ConditionSet, planned: Action | Wait | None
    ) -> Action | Wait | None:
        """Advance the recovery by one step.

        Args:
            planned: the next action of the cluster, which waits while a volume awaits its recovery.
        """
        settings, instance = recovery_of(self._cluster), next(filter(awaits_recovery, state.instances), None)
        if instance is None:
            if settings is not None:
                await self._finish(state, conditions)
            return planned
        if settings is None:
            return self._fail(conditions, "RecoveryFailed", "spec.bootstrap.recovery was removed")
        job = await get_cached_or_live(self._context.client, Job, self._names.recovery_job)
        if job is None:
            return await self._start(settings, instance, conditions)
        job = await self._context.require_control(Job, job)
        return await self._advance(job, instance, conditions)

    async def _start(self, settings: RecoverySettings, instance: Instance, conditions: ConditionSet) -> Wait:
        declared = self._context.declared
        if await VolumeReconciler(self._context).create(instance.ordinal):
            return self._wait(conditions, "Recovering", "waiting for the volumes")
        try:
            source = await resolve_source(self._context.client, self._cluster, settings)
            document = await store_document(
                self._secrets,
                source.store,
                engine=engine_of(type(self._cluster)),
                path=source.path,
                cluster_uid="",
            )
            require_same_identity(declared, document)
        except (SourceUnavailable, StoreProblem) as unavailable:
            return self._fail(conditions, unavailable.reason, str(unavailable))
        plan = recovery_plan(declared, settings, self._cluster.spec.backup, source)
        # In the status before it is tried: the API server may refuse the Job.
        wait = self._wait(conditions, "Recovering", f"Job {plan.key.name} recovers the data from {source.path}")
        await self._context.apply(Secret, source_secret(declared, document))
        parts = self._engine.pod_contribution(declared, instance.ordinal, fenced=True)
        await create_job(self._context, plan, instance_job(declared, plan, instance.ordinal, parts))
        return wait

    async def _advance(self, job: Job, instance: Instance, conditions: ConditionSet) -> Wait:
        name, observed = job.key.name, await observe_job(self._context, job)
        if observed.state == "Complete":
            return await self._commit(instance, observed.result, conditions)
        if observed.state == "Failed":
            return self._fail(conditions, "RecoveryFailed", f"Job {name}: {_message(observed.result)}")
        return self._running(name, observed, conditions)

    def _running(self, name: str, observed: JobObservation, conditions: ConditionSet) -> Wait:
        message = f"Job {name} recovers the data"
        if (problem := observed.problem) is not None:
            conditions.set(CONDITION, None, problem.reason, f"{message}: {problem.message}")
            return Wait(problem.reason, f"{message}: {problem.message}")
        if observed.result is not None and not observed.result.ok:
            message += f"; the last attempt failed: {_message(observed.result)}"
        return self._wait(conditions, "Recovering", message)

    async def _commit(self, instance: Instance, result: JobResult | None, conditions: ConditionSet) -> Wait:
        """Hand the volume over to the servers. After this write nothing leads back to the recovery."""
        assert instance.data is not None
        recovered = _recovered(result)
        metadata = {
            "labels": {AWAITING_RECOVERY: None},
            "annotations": {RECOVERED_ANNOTATION: msgspec.json.encode(recovered).decode()[:_MAX_ANNOTATION_BYTES]},
            "resourceVersion": instance.data.metadata.resource_version,
        }
        patch = MergePatch({"metadata": metadata})
        await self._context.client.patch(PersistentVolumeClaim, instance.data.key, patch)
        conditions.set(CONDITION, True, "RecoveryCompleted", _summary(recovered))
        return Wait("Recovering", "the data are recovered")

    async def _finish(self, state: ClusterState, conditions: ConditionSet) -> None:
        """Report the recovery of a volume, and delete the Job's objects."""
        annotations = (i.data.metadata.annotations for i in state.instances if i.data is not None)
        recovered = next((a[RECOVERED_ANNOTATION] for a in annotations if RECOVERED_ANNOTATION in a), None)
        if recovered is None:
            return
        conditions.set(CONDITION, True, "RecoveryCompleted", _summary(_decoded(recovered)))
        key = self._names.recovery_job
        await self._context.delete_if_controlled(Job, key)
        await self._context.delete_if_controlled(ConfigMap, key)
        await self._context.delete_if_controlled(Secret, key)

    def _wait(self, conditions: ConditionSet, reason: str, message: str) -> Wait:
        conditions.set(CONDITION, None, reason, message)
        return Wait("Recovering", message)

    def _fail(self, conditions: ConditionSet, reason: str, message: str) -> Wait:
        conditions.set(CONDITION, False, reason, message)
        return Wait("RecoveryFailed", message)


def _message(result: JobResult | None) -> str:
    """The sentence of a program that failed."""
    if result is None or not result.message:
        return "the Job failed without a report. Read the logs of its pods"
    return f"{result.reason}: {result.message}" if result.reason else result.message


def _recovered(result: JobResult | None) -> Mapping[str, object]:
    found = None if result is None else result.document.get("recovery")
    known: Mapping[str, object] = cast("Mapping[str, object]", found) if isinstance(found, dict) else {}
    return {key: value for key in ("backup", "recoveredTo", "timeline", "path") if (value := known.get(key))}


def _decoded(text: str) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _summary(recovered: Mapping[str, object]) -> str:
    moment = f" as of {recovered['recoveredTo']}" if "recoveredTo" in recovered else ""
    backup = f" from backup {recovered['backup']}" if "backup" in recovered else ""
    return f"the data were recovered{backup}{moment}"


def permit(builder: Builder[T]) -> Builder[T]:
    """Declare what the stage does at the API server."""
    return (
        builder.owns(Job)
        .needs(Job, "delete")
        .needs(ConfigMap, "create", "patch", "delete")
        .needs(Secret, "get", "create", "patch", "delete")
        .needs(Backup, "get")
        .needs(BackupStore, "get")
    )
