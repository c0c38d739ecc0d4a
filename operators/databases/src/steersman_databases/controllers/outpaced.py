"""Finds replicas that can never catch up: the primary has not the log any more from which they would go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.clusters.failing import strays
from steersman_databases.clusters.keyring import Keyring
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.engines.cluster import ClusterEngine
from steersman_databases.engines.cluster_names import OPERATOR
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.server import Endpoint, Login, Server

AskLog = Callable[[Server, int], Awaitable[bool]]
"""Asks a primary whether its log from a position on is gone."""

_AGAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of a pod whose log ends at ``position``, and since when. Forgotten with the process."""

    position: int
    at: float
    gone: bool
    words: str


class Outpaced:
    """Of all clusters. One for a controller.

    Args:
        ask: asks a primary.
    """

    def __init__(self, engine: ClusterEngine, clock: Clock, ask: AskLog) -> None:
        self._engine = engine
        self._clock = clock
        self._ask = ask
        self._clusters: dict[ObjectKey, dict[str, _Found]] = {}

    async def look(self, cluster: ObjectKey, observed: Observed, ring: Keyring) -> Observed:
        """The same, with what is known of those that have strayed from a primary that serves for too long."""
        former, found = self._clusters.get(cluster, {}), dict[str, _Found]()
        instances = list(observed.instances)
        for number, instance in enumerate(instances):
            if instance.pod is None or instance.member is None or not strays(instance, observed):
                continue
            position = instance.member.behind
            if position is None:
                words = "it is not known to be behind the primary"
                instances[number] = replace(instance, known=words)
                continue
            known = former.get(instance.pod.metadata.uid)
            if known is None or known.position != position or self._clock.monotonic() - known.at >= _AGAIN_SECONDS:
                known = await self._find(observed.primary, position, ring)
            found[instance.pod.metadata.uid] = known
            instances[number] = replace(instance, outpaced=known.gone, known=known.words)
        self._clusters[cluster] = found
        return replace(observed, instances=instances)

    async def _find(self, primary: Instance | None, position: int, ring: Keyring) -> _Found:
        address = "" if primary is None or primary.pod is None else primary.pod.status.pod_ip or ""
        endpoint, login = Endpoint(address, self._engine.port), Login(OPERATOR, certificate=ring.login.as_client)
        gone = False
        try:
            gone = await self._ask(ring.member(self._engine.name, endpoint, login), position)
            words = "the log that it needs is gone" if gone else "the primary has the log that it needs"
        except EngineError as error:
            words = f"nobody can tell whether the primary has the log that it needs ({error})"
        return _Found(position, self._clock.monotonic(), gone, words)

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone."""
        self._clusters.pop(cluster, None)
