"""Keeps the poolers of a cluster, and has their clients wait while the primary is handed over."""

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
from steersman_databases.api.cluster_parts import MemberRole, Pooler
from steersman_databases.clusters.keyring import Keyring
from steersman_databases.clusters.observed import Observed
from steersman_databases.clusters.rollout import pooler_image
from steersman_databases.clusters.steps import RestartServer, Step, SwitchOver, Wait
from steersman_databases.controllers.cluster_status import Unmade
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.controllers.serving import Shower
from steersman_databases.engines.errors import EngineError, ServerUnreachable
from steersman_databases.engines.postgresql.console import Command
from steersman_databases.engines.postgresql.pgbouncer import PORT
from steersman_databases.engines.server import ClientCertificate, Endpoint
from steersman_databases.resources.pooler import (
    POOLER_LABEL,
    PooledRole,
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
Console = Callable[[Endpoint, ClientCertificate, bytes, Command], Awaitable[None]]

# A switchover that takes longer than this has failed, and an error is better than silence.
_LONGEST_PAUSE = 20.0
# Seconds after which every node leads to who serves now; until then a connection may go to a former primary.
_ROUTED = 10.0
_ROLES: Sequence[PooledRole] = ("rw", "ro")
_LEADS_TO: Mapping[str, MemberRole] = {"rw": "Primary", "ro": "Replica"}

Serving = tuple[str, frozenset[tuple[str, str]]]
"""Who leads since when, and each server's role by its pod's UID."""


def _of_pooler(pod: Pod, serving: Serving | None) -> Serving | None:
    """What of that is about a pooler's servers: it keeps its connections when others go and come."""
    if serving is None:
        return None
    leadership, roles = serving
    its = _LEADS_TO[pod.metadata.labels[POOLER_LABEL]]
    return leadership, frozenset(each for each in roles if each[1] == its)


def serving_in(observed: Observed) -> Serving | None:
    """Who serves as what; None where nobody leads, and nobody has anywhere else to go."""
    primary = observed.primary
    if primary is None:
        return None
    roles = ((i.pod.metadata.uid, i.member.role) for i in observed.instances if i.pod and i.member and i.pod_ready)
    return observed.members.leadership, frozenset(roles)


def is_away_after(step: Step | Wait | None, observed: Observed) -> bool:
    """Whether nobody takes connections for a moment after it, and somebody soon does."""
    restarts = isinstance(step, RestartServer) and step.instance == observed.members.leader
    return restarts or isinstance(step, SwitchOver)


def is_starting(observed: Observed) -> bool:
    """Whether who leads restarts where it is."""
    members = observed.members
    leader = None if members.leader is None else members.member(members.leader)
    return leader is not None and leader.state == "Starting"


async def no_console(endpoint: Endpoint, login: ClientCertificate, authorities: bytes, command: Command) -> None:
    """For who runs no PgBouncer."""
    raise ServerUnreachable(endpoint, "nobody listens")


@dataclass(slots=True)
class _Told:
    """What a pod was last told. Forgotten with the process: then all are told to go on and to connect anew, which
    harms nobody.

    ``paused``: since when it waits, None where it is known not to. ``serving``: who served when it last let go of its
    connections. ``again``: when it is to do so once more.
    """

    paused: float | None
    serving: Serving | None = None
    again: float | None = None


class Poolers:
    """The poolers of all clusters. One for a controller.

    Args:
        console: has a PgBouncer do something.
    """

    def __init__(self, clock: Clock, console: Console) -> None:
        self._clock = clock
        self._console = console
        self._told: dict[ObjectKey, dict[str, _Told]] = {}

    async def ensure(
        self, charge: Charge, pooler: Pooler | None, observed: Observed, *, network: bool
    ) -> Mapping[ObjectKey, Deployment | Unmade]:
        """The objects, or none of them. Gives the Deployments that are declared, or why there is none.

        Args:
            network: whether a NetworkPolicy lets clients in.
        """
        with charge.aside:
            if pooler is not None and network:
                await charge.declare(NetworkPolicy, pooler_policy(charge.view))
            else:
                await charge.remove(NetworkPolicy, pooler_policy_key(charge.view))
        declared = dict[ObjectKey, Deployment | Unmade]()
        for role in _ROLES:
            key = pooler_key(charge.view, role)
            wanted = pooler if pooler is not None and (role == "rw" or pooler.read_only) else None
            if wanted is not None:
                try:
                    declared[key] = await self._declare(charge, wanted, role, observed)
                except (ApiError, Blocked) as error:
                    if not charge.aside.takes(error):
                        raise
                    waits = isinstance(error, Blocked) and error.outcome.phase == "Pending"
                    declared[key] = Unmade("PoolerNotReady" if waits else "PoolersRefused", str(error))
            with charge.aside:
                if wanted is not None and wanted.replicas > 1:
                    await charge.declare(PodDisruptionBudget, pooler_budget(charge.view, role))
                else:
                    await charge.remove(PodDisruptionBudget, key)
                for kind in (Deployment, Service, ConfigMap) if wanted is None else ():
                    await charge.remove(kind, key)
        return declared

    async def _declare(self, charge: Charge, pooler: Pooler, role: PooledRole, observed: Observed) -> Deployment:
        await charge.declare(ConfigMap, pooler_configuration(charge.view, pooler, role))
        await charge.declare(Service, pooler_service(charge.view, role))
        return await self._deployment(charge, pooler, role, observed)

    async def _deployment(self, charge: Charge, pooler: Pooler, role: PooledRole, observed: Observed) -> Deployment:
        present = await charge.client.get_or_none(Deployment, pooler_key(charge.view, role))
        containers = () if present is None else present.spec.template.spec.containers
        runs = next((c.image or "" for c in containers), "")
        image = pooler_image(charge.view, observed, runs)
        return await charge.declare(Deployment, pooler_deployment(charge.view, pooler, role, image=image))

    async def pods(self, charge: Charge) -> Sequence[Pod]:
        """All of both roles, those that end too: they have clients yet."""
        wanted = [pooler_labels(charge.view, role) for role in _ROLES]
        found = await charge.client.list(Pod, namespace=charge.view.key.namespace)
        return [p for p in found if any(labels.items() <= p.metadata.labels.items() for labels in wanted)]

    def showers(self, pods: Sequence[Pod], ring: Keyring) -> Sequence[Shower]:
        """Those of them that serve, as those who show a certificate."""
        return [Shower(pod, self._reloading(pod, ring)) for pod in _serve(pods)]

    def _reloading(self, pod: Pod, ring: Keyring) -> Callable[[], Awaitable[None]]:
        return lambda: self._tell(pod, ring, "RELOAD")

    async def hold(self, charge: Charge, pods: Sequence[Pod], ring: Keyring) -> None:
        """New transactions wait, and running ones end first, as far as they do within a few seconds.

        That they may wait too long counts from the last time that this was asked for.
        """
        known, serve = self._told.setdefault(charge.view.key, {}), _serve(pods)
        waiting = [p for p in serve if (told := known.get(p.metadata.uid)) is None or told.paused is None]
        # Before they are asked: one whose answer is lost waits too.
        for pod in serve:
            known.setdefault(pod.metadata.uid, _Told(None)).paused = self._clock.monotonic()
        await asyncio.gather(*(self._tell(pod, ring, "PAUSE") for pod in waiting), return_exceptions=True)

    async def release(
        self, charge: Charge, pods: Sequence[Pod], ring: Keyring, *, serving: Serving | None, handing_over: bool
    ) -> None:
        """All let go of connections that were made while others served; then they go on, if nothing is being handed
        over any more or it takes too long."""
        former, since = self._told.get(charge.view.key, {}), self._clock.monotonic() - _LONGEST_PAUSE
        serve = _serve(pods)
        known = {p.metadata.uid: former.get(p.metadata.uid) or _Told(since) for p in serve}
        self._told[charge.view.key] = known
        waits_since = since if handing_over else float("inf")
        going_on = [self._go_on(p, ring, known[p.metadata.uid], _of_pooler(p, serving), waits_since) for p in serve]
        await asyncio.gather(*going_on)

    async def _go_on(self, pod: Pod, ring: Keyring, told: _Told, serving: Serving | None, waits_since: float) -> None:
        """``waits_since``: only those go on that have waited since before."""
        try:
            now, changed = self._clock.monotonic(), told.serving != serving
            if serving is not None and (changed or (told.again is not None and now >= told.again)):
                await self._tell(pod, ring, "RECONNECT")
                told.serving, told.again = serving, now + _ROUTED if changed else None
            if told.paused is not None and told.paused <= waits_since:
                await self._tell(pod, ring, "RESUME")
                told.paused = None
        except EngineError as error:
            # Who does not answer is asked again with the next reconcile.
            if "not paused" in str(error):
                told.paused = None

    async def _tell(self, pod: Pod, ring: Keyring, command: Command) -> None:
        endpoint = Endpoint(pod.status.pod_ip or "", PORT)
        await self._console(endpoint, ring.login.as_client, ring.bundle.encode(), command)

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone."""
        self._told.pop(cluster, None)


def _serve(pods: Sequence[Pod]) -> Sequence[Pod]:
    return [pod for pod in pods if is_true(pod.status.conditions, "Ready")]


def permit(builder: Builder[T]) -> Builder[T]:
    """Declares what `Poolers` does at the API server."""
    return (
        builder.owns(Deployment)
        .needs(Deployment, "delete")
        .needs(ConfigMap, "create", "patch", "delete")
        .needs(Service, "create", "patch", "delete")
    )
