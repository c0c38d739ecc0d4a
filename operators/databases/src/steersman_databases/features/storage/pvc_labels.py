"""Labels of PVCs that change after their creation."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.client import MergePatch
from steersman.errors import NotFound
from steersman_databases.cluster.state import AWAITING_COPY, Instance, ordinal_of
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.database_naming import TRACKING_LABEL
from steersman_databases.core.labels import volume_labels


async def remove_tracking_labels(context: ClusterContext, pvcs: Iterable[PersistentVolumeClaim]) -> None:
    """Remove the label by which Argo CD tracks its own objects."""
    for pvc in pvcs:
        if TRACKING_LABEL in pvc.metadata.labels and (number := ordinal_of(pvc)) is not None:
            with suppress(NotFound):
                labels = volume_labels(context.declared, number)
                await context.restore_labels(PersistentVolumeClaim, pvc, labels)


async def record_copy(context: ClusterContext, instance: Instance) -> None:
    """Record that a new replica has copied the data: it serves."""
    pvc, member = instance.data, instance.member
    if pvc is None or member is None or AWAITING_COPY not in pvc.metadata.labels:
        return
    if member.state in ("Running", "Streaming") and instance.pod_ready and instance.is_controlled:
        metadata = {"labels": {AWAITING_COPY: None}, "resourceVersion": pvc.metadata.resource_version}
        with suppress(NotFound):
            await context.client.patch(PersistentVolumeClaim, pvc.key, MergePatch({"metadata": metadata}))
