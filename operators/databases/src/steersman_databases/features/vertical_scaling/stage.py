"""Stage of vertical scaling: record the use, decide, apply, report.

The ConfigMap is the only record. The resources that it applies reach the pods as changed `spec.resources` do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.meta import is_true
from steersman_databases.api import Cluster
from steersman_databases.api.autopilot.automation import (
    AutomationMode,
    AutomationStatus,
    VerticalScalingSettings,
    limited_mode,
)
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.labels import cluster_labels
from steersman_databases.core.outcome import truncated
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.maintenance.model import MaintenanceSchedule
from steersman_databases.features.vertical_scaling.model import HOLDS, ScalingDecision, ScalingSituation, decide
from steersman_databases.features.vertical_scaling.record import AppliedResources, UsageRecord, parse_record
from steersman_databases.features.vertical_scaling.reports import out_of_memory, reported_hours
from steersman_databases.features.vertical_scaling.resources import base_of, format_amount, scaled

CONDITION = "VerticalScalingReady"
FILE_NAME = "usage.json"
_HOUR_SECONDS = 3600
_GRACE_SECONDS = 600
"""Time after an hour in which the pods complete their reports.

They report every five minutes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerticalScaling:
    """Records the use of one cluster, and decides about its resources.

    Attributes:
        context: with the resources in `spec`, or their defaults.
        record: the record before this reconcile.
        limit: most that automatic functions may do in this installation.
    """

    context: ClusterContext
    cluster: Cluster
    record: UsageRecord
    limit: AutomationMode

    @classmethod
    async def load(cls, context: ClusterContext, cluster: Cluster, limit: AutomationMode) -> VerticalScaling:
        """Read the record of a cluster. It is empty without a ConfigMap."""
        settings, key = cluster.spec.vertical_scaling, context.declared.names.usage
        # A ConfigMap that lost its labels is not in the cache. Without it, the servers would get other resources.
        if settings is not None and settings.mode == "Automatic":
            found = await get_cached_or_live(context.client, ConfigMap, key)
        else:
            found = await context.client.get_or_none(ConfigMap, key)
        is_own = found is not None and context.may_control(found)
        record = parse_record(found.data.get(FILE_NAME, "")) if found is not None and is_own else UsageRecord()
        return cls(context=context, cluster=cluster, record=record, limit=limit)

    @property
    def declared(self) -> DeclaredCluster:
        """The cluster with the applied recommendation.

        The flag of the operator does not matter: it stops changes, and takes none back.
        """
        declared, settings = self.context.declared, self.cluster.spec.vertical_scaling
        if settings is None or settings.mode != "Automatic":
            return declared
        pods = declared.pod_settings
        resources = scaled(pods.resources, self.record.applied, settings)
        return replace(declared, pod_settings=replace(pods, resources=resources))

    async def ensure(
        self, state: ClusterState, schedule: MaintenanceSchedule, conditions: ConditionSet
    ) -> tuple[AutomationStatus, ...]:
        """Record new hours and at most one decision. Return the entry for the status."""
        settings, updated = self.cluster.spec.vertical_scaling, self._as_declared(self._observed(state))
        mode = "Disabled" if settings is None else limited_mode(settings.mode, self.limit)
        decision = None
        if settings is not None and mode != "Disabled":
            decision = decide(settings, updated, self._situation(mode, schedule))
            updated = self._with_decision(updated, decision)
        with self.context.deferred:
            if updated != self.record:
                await self._store(updated)
            if decision is not None and decision.requests is not None:
                description = f"{decision.message} {decision.evidence}"
                self.context.events.normal(self.context.cluster, "ResourcesScaled", description)
        _set_condition(decision, conditions)
        return () if settings is None else (_status(settings, mode, decision, updated),)

    def _observed(self, state: ClusterState) -> UsageRecord:
        """Return the record with new hours and the present primary. Without a report, nothing is recorded."""
        now = self.context.clock.now()
        before = int((now.timestamp() - _GRACE_SECONDS) // _HOUR_SECONDS)
        pods = [instance.pod for instance in state.instances if instance.pod is not None]
        reported = [use for pod in pods for use in (*reported_hours(pod), *out_of_memory(pod))]
        record = self.record.with_hours(reported, before)
        if state.primary is None or (self.cluster.spec.vertical_scaling is None and not record.hour):
            return record
        return record.with_primary(self.context.declared.names.instance(state.primary.ordinal), now)

    def _as_declared(self, record: UsageRecord) -> UsageRecord:
        """Return the record without what the declaration supersedes.

        A changed declaration counts as a change of the resources, so the next automatic one waits.
        """
        settings, base = self.cluster.spec.vertical_scaling, base_of(self.context.declared.pod_settings.resources)
        if settings is None or settings.mode != "Automatic":
            return replace(record, applied=None)
        if record.applied is None or record.applied.base == base:
            return record
        return replace(record, applied=AppliedResources(base=base, at=self.context.clock.now()))

    def _situation(self, mode: AutomationMode, schedule: MaintenanceSchedule) -> ScalingSituation:
        status = self.cluster.status
        is_current = status.observed_generation == self.cluster.metadata.generation
        ready = is_current and is_true(status.conditions, "Ready")
        return ScalingSituation(
            mode=mode,
            resources=self.declared.pod_settings.resources,
            now=self.context.clock.now(),
            obstacle="" if ready else "the cluster is not Ready",
            waits_for_window=schedule.waits,
            next_window=schedule.next_window,
        )

    def _with_decision(self, record: UsageRecord, decision: ScalingDecision) -> UsageRecord:
        if decision.requests is None:
            return record
        applied = AppliedResources(
            requests={name: format_amount(name, amount) for name, amount in decision.requests.items()},
            base=base_of(self.context.declared.pod_settings.resources),
            at=self.context.clock.now(),
            description=truncated(f"{decision.message} {decision.evidence}"),
        )
        return replace(record, applied=applied)

    async def _store(self, record: UsageRecord) -> None:
        key = self.context.declared.names.usage
        labels = cluster_labels(self.context.declared)
        metadata = meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels)
        await self.context.apply(ConfigMap, core.ConfigMap(metadata=metadata, data={FILE_NAME: record.to_json()}))


def _set_condition(decision: ScalingDecision | None, conditions: ConditionSet) -> None:
    if decision is None:
        conditions.remove(CONDITION)
        return
    evidence = f". Evidence {decision.evidence}" if decision.evidence else ""
    conditions.set(CONDITION, HOLDS[decision.reason], decision.reason, f"{decision.message}{evidence}")


def _status(
    settings: VerticalScalingSettings,
    mode: AutomationMode,
    decision: ScalingDecision | None,
    record: UsageRecord,
) -> AutomationStatus:
    entry = AutomationStatus(name="Resources", mode=mode, decision="Disabled", message="")
    if decision is None:
        by = "verticalScaling.mode" if settings.mode == "Disabled" else "the flag --automation of the operator"
        entry = msgspec.structs.replace(entry, message=f"disabled by {by}")
    else:
        entry = msgspec.structs.replace(
            entry,
            decision=decision.reason,
            message=decision.message,
            evidence=decision.evidence or None,
            next_action_time=decision.next_time,
        )
    if record.applied is None or not record.applied.requests:
        return entry
    return msgspec.structs.replace(entry, last_action=record.applied.description, last_action_time=record.applied.at)
