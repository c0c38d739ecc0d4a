"""Stage for replication slots without a client."""

from __future__ import annotations

from collections.abc import Sequence

from steersman_databases.api import Cluster, PostgreSQLCluster
from steersman_databases.api.autopilot.automation import AutomationMode, AutomationStatus, limited_mode
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.errors import EngineError
from steersman_databases.features.certificates.model import CertificateSet
from steersman_databases.features.healing.inactive_slots import SlotFinding, find_inactive_slots
from steersman_databases.features.healing.servers import HealingQueries, superuser_at, with_last_action

_CONDITION = "ReplicationSlotsReady"


class InactiveSlots:
    """Replication slots of all clusters of an engine.

    Args:
        limit: most that automatic functions may do in this installation.
    """

    def __init__(self, engine: ClusterEngine, queries: HealingQueries, limit: AutomationMode) -> None:
        self._engine, self._queries = engine, queries
        self._limit: AutomationMode = limit

    async def ensure(
        self,
        context: ClusterContext,
        cluster: Cluster,
        state: ClusterState,
        certificates: CertificateSet,
        conditions: ConditionSet,
    ) -> AutomationStatus | None:
        """Set the condition, and drop slots that are due."""
        assert isinstance(cluster, PostgreSQLCluster)
        mode = limited_mode(cluster.spec.healing.inactive_slots.mode, self._limit)
        if mode == "Disabled":
            return None
        findings = [*find_inactive_slots(context.declared, state)]
        due = [each for each in findings if each.due and mode == "Automatic"]
        dropped = [text for each in due if (text := await self._drop(context, each, state, certificates))]
        message = "; ".join(each.message for each in findings) or "no slot without a client fills a volume"
        if findings and not conditions.has_reason(_CONDITION, "SlotMissing"):
            conditions.set(_CONDITION, False, "SlotInactive", message)
        entry = AutomationStatus(
            name="InactiveSlots",
            mode=mode,
            decision=_decision(findings, dropped, mode),
            message=message,
            next_action_time=min((t for each in findings if (t := each.next_time) is not None), default=None)
            if mode == "Automatic"
            else None,
        )
        return with_last_action(cluster, entry, state.now, "; ".join(dropped))

    async def _drop(
        self, context: ClusterContext, finding: SlotFinding, state: ClusterState, certificates: CertificateSet
    ) -> str:
        """Drop a slot. Return a description, or "" if it was not dropped.

        It may be used again, or the server does not respond.
        """
        pod = finding.instance.pod
        if pod is None or finding.instance.fenced or not pod.status.pod_ip:
            return ""
        server = superuser_at(self._engine, certificates, pod, state.now)
        try:
            if not await self._queries.drop_inactive_slot(server, finding.slot.name, finding.slot.retained):
                return ""
        except EngineError:
            # The volume and the slot stay in the report, so the next reconcile tries again.
            return ""
        description = f"dropped the slot: {finding.message}"
        context.events.warning(context.cluster, "ReplicationSlotDropped", description)
        return description


def _decision(findings: Sequence[SlotFinding], dropped: Sequence[str], mode: AutomationMode) -> str:
    if dropped:
        return "SlotDropped"
    if not findings:
        return "Idle"
    return "DropRecommended" if mode == "Recommend" and any(each.due for each in findings) else "SlotInactive"
