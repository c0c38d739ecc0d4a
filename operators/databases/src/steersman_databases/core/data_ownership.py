"""Ownership of Secrets and ConfigMaps by the PVCs of their data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import Object, ObjectKey, OwnerReference
from steersman_databases.cluster.state import is_retired
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.labels import data_labels, volume_labels
from steersman_databases.core.outcome import ReconcileBlocked

DataState = Literal["Present", "Retained", "Gone"]


async def data_state_of(context: ClusterContext, obj: Object, pvcs: Sequence[PersistentVolumeClaim]) -> DataState:
    """Return the state of the data that the object belongs to.

    Present: they exist, or do not exist yet. Retained: some exist, in volumes without an instance. Gone: the garbage
    collector is about to delete the object.

    Args:
        pvcs: all PVCs of the cluster.

    Raises:
        ReconcileBlocked: a PVC that owns the object exists, but lacks the cluster's labels.
    """
    owners = _pvc_owners(obj)
    owner_refs = {c.metadata.uid: c for c in pvcs}
    current = [c for o in owners if (c := owner_refs.get(o.uid)) is not None and not _is_being_removed(c)]
    if not owners or not all(map(is_retired, current)):
        return "Present"
    # New data may be created next to retained ones, but not next to unobserved ones.
    for owner in owners:
        if owner.uid not in owner_refs:
            await _require_gone(context, obj, owner)
    # The garbage collector keeps what the cluster owns.
    is_kept = bool(current) or context.declared.uid in {o.uid for o in obj.metadata.owner_references}
    return "Retained" if is_kept else "Gone"


def has_pvc_owner(obj: Object) -> bool:
    """Return True if a PVC, existing or not, is an owner."""
    return bool(_pvc_owners(obj))


def _pvc_owners(obj: Object) -> Sequence[OwnerReference]:
    return [o for o in obj.metadata.owner_references if o.kind == "PersistentVolumeClaim"]


def wait_for_other_owner(obj: Object, owner_description: str) -> ReconcileBlocked:
    """Return the error to raise until the object belongs to other data."""
    return ReconcileBlocked(
        "Pending", "Creating", f"{obj.api_resource.kind} {obj.metadata.name} belongs to {owner_description}"
    )


def wait_for_garbage_collection(obj: Object) -> ReconcileBlocked:
    """Return the error to raise if the object's data are deleted."""
    return wait_for_other_owner(obj, "deleted volumes: waiting for the garbage collector to delete it")


async def _require_gone(context: ClusterContext, obj: Object, owner: OwnerReference) -> None:
    """Check that the owner does not exist, whatever its labels.

    Raises:
        ReconcileBlocked: it exists. The message names its missing labels.
    """
    declared = context.declared
    pvc = await get_live(context.client, PersistentVolumeClaim, ObjectKey(declared.key.namespace, owner.name))
    if pvc is None or pvc.metadata.uid != owner.uid:
        return
    ordinal = declared.names.ordinal(owner.name.partition("-")[2])
    labels = data_labels(declared) if ordinal is None else volume_labels(declared, ordinal)
    missing_labels = ", ".join(f"{k}={v}" for k, v in sorted(labels.items() - pvc.metadata.labels.items()))
    problem = f"lacks the labels {missing_labels}: restore them" if missing_labels else "is not in the cache yet"
    raise wait_for_other_owner(obj, f"PVC {owner.name}, which {problem}")


def _is_being_removed(pvc: PersistentVolumeClaim) -> bool:
    """Return True if the object and its dependents will be deleted."""
    return is_retired(pvc) and pvc.metadata.deletion_timestamp is not None
