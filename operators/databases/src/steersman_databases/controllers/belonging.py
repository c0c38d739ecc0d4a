"""Whose data a Secret or ConfigMap of a cluster belongs to: the claims of the volumes that it is about own it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import Object, ObjectKey, OwnerReference
from steersman_databases.clusters.observed import is_retired
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.lookup import find_live
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.resources.labels import cluster_labels, instance_labels

Data = Literal["Present", "Retained", "Gone"]


async def data_of(charge: Charge, obj: Object, claims: Sequence[PersistentVolumeClaim]) -> Data:
    """What became of the data that ``obj`` is about, as ``claims`` say it, which are all of the cluster.

    Present: there, or not made yet. Retained: something of it is, in volumes in which no instance is begun. Gone:
    the garbage collector is about to remove ``obj``.

    Raises Blocked: something that owns ``obj`` is there and not seen.
    """
    owners = [o for o in obj.metadata.owner_references if o.kind == "PersistentVolumeClaim"]
    seen = {c.metadata.uid: c for c in claims}
    known = [c for o in owners if (c := seen.get(o.uid)) is not None and not _is_given_up(c)]
    if not owners or not all(map(is_retired, known)):
        return "Present"
    # New data are begun beside what is retained, and beside nothing that is only not seen.
    for owner in owners:
        if owner.uid not in seen:
            await _require_gone(charge, obj, owner)
    return "Retained" if known else "Gone"


def pending(obj: Object, whose: str) -> Blocked:
    """To be raised until ``obj`` belongs to other data."""
    return Blocked("Pending", "Creating", f"{obj.api_resource.kind} {obj.metadata.name} belongs to {whose}")


def waits_for_removal(obj: Object) -> Blocked:
    """To be raised where the data of ``obj`` are gone."""
    return pending(obj, "volumes that are gone; waiting until the garbage collector removed it")


async def _require_gone(charge: Charge, obj: Object, owner: OwnerReference) -> None:
    """Returns if there is no such claim, whatever its labels. Raises Blocked, and says which it has lost."""
    view = charge.view
    claim = await find_live(charge.client, PersistentVolumeClaim, ObjectKey(view.key.namespace, owner.name))
    if claim is None or claim.metadata.uid != owner.uid:
        return
    number = view.names.number(owner.name.partition("-")[2])
    labels = cluster_labels(view) if number is None else instance_labels(view, number)
    lost = ", ".join(f"{k}={v}" for k, v in sorted(labels.items() - claim.metadata.labels.items()))
    fault = f"has lost the labels {lost}: put them back" if lost else "is there, and not seen yet"
    raise pending(obj, f"PersistentVolumeClaim {owner.name}, which {fault}")


def _is_given_up(claim: PersistentVolumeClaim) -> bool:
    """Whether it is about to be gone, and with it what it alone owns."""
    return is_retired(claim) and claim.metadata.deletion_timestamp is not None
