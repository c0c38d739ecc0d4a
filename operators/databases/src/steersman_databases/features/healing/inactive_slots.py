"""Decisions about replication slots that fill a volume. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.core.sizes import format_bytes
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import member_slot_pattern
from steersman_databases.features.storage.usage import InactiveSlot, VolumeName, VolumeUsage, usage_of

LEAST_PERCENT = 90
"""Least use of a volume at which a slot is dropped.

A slot is also dropped if the volume would be full within an hour.
"""
LEAST_INACTIVITY = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFinding:
    """A slot without a client that fills a volume.

    Attributes:
        declared: `spec` declares it.
        due: it may be dropped now.
        next_time: when it may be dropped, if only the duration is missing.
    """

    instance: Instance
    slot: InactiveSlot
    message: str
    declared: bool
    due: bool
    next_time: datetime | None = None


def find_inactive_slots(cluster: DeclaredCluster, state: ClusterState) -> Iterator[SlotFinding]:
    """Yield the reported slots, except those of instances and read replicas."""
    own = re.compile(member_slot_pattern(cluster.names))
    declared = {slot.name for slot in cluster.replication_slots}
    volume: VolumeName = "data" if cluster.wal_size is None else "wal"
    for instance in state.instances:
        usage = usage_of(instance.pod, volume)
        slot = None if usage is None else usage.inactive_slot
        if usage is not None and slot is not None and not own.fullmatch(slot.name):
            where = f"{cluster.names.instance(instance.ordinal)}, whose volume {volume}"
            yield _finding(instance, slot, usage, where, state.now, declared=slot.name in declared)


def _finding(
    instance: Instance, slot: InactiveSlot, usage: VolumeUsage, where: str, now: datetime, *, declared: bool
) -> SlotFinding:
    message = (
        f"replication slot {slot.name} has no client since {slot.since:%Y-%m-%d %H:%M} UTC and retains "
        f"{format_bytes(slot.retained)} WAL of {where} is {int(usage.percent)} % full"
    )
    if declared:
        message = f"{message}. It is declared, so it is not dropped"
    filling = not declared and (usage.percent >= LEAST_PERCENT or usage.fill_rate is not None)
    due_at = slot.since + LEAST_INACTIVITY
    return SlotFinding(
        instance=instance,
        slot=slot,
        message=message,
        declared=declared,
        due=filling and now >= due_at,
        next_time=due_at if filling and now < due_at else None,
    )
