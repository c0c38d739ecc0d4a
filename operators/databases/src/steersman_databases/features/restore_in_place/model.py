"""Lineages of data, and the restore that a cluster should carry out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman_databases.api import Restore
from steersman_databases.cluster.state import ClusterState, Instance, is_retired
from steersman_databases.features.storage.specs import REPLACED_BY, SERVED_UNTIL

DEFAULT_KEEP_PREVIOUS = timedelta(hours=24)
OVERWRITE_START_TIMEOUT = timedelta(minutes=10)
"""Time from the start until the data are given up.

The backup of the plan may expire meanwhile.
"""


def split_by_lineage(state: ClusterState) -> tuple[ClusterState, Sequence[Instance]]:
    """Split off the instances whose data a restore in place left behind."""
    lineage = state.lineage
    replaced = [i for i in state.instances if i.lineage < lineage]
    if not replaced:
        return state, ()
    return replace(state, instances=[i for i in state.instances if i not in replaced]), replaced


def is_in_place(restore: Restore) -> bool:
    """Return True if it restores the whole cluster."""
    return restore.spec.only is None


def overwrites(restore: Restore) -> bool:
    """Return True if it restores over the present volumes."""
    return restore.spec.mode == "InPlace"


def is_confirmed(restore: Restore) -> bool:
    """Return True if a user has confirmed the present plan."""
    plan = restore.status.plan
    return plan is not None and restore.spec.confirm == plan.id


def is_active(restore: Restore) -> bool:
    """Return True if the cluster carries the restore out now."""
    running = restore.status.phase == "Running" and restore.metadata.deletion_timestamp is None
    return running and is_in_place(restore) and is_confirmed(restore)


def active(restores: Iterable[Restore]) -> Restore | None:
    """Return the oldest restore that is carried out, or None."""
    found = [restore for restore in restores if is_active(restore)]
    return min(found, key=lambda r: (str(r.metadata.creation_timestamp), r.metadata.uid), default=None)


def has_timed_out(restore: Restore, now: datetime) -> bool:
    """Return True if it is too late to give up the data."""
    started = restore.status.start_time
    return started is None or now - started > OVERWRITE_START_TIMEOUT


def kept_for(restore: Restore) -> timedelta:
    """Return how long the volumes of the previous instances are kept."""
    if overwrites(restore):
        return timedelta(0)
    declared = restore.spec.keep_previous
    return DEFAULT_KEEP_PREVIOUS if declared is None else declared.timedelta


def kept_primary(pvcs: Iterable[PersistentVolumeClaim], restore_uid: str) -> PersistentVolumeClaim | None:
    """Return the kept data PVC of the previous primary, or None.

    Args:
        pvcs: of the cluster.
        restore_uid: UID of the restore that replaced the primary.
    """
    for pvc in pvcs:
        labels, is_present = pvc.metadata.labels, pvc.metadata.deletion_timestamp is None
        is_replaced = is_retired(pvc) and labels.get(REPLACED_BY) == restore_uid
        if is_replaced and is_present and SERVED_UNTIL in pvc.metadata.annotations:
            return pvc
    return None
