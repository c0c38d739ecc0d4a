"""Stage that frees replicas whose WAL receiver is stuck."""

from __future__ import annotations

from dataclasses import replace

from steersman.meta import ObjectKey
from steersman_databases.api import Cluster, PostgreSQLCluster
from steersman_databases.api.autopilot.automation import AutomationMode, AutomationStatus, limited_mode
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.members import HaBackend
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.features.certificates.model import CertificateSet
from steersman_databases.features.healing.servers import HealingQueries, superuser_at, with_last_action
from steersman_databases.features.healing.stuck_replicas import STUCK_AFTER, Stall, cure, observe

_CONDITION = "ReplicationAdvancing"


class StuckReplicas:
    """Replicas of all clusters of an engine.

    Stalls are in memory only: another process observes them again.

    Args:
        limit: most that automatic functions may do in this installation.
    """

    def __init__(
        self, engine: ClusterEngine, ha_backend: HaBackend, queries: HealingQueries, limit: AutomationMode
    ) -> None:
        self._engine, self._ha_backend, self._queries = engine, ha_backend, queries
        self._limit: AutomationMode = limit
        self._stalls: dict[ObjectKey, dict[str, Stall]] = {}

    async def ensure(
        self,
        context: ClusterContext,
        cluster: Cluster,
        state: ClusterState,
        certificates: CertificateSet,
        conditions: ConditionSet,
    ) -> AutomationStatus | None:
        """Set the condition, and free one replica."""
        assert isinstance(cluster, PostgreSQLCluster)
        mode = limited_mode(cluster.spec.healing.stuck_replicas.mode, self._limit)
        stalls = {} if mode == "Disabled" else self._observe(context.declared.key, state)
        stuck = {uid: stall for uid, stall in stalls.items() if state.now - stall.since >= STUCK_AFTER}
        if not stuck:
            conditions.remove(_CONDITION)
            entry = AutomationStatus(
                name="StuckReplicas", mode=mode, decision="Idle", message="all replicas that stream advance"
            )
            return None if mode == "Disabled" else with_last_action(cluster, entry, state.now)
        found = [i for i in state.instances if i.pod is not None and i.pod.metadata.uid in stuck]
        message = "; ".join(self._describe(context, i, stuck) for i in found)
        conditions.set(_CONDITION, False, "ReceiverStuck", message)
        action = ""
        for instance in found if mode == "Automatic" else ():
            if (action := await self._cure(context, instance, state, certificates)) != "":
                break  # One at a time.
        entry = AutomationStatus(name="StuckReplicas", mode=mode, decision="ReceiverStuck", message=message)
        return with_last_action(cluster, entry, state.now, action)

    def forget(self, cluster: ObjectKey) -> None:
        """Drop a deleted cluster."""
        self._stalls.pop(cluster, None)

    def _observe(self, key: ObjectKey, state: ClusterState) -> dict[str, Stall]:
        """Return the stalls by pod UID. Without a primary no replica can advance."""
        previous, found = self._stalls.get(key, {}), dict[str, Stall]()
        serves = state.primary is not None and state.primary.pod_ready
        for instance in state.replicas() if serves else ():
            if instance.pod is None or instance.member is None or instance.fenced:
                continue
            uid = instance.pod.metadata.uid
            if (stall := observe(previous.get(uid), instance.member, state.now)) is not None:
                found[uid] = stall
        self._stalls[key] = found
        return found

    def _describe(self, context: ClusterContext, instance: Instance, stuck: dict[str, Stall]) -> str:
        assert instance.pod is not None
        since = stuck[instance.pod.metadata.uid].since
        name = context.declared.names.instance(instance.ordinal)
        return f"{name} streams and has received nothing since {since:%Y-%m-%d %H:%M:%S} UTC"

    async def _cure(
        self, context: ClusterContext, instance: Instance, state: ClusterState, certificates: CertificateSet
    ) -> str:
        """Do what is due for a replica. Return a description, or "" if nothing was done."""
        assert instance.pod is not None and instance.member is not None
        uid, stalls = instance.pod.metadata.uid, self._stalls[context.declared.key]
        if (due := cure(stalls[uid], state.now)) is None:
            return ""
        restarts = due == "RestartServer"
        if restarts and any(_is_starting(each) for each in state.instances):
            return ""
        server = superuser_at(self._engine, certificates, instance.pod, state.now)
        if await self._has_advanced(server, stalls[uid]):
            # Its pod cannot report its position. The WAL receiver works.
            stalls[uid] = Stall(position=stalls[uid].position, since=state.now)
            return ""
        stalls[uid] = replace(stalls[uid], cured_at=state.now, restarted=restarts)
        try:
            if restarts:
                await self._ha_backend.restart_server(state.members, instance.member)
            else:
                await self._queries.end_wal_receiver(server)
        except EngineError:
            # The condition stays. A server that does not respond is restarted next.
            return ""
        name = context.declared.names.instance(instance.ordinal)
        action = f"restarted the server of {name}" if restarts else f"ended the WAL receiver of {name}"
        reason = "Restarted" if restarts else "ReceiverEnded"
        context.events.normal(context.cluster, reason, f"{action}: it streamed and received nothing")
        return action

    async def _has_advanced(self, server: DatabaseServer, stall: Stall) -> bool:
        """Return True if the server itself has more WAL than it reports."""
        try:
            received = await self._queries.received_wal(server)
        except EngineError:
            return False
        return received is not None and received > stall.position


def _is_starting(instance: Instance) -> bool:
    return instance.pod is not None and (instance.member is None or instance.member.state == "Starting")
