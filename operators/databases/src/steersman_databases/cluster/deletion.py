"""Deletion of a cluster: final backup, retention or deletion of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.controller import remove_finalizer
from steersman.meta import Object, ObjectKey
from steersman_databases.cluster.state import (
    AWAITING_RECOVERY,
    OUT_OF_SERVICE_TAINT,
    OVERWRITING,
    RESTORING,
    ClusterState,
    ordinal_of,
)
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.data_ownership import has_pvc_owner
from steersman_databases.core.labels import belongs_to, engine_selector
from steersman_databases.core.outcome import DatabaseOutcome, ReconcileBlocked
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.certificates.model import pooler_certificate
from steersman_databases.features.final_backup.model import Decision
from steersman_databases.features.final_backup.stage import FinalBackup
from steersman_databases.features.storage.specs import DELETE_AFTER
from steersman_databases.features.storage.stage import VolumeReconciler

FINALIZER = "databases.steersman.dev/data"

# Servers have two minutes to stop; a pod on a lost node never ends, and the deletion must.
_STOP_TIMEOUT = timedelta(seconds=180)


class ClusterDeletion:
    """Deletion of one cluster, with its final backup.

    It stops the instances, takes the final backup, then retains or deletes the data by ``spec.deletionPolicy``.
    Everything is derived from existing objects, so an interruption at any API call is harmless. No server is
    contacted.

    Args:
        was_provisioned: servers of this cluster ran, so the data belong to it.
    """

    def __init__(self, context: ClusterContext, final_backup: FinalBackup, *, was_provisioned: bool) -> None:
        self._was_provisioned = was_provisioned
        self._context = context
        self._final_backup = final_backup
        self._names = context.declared.names

    async def advance(self, state: ClusterState, pvcs: Sequence[PersistentVolumeClaim]) -> DatabaseOutcome | None:
        """Advance by one step. None when the object has been released."""
        cluster = self._context.cluster
        if FINALIZER not in cluster.metadata.finalizers:
            return None
        pvcs = pvcs or await self._live_pvcs()
        decision = await self._final_backup.decide(pvcs)
        if decision == "Due":
            if (outcome := await self._back_up(state, pvcs)) is not None:
                return outcome
            decision = "Completed"
        if decision != "NamespaceDeleted":
            running = await self._stop(state)
            if running and not self._is_overdue():
                return _stopping(running)
            if (outcome := await self._final_backup.clean_up()) is not None:
                return outcome
            await self._retain_or_delete_data(pvcs, decision)
        await remove_finalizer(self._context.client, cluster, FINALIZER)
        return None

    async def _back_up(self, state: ClusterState, pvcs: Sequence[PersistentVolumeClaim]) -> DatabaseOutcome | None:
        """Stop the servers and take the final backup. StatefulSets stay until it is completed."""
        backup = await self._final_backup.record(state, pvcs)
        running = await self._stop(state, keep_statefulsets=True)
        if running and (backup.status.instance in running or not self._is_overdue()):
            return _stopping(running, backup.status.instance if self._is_overdue() else None)
        return await self._final_backup.take(state, pvcs, backup)

    async def _stop(self, state: ClusterState, *, keep_statefulsets: bool = False) -> Mapping[str, str]:
        """Stop all instances, the primary last. Return the pods that still exist, by instance.

        Args:
            keep_statefulsets: scale StatefulSets to zero. By default they are deleted.
        """
        leader = state.members.leader
        pods = {i.ordinal: i.pod.metadata.name for i in state.instances if i.pod is not None}
        replicas_run = any(n != leader for n in pods)
        for instance in state.instances:
            stateful = instance.statefulset
            if stateful is None or stateful.metadata.deletion_timestamp is not None:
                continue
            if instance.ordinal != leader or not replicas_run or self._is_overdue():
                if instance.removal_interrupted and instance.ordinal == state.members.last_leader:
                    # It was promoted while it was being removed, and may be the only complete copy.
                    await VolumeReconciler(self._context).unmark_retired(instance)
                if not keep_statefulsets:
                    await self._context.delete(StatefulSet, stateful)
                elif not instance.stopped:
                    await self._context.client.patch(StatefulSet, stateful.key, MergePatch({"spec": {"replicas": 0}}))
        return {self._names.instance(ordinal): name for ordinal, name in pods.items()}

    def _is_overdue(self) -> bool:
        started = self._context.cluster.metadata.deletion_timestamp
        if self._context.declared.requests.force_delete:
            return True
        return started is not None and self._context.clock.now() - started > _STOP_TIMEOUT

    async def _retain_or_delete_data(self, pvcs: Sequence[PersistentVolumeClaim], decision: Decision) -> None:
        deletes = self._context.declared.delete_data and decision != "Skipped"
        if deletes or not pvcs:
            pvcs = await self._live_pvcs()
        deletes = deletes and not self._adoption_was_refused(pvcs)
        pvcs = await self._delete_unrecovered(pvcs)
        self._emit_skipped(pvcs, decision, deletes=deletes)
        if pvcs and not deletes:
            self._emit_retained(pvcs)
            return
        for pvc in pvcs:
            await self._context.delete(PersistentVolumeClaim, pvc)
        deleted = [f"PersistentVolumeClaim {claim.metadata.name}" for claim in pvcs]
        # The PVCs own them, but may still wait for a pod, or may never have been created.
        for kind, key in _objects_living_with_data(self._context.declared):
            obj = await get_live(self._context.client, kind, key)
            if obj is None or not belongs_to(obj, self._context.declared):
                continue
            # A PVC without its labels is not observed. Objects with a PVC as owner may give access to data, and go
            # with it.
            if deletes or (kind is Secret and not has_pvc_owner(obj)):
                await self._context.delete(kind, obj)
                deleted.append(f"{kind.api_resource.kind} {key.name}")
        if deleted:
            detail = "" if deletes else ": no retained data need them"
            message = f"deleted {', '.join(sorted(deleted))}{detail}"
            self._context.events.normal(self._context.cluster, "DataDeleted", message)

    async def _delete_unrecovered(self, pvcs: Sequence[PersistentVolumeClaim]) -> Sequence[PersistentVolumeClaim]:
        """Delete volumes of an incomplete recovery or restore, and return the others."""
        own = {AWAITING_RECOVERY: self._context.cluster.metadata.uid}.items()
        ordinals = {ordinal_of(pvc) for pvc in pvcs if own <= pvc.metadata.labels.items() or _is_unrestored(pvc)}
        for pvc in pvcs:
            if ordinal_of(pvc) in ordinals:
                await self._context.delete(PersistentVolumeClaim, pvc)
        return [pvc for pvc in pvcs if ordinal_of(pvc) not in ordinals]

    def _emit_skipped(self, pvcs: Sequence[PersistentVolumeClaim], decision: Decision, *, deletes: bool) -> None:
        cluster = self._context.cluster
        if decision == "Skipped":
            self._context.events.warning(
                cluster, "FinalBackupSkipped", "deleted without a final backup. The volumes are retained"
            )
        elif decision == "NotNeeded" and deletes and pvcs and self._was_provisioned:
            undeclared = self._final_backup.cluster.spec.backup is None
            cause = "spec.backup is not set" if undeclared else "spec.backup.finalBackup is Disabled"
            self._context.events.normal(cluster, "FinalBackupSkipped", f"deleted without a final backup: {cause}")

    def _adoption_was_refused(self, pvcs: Sequence[PersistentVolumeClaim]) -> bool:
        """Return True for retained data that could not be adopted."""
        if self._was_provisioned:
            return False
        try:
            VolumeReconciler(self._context).check_adoptable(pvcs, was_provisioned=False)
        except ReconcileBlocked:
            return True
        return False

    async def _live_pvcs(self) -> Sequence[PersistentVolumeClaim]:
        # Live: an object that is missed now is never deleted.
        found = await self._context.client.live.list(
            PersistentVolumeClaim,
            namespace=self._names.key.namespace,
            label_selector=",".join(f"{k}={v}" for k, v in engine_selector(self._context.declared).items()),
        )
        own = [pvc for pvc in found.items if belongs_to(pvc, self._context.declared)]
        return [claim for claim in own if self._names.ordinal_of_pvc(claim.metadata.name) is not None]

    def _emit_retained(self, pvcs: Sequence[PersistentVolumeClaim]) -> None:
        cluster, kept = self._context.cluster, ", ".join(sorted(c.metadata.name for c in pvcs))
        self._context.events.normal(
            cluster,
            "DataRetained",
            f"retained PVCs {kept} and their Secrets. To reuse them, create cluster {cluster.metadata.name} again. "
            "To delete the data, delete the PVCs",
        )


def _is_unrestored(pvc: PersistentVolumeClaim) -> bool:
    """Return True if a restore was filling it. An undo only reuses a volume with data."""
    annotations = pvc.metadata.annotations
    return OVERWRITING in annotations or (RESTORING in annotations and DELETE_AFTER not in annotations)


def _stopping(running: Mapping[str, str], stuck: str | None = None) -> DatabaseOutcome:
    """Return what the deletion waits for.

    Args:
        running: names of pods by instance.
        stuck: instance whose pod should have ended.
    """
    message = f"waiting for {', '.join(sorted(running.values()))} to stop"
    if stuck is None:
        return DatabaseOutcome(phase="Deleting", reason="Deleting", message=message, retry_after=2.0)
    message = f"{message}: the final backup needs the volume of {stuck}"
    advice = f"If the node of the pod is lost, add the taint {OUT_OF_SERVICE_TAINT} to it"
    return DatabaseOutcome(
        phase="Deleting", reason="FinalBackupFailed", message=f"{message}. {advice}", retry_after=2.0
    )


def _objects_living_with_data(declared: DeclaredCluster) -> list[tuple[type[Object], ObjectKey]]:
    """Objects that outlive the cluster together with retained data, except the PVCs."""
    names = declared.names
    secrets = (
        names.ca_secret,
        names.server_certificate,
        names.peer_certificate,
        names.operator_certificate,
        names.administrator_secret,
        names.application_secret,
        pooler_certificate(declared),
        names.backup_client_certificate,
        names.backup_secret,
    )
    config_maps = (*declared.dcs.all_keys, names.backup_catalog)
    return [*((Secret, key) for key in secrets), *((ConfigMap, key) for key in config_maps)]
