"""Restore of a whole cluster in place.

A Job restores into the volume of a new instance while the cluster serves. An undo takes the kept volume of the
previous primary instead. Then all instances stop, the primary last, and one write to the PVC of the new instance
makes its data those of the cluster. Before this write the previous instances start again, after it only the new one
does. Everything is derived from PVCs, the Job and the `Restore`, so that an interruption at any API call is
harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from steersman.api.apps_v1 import StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod
from steersman.client import MergePatch
from steersman.controller import Builder
from steersman.meta import Object
from steersman_databases.api import Cluster, Restore
from steersman_databases.cluster import planner
from steersman_databases.cluster.actions import Action, Wait
from steersman_databases.cluster.state import (
    MAJOR_LABEL,
    ClusterState,
    Instance,
    has_data,
    is_lost,
    is_retired,
    ordinal_of,
)
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.labels import belongs_to, cluster_selector
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.members import HaBackend
from steersman_databases.engines.naming import INSTANCE_LABEL
from steersman_databases.features.backup.instance_jobs import create_job, instance_job
from steersman_databases.features.backup.specs import job_state
from steersman_databases.features.restore_in_place import model
from steersman_databases.features.restore_in_place.overwrite import Overwrite
from steersman_databases.features.restore_in_place.specs import in_place_plan
from steersman_databases.features.restore_in_place.volumes import LineageVolumes
from steersman_databases.features.storage.specs import RESTORED_BY, RestoredVolume
from steersman_databases.features.storage.stage import VolumeReconciler

T = TypeVar("T", bound=Object)

_LOGS_SECONDS = 600
"""Time that the pods of a failed Job stay for their logs."""


@dataclass(frozen=True, slots=True)
class RestoreInPlace:
    """Carries out the confirmed restore of one cluster."""

    context: ClusterContext
    cluster: Cluster
    engine: ClusterEngine
    ha_backend: HaBackend

    async def resume(
        self, state: ClusterState, pvcs: Sequence[PersistentVolumeClaim], conditions: ConditionSet
    ) -> Action | Wait | None:
        """Return the next step of a restore, or None.

        Args:
            pvcs: of the cluster, including kept ones.
        """
        if state.lineage != state.members.lineage:
            return await self._begin(state, conditions)
        restore = await self._active()
        overwritten = next((i for i in state.instances if i.overwriting), None)
        # Another restore replaces one that cannot be completed.
        if overwritten is not None and (restore is None or _uid(restore) == overwritten.overwriting):
            filling = await self._find(overwritten.overwriting)
            return await Overwrite(self.context, self.cluster, self.engine).advance(overwritten, filling, conditions)
        if state.lineage:
            self._report_start(state, conditions)
            await self._delete_jobs(state)
        for volume in state.restoring:
            if restore is None or volume.restoring != restore.metadata.uid:
                await self._discard(volume)
        if restore is None or _is_done(state, restore):
            return None
        if model.overwrites(restore):
            return await self._overwrite(state, restore, conditions)
        volume = next((each for each in state.restoring if each.restoring == restore.metadata.uid), None)
        if restore.spec.undo is not None:
            return await self._undo(state, volume, restore, pvcs, conditions)
        key = self.context.declared.names.restore_job(_uid(restore))
        job = await get_cached_or_live(self.context.client, Job, key)
        if volume is not None and job is not None and self.context.controls(job) and job_state(job) == "Complete":
            return await self._cut(state, volume, restore, conditions)
        if job is None:
            # The cluster serves meanwhile, so a refused object must not stop it.
            with self.context.deferred:
                await self._prepare(state, volume, restore)
        return None

    async def _active(self) -> Restore | None:
        restores = await self.context.client.list(Restore, namespace=self.context.declared.key.namespace)
        return model.active(r for r in restores if self._is_target(r))

    async def _find(self, uid: str) -> Restore | None:
        restores = await self.context.client.list(Restore, namespace=self.context.declared.key.namespace)
        return next((r for r in restores if r.metadata.uid == uid), None)

    def _is_target(self, restore: Restore) -> bool:
        reference, declared = restore.spec.cluster_ref, self.context.declared
        return (reference.kind, reference.name) == (declared.kind, declared.key.name)

    async def _prepare(self, state: ClusterState, volume: Instance | None, restore: Restore) -> None:
        """Create the volume of a new instance, then its Job."""
        settings, plan = self.cluster.spec.backup, restore.status.plan
        if settings is None or plan is None:
            return
        ordinal = state.next_ordinal if volume is None else volume.ordinal
        restored = RestoredVolume(_uid(restore), model.kept_for(restore))
        if await VolumeReconciler(self.context).create(ordinal, restored=restored) or volume is None:
            return
        declared = self.context.declared
        number = None
        if plan.newest_timeline is not None:
            number = await self.ha_backend.reserve_timeline(state.members, plan.newest_timeline)
        job_plan = in_place_plan(declared, settings, restore, number)
        parts = self.engine.pod_contribution(declared, ordinal, fenced=True)
        await create_job(self.context, job_plan, instance_job(declared, job_plan, ordinal, parts))

    async def _undo(
        self,
        state: ClusterState,
        volume: Instance | None,
        restore: Restore,
        pvcs: Sequence[PersistentVolumeClaim],
        conditions: ConditionSet,
    ) -> Action | Wait | None:
        """Mark the kept volumes of the previous primary as restored, then cut."""
        plan = restore.status.plan
        data = next((pvc for pvc in pvcs if plan is not None and pvc.metadata.name == plan.volume), None)
        if data is None or (ordinal := ordinal_of(data)) is None or state.instance(ordinal) is not None:
            return None
        version = self.context.declared.version
        if data.metadata.labels.get(MAJOR_LABEL, version) != version:
            return None
        if kept := [pvc for pvc in pvcs if ordinal_of(pvc) == ordinal and is_retired(pvc)]:
            restored = RestoredVolume(_uid(restore), model.kept_for(restore))
            await LineageVolumes(self.context).reuse_kept(kept, restored)
            return None
        return None if volume is None else await self._cut(state, volume, restore, conditions)

    async def _overwrite(
        self, state: ClusterState, restore: Restore, conditions: ConditionSet
    ) -> Action | Wait | None:
        """Stop all instances, then give up their data. The volume of the primary receives the restored ones."""
        usable = [i for i in state.instances if i.lineage == state.lineage and has_data(i) and not is_lost(i)]
        instance = next((i for i in usable if i.ordinal == state.members.last_leader), usable[0] if usable else None)
        if instance is None or model.has_timed_out(restore, self.context.clock.now()):
            return None
        step = await self._stop(state, conditions)
        if step is not None or not await self._is_still_active(restore):
            return step
        plan, number = restore.status.plan, None
        if plan is not None and plan.newest_timeline is not None:
            number = await self.ha_backend.reserve_timeline(state.members, plan.newest_timeline)
        restored = RestoredVolume(_uid(restore), model.kept_for(restore))
        volumes = LineageVolumes(self.context)
        await volumes.begin_overwriting(instance, state.lineage + 1, restored, number)
        name = self.context.declared.names.data_pvc(instance.ordinal).name
        message = f"the data of Restore {restore.metadata.name} replace the previous ones on PVC {name}"
        self.context.events.normal(self.context.cluster, "Restored", message)
        return Wait("Restoring", message)

    async def _stop(self, state: ClusterState, conditions: ConditionSet) -> Action | Wait | None:
        """Stop all instances, the primary last. None if no server can run."""
        if state.primary is None or all(i.pod is None for i in state.replicas()):
            conditions.set("Available", False, "Restoring", "the data are restored")
        step = planner.stop_all(self.context.declared, state, "Restoring")
        if step is not None:
            return step
        remaining = await self._running()
        return Wait("Restoring", f"waiting for {', '.join(remaining)} to stop") if remaining else None

    async def _is_still_active(self, restore: Restore) -> bool:
        """Return False if it was withdrawn. The previous primary starts again then."""
        present = await get_live(self.context.client, Restore, restore.key)
        return present is not None and present.metadata.uid == restore.metadata.uid and model.is_active(present)

    async def _cut(
        self, state: ClusterState, volume: Instance, restore: Restore, conditions: ConditionSet
    ) -> Action | Wait | None:
        """Stop all instances, then let the restored data count."""
        volumes = LineageVolumes(self.context)
        await volumes.record_replaced_primary(volume, state)
        step = await self._stop(state, conditions)
        if step is not None or not await self._is_still_active(restore):
            return step
        await volumes.begin_lineage(volume, state.lineage + 1)
        name = self.context.declared.names.instance(volume.ordinal)
        message = f"the data of Restore {restore.metadata.name} replace the previous ones. Instance {name} starts"
        self.context.events.normal(self.context.cluster, "Restored", message)
        return Wait("Restoring", message)

    async def _running(self) -> Sequence[str]:
        """Return the pods and StatefulSets that may still run servers.

        The cache may lag behind.
        """
        namespace, live = self.context.declared.key.namespace, self.context.client.live
        selector = ",".join(f"{k}={v}" for k, v in cluster_selector(self.context.declared).items())
        pods = await live.list(Pod, namespace=namespace, label_selector=f"{selector},{INSTANCE_LABEL}")
        sets = await live.list(StatefulSet, namespace=namespace, label_selector=f"{selector},{INSTANCE_LABEL}")
        return [
            *(p.metadata.name for p in pods.items if belongs_to(p, self.context.declared)),
            *(s.metadata.name for s in sets.items if belongs_to(s, self.context.declared) and _may_start(s)),
        ]

    async def _begin(self, state: ClusterState, conditions: ConditionSet) -> Wait | None:
        """Let the members forget the previous data, before they start."""
        if state.primary is not None and state.primary.lineage == state.lineage and not state.primary.overwriting:
            # Only the record is missing.
            await self.ha_backend.record_lineage(state.members, state.lineage)
            return None
        if running := [i.pod.metadata.name for i in state.instances if i.pod is not None]:
            return Wait("Restoring", f"waiting for {', '.join(running)} to stop")
        conditions.set("Available", False, "Restoring", "the data are restored")
        await self.ha_backend.begin_lineage(state.members, state.lineage)
        return Wait("Restoring", "the restored data are served next")

    def _report_start(self, state: ClusterState, conditions: ConditionSet) -> None:
        _, replaced = model.split_by_lineage(state)
        if replaced and state.primary is None and not self.context.declared.hibernated:
            conditions.set("Available", False, "Restoring", "the restored data are served next")

    async def _discard(self, volume: Instance) -> None:
        """Discard the volume of a failed or withdrawn restore."""
        await self._delete_job(volume.restoring)
        await LineageVolumes(self.context).discard_unrestored(volume)

    async def _delete_jobs(self, state: ClusterState) -> None:
        """Delete the Jobs of restores that are complete."""
        for instance in state.instances:
            if instance.data is not None and (uid := instance.data.metadata.annotations.get(RESTORED_BY)):
                await self._delete_job(uid)

    async def _delete_job(self, restore_uid: str) -> None:
        """Delete a Job and its ConfigMap. A failed Job stays for its logs."""
        key = self.context.declared.names.restore_job(restore_uid)
        job = await self.context.client.get_or_none(Job, key)
        if job is not None and self.context.controls(job) and job_state(job) == "Failed":
            if job.spec.ttl_seconds_after_finished is None:
                patch = MergePatch({"spec": {"ttlSecondsAfterFinished": _LOGS_SECONDS}})
                await self.context.client.patch(Job, key, patch)
        else:
            await self.context.delete_if_controlled(Job, key)
        await self.context.delete_if_controlled(ConfigMap, key)


def _uid(restore: Restore) -> str:
    return restore.metadata.uid


def _is_done(state: ClusterState, restore: Restore) -> bool:
    """Return True if the restored data serve, or served."""
    return any(_restored_by(i.data) == restore.metadata.uid for i in state.instances)


def _restored_by(pvc: PersistentVolumeClaim | None) -> str:
    return "" if pvc is None else pvc.metadata.annotations.get(RESTORED_BY, "")


def _may_start(stateful: StatefulSet) -> bool:
    """Return True if its controller may still create a pod."""
    status = stateful.status
    observed = status.observed_generation is None or status.observed_generation >= (stateful.metadata.generation or 0)
    return stateful.spec.replicas != 0 or not observed or bool(status.replicas)


def permit(builder: Builder[T]) -> Builder[T]:
    """Declare the necessary permissions at the API server."""
    return builder.needs(Restore, "get", "list", "watch").needs(StatefulSet, "list").needs(Pod, "list")
