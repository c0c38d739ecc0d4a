"""Stage that prevents transaction ID wraparound."""

from __future__ import annotations

from dataclasses import replace

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Cluster, PostgreSQLCluster
from steersman_databases.api.autopilot.automation import AutomationMode, AutomationStatus, limited_mode
from steersman_databases.api.autopilot.healing import WraparoundSettings
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.features.certificates.model import CertificateSet
from steersman_databases.features.healing.servers import HealingQueries, superuser_at, with_last_action
from steersman_databases.features.healing.wraparound import WraparoundDecision, decide

_CONDITION = "WraparoundPrevented"
_INTERVAL_SECONDS = 600.0
"""Interval of inspections. 10,000 transactions a second are 6 million meanwhile."""
_URGENT_INTERVAL_SECONDS = 60.0
"""Interval while a database is old."""


class WraparoundPrevention:
    """Transaction IDs of all clusters of an engine. The times of inspections are in memory only.

    Args:
        limit: most that automatic functions may do in this installation.
    """

    def __init__(self, engine: ClusterEngine, clock: Clock, queries: HealingQueries, limit: AutomationMode) -> None:
        self._engine, self._clock, self._queries = engine, clock, queries
        self._limit: AutomationMode = limit
        self._next_inspection: dict[ObjectKey, float] = {}

    async def ensure(
        self,
        context: ClusterContext,
        cluster: Cluster,
        state: ClusterState,
        certificates: CertificateSet,
        conditions: ConditionSet,
    ) -> tuple[AutomationStatus, ...] | None:
        """Inspect the primary if that is due, act, and set the condition.

        Returns the entry of the status, if there is one. None if nothing was inspected.
        """
        assert isinstance(cluster, PostgreSQLCluster)
        settings, key = cluster.spec.healing.wraparound, context.declared.key
        mode = limited_mode(settings.mode, self._limit)
        if mode == "Disabled":
            conditions.remove(_CONDITION)
            return ()
        primary = state.primary
        if primary is None or primary.pod is None or self._clock.monotonic() < self._next_inspection.get(key, 0.0):
            return None
        server = superuser_at(self._engine, certificates, primary.pod, state.now)
        self._next_inspection[key] = self._clock.monotonic() + _URGENT_INTERVAL_SECONDS
        try:
            ids = await self._queries.inspect_transaction_ids(server)
        except EngineError:
            # Other conditions report a server that does not respond.
            return None
        end_after = None if settings.end_transactions_after is None else settings.end_transactions_after.seconds
        decision = decide(ids, mode, end_after)
        if decision is None:
            self._next_inspection[key] = self._clock.monotonic() + _INTERVAL_SECONDS
            conditions.remove(_CONDITION)
            idle = AutomationStatus(name="Wraparound", mode=mode, decision="Idle", message="no database is old")
            entry = with_last_action(cluster, idle, state.now)
            return () if entry is None else (entry,)
        decision, action = await self._act(server, ids.database, decision, settings)
        if action:
            context.events.warning(context.cluster, decision.reason, f"{action}: {decision.evidence}")
        conditions.set(_CONDITION, False, decision.reason, decision.message)
        found = AutomationStatus(
            name="Wraparound",
            mode=mode,
            decision=decision.reason,
            message=decision.message,
            evidence=decision.evidence,
        )
        entry = with_last_action(cluster, found, state.now, action)
        return () if entry is None else (entry,)

    def forget(self, cluster: ObjectKey) -> None:
        """Drop a deleted cluster."""
        self._next_inspection.pop(cluster, None)

    async def _act(
        self, server: DatabaseServer, database: str, decision: WraparoundDecision, settings: WraparoundSettings
    ) -> tuple[WraparoundDecision, str]:
        """Do what was decided. Return the decision with its outcome, and a description of the action or ""."""
        try:
            if decision.end is not None and settings.end_transactions_after is not None:
                seconds = settings.end_transactions_after.seconds
                ended = await self._queries.end_transaction(server, decision.end, seconds)
                return decision, f"ended session {decision.end.name} ({decision.end.detail})" if ended else ""
            if decision.vacuum is not None:
                tables = await self._queries.vacuum_oldest_tables(server, database, decision.vacuum)
                outcome = (
                    f"vacuuming {', '.join(tables)}"
                    if tables
                    else "autovacuum or a session locks the old tables, or they are temporary"
                )
                decision = replace(decision, message=f"{decision.message}; {outcome}")
                return decision, f"began to vacuum {', '.join(tables)} in database {database}" if tables else ""
        except EngineError as error:
            return replace(decision, message=f"{decision.message}; it failed: {error}"), ""
        return decision, ""
