"""PVCs of instances: creation, growth, and deletion when unused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.errors import AlreadyExists, Forbidden, Invalid, NotFound
from steersman.meta import ObjectKey, Quantity, is_true
from steersman_databases.cluster.state import (
    AWAITING_RECOVERY,
    MAJOR_LABEL,
    OVERWRITING,
    RETIRED,
    ClusterState,
    Instance,
    is_lost,
    is_retired,
    ordinal_of,
)
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import ClusterContext, is_owned
from steersman_databases.core.labels import volume_labels
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.engines.naming import VERSION_LABEL
from steersman_databases.engines.versions import version_tuple
from steersman_databases.features.storage.pvc_labels import record_copy, remove_tracking_labels
from steersman_databases.features.storage.specs import (
    DELETE_AFTER,
    ENGINE_LABEL,
    RestoredVolume,
    data_pvc,
    lineage_annotations,
    wal_pvc,
)
from steersman_databases.features.storage.usage import (
    GROWN,
    Growth,
    VolumeName,
    capacity_of,
    requested_size,
    resize_error_of,
    usage_of,
)

_QUOTA = "exceeded quota"
"""Source: Kubernetes, admission plugin ResourceQuota."""


@dataclass(frozen=True, slots=True)
class StorageCondition:
    """Content of the condition `VolumesResized`."""

    reason: Literal[
        "SizeMatches",
        "Resizing",
        "FileSystemResizePending",
        "NotExpandable",
        "QuotaExceeded",
        "StorageClassMismatch",
        "VolumeLost",
    ]
    message: str


class VolumeReconciler:
    """Reconciles the PVCs of one cluster."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._declared = context.declared

    async def create(
        self,
        ordinal: int,
        *,
        for_recovery: bool = False,
        for_copy: bool = False,
        lineage: int = 0,
        restored: RestoredVolume | None = None,
    ) -> bool:
        """Create the missing PVCs of an instance. Return True if any was missing.

        Args:
            for_recovery: a recovery fills the volume of the data before a server starts on it.
            for_copy: the server copies the data of another instance.
            lineage: of the data that the instance will copy.
            restored: a restore in place fills the volume. The instance does not exist before that.

        Raises:
            ReconcileBlocked: a PVC of that name is foreign, or is being deleted.
        """
        annotations = lineage_annotations(lineage) if restored is None else restored.annotations
        configs = [
            data_pvc(self._declared, ordinal, for_recovery=for_recovery, for_copy=for_copy, annotations=annotations)
        ]
        if self._declared.wal_size is not None:
            configs.append(wal_pvc(self._declared, ordinal))
        created = False
        for config in configs:
            present = await self._context.client.get_or_none(PersistentVolumeClaim, config.key)
            if present is not None:
                self._context.require_labels(present)
                continue
            try:
                # Created and not applied: a stale read must not recreate a PVC that was just deleted.
                await self._context.client.create(config)
            except AlreadyExists:
                await self._require_usable(config.key, ordinal)
            else:
                self._context.emit_created(PersistentVolumeClaim, config.key)
            created = True
        return created

    async def _require_usable(self, key: ObjectKey, ordinal: int) -> None:
        found = await get_live(self._context.client, PersistentVolumeClaim, key)
        if found is None:
            return
        labels = self._labels(ordinal)
        if not labels.items() <= found.metadata.labels.items():
            # It was not seen, so it belongs to a previous instance. Its other labels are unknown.
            labels = {**labels, RETIRED: "true"}
        if await self._with_labels(found, labels) is None:
            self._context.require_labels(found)

    async def restore_labels(
        self, state: ClusterState, pvcs: Sequence[PersistentVolumeClaim]
    ) -> Sequence[PersistentVolumeClaim]:
        """Restore labels that users removed from PVCs of instances.

        The cluster observes only PVCs with its labels. Returns the PVCs of existing instances that it did not
        observe.

        Args:
            pvcs: all observed PVCs.
        """
        await remove_tracking_labels(self._context, pvcs)
        names, found = self._declared.names, list[PersistentVolumeClaim]()
        for instance in state.instances:
            ordinal = instance.ordinal
            await record_copy(self._context, instance)
            for key, seen in ((names.data_pvc(ordinal), instance.data), (names.wal_pvc(ordinal), instance.wal)):
                if seen is None and key.name in instance.mounted_pvcs:
                    pvc = await self._restore(instance, key)
                    found += [] if pvc is None else [pvc]
        return found

    async def _restore(self, instance: Instance, key: ObjectKey) -> PersistentVolumeClaim | None:
        pvc = await get_live(self._context.client, PersistentVolumeClaim, key)
        if pvc is None or instance.statefulset is None:
            return None
        labels = dict(self._labels(instance.ordinal))
        ran = instance.statefulset.metadata.labels.get(VERSION_LABEL)
        if ran is not None and MAJOR_LABEL not in pvc.metadata.labels:
            # Not the declared version, because an upgrade to it may be pending.
            labels[MAJOR_LABEL] = ran
        return await self._with_labels(pvc, labels)

    def _labels(self, ordinal: int) -> Mapping[str, str]:
        """Return the permanent labels of an instance's PVCs."""
        return {**volume_labels(self._declared, ordinal), ENGINE_LABEL: self._declared.engine}

    async def _with_labels(
        self, pvc: PersistentVolumeClaim, labels: Mapping[str, str]
    ) -> PersistentVolumeClaim | None:
        """Restore labels of a PVC.

        None if it is being deleted or belongs to another cluster.
        """
        if pvc.metadata.deletion_timestamp is not None:
            return None
        if labels.items() <= pvc.metadata.labels.items():
            return pvc
        if not await self._owns_ca_secret(pvc):
            return None
        try:
            return await self._context.restore_labels(PersistentVolumeClaim, pvc, labels)
        except NotFound:
            return None

    async def _owns_ca_secret(self, pvc: PersistentVolumeClaim) -> bool:
        """Return True if the PVC belongs to the cluster, whatever its labels.

        A foreign PVC with its name does not own the CA Secret.
        """
        secret = await get_cached_or_live(self._context.client, Secret, self._declared.names.ca_secret)
        return secret is not None and is_owned(secret, [pvc])

    def check_adoptable(self, pvcs: Sequence[PersistentVolumeClaim], *, was_provisioned: bool) -> None:
        """Refuse data of another server, and incomplete data.

        Args:
            was_provisioned: the cluster's own servers ran, so the data are theirs.

        Raises:
            ReconcileBlocked: the data do not fit.
        """
        newest = ""
        for pvc in pvcs:
            labels = pvc.metadata.labels
            engine, major = (
                labels.get(ENGINE_LABEL, self._declared.engine),
                labels.get(MAJOR_LABEL, self._declared.version),
            )
            if engine != self._declared.engine:
                raise self._mismatch(pvc, engine, major)
            if labels.get(AWAITING_RECOVERY, self._declared.uid) != self._declared.uid:
                raise self._unfinished_recovery(pvc)
            if OVERWRITING in pvc.metadata.annotations and not was_provisioned:
                raise self._unfinished_recovery(pvc)
            newest = max(newest, major, key=version_tuple)
        # Next to the newest version there may be volumes that an upgrade left behind.
        for pvc in pvcs if newest not in ("", self._declared.version) else ():
            if was_provisioned:
                reason = f"the data are upgraded to {newest} and cannot be downgraded. Declare version {newest} again"
                raise ReconcileBlocked("Failed", "UnsupportedVersion", reason)
            raise self._mismatch(pvc, self._declared.engine, newest)
        self._check_complete(pvcs)
        if not was_provisioned:
            self._check_recovery(pvcs)
            self._check_wal_volume(pvcs)

    def retained(self, pvcs: Sequence[PersistentVolumeClaim]) -> Sequence[str]:
        """Return the names of PVCs that are older than the cluster.

        Their data belong to a previous cluster.
        """
        since = self._context.cluster.metadata.creation_timestamp
        dated = [(c.metadata.name, c.metadata.creation_timestamp) for c in pvcs]
        return sorted(name for name, created in dated if since and created and created < since)

    def _check_recovery(self, pvcs: Sequence[PersistentVolumeClaim]) -> None:
        """Refuse to choose between retained data and a declared recovery."""
        if self._declared.needs_recovery and (names := self.retained(pvcs)):
            raise ReconcileBlocked(
                "Failed",
                "RetainedDataMismatch",
                f"PVC {', '.join(names)} has retained data, and spec.bootstrap.recovery declares other data. Create "
                "a new cluster of this name without spec.bootstrap to use the retained data, or delete the PVCs to "
                "recover",
            )

    def _unfinished_recovery(self, pvc: PersistentVolumeClaim) -> ReconcileBlocked:
        return ReconcileBlocked(
            "Failed",
            "RetainedDataMismatch",
            f"PVC {pvc.metadata.name} has the unfinished recovery of a previous cluster. Delete the PVC",
        )

    def _check_wal_volume(self, pvcs: Sequence[PersistentVolumeClaim]) -> None:
        """Refuse to add a WAL volume to existing data.

        No server moves its WAL to a new volume. A running cluster may not declare one either.
        """
        if self._declared.wal_size is None or any(c.metadata.name.startswith("wal-") for c in pvcs):
            return
        # A PVC that is not older is the cluster's own: its creation may have been interrupted before the second PVC.
        if names := self.retained(pvcs):
            raise ReconcileBlocked(
                "Failed",
                "RetainedDataMismatch",
                f"PVC {', '.join(sorted(names))} has retained data with their WAL, which cannot be moved. Create a "
                "new cluster of this name without spec.walStorage, or delete the PVCs to delete the data",
            )

    def _check_complete(self, pvcs: Sequence[PersistentVolumeClaim]) -> None:
        names = [pvc.metadata.name for pvc in pvcs]
        wal_pvcs = [name for name in names if name.startswith("wal-")] if self._declared.wal_size is None else []
        if wal_pvcs:
            raise ReconcileBlocked(
                "Failed",
                "RetainedDataMismatch",
                f"PVC {', '.join(sorted(wal_pvcs))} has the WAL of retained data, which need it. Create a new "
                "cluster of this name with spec.walStorage, or delete the PVCs "
                f"{', '.join(sorted(names))} to delete the data",
            )

    def _mismatch(self, pvc: PersistentVolumeClaim, engine: str, major: str) -> ReconcileBlocked:
        return ReconcileBlocked(
            "Failed",
            "RetainedDataMismatch",
            f"PVC {pvc.metadata.name} has retained data of {engine} {major}. Create a new cluster of this name with "
            "that version, or delete the PVC to delete the data",
        )

    async def record_major_version(self, instance: Instance, version: str) -> None:
        """Record the major version of an instance's data.

        The PVC of the data comes first, because all decisions depend on it.
        """
        for pvc in (instance.data, instance.wal):
            if pvc is not None:
                metadata = {"labels": {MAJOR_LABEL: version}, "resourceVersion": pvc.metadata.resource_version}
                await self._context.client.patch(PersistentVolumeClaim, pvc.key, MergePatch({"metadata": metadata}))

    async def resize(self, instances: Sequence[Instance]) -> StorageCondition:
        """Request the declared sizes, and return the progress."""
        conditions = [
            await self._resize_pvc(pvc, size, growth)
            for i in instances
            for pvc, size, growth in self._declared_sizes(i)
        ]
        lost_pvcs = sorted(self._declared.names.instance(i.ordinal) for i in instances if is_lost(i))
        if lost_pvcs:
            return StorageCondition("VolumeLost", f"the volume of {', '.join(lost_pvcs)} is lost or being deleted")
        order = ("QuotaExceeded", "NotExpandable", "StorageClassMismatch", "FileSystemResizePending", "Resizing")
        found = [*(f for f in conditions if f is not None), *self._storage_class_mismatches(instances)]
        return min(
            found,
            key=lambda f: order.index(f.reason),
            default=StorageCondition("SizeMatches", "all volumes have the declared size"),
        )

    def _declared_sizes(self, instance: Instance) -> Iterable[tuple[PersistentVolumeClaim, Quantity, Growth | None]]:
        """Yield the PVCs of an instance with size and record."""
        if instance.data is not None:
            yield instance.data, self._declared.storage_size, self.growth_record(instance, "data")
        if instance.wal is not None and self._declared.wal_size is not None:
            yield instance.wal, self._declared.wal_size, self.growth_record(instance, "wal")

    def growth_record(self, instance: Instance, name: VolumeName, description: str = "") -> Growth | None:
        """Return the record of a growth that is requested now.

        None for volumes without records.
        """
        if name not in self._declared.recorded_volumes:
            return None
        usage = usage_of(instance.pod, name)
        return Growth(
            at=self._context.clock.now(),
            description=description,
            file_system=None if usage is None else usage.size,
            retained_by="" if usage is None else usage.retained_by,
        )

    def _storage_class_mismatches(self, instances: Sequence[Instance]) -> Iterable[StorageCondition]:
        """Yield adopted PVCs of another storage class.

        The class of a PVC is immutable.
        """
        declared = ((i.data, self._declared.storage_class) for i in instances)
        logs = ((i.wal, self._declared.wal_class) for i in instances)
        for pvc, desired in (*declared, *logs):
            if pvc is None or desired is None or pvc.spec.storage_class_name in (None, desired):
                continue
            present = pvc.spec.storage_class_name or "none"
            reported = f"volume {pvc.metadata.name} has StorageClass {present}, and {desired} is declared"
            yield StorageCondition("StorageClassMismatch", reported)

    async def _resize_pvc(
        self, pvc: PersistentVolumeClaim, desired: Quantity, growth: Growth | None
    ) -> StorageCondition | None:
        if pvc.metadata.deletion_timestamp is not None:
            return None
        name = pvc.metadata.name
        requested, capacity = requested_size(pvc), capacity_of(pvc)
        # A volume that has not reached its size may have a smaller one, but not the present one again.
        lowered = capacity is not None and capacity <= desired < requested
        if lowered and capacity == desired:
            message = f"PVC {name} has {capacity} and requests {requested}. Declare a size above {capacity}"
            return StorageCondition("Resizing", f"{message}: Kubernetes lowers no request to the present size")
        if desired > requested or lowered:
            try:
                if (refused := await self.request_size(pvc, desired, growth)) is not None:
                    return refused
            except NotFound:
                return None
            self._context.events.normal(self._context.cluster, "VolumeResized", f"requested {desired} for PVC {name}")
            return StorageCondition("Resizing", f"PVC {name} is being resized to {desired}")
        if is_true(pvc.status.conditions, "FileSystemResizePending"):
            return StorageCondition(
                "FileSystemResizePending", f"the file system of PVC {name} is resized when its pod starts"
            )
        if capacity is not None and capacity < desired:
            failed = f". The resize failed: {error}" if (error := resize_error_of(pvc)) else ""
            return StorageCondition("Resizing", f"PVC {name} has {capacity} of {desired}{failed}")
        return None

    async def request_size(
        self, pvc: PersistentVolumeClaim, desired: Quantity, growth: Growth | None
    ) -> StorageCondition | None:
        """Request another size. Return why it is refused, or None.

        Args:
            growth: recorded by the same request, so that no crash separates them.

        Raises:
            NotFound: the PVC is gone.
        """
        metadata: dict[str, object] = {"resourceVersion": pvc.metadata.resource_version}
        if growth is not None:
            metadata["annotations"] = {GROWN: growth.as_annotation()}
        body = {"metadata": metadata, "spec": {"resources": {"requests": {"storage": str(desired)}}}}
        try:
            await self._context.client.patch(PersistentVolumeClaim, pvc.key, MergePatch(body))
        except (Forbidden, Invalid) as error:
            # The servers continue with the present size. Only the larger one is not possible.
            message = f"PVC {pvc.metadata.name} cannot be resized from {requested_size(pvc)} to {desired}: {error}"
            return StorageCondition("QuotaExceeded" if _QUOTA in str(error) else "NotExpandable", message)
        return None

    async def mark_retired(self, instance: Instance) -> None:
        """Mark the PVCs of an instance as unusable for others."""
        await self._annotate(instance, "true")

    async def unmark_retired(self, instance: Instance) -> None:
        """Revert the removal of an instance, unless its StatefulSet is gone."""
        assert instance.statefulset is not None
        found = await get_live(self._context.client, StatefulSet, instance.statefulset.key)
        if found is None or found.metadata.deletion_timestamp is not None or not self._context.controls(found):
            return
        await self._annotate(instance, None)

    async def _annotate(self, instance: Instance, mark: str | None) -> None:
        for pvc in (instance.data, instance.wal):
            if pvc is None or is_retired(pvc) is (mark is not None):
                continue
            metadata = {"labels": {RETIRED: mark}, "resourceVersion": pvc.metadata.resource_version}
            with suppress(NotFound):
                await self._context.client.patch(PersistentVolumeClaim, pvc.key, MergePatch({"metadata": metadata}))

    async def delete_retired(self, pvcs: Sequence[PersistentVolumeClaim], state: ClusterState) -> None:
        """Delete the PVCs of removed instances, unless data are retained.

        Those that a restore in place left behind are kept until their time, and then deleted in any case. At least
        one other PVC must exist, because PVCs own the Secrets that new instances need.
        """
        if all(map(is_retired, pvcs)):
            return
        present = {i.ordinal for i in state.instances}
        for pvc in pvcs:
            due = _delete_after(pvc)
            wanted = self._declared.delete_data if due is None else due <= state.now
            retired = is_retired(pvc) and ordinal_of(pvc) not in present
            if wanted and retired and pvc.metadata.deletion_timestamp is None:
                # An undo may have made it the data of the cluster meanwhile.
                await self._context.delete(PersistentVolumeClaim, pvc, unchanged=True)


def _delete_after(pvc: PersistentVolumeClaim) -> datetime | None:
    """Return the time of deletion. A malformed one counts as never."""
    text = pvc.metadata.annotations.get(DELETE_AFTER)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
