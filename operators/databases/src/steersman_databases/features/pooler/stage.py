"""Poolers of a cluster, which pause clients during a switchover."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Pod, Service
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.controller import Builder
from steersman.errors import ApiError
from steersman.meta import Object, ObjectKey, is_true
from steersman.observability.runtime import Clock
from steersman_databases.api.autopilot.maintenance import NEWER_TEMPLATE, PendingDisruption
from steersman_databases.api.cluster_common import MemberRole, PoolerSettings
from steersman_databases.cluster.actions import Action, RestartServer, SwitchOver, Wait
from steersman_databases.cluster.rules.rolling_update import pooler_image
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.poolers import NotCreated
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.engines.errors import EngineError, ServerUnreachable
from steersman_databases.engines.server import ClientKeyPair, ServerEndpoint
from steersman_databases.features.certificates.model import CertificateSet
from steersman_databases.features.certificates.reload import CertificateHolder
from steersman_databases.features.pooler.admin_console import Command
from steersman_databases.features.pooler.pgbouncer import PORT
from steersman_databases.features.pooler.specs import (
    POOLER_LABEL,
    PoolerRole,
    is_unrequested,
    pooler_budget,
    pooler_configuration,
    pooler_deployment,
    pooler_key,
    pooler_labels,
    pooler_policy,
    pooler_policy_key,
    pooler_service,
)

T = TypeVar("T", bound=Object)
RunAdminCommand = Callable[[ServerEndpoint, ClientKeyPair, bytes, Command], Awaitable[None]]

# A longer switchover has failed, and then an error is better than no response.
_MAX_PAUSE_SECONDS = 20.0
# After this time all nodes route to the present primary. Until then a connection may reach the previous one.
_ENDPOINT_PROPAGATION_SECONDS = 10.0
_ROLES: Sequence[PoolerRole] = ("rw", "ro")
_TARGET_ROLE: Mapping[str, MemberRole] = {"rw": "Primary", "ro": "Replica"}

PrimaryIdentity = tuple[str, frozenset[tuple[str, str]]]
"""Term of the leader, and each server's role by its pod's UID."""


def _upstreams_of(pod: Pod, primary: PrimaryIdentity | None) -> PrimaryIdentity | None:
    """Return the part of the identity that concerns a pooler's servers.

    A pooler keeps its connections when other servers change.
    """
    if primary is None:
        return None
    leadership, roles = primary
    upstreams = _TARGET_ROLE[pod.metadata.labels[POOLER_LABEL]]
    return leadership, frozenset(each for each in roles if each[1] == upstreams)


def primary_identity(state: ClusterState) -> PrimaryIdentity | None:
    """Return the serving members, or None without a primary.

    Without a primary there is no other server to connect to.
    """
    primary = state.primary
    if primary is None:
        return None
    roles = ((i.pod.metadata.uid, i.member.role) for i in state.instances if i.pod and i.member and i.pod_ready)
    return state.members.leader_term, frozenset(roles)


def interrupts_clients(action: Action | Wait | None, state: ClusterState) -> bool:
    """Return True if the action interrupts clients only for a moment."""
    restarts = isinstance(action, RestartServer) and action.instance == state.members.leader
    return restarts or isinstance(action, SwitchOver)


def primary_is_starting(state: ClusterState) -> bool:
    """Return True if the leader restarts in place."""
    members = state.members
    leader = None if members.leader is None else members.member(members.leader)
    return leader is not None and leader.state == "Starting"


async def no_admin_console(
    endpoint: ServerEndpoint, login: ClientKeyPair, ca_bundle: bytes, command: Command
) -> None:
    """Refuse all commands, for engines without PgBouncer."""
    raise ServerUnreachable(endpoint, "no server listens")


@dataclass(slots=True)
class _PoolerState:
    """Last commands to a pod.

    The state is lost with the process. Then all pods are resumed and reconnect, which is harmless.

    Attributes:
        paused_since: start of the pause, or None if it is known not to be paused.
        primary: serving members at its last reconnect.
        retry_at: time of another reconnect.
    """

    paused_since: float | None
    primary: PrimaryIdentity | None = None
    retry_at: float | None = None


class PoolerReconciler:
    """Reconciles the poolers of all clusters. There is one for each controller.

    Args:
        run_command: runs a command on a PgBouncer.
    """

    def __init__(self, clock: Clock, run_command: RunAdminCommand) -> None:
        self._clock = clock
        self._run_command = run_command
        self._states: dict[ObjectKey, dict[str, _PoolerState]] = {}

    async def ensure(
        self,
        context: ClusterContext,
        pooler: PoolerSettings | None,
        state: ClusterState,
        *,
        network: bool,
        pending: list[PendingDisruption],
    ) -> Mapping[ObjectKey, Deployment | NotCreated]:
        """Create or delete the objects of poolers.

        Args:
            network: a NetworkPolicy lets clients in.
            pending: receives the disruptions that wait for a maintenance window.

        Returns:
            The declared Deployments, or the reason why one is missing.
        """
        with context.deferred:
            if pooler is not None and network:
                await context.apply(NetworkPolicy, pooler_policy(context.declared))
            else:
                await context.delete_if_controlled(NetworkPolicy, pooler_policy_key(context.declared))
        declared = dict[ObjectKey, Deployment | NotCreated]()
        for role in _ROLES:
            key = pooler_key(context.declared, role)
            desired = pooler if pooler is not None and (role == "rw" or pooler.read_only) else None
            if desired is not None:
                try:
                    declared[key] = await self._ensure_role(context, desired, role, state, pending)
                except (ApiError, ReconcileBlocked) as error:
                    if not context.deferred.defer(error):
                        raise
                    waits = isinstance(error, ReconcileBlocked) and error.outcome.phase == "Pending"
                    declared[key] = NotCreated("PoolerNotReady" if waits else "PodRejected", str(error))
            with context.deferred:
                if desired is not None and desired.replicas > 1:
                    await context.apply(PodDisruptionBudget, pooler_budget(context.declared, role))
                else:
                    await context.delete_if_controlled(PodDisruptionBudget, key)
                for kind in (Deployment, Service, ConfigMap) if desired is None else ():
                    await context.delete_if_controlled(kind, key)
        return declared

    async def _ensure_role(
        self,
        context: ClusterContext,
        pooler: PoolerSettings,
        role: PoolerRole,
        state: ClusterState,
        pending: list[PendingDisruption],
    ) -> Deployment:
        await context.apply(ConfigMap, pooler_configuration(context.declared, pooler, role))
        await context.apply(Service, pooler_service(context.declared, role))
        present = await context.client.get_or_none(Deployment, pooler_key(context.declared, role))
        containers = () if present is None else present.spec.template.spec.containers
        runs = next((c.image or "" for c in containers), "")
        image = pooler_image(context.declared, state, runs)
        desired = pooler_deployment(context.declared, pooler, role, image=image)
        if present is not None and context.declared.waits_for_window and is_unrequested(present, desired):
            name = present.metadata.name
            pending.append(PendingDisruption(instance=name, type="Recreate", reason=NEWER_TEMPLATE))
            return present
        return await context.apply(Deployment, desired)

    async def pods(self, context: ClusterContext) -> Sequence[Pod]:
        """Return the pods of both roles, including terminating ones with clients."""
        desired = [pooler_labels(context.declared, role) for role in _ROLES]
        found = await context.client.list(Pod, namespace=context.declared.key.namespace)
        return [p for p in found if any(labels.items() <= p.metadata.labels.items() for labels in desired)]

    def certificate_holders(self, pods: Sequence[Pod], certificates: CertificateSet) -> Sequence[CertificateHolder]:
        """Return the serving pods as holders of a certificate."""
        return [CertificateHolder(pod, self._reload_of(pod, certificates)) for pod in _ready_pods(pods)]

    def _reload_of(self, pod: Pod, certificates: CertificateSet) -> Callable[[], Awaitable[None]]:
        return lambda: self._send(pod, certificates, "RELOAD")

    async def pause(self, context: ClusterContext, pods: Sequence[Pod], certificates: CertificateSet) -> None:
        """Make new transactions wait, and let running ones end.

        Running ones have a few seconds. The limit of a pause counts from the last call.
        """
        known, ready = self._states.setdefault(context.declared.key, {}), _ready_pods(pods)
        paused = [
            p for p in ready if (reported := known.get(p.metadata.uid)) is None or reported.paused_since is None
        ]
        # Before the command, because a pod pauses even if its response is lost.
        for pod in ready:
            known.setdefault(pod.metadata.uid, _PoolerState(None)).paused_since = self._clock.monotonic()
        await asyncio.gather(*(self._send(pod, certificates, "PAUSE") for pod in paused), return_exceptions=True)

    async def resume(
        self,
        context: ClusterContext,
        pods: Sequence[Pod],
        certificates: CertificateSet,
        *,
        primary: PrimaryIdentity | None,
        switching_over: bool,
    ) -> None:
        """Reconnect pods whose servers changed, and end their pause.

        The pause continues during a switchover, unless that takes too long.
        """
        previous, since = self._states.get(context.declared.key, {}), self._clock.monotonic() - _MAX_PAUSE_SECONDS
        ready = _ready_pods(pods)
        known = {p.metadata.uid: previous.get(p.metadata.uid) or _PoolerState(since) for p in ready}
        self._states[context.declared.key] = known
        paused_before = since if switching_over else float("inf")
        resumed = [
            self._resume_pod(p, certificates, known[p.metadata.uid], _upstreams_of(p, primary), paused_before)
            for p in ready
        ]
        await asyncio.gather(*resumed)

    async def _resume_pod(
        self,
        pod: Pod,
        certificates: CertificateSet,
        reported: _PoolerState,
        serving: PrimaryIdentity | None,
        paused_before: float,
    ) -> None:
        """Resume pods whose pause began before `paused_before`."""
        try:
            now, changed = self._clock.monotonic(), reported.primary != serving
            if serving is not None and (changed or (reported.retry_at is not None and now >= reported.retry_at)):
                await self._send(pod, certificates, "RECONNECT")
                reported.primary, reported.retry_at = (
                    serving,
                    now + _ENDPOINT_PROPAGATION_SECONDS if changed else None,
                )
            if reported.paused_since is not None and reported.paused_since <= paused_before:
                await self._send(pod, certificates, "RESUME")
                reported.paused_since = None
        except EngineError as error:
            # A pod that does not respond is retried with the next reconcile.
            if "not paused" in str(error):
                reported.paused_since = None

    async def _send(self, pod: Pod, certificates: CertificateSet, command: Command) -> None:
        endpoint = ServerEndpoint(pod.status.pod_ip or "", PORT)
        await self._run_command(
            endpoint, certificates.operator_certificate.as_client_certificate, certificates.bundle.encode(), command
        )

    def forget(self, cluster: ObjectKey) -> None:
        """Drop the state of a deleted cluster."""
        self._states.pop(cluster, None)


def _ready_pods(pods: Sequence[Pod]) -> Sequence[Pod]:
    return [pod for pod in pods if is_true(pod.status.conditions, "Ready")]


def permit(builder: Builder[T]) -> Builder[T]:
    """Declare the necessary permissions at the API server."""
    return (
        builder.owns(Deployment)
        .needs(Deployment, "delete")
        .needs(ConfigMap, "create", "patch", "delete")
        .needs(Service, "create", "patch", "delete")
    )
