"""Reload of changed certificates by servers and poolers.

Kubelets change the file in a pod, but the servers do not watch it. PostgreSQL uses a reloaded certificate for new
connections and keeps the old ones, so an extra reload is harmless.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from steersman.api.core_v1 import Pod
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.errors import CertificateRefused, EngineError
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.certificates.model import CertificateSet

GetServedFingerprint = Callable[[ServerEndpoint], Awaitable[str | None]]

# Kubelets may take this long to update a Secret. A handshake shows only the server's certificate, and not the
# authorities for clients, which are in another Secret.
_MOUNT_PROPAGATION_SECONDS = 150.0
# A pod that blocks a worker is skipped for this multiple of the time: a minute after the five seconds that a member
# may take.
_MAX_BACKOFF_FACTOR = 12
_RELOAD_WITHOUT_EFFECT = "it reloads its files, but they are not updated in its pod"


@dataclass(slots=True)
class _ReloadState:
    """Last request to a pod.

    A new process needs a few handshakes to restore it.

    Attributes:
        distrusts_ca: the pod refuses the present authorities, or they do not verify it.
        last_error: why it may still serve a previous certificate, after the last attempt.
        stale_because: the same, but only if it was seen to serve one for longer than a kubelet needs.
        retry_at: earliest time of the next request.
    """

    expected: str
    since: float
    done: bool = False
    distrusts_ca: bool = False
    last_error: str = ""
    stale_because: str = ""
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class CertificateHolder:
    """A pod that serves the certificate: a server, or a pooler.

    `reload` raises EngineError.
    """

    pod: Pod
    reload: Callable[[], Awaitable[None]]


class CertificateReloader:
    """Reloads the pods of all clusters. There is one for each controller.

    Args:
        port: port of the pods.
        get_fingerprint: returns the certificate that a server serves.
    """

    def __init__(self, port: int, clock: Clock, get_fingerprint: GetServedFingerprint) -> None:
        self._port = port
        self._clock = clock
        self._get_fingerprint = get_fingerprint
        self._states: dict[ObjectKey, dict[str, _ReloadState]] = {}

    async def reconcile(
        self,
        context: ClusterContext,
        holders: Sequence[CertificateHolder],
        certificates: CertificateSet,
        conditions: ConditionSet,
    ) -> Mapping[str, bool]:
        """Reload pods with an outdated certificate, and report those that keep it.

        Returns:
            UIDs of pods that cannot be reloaded because they and the present authorities do not trust each other.
            The
            value is True if this has lasted longer than a kubelet needs.
        """
        previous = self._states.get(context.declared.key, {})
        desired = hashlib.sha256(
            f"{certificates.served_fingerprint} {certificates.cas.client.bundle}".encode()
        ).hexdigest()
        present: dict[str, _ReloadState] = {}
        asked: list[Awaitable[None]] = []
        for holder in holders:
            uid = holder.pod.metadata.uid
            reload_state = previous.get(uid)
            if reload_state is None or reload_state.expected != desired:
                reload_state = _ReloadState(desired, self._clock.monotonic())
            present[uid] = reload_state
            if not reload_state.done and holder.pod.status.pod_ip:
                asked.append(self._reload_if_stale(context, holder, reload_state, certificates))
        self._states[context.declared.key] = present
        await asyncio.gather(*asked)
        _evaluate({s.pod.metadata.name: present[s.pod.metadata.uid] for s in holders}, conditions)
        now = self._clock.monotonic()
        return {
            uid: now - one.since >= _MOUNT_PROPAGATION_SECONDS for uid, one in present.items() if one.distrusts_ca
        }

    async def _reload_if_stale(
        self,
        context: ClusterContext,
        holder: CertificateHolder,
        reload_state: _ReloadState,
        certificates: CertificateSet,
    ) -> None:
        served = await self._get_fingerprint(ServerEndpoint(holder.pod.status.pod_ip or "", self._port))
        begun = self._clock.monotonic()
        mounted, is_current = (
            begun - reload_state.since >= _MOUNT_PROPAGATION_SECONDS,
            served == certificates.served_fingerprint,
        )
        if served is None:
            return
        reload_state.stale_because = reload_state.last_error if mounted and not is_current else ""
        if (is_current and not mounted) or begun < reload_state.retry_at:
            return
        try:
            await holder.reload()
        except EngineError as error:
            # Retried with a later reconcile.
            reload_state.distrusts_ca = isinstance(error, CertificateRefused)
            reload_state.last_error = "" if reload_state.distrusts_ca else str(error)
            now = self._clock.monotonic()
            reload_state.retry_at = now + _MAX_BACKOFF_FACTOR * (now - begun)
            return
        reload_state.done, reload_state.distrusts_ca = is_current, False
        reload_state.last_error = _RELOAD_WITHOUT_EFFECT if mounted else ""
        if not is_current:
            note = f"reloaded the certificates of {holder.pod.metadata.name}"
            context.events.normal(context.cluster, "CertificateReloaded", note)

    def forget(self, cluster: ObjectKey) -> None:
        """Drop the state of a deleted cluster."""
        self._states.pop(cluster, None)


def _evaluate(states: Mapping[str, _ReloadState], conditions: ConditionSet) -> None:
    """Report pods whose certificate will expire without an action."""
    previous = {name: one.stale_because for name, one in states.items() if one.stale_because}
    known = conditions.updates.get("CertificatesValid")
    if previous and (known is None or known.holds):
        reported = [f"{name} serves a previous certificate: {message}" for name, message in sorted(previous.items())]
        conditions.set("CertificatesValid", False, "StaleCertificate", "; ".join(reported))
