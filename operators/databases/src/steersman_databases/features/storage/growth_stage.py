"""Stage of storage autogrow: observe volumes, decide, request the first growth, report.

Nothing is kept: the common size of volumes is the largest request, and the record of a growth is on its PVC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.api.storage_v1 import StorageClass
from steersman.cache import CachedClient
from steersman.errors import ApiError, NotFound
from steersman.meta import ObjectKey, Quantity, find_condition
from steersman.observability.runtime import Clock
from steersman_databases.api import Cluster, PostgreSQLCluster
from steersman_databases.api.autopilot.automation import (
    AutogrowSettings,
    AutomationMode,
    AutomationStatus,
    limited_mode,
)
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.storage.autogrow import (
    SEVERITY,
    GrowthDecision,
    GrowthReason,
    decide,
    format_size,
)
from steersman_databases.features.storage.stage import VolumeReconciler
from steersman_databases.features.storage.usage import (
    GROWN,
    Growth,
    VolumeName,
    capacity_of,
    growth_of,
    pvc_of,
    requested_size,
    volumes_of,
)

CONDITION = "AutogrowReady"
_HOLDS: dict[GrowthReason, bool | None] = {"Idle": True, "Growing": True, "CoolingDown": True, "UsageUnknown": None}
_CLASS_CACHE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Autogrow:
    """Autogrow of the volumes of one name."""

    volume: VolumeName
    name: Literal["Storage", "WalStorage"]
    settings: AutogrowSettings


def autogrow_settings(cluster: Cluster) -> Iterator[_Autogrow]:
    """Yield the declared settings."""
    if (settings := cluster.spec.storage.autogrow) is not None:
        yield _Autogrow(volume="data", name="Storage", settings=settings)
    wal = cluster.spec.wal_storage if isinstance(cluster, PostgreSQLCluster) else None
    if wal is not None and wal.autogrow is not None:
        yield _Autogrow(volume="wal", name="WalStorage", settings=wal.autogrow)


def with_grown_volumes(declared: DeclaredCluster, cluster: Cluster, state: ClusterState) -> DeclaredCluster:
    """Return the cluster with the sizes of its volumes.

    The common size is the largest request if the volumes grow automatically, or did. Otherwise it is the declared
    one.
    """
    data = [i.data for i in state.instances if i.data is not None]
    wal = [i.wal for i in state.instances if i.wal is not None]
    if (size := grown_size(declared.storage_size, cluster, "data", data)) is not None:
        declared = _with_size(declared, "data", size)
    if declared.wal_size is not None and (size := grown_size(declared.wal_size, cluster, "wal", wal)) is not None:
        declared = _with_size(declared, "wal", size)
    capacities = [c for pvc in (wal or data) if (c := capacity_of(pvc)) is not None]
    return replace(declared, capacity=min(capacities, default=None))


def grown_size(
    size: Quantity, cluster: Cluster, volume: VolumeName, pvcs: Sequence[PersistentVolumeClaim]
) -> Quantity | None:
    """Return the common size of the volumes of one name.

    None if they do not grow automatically, and never did.

    Args:
        size: the declared size.
        pvcs: of these volumes.
    """
    grows = any(each.volume == volume for each in autogrow_settings(cluster))
    if not grows and not any(GROWN in pvc.metadata.annotations for pvc in pvcs):
        return None
    return max([size, *map(requested_size, pvcs)])


def _with_size(declared: DeclaredCluster, volume: VolumeName, size: Quantity) -> DeclaredCluster:
    recorded = declared.recorded_volumes | {volume}
    if volume == "data":
        return replace(declared, storage_size=size, recorded_volumes=recorded)
    return replace(declared, wal_size=size, recorded_volumes=recorded)


class StorageClasses:
    """Storage classes, each read at most once a minute."""

    def __init__(self, client: CachedClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._known: dict[str, tuple[bool, float]] = {}

    async def problem(self, pvcs: Sequence[PersistentVolumeClaim]) -> str:
        """Return why a PVC cannot grow, or "". A class that cannot be read is ignored."""
        for pvc in pvcs:
            name = pvc.spec.storage_class_name
            if name and not await self._is_expandable(name):
                return f"StorageClass {name} of PVC {pvc.metadata.name} does not allow volume expansion"
        return ""

    async def _is_expandable(self, name: str) -> bool:
        known, until = self._known.get(name, (True, 0.0))
        if self._clock.monotonic() < until:
            return known
        try:
            found = await self._client.live.get(StorageClass, ObjectKey("", name))
        except ApiError:
            expandable = True
        else:
            expandable = found.allow_volume_expansion is True
        self._known[name] = expandable, self._clock.monotonic() + _CLASS_CACHE_SECONDS
        return expandable


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthOutcome:
    """Result of the stage.

    Attributes:
        announced: a growth follows as soon as its cause is in the stored condition.
    """

    automation: tuple[AutomationStatus, ...] = ()
    announced: bool = False


class VolumeGrowth:
    """Grows the volumes of one cluster.

    It depends on no server, and runs before everything that may fail.

    Args:
        limit: most that automatic functions may do in this installation.
    """

    def __init__(
        self, context: ClusterContext, cluster: Cluster, classes: StorageClasses, limit: AutomationMode
    ) -> None:
        self._context, self._cluster, self._classes = context, cluster, classes
        self._limit: AutomationMode = limit

    async def ensure(self, state: ClusterState, conditions: ConditionSet) -> GrowthOutcome:
        """Request at most one growth for each name, and set the condition."""
        found = list[tuple[_Autogrow, AutomationMode, GrowthDecision | None]]()
        announced = False
        for each in autogrow_settings(self._cluster):
            mode = limited_mode(each.settings.mode, self._limit)
            if mode == "Disabled":
                found.append((each, mode, None))
                continue
            decision = await self._decide(each, mode, state)
            if decision.grow_to is not None and self._must_announce(decision):
                announced = True
            elif decision.grow_to is not None:
                decision = await self._grow(each, decision, state)
            found.append((each, mode, decision))
        self._set_condition([decision for _, _, decision in found if decision is not None], conditions)
        automation = tuple(self._status(each, mode, decision, state) for each, mode, decision in found)
        return GrowthOutcome(automation=automation, announced=announced)

    async def _decide(self, each: _Autogrow, mode: AutomationMode, state: ClusterState) -> GrowthDecision:
        declared = self._context.declared
        size = declared.storage_size if each.volume == "data" else declared.wal_size
        pvcs = [pvc for i in state.instances if (pvc := pvc_of(i, each.volume)) is not None]
        return decide(
            each.settings,
            volumes_of(state.instances, each.volume),
            self._context.clock.now(),
            size=0 if size is None else int(size),
            mode=mode,
            not_expandable=await self._classes.problem(pvcs),
        )

    def _must_announce(self, decision: GrowthDecision) -> bool:
        """Return True if no stored condition names the cause yet."""
        usage = None if decision.volume is None else decision.volume.usage
        if usage is None or not usage.retained_by:
            return False
        stored = find_condition(self._cluster.status.conditions, CONDITION)
        return stored is None or usage.retained_by not in stored.message

    async def _grow(self, each: _Autogrow, decision: GrowthDecision, state: ClusterState) -> GrowthDecision:
        """Request the size for the PVC that needs room.

        The others follow in the next reconcile, in which this request is the common size.
        """
        assert decision.volume is not None and decision.grow_to is not None
        name, size = decision.volume.name, Quantity(format_size(decision.grow_to))
        for instance in state.instances:
            pvc = pvc_of(instance, each.volume)
            if pvc is None or pvc.metadata.name != name:
                continue
            volumes = VolumeReconciler(self._context)
            description = f"PVC {name} grew from {requested_size(pvc)} to {size}: {decision.evidence}"
            try:
                growth = volumes.growth_record(instance, each.volume, description)
                refused = await volumes.request_size(pvc, size, growth)
            except NotFound:
                break
            if refused is not None:
                reason: GrowthReason = "QuotaExceeded" if refused.reason == "QuotaExceeded" else "NotExpandable"
                return replace(decision, reason=reason, message=refused.message, grow_to=None)
            self._context.events.normal(self._context.cluster, "VolumeGrown", description)
            return decision
        return replace(decision, grow_to=None)

    def _set_condition(self, decisions: Sequence[GrowthDecision], conditions: ConditionSet) -> None:
        if not decisions:
            conditions.remove(CONDITION)
            return
        ordered = sorted(decisions, key=lambda decision: SEVERITY.index(decision.reason))
        reported = [d.message for d in ordered if d.reason != "Idle"] or [ordered[0].message]
        reason = ordered[0].reason
        conditions.set(CONDITION, _HOLDS.get(reason, False), reason, "; ".join(reported))

    def _status(
        self, each: _Autogrow, mode: AutomationMode, decision: GrowthDecision | None, state: ClusterState
    ) -> AutomationStatus:
        last = self._last_growth(each, state)
        if decision is None:
            declared = each.settings.mode == "Disabled"
            message = f"disabled by {'autogrow.mode' if declared else 'the flag --automation of the operator'}"
        else:
            message = decision.message
        return AutomationStatus(
            name=each.name,
            mode=mode,
            decision="Disabled" if decision is None else decision.reason,
            message=message,
            last_action=None if last is None else last.description,
            last_action_time=None if last is None else last.at,
            next_action_time=None if decision is None else decision.next_time,
        )

    def _last_growth(self, each: _Autogrow, state: ClusterState) -> Growth | None:
        """Return the last automatic growth by the records of PVCs."""
        pvcs = [pvc for i in state.instances if (pvc := pvc_of(i, each.volume)) is not None]
        growths = [growth for pvc in pvcs if (growth := growth_of(pvc)) is not None]
        dated = [(growth.at, growth) for growth in growths if growth.at is not None and growth.description]
        return max(dated, key=_time_of)[1] if dated else None


def _time_of(dated: tuple[datetime, Growth]) -> datetime:
    return dated[0]
