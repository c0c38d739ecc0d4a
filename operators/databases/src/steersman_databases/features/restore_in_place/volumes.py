"""PVCs of a restore in place: restored and kept ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.client import MergePatch
from steersman.errors import NotFound
from steersman_databases.cluster.state import OVERWRITING, RESTORING, RETIRED, ClusterState, Instance, is_retired
from steersman_databases.core.context import ClusterContext
from steersman_databases.features.restore_in_place.model import DEFAULT_KEEP_PREVIOUS
from steersman_databases.features.storage.specs import (
    DELETE_AFTER,
    KEEP_PREVIOUS,
    LINEAGE_SINCE,
    REPLACED_BY,
    REPLACED_PRIMARY,
    RESTORED_BY,
    RESTORED_TIMELINE,
    SERVED_UNTIL,
    RestoredVolume,
    lineage_annotations,
)


@dataclass(frozen=True, slots=True)
class LineageVolumes:
    """Moves PVCs of one cluster between its lineages."""

    context: ClusterContext

    async def reuse_kept(self, pvcs: Iterable[PersistentVolumeClaim], restored: RestoredVolume) -> None:
        """Mark kept PVCs of an instance as those of an undo.

        The PVC of the data goes first, since it identifies them. It stays marked as kept until the cut.

        Raises:
            Conflict: a PVC has changed since it was observed.
            NotFound: it is gone.
        """
        for pvc in sorted(pvcs, key=lambda each: each.metadata.name):
            is_data = pvc.metadata.name.startswith("data-")
            labels = {RETIRED: None} if is_data else {RETIRED: None, REPLACED_BY: None}
            # The recorded primary may be of an earlier restore.
            annotations = {**restored.annotations, REPLACED_PRIMARY: None} if is_data else {DELETE_AFTER: None}
            await self._mark(pvc, labels, annotations)

    async def record_replaced_primary(self, instance: Instance, state: ClusterState) -> None:
        """Record on a restored PVC which instance is replaced as primary.

        Without a primary at any time of the stop, it is the one that the members remember.
        """
        assert instance.data is not None
        recorded = instance.data.metadata.annotations.get(REPLACED_PRIMARY)
        known = state.members.last_leader if state.primary is None else state.primary.ordinal
        if known is None or recorded == str(known) or (state.primary is None and recorded is not None):
            return
        await self._mark(instance.data, {}, {REPLACED_PRIMARY: str(known)})

    async def begin_lineage(self, instance: Instance, lineage: int) -> None:
        """Make restored data those of the cluster. After this write nothing leads back.

        Raises:
            Conflict: the PVC has changed since it was observed.
            NotFound: it is gone.
        """
        assert instance.data is not None
        since = self.context.clock.now().astimezone(UTC).isoformat(timespec="seconds")
        annotations = {
            RESTORING: None,
            DELETE_AFTER: None,
            SERVED_UNTIL: None,
            LINEAGE_SINCE: since,
            **lineage_annotations(lineage),
        }
        await self._mark(instance.data, {REPLACED_BY: None}, annotations)

    async def begin_overwriting(
        self, instance: Instance, lineage: int, restored: RestoredVolume, timeline: int | None
    ) -> None:
        """Give up all data, and let a restore overwrite this volume.

        Nothing leads back.

        Args:
            timeline: PostgreSQL: number that is reserved for the restored data.

        Raises:
            Conflict: the PVC has changed since it was observed.
            NotFound: it is gone.
        """
        assert instance.data is not None
        annotations = {
            **restored.annotations,
            RESTORING: None,
            OVERWRITING: restored.restore_uid,
            RESTORED_TIMELINE: None if timeline is None else str(timeline),
            # They are of an earlier restore. Without them no volume counts as that of the previous primary.
            REPLACED_PRIMARY: None,
            LINEAGE_SINCE: None,
            **lineage_annotations(lineage),
        }
        await self._mark(instance.data, {}, annotations)

    async def end_overwriting(self, instance: Instance) -> None:
        """Let the server start on overwritten data.

        Raises:
            Conflict: the PVC has changed since it was observed.
            NotFound: it is gone.
        """
        assert instance.data is not None
        await self._mark(instance.data, {}, {OVERWRITING: None, RESTORED_TIMELINE: None})

    async def retire_replaced(self, instance: Instance, state: ClusterState) -> None:
        """Mark the PVCs of a replaced instance, with the time of deletion."""
        restored = next((i.data for i in state.instances if i.lineage == state.lineage and _keeps(i)), None)
        nothing: Mapping[str, str] = {}
        notes = nothing if restored is None else restored.metadata.annotations
        text = notes.get(KEEP_PREVIOUS, "")
        kept = timedelta(seconds=int(text)) if re.fullmatch("[0-9]{1,9}", text) else DEFAULT_KEEP_PREVIOUS
        delete_after = (state.now + kept).astimezone(UTC).isoformat(timespec="seconds")
        was_primary = notes.get(REPLACED_PRIMARY) == str(instance.ordinal)
        served_until = notes.get(LINEAGE_SINCE) if was_primary else None
        labels = {RETIRED: "true", REPLACED_BY: notes.get(RESTORED_BY, "")}
        for pvc in (instance.data, instance.wal):
            if pvc is not None and not is_retired(pvc):
                with suppress(NotFound):
                    time = {SERVED_UNTIL: served_until} if pvc is instance.data else {}
                    await self._mark(pvc, labels, {DELETE_AFTER: delete_after, **time})

    async def discard_unrestored(self, instance: Instance) -> None:
        """Delete the volumes of an unfinished restore in place. Those of an undo are kept until their time.

        The PVC of the data goes last, since it identifies them.
        """
        assert instance.data is not None
        labels, annotations = instance.data.metadata.labels, instance.data.metadata.annotations
        delete_after = annotations.get(DELETE_AFTER)
        for pvc in (instance.wal, instance.data):
            if pvc is None or pvc.metadata.deletion_timestamp is not None:
                continue
            if delete_after is None:
                await self.context.delete(PersistentVolumeClaim, pvc, unchanged=True)
                continue
            kept = {RETIRED: "true", REPLACED_BY: labels.get(REPLACED_BY, "")}
            await self._mark(pvc, kept, {RESTORING: None, DELETE_AFTER: delete_after})

    async def _mark(
        self, pvc: PersistentVolumeClaim, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> None:
        """Set labels and annotations of a PVC, or remove them by None. It must not have changed."""
        version = pvc.metadata.resource_version
        patch = MergePatch({"metadata": {"labels": labels, "annotations": annotations, "resourceVersion": version}})
        await self.context.client.patch(PersistentVolumeClaim, pvc.key, patch)


def _keeps(instance: Instance) -> bool:
    return instance.data is not None and KEEP_PREVIOUS in instance.data.metadata.annotations
