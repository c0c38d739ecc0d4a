"""Plan of an undo: the kept volume of the previous primary."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.cache import CachedClient
from steersman.meta import ObjectKey
from steersman_databases.api import Cluster, Restore
from steersman_databases.api.backups.restore import RestorePlan
from steersman_databases.cluster.state import MAJOR_LABEL
from steersman_databases.features.restore import model
from steersman_databases.features.restore_in_place.model import is_in_place, kept_primary
from steersman_databases.features.storage.specs import REPLACED_BY, SERVED_UNTIL


class UndoRefused(Exception):
    """The volume cannot serve again.

    Args:
        reason: of the condition.
        message: one sentence for users.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UndoNotReady(Exception):
    """The restore to undo has not ended. The message is a clause for users."""


async def undo_plan(
    client: CachedClient, restore: Restore, cluster: Cluster, pvcs: Sequence[PersistentVolumeClaim]
) -> RestorePlan:
    """Return the plan of an undo, without its ID.

    Args:
        pvcs: of the cluster.

    Raises:
        UndoNotReady: the restore to undo still runs.
        UndoRefused: it was not carried out, or its previous volumes are deleted or have an older version.
    """
    assert restore.spec.undo is not None
    name = restore.spec.undo.name
    undone = await client.get_or_none(Restore, ObjectKey(restore.metadata.namespace, name))
    if undone is None:
        raise UndoRefused("RestoreNotFound", f"Restore {name} does not exist")
    if undone.spec.cluster_ref != restore.spec.cluster_ref or not is_in_place(undone):
        raise UndoRefused("RestoreNotFound", f"Restore {name} is not a restore in place of this cluster")
    if not model.is_finished(undone):
        raise UndoNotReady(f"Restore {name} is not completed")
    pvc = kept_primary(pvcs, undone.metadata.uid)
    if pvc is None:
        raise UndoRefused("PreviousVolumesMissing", f"the previous volumes of Restore {name} are not kept")
    if (version := pvc.metadata.labels.get(MAJOR_LABEL, cluster.spec.version)) != cluster.spec.version:
        message = f"PVC {pvc.metadata.name} has data of version {version}, and the cluster has {cluster.spec.version}"
        raise UndoRefused("WrongEngineVersion", message)
    return RestorePlan(id="", volume=pvc.metadata.name, restores_to=_time(pvc.metadata.annotations[SERVED_UNTIL]))


def missing_volume(restore: Restore, cluster: Cluster, pvcs: Sequence[PersistentVolumeClaim]) -> str:
    """Return why a confirmed undo cannot continue, or ""."""
    plan = restore.status.plan
    volume = "" if plan is None or plan.volume is None else plan.volume
    pvc = next((each for each in pvcs if each.metadata.name == volume), None)
    if pvc is None or REPLACED_BY not in pvc.metadata.labels or pvc.metadata.deletion_timestamp is not None:
        return f"PVC {volume} is not kept any more"
    if pvc.metadata.labels.get(MAJOR_LABEL, cluster.spec.version) != cluster.spec.version:
        return f"PVC {volume} has data of another version"
    return ""


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
