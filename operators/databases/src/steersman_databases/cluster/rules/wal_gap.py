"""Detection of replicas whose WAL the primary no longer has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.cluster.rules.failed_instances import is_not_following
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.naming import OPERATOR_ROLE
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint
from steersman_databases.features.certificates.model import CertificateSet

IsWalMissing = Callable[[DatabaseServer, int], Awaitable[bool]]
"""Query of a primary for the WAL from a position on."""

_RECHECK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _WalCheck:
    """Result for a pod whose WAL ends at `position`, and its time. Dropped with the process."""

    position: int
    checked_at: float
    wal_missing: bool
    reason: str


class WalGapDetector:
    """Detector for all clusters of a controller.

    Args:
        is_wal_missing: query of a primary.
    """

    def __init__(self, engine: ClusterEngine, clock: Clock, is_wal_missing: IsWalMissing) -> None:
        self._engine = engine
        self._clock = clock
        self._is_wal_missing = is_wal_missing
        self._checks: dict[ObjectKey, dict[str, _WalCheck]] = {}

    async def detect(self, cluster: ObjectKey, state: ClusterState, certificates: CertificateSet) -> ClusterState:
        """State with the results for replicas that do not follow.

        They have not followed an available primary for too long.
        """
        previous, found = self._checks.get(cluster, {}), dict[str, _WalCheck]()
        instances = list(state.instances)
        for number, instance in enumerate(instances):
            if instance.pod is None or instance.member is None or not is_not_following(instance, state):
                continue
            position = instance.member.wal_position
            if position is None:
                reason = "its WAL position is unknown"
                instances[number] = replace(instance, not_following_reason=reason)
                continue
            known = previous.get(instance.pod.metadata.uid)
            if (
                known is None
                or known.position != position
                or self._clock.monotonic() - known.checked_at >= _RECHECK_SECONDS
            ):
                known = await self._check(state.primary, position, certificates)
            found[instance.pod.metadata.uid] = known
            instances[number] = replace(instance, wal_missing=known.wal_missing, not_following_reason=known.reason)
        self._checks[cluster] = found
        return replace(state, instances=instances)

    async def _check(self, primary: Instance | None, position: int, certificates: CertificateSet) -> _WalCheck:
        address = "" if primary is None or primary.pod is None else primary.pod.status.pod_ip or ""
        endpoint, login = (
            ServerEndpoint(address, self._engine.port),
            Login(OPERATOR_ROLE, certificate=certificates.operator_certificate.as_client_certificate),
        )
        wal_missing = False
        try:
            wal_missing = await self._is_wal_missing(
                certificates.connection_to(self._engine.name, endpoint, login), position
            )
            reason = f"the primary {'no longer has' if wal_missing else 'has'} the WAL that it needs"
        except EngineError as error:
            reason = f"the primary could not be queried for the WAL that it needs ({error})"
        return _WalCheck(position, self._clock.monotonic(), wal_missing, reason)

    def forget(self, cluster: ObjectKey) -> None:
        """Drop a deleted cluster."""
        self._checks.pop(cluster, None)
