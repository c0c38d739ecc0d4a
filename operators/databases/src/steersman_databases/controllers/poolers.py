"""Keeps the poolers of a cluster, and has their clients wait while the primary is handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Pod, Service
from steersman.controller import Builder
from steersman.meta import Object, ObjectKey, is_true
from steersman.observability.runtime import Clock
from steersman_databases.api.cluster_parts import Pooler
from steersman_databases.clusters.keyring import Keyring
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.serving import Shower
from steersman_databases.engines.errors import EngineError, ServerUnreachable
from steersman_databases.engines.postgresql.console import Command
from steersman_databases.engines.postgresql.pgbouncer import PORT
from steersman_databases.engines.server import ClientCertificate, Endpoint
from steersman_databases.resources.pooler import (
    PooledRole,
    pooler_configuration,
    pooler_deployment,
    pooler_key,
    pooler_labels,
    pooler_service,
)

T = TypeVar("T", bound=Object)
Console = Callable[[Endpoint, ClientCertificate, bytes, Command], Awaitable[None]]

# A switchover that takes longer than this has failed, and an error is better than silence.
_LONGEST_PAUSE = 20.0


async def no_console(endpoint: Endpoint, login: ClientCertificate, authorities: bytes, command: Command) -> None:
    """For who runs no PgBouncer."""
    raise ServerUnreachable(endpoint, "nobody listens")


class Poolers:
    """The poolers of all clusters. One for a controller.

    Args:
        console: has a PgBouncer do something.
    """

    def __init__(self, clock: Clock, console: Console) -> None:
        self._clock = clock
        self._console = console
        # Since when which pods wait; None for those that are known not to. Forgotten with the process: then all are
        # told to go on, which harms nobody.
        self._paused: dict[ObjectKey, dict[str, float | None]] = {}

    async def ensure(self, charge: Charge, pooler: Pooler | None) -> None:
        """The objects, or none of them."""
        view = charge.view
        roles: Sequence[PooledRole] = () if pooler is None else ("rw", "ro") if pooler.read_only else ("rw",)
        every: tuple[PooledRole, ...] = ("rw", "ro")
        for role in every:
            key = pooler_key(view, role)
            if pooler is not None and role in roles:
                await charge.declare(ConfigMap, pooler_configuration(view, pooler, role))
                await charge.declare(Service, pooler_service(view, role))
                await charge.declare(Deployment, pooler_deployment(view, pooler, role))
            else:
                await charge.remove(Deployment, key)
                await charge.remove(Service, key)
                await charge.remove(ConfigMap, key)

    async def pods(self, charge: Charge) -> Sequence[Pod]:
        """Those that serve, of both roles."""
        every: tuple[PooledRole, ...] = ("rw", "ro")
        wanted = [pooler_labels(charge.view, role) for role in every]
        found = await charge.client.list(Pod, namespace=charge.view.key.namespace)
        return [
            pod
            for pod in found
            if any(labels.items() <= pod.metadata.labels.items() for labels in wanted)
            and pod.metadata.deletion_timestamp is None
            and is_true(pod.status.conditions, "Ready")
        ]

    def showers(self, pods: Sequence[Pod], ring: Keyring) -> Sequence[Shower]:
        """The same, as those who show a certificate."""
        return [Shower(pod, self._reloading(pod, ring)) for pod in pods]

    def _reloading(self, pod: Pod, ring: Keyring) -> Callable[[], Awaitable[None]]:
        return lambda: self._tell(pod, ring, "RELOAD")

    async def hold(self, charge: Charge, pods: Sequence[Pod], ring: Keyring) -> None:
        """New transactions wait, and running ones end first, as far as they do within a few seconds.

        That they may wait too long counts from the last time that this was asked for.
        """
        known = self._paused.setdefault(charge.view.key, {})
        waiting = [pod for pod in pods if known.get(pod.metadata.uid) is None]
        # Before they are asked: one whose answer is lost waits too.
        known.update(dict.fromkeys((pod.metadata.uid for pod in pods), self._clock.monotonic()))
        await asyncio.gather(*(self._tell(pod, ring, "PAUSE") for pod in waiting), return_exceptions=True)

    async def release(self, charge: Charge, pods: Sequence[Pod], ring: Keyring, *, handing_over: bool) -> None:
        """All go on, if nothing is being handed over any more or it takes too long."""
        former, now = self._paused.get(charge.view.key, {}), self._clock.monotonic()
        known: dict[str, float | None] = {}
        for pod in pods:
            uid = pod.metadata.uid
            since = former.get(uid, now - _LONGEST_PAUSE)
            if since is not None and not (handing_over and now - since < _LONGEST_PAUSE):
                since = None if await self._resumed(pod, ring) else since
            known[uid] = since
        self._paused[charge.view.key] = known

    async def _resumed(self, pod: Pod, ring: Keyring) -> bool:
        try:
            await self._tell(pod, ring, "RESUME")
        except EngineError as error:
            return "not paused" in str(error)
        return True

    async def _tell(self, pod: Pod, ring: Keyring, command: Command) -> None:
        endpoint = Endpoint(pod.status.pod_ip or "", PORT)
        await self._console(endpoint, ring.login.as_client, ring.bundle.encode(), command)

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone."""
        self._paused.pop(cluster, None)


def permit(builder: Builder[T]) -> Builder[T]:
    """Declares what `Poolers` does at the API server."""
    return (
        builder.owns(Deployment)
        .permits(Deployment, "create", "patch", "delete")
        .permits(ConfigMap, "create", "patch", "delete")
        .permits(Service, "create", "patch", "delete")
    )
