"""Observed sizes of the volumes, for the status of a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import Quantity
from steersman_databases.api.volume_sizes import StorageStatus
from steersman_databases.cluster.state import ClusterState
from steersman_databases.features.storage.usage import capacity_of


def storage_status(state: ClusterState) -> StorageStatus | None:
    """Return the largest capacities of the volumes. None without any."""
    status = StorageStatus(
        data_capacity=_largest_capacity(i.data for i in state.instances),
        wal_capacity=_largest_capacity(i.wal for i in state.instances),
    )
    return None if status == StorageStatus() else status


def _largest_capacity(pvcs: Iterable[PersistentVolumeClaim | None]) -> Quantity | None:
    return max((c for pvc in pvcs if pvc is not None and (c := capacity_of(pvc)) is not None), default=None)
