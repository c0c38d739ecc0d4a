"""Condition about the free space of the volumes."""

from __future__ import annotations

from collections.abc import Iterator

from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.storage.usage import VolumeName, usage_of


def evaluate_storage(declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
    """Evaluate the free space of the volumes, as the instances report it."""
    members = state.members.members
    used = [(f"{v}-{declared.names.instance(m.instance)}", level) for m in members for v, level in m.storage.items()]
    least = sorted(((pvc, level) for pvc, level in used if level), key=lambda each: -each[1])
    if not used:
        conditions.remove("StorageSufficient")
    elif not least:
        conditions.set("StorageSufficient", True, "Sufficient", "all volumes have free space")
    else:
        reason = "DiskFull" if any(m.disk_full for m in members) else "RunningLow"
        detail = [f"{claim} is {f'over {level} % ' if level < 100 else ''}full" for claim, level in least]
        retained = "".join(f"; {each}" for each in _retained_wal(declared, state))
        conditions.set("StorageSufficient", False, reason, f"volume {', '.join(detail)}{retained}")


def _retained_wal(declared: DeclaredCluster, state: ClusterState) -> Iterator[str]:
    """Yield slots and archives that retain much WAL, with the amount."""
    volume: VolumeName = "data" if declared.wal_size is None else "wal"
    for instance in state.instances:
        usage = usage_of(instance.pod, volume)
        if usage is not None and usage.retained_by:
            yield f"{usage.retained_by} of {declared.names.instance(instance.ordinal)} retains {usage.retained}"
