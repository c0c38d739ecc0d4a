"""Has each primary have the cluster's own accounts, and the administrator's password as its Secret says it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Cluster, DatabaseUser
from steersman_databases.clusters.claims import places
from steersman_databases.clusters.desires import claim_of
from steersman_databases.clusters.observed import Observed
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.keys import Keys
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.engines.cluster import ClusterEngine
from steersman_databases.engines.cluster_names import SUPERUSER
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.holder import Holder
from steersman_databases.engines.plan import Change
from steersman_databases.engines.server import Credentials, Endpoint, Login, Server

Furnish = Callable[[Server, Credentials, Holder], Awaitable[tuple[Change, ...]]]
SecondUsername = Callable[[str], str]

# It takes a superuser's login, so what somebody changed on the server by hand is looked for rarely.
_AGAIN_SECONDS = 300.0
_AFTER_FAILURE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Done:
    """Which primary was last furnished with which password, and when. Forgotten with the process: one login each."""

    about: tuple[str, int | None, Credentials]
    at: float


class Accounts:
    """Of all clusters. One for a controller.

    Args:
        engine: whose servers they are.
        furnish: does it, with a superuser's login.
        mark: tells this Kubernetes cluster from others.
        second_username: whom the engine has for a user's second password.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        clock: Clock,
        furnish: Furnish,
        mark: ClusterMark,
        second_username: SecondUsername,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._furnish = furnish
        self._mark = mark
        self._second_username = second_username
        self._clusters: dict[ObjectKey, _Done] = {}

    async def ensure(self, charge: Charge, cluster: Cluster, observed: Observed, keys: Keys) -> None:
        """Looks at the primary where it is another than before, or the password is, or from time to time."""
        primary = observed.primary
        if primary is None or primary.pod is None or not primary.pod_ready or not primary.pod.status.pod_ip:
            return
        timeline = None if primary.member is None else primary.member.timeline
        about = primary.pod.metadata.uid, timeline, keys.administrator
        former, now = self._clusters.get(charge.view.key), self._clock.monotonic()
        if former is not None and former.about == about and now - former.at < _AGAIN_SECONDS:
            return
        server, holder = self._server(primary.pod.status.pod_ip, keys), await self._holder(charge, cluster)
        try:
            changes = await self._furnish(server, keys.administrator, holder)
        except EngineError as error:
            self._clusters[charge.view.key] = _Done(about, now - _AGAIN_SECONDS + _AFTER_FAILURE_SECONDS)
            charge.events.warning(charge.cluster, "AccountsNotUpdated", str(error))
            return
        self._clusters[charge.view.key] = _Done(about, now)
        for change in changes:
            charge.events.normal(charge.cluster, change.reason, change.message)

    async def _holder(self, charge: Charge, cluster: Cluster) -> Holder:
        """The cluster, with the users that are declared on it; those on a ``serverRef`` may be on it, too."""
        (here,), mark = places(cluster), await self._mark.read()
        users = {
            claim_of(user, mark).text: {user.spec.user, self._second_username(user.spec.user)}
            for user in await charge.client.list(DatabaseUser)
            if user.spec.server_ref is not None or here in places(user)
        }
        return Holder(f"{claim_of(cluster, mark).text} {cluster.metadata.uid}", mark, users)

    def _server(self, address: str, keys: Keys) -> Server:
        login = Login(SUPERUSER, certificate=keys.ring.superuser(self._clock.now()).as_client)
        return keys.ring.member(self._engine.name, Endpoint(address, self._engine.port), login)

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone."""
        self._clusters.pop(cluster, None)
